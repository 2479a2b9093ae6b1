"""Task: the distribution of a Langevin sampler's states against enumeration (App. B)."""

from latticework.data.base import Dataset
from latticework.experiments.records.estimates import Estimate, KeyNumber, last_reading
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures import stationary
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling import occupancy
from latticework.sampling.chain import run_chain


def law(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    budget: Budget,
) -> None:
    """Log the distance of the pooled states of all chains to the target at each reading.

    The columns are the total variation of the joint distribution to the target and to the
    stationary distribution of the unadjusted sampler (the limit of DULA), the mean total variation
    that as many independent draws would have, and the largest error of a marginal probability.
    Raises ValueError if the domain cannot be enumerated.
    """
    proposal = stationary.enumerate_proposal(sampler, stationary.in_double(model))
    target, unadjusted = proposal.target, stationary.stationary_law(proposal.unadjusted)
    run.note(
        states=len(target), unadjusted_bias=float(stationary.l1_distance(unadjusted, target)) / 2
    )
    metrics = (occupancy.Occupancy(),)
    readings = run_chain(
        run.select_kernel(sampler, model, metrics),
        model,
        model.domain.uniform(budget.chains, run.rng("start")),
        run.rng("chain"),
        steps=budget.steps,
        every=budget.every,
        metrics=metrics,
    )
    for reading in run.progress(readings, "sampling", budget.readings, -1, budget.every):
        if reading.step == 0:
            continue
        pooled = occupancy.pooled_law(reading.carries[0].counts.cpu())
        marginals = (pooled - target) @ proposal.states.flatten(1)
        run.log(
            reading.step,
            total_variation=stationary.l1_distance(pooled, target) / 2,
            to_unadjusted=stationary.l1_distance(pooled, unadjusted) / 2,
            independent=occupancy.independent_floor(target, budget.chains * reading.step) / 2,
            marginal_error=marginals.abs().max(),
        )


def headline(record: Record) -> list[KeyNumber]:
    """Distance of the chains' law to the target, beside that of independent draws."""
    distance, floor = (last_reading(record, name) for name in ("total_variation", "independent"))
    beside = {"independent draws": Estimate(floor)}
    return [
        KeyNumber("total_variation", distance, better="lower", references=beside),
        KeyNumber("marginal_error", last_reading(record, "marginal_error"), better="lower"),
    ]
