"""Task: run a sampler on a fixed target and record its metrics against steps and seconds."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from latticework.data.base import Dataset, fixed_subset
from latticework.experiments.records.estimates import (
    Better,
    Estimate,
    KeyNumber,
    finite,
    last_reading,
    last_readings,
)
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.target import Validity, ensure_trained, warn_of_invalid_steps
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.samplers.ladder import LadderState
from latticework.sampling.adaptation import Adaptation, by_level, run_adaptation
from latticework.sampling.chain import Chain, Timing, timing
from latticework.sampling.diagnostics import MIN_DRAWS, convergence, largest_r_hat
from latticework.sampling.engine import engine_for_adaptation, select_kernel
from latticework.sampling.evaluations import calls_of_step
from latticework.sampling.exact import exact_if_cheap
from latticework.sampling.ladder_estimates import Ladders, Levels, levels_of
from latticework.sampling.loop_state import LoopState
from latticework.sampling.metrics import Metric, Reference, Trace
from latticework.sampling.mmd import mmd_squared

ROWS = 1000  # test rows whose distances are computed: the cost is quadratic
BETTER: dict[str, Better] = {
    "log_rmse": "lower",
    "log_rmse_ensemble": "lower",
    "log_mmd": "lower",
    "acceptance": None,
    "changed": None,
    "proposed": None,
    "unsettled": None,
}


@dataclass(eq=False)
class Sampling(LoopState):
    chain: Chain
    timing: Timing  # of a step of all chains
    levels: list[Levels]  # of a tempered chain, at each reading


def sample(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    budget: Budget,
    start: Callable[..., Tensor],
    metrics: Sequence[Metric],
    pretrain: Callable[..., EnergyModel] | None = None,
    truth: Callable[..., Reference] | None = None,
    adapt: Adaptation | None = None,
) -> None:
    """Run the chains of `budget` and log the metrics at each reading.

    `pretrain` trains or loads the model (conf/pretrain); `truth` gives the reference values that
    metrics compare with. All samplers of an experiment start from the same states. `adapt` chooses
    fields of the sampler in a burn-in (conf/adapt), which is not measured; the chains go on from
    there with frozen fields. Tempering adapts its kernel at each level as it learns the levels.
    Seconds are measured in a separate pass without metrics. With `data`, the record notes the
    unbiased MMD^2 of the last states to `ROWS` of the test rows. Raises ValueError if the model
    should be learned and is not (`tasks.target`), or if `adapt` does not support the
    sampler.
    """
    model, reference = target(model, data, run, pretrain, truth)
    x = start(model, budget.chains, run.rng("start"), data)
    if adapt is not None and (ladder := by_level(adapt, sampler)):
        sampler = ladder
    elif adapt is not None:
        sampler, x = adapt_in_burn_in(adapt, sampler, model, x, run)

    if sampler.learning_steps:
        learner, _ = select_kernel(sampler, model, engine_for_adaptation(run.engine))
        sampler = replace(sampler, **learner.learn_fields(x, model))  # type: ignore[type-var]
    whole, local = calls_of_step(sampler, model, x, run.rng("timing"))
    metrics = [*metrics, Validity()]
    rng, every = run.rng("chain"), budget.every
    sampler = run.select_kernel(sampler, model, metrics, x, budget.steps)
    chain = Chain(sampler, model, x, rng, every=every, metrics=metrics, reference=reference)
    block = max(1, min(budget.steps // 50, 1000))
    memory = Sampling(chain, timing(sampler, model, x, run.rng("timing"), steps=block), [])
    for number in run.resumable(memory, "sampling", total=budget.readings, first=0, each=every):
        step = number * every
        if number:
            chain.advance()
            warn_of_invalid_steps(run, chain.carries[-1], step)
            if isinstance(chain.sampler_state, LadderState):
                memory.levels.append(levels_of(chain.sampler_state))
        seconds = step * memory.timing.seconds
        run.log(step, seconds=seconds, evaluations=step * whole, **chain.values())
    run.note(
        seconds_per_step=memory.timing.seconds,
        cpu_share=memory.timing.share,
        evaluations_per_step=whole,
        local_evaluations_per_step=local,
        errors=errors(metrics, chain.carries),
    )
    if memory.levels:
        note_ladders(chain.sampler_state, memory.levels, budget.steps, run)
    if data is not None and data.dim == model.domain.dim:
        rows = fixed_subset(data.test, ROWS).to(run.device).float()
        run.note(mmd_to_data=float(mmd_squared(chain.state.x, rows)[1]))
    run.save("last", x=chain.state.x)
    if store(metrics, chain.carries, run) and len(model.domain.shape) == 1:  # not one-hot
        mean = reference.mean
        if mean is None and (known := exact_if_cheap(model)) is not None:
            mean = known.mean
        run.note(mean_exact=None if mean is None else float(mean.mean()))


def note_ladders(state: LadderState, levels: list[Levels], steps: int, run: Run) -> None:
    """Note log Z and the barrier, and save the ladders."""
    found = ladders_of(state, levels, steps)
    if (log_z := found.log_z) is not None:
        numbers = log_z._asdict()
        doubt = numbers.pop("doubt")
        noted = {name: finite(value) for name, value in numbers.items()}
        run.note(log_z={**noted, "doubt": doubt})
    run.note(barrier=found.barrier, round_trips=int(found.trips.sum()))
    run.save("ladders", **{name: np.asarray(value) for name, value in vars(found).items()})


def ladders_of(state: LadderState, levels: list[Levels], steps: int) -> Ladders:
    """From the readings so far."""
    return Ladders.from_draws(state, levels, state.trips, steps)


def adapt_in_burn_in(
    rule: Adaptation, sampler: Sampler, model: EnergyModel, x: Tensor, run: Run
) -> tuple[Sampler, Tensor]:
    """The frozen sampler and the states after the burn-in, which the record describes."""
    blocks = partial(run.resumable, what="adaptation")
    found = run_adaptation(rule, sampler, model, x, run.rng("adaptation"), run.engine, blocks)
    run.save("adaptation", **{name: np.asarray(v) for name, v in found.trajectory.items()})
    run.note(frozen=found.fields)
    return found.sampler, found.x


def headline(record: Record) -> list[KeyNumber]:
    """Errors at the last reading; the mean state, ESS and R-hat of the trace; rates.

    `mean` is the average of x over sites, chains and draws.
    """
    found = record.document.get("errors", {})
    ladders = []
    if log_z := record.document.get("log_z"):
        known = [end for end in ("low", "high") if log_z[end] is not None]
        ends = {f"95 % {end}": Estimate(log_z[end]) for end in known}
        ladders = [KeyNumber("log_z", log_z["value"], beside=ends)]
    numbers = [
        replace(n, error=found.get(n.name), over="chains" if n.name in found else "")
        for n in last_readings(record, BETTER)
    ]
    if "log_mmd_floor" in record.metrics:
        floor = {"independent draws": Estimate(last_reading(record, "log_mmd_floor"))}
        numbers = [replace(n, beside=floor) if n.name == "log_mmd" else n for n in numbers]
    numbers = [replace(n, unit="sites a step") if n.name == "changed" else n for n in numbers]
    traced = traced_numbers(record) if record.has_array("convergence") else []
    rates = [one for one in numbers if one.better is None]
    return [*ladders, *(one for one in numbers if one.better), *traced, *rates]


def traced_numbers(record: Record) -> list[KeyNumber]:
    """The mean of the trace, beside the exact one; ESS and R-hat of the sites that changed."""
    found, exact = record.arrays("convergence"), record.document.get("mean_exact")
    numbers = []
    if exact is not None and "mean" in found:
        mean, error, beside = found["mean"], found["mean_error"], {"exact": Estimate(exact)}
        numbers.append(KeyNumber("mean", float(mean), float(error), "draws", None, beside))
    ess, r_hat = (found[name][~np.isnan(found[name])] for name in ("ess", "r_hat"))
    draws = {"draws": Estimate(float(found["draws"] * found["chains"]))}
    if len(ess):
        worst, median = float(ess.min()), float(np.median(ess))
        numbers.append(KeyNumber("ess_worst", worst, better="higher", beside=draws))
        numbers.append(KeyNumber("ess_median", median, better="higher", beside=draws))
    if len(r_hat):  # one chain has none
        numbers.append(KeyNumber("largest_r_hat", float(r_hat.max())))
        known = {"of": Estimate(len(r_hat))}
        agree = float((r_hat <= largest_r_hat(int(found["chains"]))).sum())
        numbers.append(KeyNumber("sites_converged", agree, beside=known))
    if stuck := int(found["constant"]):
        sites = {"sites": Estimate(len(found["ess"]))}
        numbers.append(KeyNumber("sites_never_changed", stuck, beside=sites))
    return numbers


def store(metrics: Sequence[Metric], carries: Sequence[Any], run: Run) -> bool:
    """Save the metrics' arrays, and the diagnostics of a trace if it is long enough for them.

    Returns whether diagnostics were saved.
    """
    arrays = metric_arrays(metrics, carries)
    diagnosed = len(arrays.get("trace", ())) >= MIN_DRAWS
    if diagnosed:
        trace = arrays["trace"].cpu().numpy()
        thin = next(metric.thin for metric in metrics if isinstance(metric, Trace))
        draws, chains = trace.shape[:2]
        shape = {"draws": draws, "chains": chains, "steps": draws * thin}
        named = {name: np.asarray(count) for name, count in shape.items()}
        run.save("convergence", **convergence(trace), **named)
    for name, value in arrays.items():
        run.save(name, **{name: value})
    return diagnosed


def errors(metrics: Sequence[Metric], carries: Sequence[Any]) -> dict[str, float]:
    """The standard errors over chains of the last readings, by name, where they are known."""
    parts = [metric.errors(carry) for metric, carry in zip(metrics, carries, strict=True)]
    found = {name: float(value) for part in parts for name, value in part.items()}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def target(
    model: EnergyModel,
    data: Dataset | None,
    run: Run,
    pretrain: Callable[..., EnergyModel] | None,
    truth: Callable[..., Reference] | None,
) -> tuple[EnergyModel, Reference]:
    """The model to sample from, trained if it has to be, and its reference values."""
    model = ensure_trained(model, data, run, pretrain)
    return model, truth(model=model, run=run) if truth is not None else Reference()


def metric_arrays(metrics: Sequence[Metric], carries: Sequence[Any]) -> dict[str, Tensor]:
    """The arrays that the metrics keep at the end, by name."""
    arrays = [metric.arrays(carry) for metric, carry in zip(metrics, carries, strict=True)]
    return {name: value for array in arrays for name, value in array.items()}
