"""Task: tune a sampler on a target, then measure it with fresh chains and frozen settings.

The settings are searched once for each target and sampler, with random numbers of their own, and
shared by all seeds as an artifact. Each run then measures effective sample sizes, R-hat and the
error of the means over time. See docs/benchmark.md.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from latticework.data.base import Dataset
from latticework.experiments.records.estimates import KeyNumber, finite_or_none
from latticework.experiments.records.record import Record
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.storage import artifact_spec, load_or_make_artifact
from latticework.experiments.tasks.sampling import target
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.samplers.tempered import Tempered
from latticework.sampling.diagnostics import largest_r_hat
from latticework.sampling.drawing import ChainAcceptance
from latticework.sampling.metrics import Reference
from latticework.sampling.targets import why_unsupported
from latticework.sampling.tuning import setup
from latticework.sampling.tuning import space as search_space

# Numbers of a chain that are kept where that allows more than MAX_DRAWS draws.
MAX_STORED_NUMBERS = 500_000


def benchmark(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    name: str,
    chains: int,
    trials: int,
    tuning: Sequence[str],
    measuring: Sequence[str],
    points: int,
    pretrain: Callable[..., EnergyModel] | None = None,
    truth: Callable[..., Reference] | None = None,
) -> None:
    """Measure `sampler`, whose option in conf/sampler is `name`, with the best fields found.

    `tuning` and `measuring` are allowances (`20000evaluations`, `10seconds`); the first that is
    spent ends a search or a run, but tempering is measured for its seconds alone. The search
    pays for what a sampler learns before its first step. The error is logged at `points` readings.
    A sampler that does not support the target, or for which the allowance is too small, leaves a
    record that says so. Raises ValueError for a single chain, whose R-hat is not defined.
    """
    if chains < 2:
        raise ValueError(f"chains must be 2 or more, as R-hat compares them, got {chains}")
    if reason := why_unsupported(sampler, model):
        run.note(absent=reason)
        run.log(0)
        return
    model, reference = target(model, data, run, pretrain, truth)
    max_draws = max(setup.MAX_DRAWS, MAX_STORED_NUMBERS // prod(model.domain.shape))
    course = setup.TuningSetup(model, chains, run.engine, max_draws)  # type: ignore[arg-type]
    sampler, space = setup.fit_blocks(sampler, search_space.spaces().get(name) or {}, model)
    fields, learnt = shared_fields(run, course, name, sampler, space, tuning, trials)
    chosen = search_space.with_fields(sampler, fields | learnt)
    run.select_kernel(chosen, model, [ChainAcceptance()], course.draw_starts(run.rng("kernel")))
    limits = [setup.Allowance.read(text) for text in measuring]
    if isinstance(sampler, Tempered) and sampler.schedule is None:  # it learns many levels
        limits = [each for each in limits if each.unit == "seconds"] or limits
    steps = course.steps(chosen, limits)
    if steps * (1 - setup.WARM_UP) < setup.MIN_DRAWS:
        run.note(absent=f"the budget allows {steps} steps, too few to judge")
        run.log(0)
        return
    costs = {unit: course.cost(chosen, unit) for unit in ("evaluations", "seconds")}
    seed = run.rng("benchmark", "cpu").initial_seed() % 2**31
    sampled, diagnosis = course.measure_run(chosen, steps, seed)
    for step, error in error_readings(sampled, reference.mean, points):
        spent = {unit: step * cost for unit, cost in costs.items()}
        run.log(step, **spent, **error)
    run.note(
        tuned=fields,
        steps=sampled.steps,
        acceptance=float(sampled.result.acceptance.mean()),
        seconds_per_step=costs["seconds"],
        evaluations_per_step=costs["evaluations"],
        sites=model.domain.dim,
        ess={
            "min": diagnosis.ess,
            "median": diagnosis.ess_median,
            "energy": finite_or_none(diagnosis.ess_energy),
        },
        r_hat=finite_or_none(diagnosis.r_hat),
        still_sites=diagnosis.still,
    )


def shared_fields(
    run: Run,
    course: setup.TuningSetup,
    name: str,
    sampler: Sampler,
    space: search_space.Space,
    tuning: Sequence[str],
    trials: int,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The fields that the search chooses, and those that the sampler learns before its first step.

    Read from disk if an earlier run has searched. Without a space, nothing is searched.
    """
    if not space and type(sampler).learn_fields is Sampler.learn_fields:
        return {}, {}
    rng = run.shared_rng("benchmark/tuning", "cpu")
    allowed = [setup.Allowance.read(text) for text in tuning]

    def make() -> dict[str, Tensor]:
        learnt, spent = course.learn_fields(sampler)
        left = [each.subtract(spent) for each in allowed]
        fields: dict[str, Any] = {}
        rate = 0.0
        if space:
            fields, rate = course.tune_fields(
                name,
                search_space.with_fields(sampler, learnt),
                space,
                left,
                trials,
                rng.initial_seed() % 2**31,
            )
        values = {"rate": rate}
        for unit, cost in spent.items():
            values[f"learning/{unit}"] = cost
        for key, value in search_space.fields_as_numbers(fields, space).items():
            values[f"field/{key}"] = value
        tensors = {k: torch.tensor(v, dtype=torch.float64) for k, v in values.items()}
        for key, tensor in learnt.items():
            tensors[f"learnt/{key}"] = tensor
        return tensors

    spec = artifact_spec(
        sampler, course.model, run, space=space, chains=course.chains, engine=course.engine,
        budget=[str(each) for each in allowed], trials=trials,
        score="of all steps, with what is learned",
    )  # fmt: skip
    stored = load_or_make_artifact(run, "tuned", spec, make)

    def part(kind: str) -> dict[str, Tensor]:
        return {key.removeprefix(kind): stored[key] for key in stored if key.startswith(kind)}

    costs = {unit: float(cost) for unit, cost in part("learning/").items()}
    run.note(tuned_rate=float(stored["rate"]), learning=costs)
    values = {key: float(value) for key, value in part("field/").items()}
    return search_space.from_numbers(values, sampler, space), part("learnt/")


def error_readings(
    stint: setup.SampledRun, mean: Tensor | None, points: int
) -> list[tuple[int, dict[str, float]]]:
    """Log RMSE over sites of the mean of all draws so far, at up to `points` numbers of steps.

    The readings are evenly spaced in the logarithm of the number of draws. Burn-in counts
    as steps but not as draws. Without a known `mean`, only the steps.
    """
    draws = stint.result.draws
    count = draws.shape[1]
    places = torch.logspace(0, 1, points, base=count).round().long().unique().tolist()
    steps = [stint.burn_in + stint.thin * place for place in places]
    if mean is None:
        return [(step, {}) for step in steps]
    running = draws.mean(0, dtype=torch.float64).cumsum(0)
    gaps = [running[place - 1] / place - mean.cpu() for place in places]
    return [
        (step, {"log_rmse": float(gap.square().mean().sqrt().log())})
        for step, gap in zip(steps, gaps, strict=True)
    ]


def headline(record: Record) -> list[KeyNumber]:
    """Effective samples of the worst site per second and per evaluation, or why there are none."""
    if reason := record.document.get("absent"):
        return [KeyNumber("not measured", str(reason))]
    r_hat = record.document["r_hat"]
    if r_hat is None or r_hat > largest_r_hat(record.config["task"]["chains"]):
        return [KeyNumber("chains disagree, R-hat", "infinite" if r_hat is None else r_hat)]
    ess, document = record.document["ess"], record.document
    evaluations = document["evaluations_per_step"] * record.config["task"]["chains"]
    per_step = ess["min"] / document["steps"]
    return [
        KeyNumber("ess_per_second", per_step / document["seconds_per_step"], better="higher"),
        KeyNumber("ess_per_evaluation", per_step / evaluations, better="higher"),
        KeyNumber("largest_r_hat", r_hat),
    ]
