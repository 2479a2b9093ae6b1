"""Draws from any target with any sampler in one call: `latticework.sample`."""

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import gcd
from numbers import Integral
from typing import Any, Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn

from latticework.models.base import EnergyModel
from latticework.models.domains import Domain
from latticework.samplers import NAMES
from latticework.samplers.base import Sampler, require_count
from latticework.samplers.fused import Fused
from latticework.samplers.ladder import LadderState
from latticework.samplers.sums import MultiStepSampler, SumRequest
from latticework.samplers.tempered import Tempered
from latticework.sampling.adaptation import (
    OPTIMAL,
    AcceptanceControl,
    Adaptation,
    CycleControl,
    by_level,
    run_adaptation,
)
from latticework.sampling.chain import Chain
from latticework.sampling.devices import find_device, free_memory, on_threads, synchronise
from latticework.sampling.diagnostics import AT_ONCE
from latticework.sampling.engine import Engine, engine_for_adaptation, select_kernel
from latticework.sampling.evaluations import EvaluationCounter, evaluations_of_step
from latticework.sampling.ladder_estimates import Ladders, levels_of
from latticework.sampling.metrics import Metric, Reference, Steps
from latticework.sampling.naming import parse_sampler
from latticework.sampling.result import SampleResult, site_names
from latticework.sampling.starts import anneal_starts, draw_possible, require_start
from latticework.sampling.targets import as_model, check_target

# The rules of conf/adapt, by the names of their files.
RULES: dict[str, type[Adaptation]] = {"acceptance": AcceptanceControl, "cycle": CycleControl}


class ConvergenceWarning(UserWarning):
    """Draws that have not converged, or that cannot show whether they have."""


class ChainSums(NamedTuple):
    total: Tensor  # [chains], float64: in single precision a step would add less and less
    invalid: Tensor  # [chains], int64, steps that met a log-probability of NaN or +inf


@dataclass(frozen=True)
class ChainAcceptance(Metric):
    """Sums over the steps of each chain since the start."""

    wanted = SumRequest(invalid=True)

    def init(self, model: EnergyModel, state: Any, reference: Reference) -> ChainSums:
        zeros = torch.zeros(len(state.x), dtype=torch.long, device=state.x.device)
        return ChainSums(zeros.double(), zeros)

    def update(self, carry: ChainSums, state: Any, sums: Steps, steps: int) -> ChainSums:
        return ChainSums(carry.total.add_(sums.accept), carry.invalid.add_(sums.invalid))

    def read(self, carry: ChainSums) -> dict[str, Tensor]:
        return {}


METRICS = [ChainAcceptance()]
EVALUATED_ENTRIES = 2**16  # of the draws whose log-probabilities are evaluated together
USEFUL = 100  # draws of a chain, of which a thinning that is advised leaves no fewer
DIAGNOSED = 80  # bytes that diagnostics take for each number that they read at once


def sample(
    target: EnergyModel | nn.Module | Callable[[Tensor], Tensor],
    sampler: Sampler | str,
    *,
    domain: Domain | None = None,
    sites: int | None = None,
    values: int | Sequence[float] | None = None,
    names: Iterable[str] | None = None,
    x: Tensor | None = None,
    start: Literal["uniform", "annealed"] = "uniform",
    chains: int | None = None,
    steps: int = 1000,
    burn_in: int = 0,
    adapt: Adaptation | float | str | None = None,
    thin: int = 1,
    seed: int = 0,
    device: torch.device | str = "cpu",
    engine: Engine = "eager",
    threads: int = 1,
    temper: bool = False,
    diagnose: bool = True,
) -> SampleResult:
    """Sample `target` with `sampler`; the same arguments give the same draws.

    Args:
        target: the unnormalised log-probability: a function or an `nn.Module` that maps states
            `[chains, *domain.shape]` to `[chains]`, or an `EnergyModel`, which has a domain.
        sampler: a sampler, or its name in `samplers.NAMES`, with its defaults or other values:
            `"gwg(flips=2)"`.
        domain: the states of a function or module, such as `Binary(20)`.
        sites: in place of `domain`, the number of sites; {0, 1} states without `values`.
        values: of a site: two numbers, `range(k)` (ordinal), or the number k of categories.
        names: of the sites, one each, for `summary` and ArviZ; else those of the model.
        x: where the chains start, `[chains, *domain.shape]`.
        start: where they start without `x`: at uniformly random states of positive probability, or
            where `"annealed"` chains end, which the sampler leads from such states through
            targets that approach this one (`sampling.starts.annealed`).
        chains: the number of chains, 4 unless `x` or the target's known values say it.
        steps: steps of each chain after the burn-in, a multiple of `thin`.
        burn_in: steps before the first draw, which are left out.
        adapt: chooses fields of the sampler before the burn-in and then freezes them: the
            acceptance to aim at, `"locally_balanced"` (0.574), `"random_walk"` (0.234),
            `"acceptance"` (that of the sampler's kind), `"cycle"` (for ACS), or an `Adaptation`.
        thin: steps from one draw to the next; there are `steps / thin` draws.
        seed: seeds the starts and all moves.
        device: cpu, cuda, cuda:1 ...; auto takes a GPU if there is one.
        engine: eager; compiled, which needs a kernel for this sampler and target; fused, which
            compiles any sampler with any target in some seconds; or auto, which takes a kernel if
            there is one, else compiles if there are many steps (`sampling.engine`). The draws of
            the engines differ.
        threads: of the processor that PyTorch and compiled kernels may use. More than one pays
            for large networks and for compiled kernels on large targets.
        temper: whether replicas at higher temperatures exchange states with the chains, which
            leave their modes then (`samplers.tempered.Tempered` around the sampler). The result
            has `log_z`. `adapt` chooses a step size for each temperature, and other fields of
            the sampler on the target itself.
        diagnose: whether to give these warnings. Without it, the verdict is computed when it is
            first asked for.

    Warns:
        ConvergenceWarning: if there are enough draws to judge and the chains have not converged
            (`SampleResult.converged`), if the rows of `x` agree in most sites, so that R-hat
            cannot show other modes (the `caveat` of the result, which no verdict then calls
            converged), if steps met a log-probability of NaN or +inf, or if draws have probability
            zero.
        EngineWarning: if `engine="auto"` would compile the steps and finds no compiler.

    Raises:
        ValueError: if the domain is missing; if `x` is not a valid start; if `sites`, `values`,
            `names`, a count, `seed` or `device` is invalid; if the target does not give one finite
            number a chain; if the draws do not fit into free memory, before the first step; or if
            `adapt` does not support the sampler. The message says what was
            expected and what was given.
            NotCompiledError is one too: there is no kernel for engine="compiled", or the target
            cannot be compiled for engine="fused".
        UnsupportedModelError: if the sampler does not support the domain or model.
    """
    sampler, rule = sampler_of(sampler), None if adapt is None else rule_of(adapt)
    model = as_model(target, domain=domain, sites=sites, values=values)
    if names is None and model.names is not None:
        names = [str(name) for name in model.names]
    named = None if names is None else site_names(names, model.domain)
    _require_steps(steps, burn_in, thin)
    require_count(threads=threads)
    require_start(start, x)
    asked = Tempered(sampler, learn_base=True) if temper else sampler
    if rule is not None and (own := by_level(rule, asked)):
        asked, rule = own, None
    if x is not None and not (burn_in or asked.stationary_start):
        _warn(
            f"{type(asked).__name__} leaves the target's law for a while even if x was drawn "
            "from it, because the rest of its state starts elsewhere; give a burn_in"
        )
    place, rng = _generator(device, seed)
    model = model.to(place)
    count = EvaluationCounter(model, _chains(model, x, chains))
    with on_threads(threads):
        given = x is not None
        if x is None:
            x = draw_possible(count.model, count.chains, rng)
        elif isinstance(x, Tensor):  # anything else is refused by the checks of the start
            x = x.to(place)
        precision = torch.promote_types(check_target(count.model, x).dtype, torch.float32)
        _require_memory(x, precision, steps, thin, diagnose)
        caveat = _equal_starts(x) if given else ""
        if diagnose and caveat:
            _warn(caveat)

        kernels = _Kernels(model, count, x, steps + burn_in)
        if rule is None:
            sampler = asked
        kernels.serve(sampler, engine if rule is None else engine_for_adaptation(engine))
        synchronise(place)
        began, found = time.perf_counter() - kernels.learning, None
        compiled = kernels.seconds
        if start == "annealed":
            x = anneal_starts(count.model, sampler, x, rng)
        if rule is not None:
            before = count.evaluations
            found = run_adaptation(rule, sampler, kernels.target, x, rng, engine)
            kernels.charge(before, rule.blocks(sampler) * rule.steps)
            sampler, x = found.sampler, found.x
            if temper:
                sampler = Tempered(sampler, learn_base=True)
            kernels.serve(sampler, engine)
        drawn, invalid = _draw(kernels, x, precision, rng, burn_in, steps, thin)
        seconds = time.perf_counter() - began - (kernels.seconds - compiled)
    result = SampleResult(
        **drawn,
        evaluations=count.evaluations,
        seconds=seconds,
        compile_seconds=kernels.seconds,
        sampler=sampler,
        domain=model.domain,
        seed=seed,
        adapted=found,
        names=named,
        caveat=caveat,
        labels=_labels(model),
    )
    if diagnose and (told := _invalid(result, invalid, steps * len(x))):
        _warn(told)
    if diagnose and result.verdict.judged and not result.converged:
        _warn(result.verdict.text)
    return result


class _Kernels:
    """The kernel that an engine runs a sampler by, and the evaluations that its steps cost."""

    def __init__(self, model: EnergyModel, count: EvaluationCounter, x: Tensor, steps: int) -> None:
        self._model, self.count, self._x, self._steps = model, count, x, steps
        self.seconds = 0.0  # spent on compilation
        self.learning = 0.0  # and on what samplers learn beforehand

    def serve(self, sampler: Sampler, engine: str) -> None:
        """Set `kernel`, and the `target` that it moves on: one that counts, if it is called.

        The sampler has learned what it learns beforehand.
        """
        if sampler.learning_steps:
            sampler = self._learn(sampler, engine_for_adaptation(engine))
        model, x, began = self._model, self._x, time.perf_counter()
        self.kernel, _ = select_kernel(sampler, model, engine, METRICS, x, self._steps)
        if isinstance(self.kernel, MultiStepSampler):
            self.kernel.advance(self.kernel.at(x, model), model, Generator().manual_seed(0), 1)
            self.seconds += time.perf_counter() - began
        self.target, self._price = self.count.model, float(self.count.chains)
        if isinstance(self.kernel, MultiStepSampler) or x.device.type != "cpu":
            # Compiled code and a CUDA graph call no method that could be counted.
            rng = Generator(x.device).manual_seed(0)
            self.target, self._price = model, evaluations_of_step(sampler, model, x, rng)

    @torch.no_grad()
    def _learn(self, sampler: Sampler, engine: str) -> Sampler:
        """The sampler with the fields that it learns, by numba kernels if there are some."""
        model, x, began = self._model, self._x, time.perf_counter()
        kernel: Any = select_kernel(sampler, model, engine, METRICS, x)[0]
        compiled = isinstance(kernel, MultiStepSampler)
        if compiled:
            brief = replace(kernel, rounds=1)
            brief.advance(brief.at(x, model), model, Generator().manual_seed(0), 1)
            self.seconds += time.perf_counter() - began
        began = time.perf_counter()
        fields: dict[str, Any] = kernel.learn_fields(x, model if compiled else self.count.model)
        self.learning += time.perf_counter() - began
        ready = replace(sampler, **fields)  # type: ignore[type-var]
        if compiled:
            each = evaluations_of_step(ready, model, x, Generator().manual_seed(0))
            self.count.evaluations += each * sampler.learning_steps / self.count.chains
        return ready

    def charge(self, before: float, steps: int) -> None:
        """Add what `steps` steps cost if none of their calls was counted since `before`."""
        if self.count.evaluations == before:
            self.count.evaluations += steps * self._price


def _draw(
    kernels: _Kernels,
    x: Tensor,
    precision: torch.dtype,
    rng: Generator,
    burn_in: int,
    steps: int,
    thin: int,
) -> tuple[dict[str, Any], int]:
    """What `SampleResult` has of the draws: every `thin` steps one, after the burn-in.

    Also how many of all chains' steps met a log-probability of NaN or +inf.
    """
    kernel, count, every = kernels.kernel, kernels.count, gcd(burn_in, thin)
    if isinstance(kernel, Fused) and not isinstance(kernel.sampler, Tempered):
        return _draw_fused(kernels, x, precision, rng, burn_in, steps, thin)
    chain = Chain(kernel, kernels.target, x, rng, every=every, metrics=METRICS)

    def advance(steps: int) -> None:
        for _ in range(steps // every):
            before = count.evaluations
            chain.advance()
            kernels.charge(before, every)

    advance(burn_in)
    before_draws, began = [part.clone() for part in chain.carries[0]], chain.sampler_state
    tempered = isinstance(began, LadderState)
    trips, levels = began.trips.clone() if tempered else torch.zeros(0), []
    draws = torch.empty(len(x), steps // thin, *x.shape[1:], dtype=x.dtype)
    log_prob = torch.empty(len(x), steps // thin, dtype=precision)
    later = _is_function_of_x(kernel, chain.state, x)
    for number in range(steps // thin):
        advance(thin)
        draws[:, number] = chain.state.x
        if not later:
            with torch.no_grad():
                log_prob[:, number] = kernel.log_prob(chain.state, count.model)
        if tempered:
            levels.append(levels_of(chain.sampler_state))
    if later:
        _evaluate_draws(count.model, draws, log_prob)
    ladders = None
    if tempered:
        state = chain.sampler_state
        used: Any = kernel.sampler if isinstance(kernel, Fused) else kernel
        ladders = Ladders.from_draws(state, levels, state.trips - trips, steps, used.log_odds)
    accept, invalid = (
        (now - before).cpu() for now, before in zip(chain.carries[0], before_draws, strict=True)
    )
    return {
        "draws": draws,
        "log_prob": log_prob,
        "acceptance": (accept / steps).float(),
        "ladders": ladders,
    }, int(invalid.sum())


def _is_function_of_x(kernel: Sampler, state: Any, x: Tensor) -> bool:
    """Whether the log-probability of a draw needs an evaluation, which can be made later."""
    held = type(kernel).log_prob is not Sampler.log_prob or hasattr(state, "log_prob")
    return not held and x.device.type == "cpu"


@torch.no_grad()
def _evaluate_draws(model: EnergyModel, draws: Tensor, log_prob: Tensor) -> None:
    """Write the log-probabilities of `draws` `[chains, draws, ...]` to `log_prob`.

    Many draws are evaluated together: of a small model, a call costs more than its sums.
    """
    together = max(1, EVALUATED_ENTRIES // draws[:, 0].numel())
    if model.chains is not None:  # each chain has a target of its own
        together = 1
    parts = zip(draws.split(together, 1), log_prob.split(together, 1), strict=True)
    for states, values in parts:
        values.copy_(model.log_prob(states.flatten(0, 1)).view_as(values))


def _draw_fused(
    kernels: _Kernels,
    x: Tensor,
    precision: torch.dtype,
    rng: Generator,
    burn_in: int,
    steps: int,
    thin: int,
) -> tuple[dict[str, Any], int]:
    """`_draw` by a fused kernel, whose calls make many draws."""
    kernel: Any = kernels.kernel
    count = kernels.count
    with torch.no_grad():
        state, before = kernel.init(x, kernels.target), count.evaluations
        state, _ = kernel.advance(state, kernels.target, rng, burn_in)
        kernels.charge(before, burn_in + steps)
        found = kernel.draw(state, kernels.target, rng, steps, thin, count.model)
    return {
        "draws": found.x.transpose(0, 1).contiguous(),
        "log_prob": found.log_prob.to(precision).T.contiguous(),
        "acceptance": (found.accept / steps).float(),
        "ladders": None,
    }, found.invalid


def _warn(text: str) -> None:
    """Warn the caller of `sample`."""
    warnings.warn(text, ConvergenceWarning, stacklevel=3)


def _invalid(result: SampleResult, invalid: int, steps: int) -> str:
    """What to say of impossible draws, or else of `invalid` steps into NaN or +inf; else ""."""
    impossible = int((result.log_prob == -torch.inf).sum())
    if impossible and not (result.log_prob.isnan() | (result.log_prob == torch.inf)).any():
        return (
            f"{impossible} of {result.log_prob.numel()} draws are states of probability zero, "
            f"which {result.sampler} enters because it rejects nothing; choose a sampler that "
            "does, such as gibbs, gwg or dmala"
        )
    if not invalid:
        return ""
    return (
        f"{invalid} of {steps} steps met a log-probability of NaN or +inf, or such a gradient, and "
        "did not move there, so such states are never drawn; mend the target, or give -inf where "
        "states are impossible"
    )


def _labels(model: EnergyModel) -> tuple[tuple[str, ...], ...] | None:
    """The labels of the values of each site as words, where the model has some."""
    if model.labels is None:
        return None
    return tuple(tuple(map(str, values)) for values in model.labels)


def _equal_starts(x: Tensor) -> str:
    """What to say of starts of which two agree in most sites, on average over pairs; else ""."""
    chains, sites = x.shape[:2]
    if chains == 1:
        return ""
    codes = x.argmax(-1) if x.ndim > 2 else x
    values = codes.sort(0).values
    place = torch.arange(chains, device=x.device).unsqueeze(1)
    begins = torch.cat((torch.ones_like(values[:1], dtype=torch.bool), values[1:] != values[:-1]))
    first = torch.where(begins, place, 0).cummax(0).values  # of the chains with the same value
    alike = float((place - first).sum()) / (chains * (chains - 1) / 2)
    if 4 * alike < 3 * sites:
        return ""
    return (
        f"the starts agree in {alike:.3g} of {sites} sites, so R-hat cannot show modes that "
        'no chain has seen; leave x out, or take start="annealed"'
    )


def _require_memory(
    x: Tensor, precision: torch.dtype, steps: int, thin: int, diagnose: bool
) -> None:
    """Raise ValueError if the draws, and their diagnostics, do not fit into free memory."""
    free, chains = free_memory(), len(x)
    if free is None:
        return

    def needed(thin: int) -> tuple[int, int]:
        """Bytes of the draws, and of their diagnostics."""
        count = steps // thin * chains
        draws = count * (x[0].numel() * x.element_size() + precision.itemsize)
        return draws, DIAGNOSED * max(AT_ONCE, count) if diagnose and draws > AT_ONCE else 0

    draws, diagnostics = needed(thin)
    if draws + diagnostics <= free:
        return
    told = f"draws take {_gigabytes(draws)}"
    if diagnostics:
        told += f", their diagnostics {_gigabytes(diagnostics)}"
    fits = [
        more
        for more in range(2 * thin, steps // USEFUL + 1, thin)
        if steps % more == 0 and sum(needed(more)) <= free / 2
    ]
    advice = "take fewer chains or steps"
    if fits:
        advice = f"thin={fits[0]} needs {_gigabytes(sum(needed(fits[0])))}"
    raise ValueError(f"{told}; {_gigabytes(free)} free: {advice}")


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2g} GB" if size < 1e10 else f"{size / 1e9:,.0f} GB"


def _require_steps(steps: int, burn_in: int, thin: int) -> None:
    """Raise ValueError for a count that is not valid."""
    require_count(steps=steps, thin=thin)
    if not (isinstance(burn_in, Integral) and burn_in >= 0) or isinstance(burn_in, bool):
        raise ValueError(f"burn_in must be a whole number of steps, got {burn_in!r}")
    if steps % thin:
        raise ValueError(f"steps must be a multiple of thin, got {steps} and {thin}")


def sampler_of(sampler: Sampler | str) -> Sampler:
    """The sampler itself, or that of its name. Raises TypeError for a class."""
    if isinstance(sampler, str):
        return parse_sampler(sampler)
    if not isinstance(sampler, Sampler):
        made = f"; write {sampler.__name__}(...)" if isinstance(sampler, type) else ""
        raise TypeError(
            f"the sampler must be a Sampler or one of {', '.join(NAMES)}, got {sampler!r}{made}"
        )
    return sampler


def rule_of(adapt: Adaptation | float | str) -> Adaptation:
    """The rule that the argument `adapt` names. Raises ValueError for anything else."""
    if isinstance(adapt, Adaptation):
        return adapt
    if isinstance(adapt, str) and adapt in RULES:
        return RULES[adapt]()
    if isinstance(adapt, str) and adapt not in OPTIMAL:
        raise ValueError(
            f"adapt must be a number, an Adaptation or one of {', '.join([*RULES, *OPTIMAL])}, "
            f"got {adapt!r}"
        )
    return AcceptanceControl(adapt)


def _generator(device: torch.device | str, seed: int) -> tuple[torch.device, Generator]:
    """The device and a seeded generator on it. Raises ValueError if either is invalid."""
    whole = isinstance(seed, Integral) and not isinstance(seed, bool)
    if not (whole and -(2**63) <= seed < 2**64):
        raise ValueError(f"seed must be an integer of at most 64 bits, such as 0, got {seed!r}")
    try:
        place = find_device(str(device))
        return place, Generator(place).manual_seed(int(seed))
    except RuntimeError as error:  # of PyTorch, which names devices that it was built without
        raise ValueError(f"device must be cpu, cuda, cuda:1 ... or auto, got {device!r}") from error


def _chains(model: EnergyModel, x: Tensor | None, chains: int | None) -> int:
    """The number of chains. Raises ValueError for an invalid one, or one that `x` contradicts."""
    if isinstance(x, Tensor) and x.shape[1:] == model.domain.shape:
        if chains not in (None, len(x)):
            raise ValueError(f"x has {len(x)} chains and chains is {chains}; leave chains out")
        return len(x)
    chains = (model.chains or 4) if chains is None else chains
    require_count(chains=chains)
    return int(chains)
