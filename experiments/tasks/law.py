"""Task: the distribution of a Langevin sampler's states against enumeration (App. B)."""

from latticework.data.base import Dataset
from latticework.experiments.records.estimates import Estimate, KeyNumber, last_reading
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures.stationary import (
    enumerate_proposal,
    in_double,
    l1_distance,
    stationary_law,
)
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.chain import run_chain
from latticework.sampling.occupancy import Occupancy, independent_floor, pooled_law


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
    proposal = enumerate_proposal(sampler, in_double(model))
    target, unadjusted = proposal.target, stationary_law(proposal.unadjusted)
    run.note(states=len(target), unadjusted_bias=float(l1_distance(unadjusted, target)) / 2)
    metrics = (Occupancy(),)
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
        found = pooled_law(reading.carries[0].counts.cpu())
        marginals = (found - target) @ proposal.states.flatten(1)
        run.log(
            reading.step,
            total_variation=l1_distance(found, target) / 2,
            to_unadjusted=l1_distance(found, unadjusted) / 2,
            independent=independent_floor(target, budget.chains * reading.step) / 2,
            marginal_error=marginals.abs().max(),
        )


def headline(record: Record) -> list[KeyNumber]:
    """Distance of the chains' law to the target, beside that of independent draws."""
    distance, floor = (last_reading(record, name) for name in ("total_variation", "independent"))
    beside = {"independent draws": Estimate(floor)}
    return [
        KeyNumber("total_variation", distance, better="lower", beside=beside),
        KeyNumber("marginal_error", last_reading(record, "marginal_error"), better="lower"),
    ]
