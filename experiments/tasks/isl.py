"""Task: score a sampler's samples and the training set by indirect sampling likelihood (ISL)."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from latticework.data.base import Dataset, fixed_subset
from latticework.experiments.records.estimates import Estimate, KeyNumber, fact_number
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.storage import load_or_make_artifact
from latticework.experiments.tasks.measures import sampling_likelihood as isl
from latticework.experiments.tasks.measures.sampling_likelihood import (
    METRICS,
    commonest_state,
    draw_consecutive,
)
from latticework.experiments.tasks.target import ensure_trained
from latticework.models.abilities import CarriesRates
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.chain import timing


def isl_curve(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    budget: Budget,
    start: Callable[..., Tensor],
    points: int | None = None,
    validation_points: int | None = None,
    keep: int = 200,
    temperature: float | None = None,
    pretrain: Callable[..., EnergyModel] | None = None,
) -> None:
    """ISL of the test rows under the first n consecutive samples, for n on a log scale.

    The samples are all states of the chains of `budget`. Any sampler works if states are zeros and
    ones. beta is chosen on the validation rows, by all samples (`isl`) or by the first n
    (`isl_own_beta`). `validation_isl` is the ISL of the validation rows under all samples; settings
    are chosen by it. `points` and `validation_points` limit the test and validation rows; None
    takes all. The reference `parzen`, made once for all samplers, takes the training rows as
    centres, with its own beta. The last `keep` samples are stored in `sequence`, and as many test
    rows in `test_rows`, to be looked at beside them. With a `temperature` T, chains move in
    p(x, h)^(1/T) of an RBM. `spurious_share` is the share of samples further from the training rows
    than nearly all test rows are (`measures.sampling_likelihood.spurious_share`).

    Raises ValueError without data, and if the model should be learned and is not
    (`experiments.tasks.target`).
    """
    if data is None:
        raise ValueError("the ISL needs validation and test rows; give data, such as data=usps")
    model = ensure_trained(model, data, run, pretrain)
    valid, test = fixed_subset(data.valid, validation_points), fixed_subset(data.test, points)
    _store_parzen(data, run, valid, test)
    if temperature is not None:
        model = heat_rbm(model, temperature)

    x = start(model, budget.chains, run.rng("start"), data)
    sampler = run.select_kernel(sampler, model, METRICS)
    each = timing(sampler, model, x, run.rng("timing"), steps=max(1, min(budget.steps // 50, 500)))
    samples = draw_consecutive(sampler, model, x, run.rng("chain"), budget.steps, run)
    run.save("sequence", x=samples[-keep:])
    sizes = isl.prefix_sizes(len(samples))
    run.save("test_rows", x=test[:keep])
    valid, test = valid.to(run.device), test.to(run.device)
    curves, validation_isl = score_curves(samples, valid, test, sizes)
    run.note(
        spurious_share=isl.spurious_share(samples, data, run.rng("spurious", device="cpu")),
        beta=float(curves["own_beta"][-1]),
        validation_isl=validation_isl,
        isl=float(curves["isl"][-1]),
        seconds_per_step=each.seconds,
        cpu_share=each.share,
        **commonest_state(samples),
    )
    for i, size in enumerate(sizes):
        row = {name: curve[i] for name, curve in curves.items()}
        run.log(size, **row, seconds=size / budget.chains * each.seconds)


def headline(record: Record) -> list[KeyNumber]:
    """The ISL of the test rows, beside that of the training rows, and of the validation rows."""
    training = Estimate(record.document["parzen"])
    return [
        fact_number(record, "isl", better="higher", references={"training rows": training}),
        fact_number(record, "validation_isl", better="higher"),
        fact_number(record, "commonest_share"),
        *([fact_number(record, "spurious_share")] if "spurious_share" in record.document else []),
    ]


def score_curves(
    samples: Tensor, valid: Tensor, test: Tensor, sizes: list[int]
) -> tuple[dict[str, Tensor], float]:
    """The ISL of `test` under the first n `samples`, for each n of `sizes`; that of `valid`.

    beta is the best on `valid`: for all samples in `isl`, as in the paper, for the first n in
    `isl_own_beta`, as the best beta for many samples is too sharp for few. `own_beta` is the latter
    beta. The ISL of `valid` is that under all samples.
    """
    betas, counted = [], torch.empty(0)
    for counted in isl.prefixes(samples, valid, sizes):
        betas.append(isl.best_beta(counted))
    scores = [
        (isl.score(prefix, betas[-1]), isl.score(prefix, beta), beta)
        for prefix, beta in zip(isl.prefixes(samples, test, sizes), betas, strict=True)
    ]
    columns = torch.tensor(scores, dtype=torch.float64).unbind(1)
    names = ("isl", "isl_own_beta", "own_beta")
    return dict(zip(names, columns, strict=True)), isl.score(counted, betas[-1])


def heat_rbm(model: EnergyModel, temperature: float) -> EnergyModel:
    """A copy of the RBM `model` with law p(x, h)^(1/T): all parameters are divided by T.

    Rates of the training data stay as they are. Raises ValueError for a model without rates, and
    unless the temperature is positive.
    """
    if not isinstance(model, CarriesRates):
        raise ValueError(f"task.temperature needs an RBM with rates, got {type(model).__name__}")
    if not temperature > 0:
        raise ValueError(f"task.temperature must be positive, got {temperature}")
    heated = copy.deepcopy(model)
    for parameter in heated.parameters():
        parameter.data.div_(temperature)
    return heated


def _store_parzen(data: Dataset, run: Run, valid: Tensor, test: Tensor) -> None:
    """Store `parzen`: the ISL of the training rows, taken as samples in random order."""
    sizes = isl.prefix_sizes(len(data.train))
    spec = {
        "data": data.fingerprint, "valid": len(valid), "test": len(test), "sizes": len(sizes),
        "own_beta": True,
    }  # fmt: skip

    def make() -> dict[str, Tensor]:
        rng = run.shared_rng("parzen", device="cpu")
        order = torch.randperm(len(data.train), generator=rng)
        rows = data.batch(order, rng).to(run.device)
        curves, _ = score_curves(rows, valid.to(run.device), test.to(run.device), sizes)
        return {**curves, "size": torch.tensor(sizes), "beta": curves["own_beta"][-1:].clone()}

    reference = load_or_make_artifact(run, "parzen", spec | {"seed": run.model_seed}, make)
    run.note(parzen=float(reference["isl"][-1]), parzen_beta=float(reference["beta"]))
    run.save("parzen", **reference)
