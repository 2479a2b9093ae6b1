"""Draws from any target with any sampler in one call: `latticework.sample`."""

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn

from latticework.models.base import EnergyModel
from latticework.models.domains import Domain
from latticework.samplers.base import Sampler, require_count
from latticework.samplers.tempered import Tempered
from latticework.sampling.adaptation import Adaptation, AdaptationResult, by_level
from latticework.sampling.budget import Allowance
from latticework.sampling.devices import on_threads, synchronise
from latticework.sampling.draw_loop import DrawLoop, start_draws
from latticework.sampling.drawing import MeteredKernel
from latticework.sampling.engine import Engine, engine_for_adaptation
from latticework.sampling.evaluations import EvaluationCounter
from latticework.sampling.naming import site_names
from latticework.sampling.result import SampleResult
from latticework.sampling.sample_arguments import (
    count_chains,
    describe_equal_starts,
    require_memory,
    require_steps,
    rule_of,
    sampler_of,
    seed_generator,
)
from latticework.sampling.sampling_run import SamplingRun, read_budget, require_reachable, store_of
from latticework.sampling.starts import anneal_starts, draw_possible, require_start
from latticework.sampling.targets import as_model, check_target

if TYPE_CHECKING:
    from latticework.sampling.tuning.auto import SamplerChoice


class ConvergenceWarning(UserWarning):
    """Draws that have not converged, or that cannot show whether they have."""


NEEDS_BURN_IN = (
    "{} leaves the target's law for a while even if x was drawn from it, because the rest of its "
    "state starts elsewhere; give a burn_in"
)


def sample(
    target: EnergyModel | nn.Module | Callable[[Tensor], Tensor],
    sampler: Sampler | str = "auto",
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
    keep: str | Path = "draws",
    until: Literal["converged"] | None = None,
    budget: str | None = None,
    progress: bool | None = None,
) -> SampleResult:
    """Sample `target` with `sampler`; the same arguments give the same draws.

    Ctrl-C ends a run after the step under way and returns the draws so far; a second one raises
    KeyboardInterrupt, and so does one before the first draw.

    Args:
        target: the unnormalised log-probability: a function or an `nn.Module` that maps states
            `[chains, *domain.shape]` to `[chains]`, or an `EnergyModel`, which has a domain.
        sampler: a sampler, or its name in `samplers.NAMES`, with its defaults or other values:
            `"gwg(flips=2)"`. Without it, at most five samplers that suit the target are tried, in a
            fifth of the budget or of the run's time, and the best makes all draws
            (`sampling.tuning.auto`); the result's `choice` has their rates and the cost.
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
        keep: `"draws"`, as bits and bytes that `draws` unpacks; `"summary"`, in place of the draws
            running means of entries and of pairs along edges (`SummaryResult`); or the name of a
            .npy file for the bits and bytes, which are then read from the disk.
        until: `"converged"` goes on after `steps` steps until the verdict holds, which is asked
            whenever the steps have doubled, or until the budget ends.
        budget: what the call may spend at most: `"5min"`, or `"20000evaluations"` by each chain.
            The run then ends before its last step, and `stopped` says so.
        progress: whether to show how far the run is; by default on a terminal and in a notebook.

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
    began, allowed = time.perf_counter(), read_budget(budget, until)
    model = as_model(target, domain=domain, sites=sites, values=values)
    named = _names_of_sites(names, model)
    require_steps(steps, burn_in, thin)
    require_count(threads=threads)
    require_start(start, x)
    rule, choice = None if adapt is None else rule_of(adapt), None
    if sampler == "auto":
        with on_threads(threads):
            choice = _choose_sampler(
                model, x, chains, rule, device, engine, seed, steps + burn_in, allowed
            )
        sampler = choice.sampler
    sampler = sampler_of(sampler)
    asked = Tempered(sampler, learn_base=True) if temper else sampler
    if rule is not None and (ladder := by_level(rule, asked)):
        asked, rule = ladder, None
    if x is not None and not (burn_in or asked.stationary_start):
        _warn_caller(NEEDS_BURN_IN.format(type(asked).__name__))
    place, rng = seed_generator(device, seed)
    model = model.to(place)
    count = EvaluationCounter(model, count_chains(model, x, chains))
    with on_threads(threads):
        given = x is not None
        if x is None:
            x = draw_possible(count.model, count.chains, rng)
        elif isinstance(x, Tensor):  # anything else is refused by the checks of the start
            x = x.to(place)
        precision = torch.promote_types(check_target(count.model, x).dtype, torch.float32)
        store = store_of(keep, model, x)
        require_memory(store, precision, steps, thin, diagnose)
        caveat = describe_equal_starts(x) if given else ""
        require_reachable(until, caveat, len(x))
        if diagnose and caveat:
            _warn_caller(caveat)
        kernels = MeteredKernel(model, count, x, steps + burn_in)
        chosen, adaptation = _adapt_sampler(
            kernels,
            asked if rule is None else sampler,
            rule,
            x,
            rng,
            engine,
            annealed=start == "annealed",
            temper=temper,
        )
        draws = start_draws(kernels, chosen.x, rng, burn_in, thin)
        seconds = time.perf_counter() - chosen.began - chosen.compiling
    about = {
        "compile_seconds": kernels.seconds,
        "sampler": chosen.sampler,
        "domain": model.domain,
        "seed": seed,
        "adapted": adaptation,
        "names": named,
        "caveat": caveat,
        "labels": label_texts(model),
        "model": model,
        "choice": choice,
    }
    if choice is not None:
        count.evaluations += choice.evaluations
        seconds += choice.seconds
    loop = DrawLoop(kernels, draws, store, precision, thin, count.evaluations)
    run = SamplingRun(loop, about, seconds, threads, diagnose)
    result = run.go_on(steps, goal=until, budget=allowed, began=began, progress=progress)
    invalid = int(draws.sums.invalid.sum())
    if diagnose and (warning := describe_invalid(result, invalid, loop.steps * len(x))):
        _warn_caller(warning)
    if diagnose and result.verdict.judged and not result.converged:
        _warn_caller(result.verdict.text)
    return result


def _choose_sampler(
    model: EnergyModel,
    x: Tensor | None,
    chains: int | None,
    rule: Adaptation | None,
    device: torch.device | str,
    engine: Engine,
    seed: int,
    steps: int,
    budget: Allowance | None,
) -> "SamplerChoice":
    """The sampler that pilots choose. Raises ValueError where they cannot.

    Its pilots are seeded by other numbers than the draws.
    """
    # This module samples by pilots, so it is imported when it is needed.
    from latticework.sampling.tuning.auto import choose_sampler

    if rule is not None:
        raise ValueError("adapt needs a sampler by name; without one, scales are chosen anyway")
    if seed_generator(device, seed)[0].type != "cpu":
        raise ValueError("a sampler is chosen on the CPU; name one for another device")
    number = count_chains(model, x, chains)
    check_target(
        model, draw_possible(model, number, Generator().manual_seed(seed)) if x is None else x
    )
    return choose_sampler(
        model, x=x, chains=number, steps=steps, budget=budget, engine=engine, seed=seed % 2**31 + 1
    )


class Chosen(NamedTuple):
    """The sampler that makes the draws, and where its chains are."""

    sampler: Sampler
    x: Tensor
    began: float  # the time from which seconds count
    compiling: float  # seconds of compilation since then


def _adapt_sampler(
    kernels: MeteredKernel,
    sampler: Sampler,
    rule: Adaptation | None,
    x: Tensor,
    rng: Generator,
    engine: str,
    *,
    annealed: bool,
    temper: bool,
) -> tuple[Chosen, AdaptationResult | None]:
    """The sampler with its fields chosen, and what `rule` says of it; its kernel is served."""
    kernels.serve(sampler, engine if rule is None else engine_for_adaptation(engine))
    synchronise(x.device)
    began, compiled, adaptation = time.perf_counter() - kernels.learning, kernels.seconds, None
    if annealed:
        x = anneal_starts(kernels.count.model, sampler, x, rng)
    if rule is not None:
        adaptation = kernels.adapt(rule, sampler, x, rng, engine)
        sampler, x = adaptation.sampler, adaptation.x
        if temper:
            sampler = Tempered(sampler, learn_base=True)
        kernels.serve(sampler, engine)
    return Chosen(sampler, x, began, kernels.seconds - compiled), adaptation


def _names_of_sites(names: Iterable[str] | None, model: EnergyModel) -> tuple[str, ...] | None:
    """The given names of the sites, else those of the model, else None."""
    if names is None and model.names is not None:
        names = [str(name) for name in model.names]
    return None if names is None else site_names(names, model.domain)


def _warn_caller(text: str) -> None:
    """Warn the caller of `sample`."""
    warnings.warn(text, ConvergenceWarning, stacklevel=3)


def describe_invalid(result: SampleResult, invalid: int, steps: int) -> str:
    """A warning of impossible draws, or else of `invalid` steps into NaN or +inf; else ""."""
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


def label_texts(model: EnergyModel) -> tuple[tuple[str, ...], ...] | None:
    """The labels of the values of each site as words, where the model has some."""
    if model.labels is None:
        return None
    return tuple(tuple(map(str, values)) for values in model.labels)
