"""Draws from any target with any sampler in one call: `latticework.sample`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from latticework.experiments.config.loading import sampler_named
from latticework.experiments.config.options import names
from latticework.experiments.measures.diagnostics import quantities
from latticework.experiments.measures.metrics import Metric
from latticework.experiments.measures.reference import Reference
from latticework.experiments.running.machine import find_device
from latticework.experiments.sampling.adaptation import (
    AcceptanceControl,
    Adaptation,
    Adapted,
    adapted,
)
from latticework.experiments.sampling.chain import Chain, evaluations_per_step, synchronise
from latticework.experiments.sampling.engine import Engine, served
from latticework.experiments.sampling.starts import possible
from latticework.experiments.sampling.targets import as_model, check_target, domain_of
from latticework.models.base import EnergyModel
from latticework.models.domain import Domain
from latticework.samplers.base import Info, Sampler, require_count
from latticework.samplers.sums import Sums, Wanted

if TYPE_CHECKING:
    import arviz
    import pandas as pd


@dataclass(frozen=True, eq=False)
class SampleResult:
    """Draws of several chains, with what they cost. All tensors are on the CPU.

    Costs are those of all steps, with burn-in and adaptation.
    """

    draws: Tensor  # [chains, draws, *domain.shape]
    log_prob: Tensor  # [chains, draws], of the target, up to its constant
    acceptance: Tensor  # [chains], mean acceptance probability after the burn-in
    evaluations: int  # of the whole target, for all chains at once, in all steps
    local_evaluations: int  # of a few sites of it or of a minibatch, likewise
    seconds: float
    sampler: Sampler
    domain: Domain
    seed: int
    adapted: Adapted | None = None  # what `adapt` chose, with its trajectory

    def __repr__(self) -> str:
        chains, draws = self.log_prob.shape
        return (
            f"<{chains} chains x {draws} draws from {self.domain} by {self.sampler}: acceptance "
            f"{float(self.acceptance.mean()):.3f}, {self.evaluations + self.local_evaluations} "
            f"evaluations, {self.seconds:.3g} s>"
        )

    def to_arviz(self) -> "arviz.InferenceData":
        """ArviZ's InferenceData: `posterior.x` and `sample_stats.lp`, with dims chain and draw."""
        import arviz

        attributes = {"sampler": str(self.sampler), "seed": self.seed, "seconds": self.seconds}
        return arviz.from_dict(
            posterior={"x": self.draws.numpy()},
            sample_stats={"lp": self.log_prob.numpy()},
            attrs={"created_by": "latticework", **attributes},
        )

    def summary(self, digits: int | None = 4) -> "pd.DataFrame":
        """One row for the log-probability and one for each entry of x, with its diagnostics.

        Columns: mean, sd, mcse_mean, ess_bulk, ess_tail, r_hat (Vehtari et al. 2021) and stuck. An
        entry is stuck if it is constant within every chain; its mixing cannot be judged, and its
        diagnostics are NaN. They are all NaN if a chain has fewer than 4 draws. `attrs["stuck"]`
        lists the stuck entries. Numbers are rounded to `digits` decimals and sizes to whole
        numbers, or not at all with `digits=None`.
        """
        import pandas as pd

        flat = self.draws.flatten(2)
        shape = self.draws.shape[2:]
        entries = [
            str(list(index))
            for index in torch.cartesian_prod(*map(torch.arange, shape))
            .view(-1, len(shape))
            .tolist()
        ]
        values = torch.cat((self.log_prob.unsqueeze(-1), flat), -1)
        frame = pd.DataFrame(
            quantities(values.numpy()), index=["log_prob", *(f"x{entry}" for entry in entries)]
        )
        if digits is not None:
            frame = frame.round({**dict.fromkeys(frame, digits), "ess_bulk": 0, "ess_tail": 0})
        frame.attrs["stuck"] = list(frame.index[frame["stuck"]])
        return frame


class ChainSums(NamedTuple):
    total: Tensor  # [chains], float64: in single precision a step would add less and less


@dataclass(frozen=True)
class ChainAcceptance(Metric):
    """Sum of the acceptance probabilities of each chain since the start."""

    def init(self, model: EnergyModel, state: Any, reference: Reference) -> ChainSums:
        return ChainSums(torch.zeros(len(state.x), dtype=torch.float64, device=state.x.device))

    def update(self, carry: ChainSums, state: Any, info: Info) -> ChainSums:
        return ChainSums(carry.total.add_(info.accept_prob))

    @property
    def wanted(self) -> Wanted:
        return Wanted()

    def absorb(self, carry: ChainSums, state: Any, sums: Sums, steps: int) -> ChainSums:
        return ChainSums(carry.total.add_(torch.from_numpy(sums.accept)))

    def read(self, carry: ChainSums) -> dict[str, Tensor]:
        return {}


def sample(
    target: EnergyModel | nn.Module | Callable[[Tensor], Tensor],
    sampler: Sampler | str,
    *,
    domain: Domain | None = None,
    sites: int | None = None,
    values: int | Sequence[float] | None = None,
    x: Tensor | None = None,
    chains: int | None = None,
    steps: int = 1000,
    burn_in: int = 0,
    adapt: Adaptation | float | str | None = None,
    thin: int = 1,
    seed: int = 0,
    device: torch.device | str = "cpu",
    engine: Engine = "eager",
) -> SampleResult:
    """Sample `target` with `sampler`; the same arguments give the same draws.

    Args:
        target: the unnormalised log-probability: a function or an `nn.Module` that maps states
            `[chains, *domain.shape]` to `[chains]`, or an `EnergyModel`, which has a domain.
        sampler: a sampler, or the name of a file of conf/sampler, with the values of that file.
        domain: the states of a function or module, such as `Binary(20)`.
        sites: in place of `domain`, the number of sites; {0, 1} states without `values`.
        values: of a site: two numbers, `range(k)` (ordinal), or the number k of categories.
        x: where the chains start, `[chains, *domain.shape]`; without it uniformly random states of
            positive probability.
        chains: the number of chains, 4 unless `x` says it.
        steps: steps of each chain after the burn-in, a multiple of `thin`.
        burn_in: steps before the first draw, which are left out.
        adapt: chooses the sampler's scale before the burn-in and then freezes it: the acceptance to
            aim at, `"locally_balanced"` (0.574), `"random_walk"` (0.234), or an `Adaptation`.
        thin: steps from one draw to the next; there are `steps / thin` draws.
        seed: seeds the starts and all moves.
        device: cpu, cuda, cuda:1 ...; auto takes a GPU if there is one.
        engine: eager; compiled, which needs a kernel for this sampler and target; or auto, which
            takes such a kernel if there is one. The draws of the two engines differ.

    Raises:
        ValueError: if the domain is missing; if `x` is not a valid start; if `sites`, `values`, a
            count, `seed` or `device` is invalid; if the target does not give one finite number a
            chain; or if `adapt` does not support the sampler. The message says what was expected
            and what was given.
            NotCompiledError is one too: there is no compiled kernel for engine="compiled".
        UnsupportedModelError: if the sampler does not support the domain or model.
    """
    sampler = sampler_of(sampler)
    model = as_model(target, domain_of(domain, sites, values))
    require_count(steps=steps, thin=thin)
    if not (isinstance(burn_in, Integral) and burn_in >= 0) or isinstance(burn_in, bool):
        raise ValueError(f"burn_in must be a whole number of steps, got {burn_in!r}")
    if steps % thin:
        raise ValueError(f"steps must be a multiple of thin, got {steps} and {thin}")
    place, rng = _generator(device, seed)
    model = model.to(place)
    x = _start(model, x, chains, rng, place)
    whole, local, precision = _checked(sampler, model, x)
    synchronise(place)
    began, spent = time.perf_counter(), 0.0
    found, total = None, burn_in + steps
    if adapt is not None:
        rule = adapt if isinstance(adapt, Adaptation) else AcceptanceControl(adapt)
        found = adapted(rule, sampler, model, x, rng, engine)
        sampler, x = found.sampler, found.x
        total += rule.steps * rule.blocks(sampler)

    every = gcd(burn_in, thin)
    metrics = [ChainAcceptance()]
    kernel, _ = served(sampler, model, engine, metrics)
    chain = Chain(kernel, model, x, rng, every=every, metrics=metrics)
    draws = torch.empty(steps // thin, *x.shape, dtype=x.dtype)
    log_prob = torch.empty(steps // thin, len(x), dtype=precision)
    for _ in range(burn_in // every):
        chain.advance()
    before = chain.carries[0].total.clone()
    for number in range(steps // thin):
        for _ in range(thin // every):
            chain.advance()
        synchronise(place)
        paused = time.perf_counter()
        draws[number], log_prob[number] = chain.state.x, _log_prob(chain.state, model)
        spent += time.perf_counter() - paused
    seconds = time.perf_counter() - began - spent
    accepted = ((chain.carries[0].total - before) / steps).float()
    return SampleResult(
        draws.transpose(0, 1).contiguous(),
        log_prob.T.contiguous(),
        accepted.cpu(),
        whole * total,
        local * total,
        seconds,
        sampler,
        model.domain,
        seed,
        found,
    )


def sampler_of(sampler: Sampler | str) -> Sampler:
    """The sampler itself, or that of conf/sampler/<name>.yaml. Raises TypeError for a class."""
    if isinstance(sampler, str):
        return sampler_named(sampler)
    if not isinstance(sampler, Sampler):
        made = sampler.__name__ if isinstance(sampler, type) else None
        raise TypeError(
            "the sampler must be a Sampler or one of "
            f"{', '.join(names('sampler'))}, got {sampler!r}"
            + (f"; write {made}(...)" if made else "")
        )
    return sampler


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


def _start(
    model: EnergyModel, x: Tensor | None, chains: int | None, rng: Generator, device: torch.device
) -> Tensor:
    """The given starts on the device, or uniformly random ones (`starts.possible`)."""
    if x is None:
        count = 4 if chains is None else chains
        require_count(chains=count)
        return possible(model, count, rng)
    if isinstance(x, Tensor):
        if x.shape[1:] == model.domain.shape and chains not in (None, len(x)):
            raise ValueError(f"x has {len(x)} chains and chains is {chains}; leave chains out")
        return x.to(device)
    return x  # refused by the sampler's checks


def _checked(sampler: Sampler, model: EnergyModel, x: Tensor) -> tuple[int, int, torch.dtype]:
    """Check the start and the target there; the whole and local evaluations of a step.

    The last entry is the precision of the log-probability, single or double.

    The steps that are counted use another generator, so they do not change the draws.
    """
    with torch.no_grad():
        state = sampler.init(x, model)
        precision = torch.promote_types(_log_prob(state, model).dtype, torch.float32)
    check_target(model, x)
    count = evaluations_per_step(sampler, model, x, Generator(x.device).manual_seed(0))
    return count.whole, count.local, precision


def _log_prob(state: Any, model: EnergyModel) -> Tensor:
    """The target's log-probability of a state, `[chains]`, as the state holds it if it does."""
    if hasattr(state, "log_prob"):
        return state.log_prob
    with torch.no_grad():
        return model.log_prob(state.x)
