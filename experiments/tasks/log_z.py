"""Task: the log normaliser of a model by tempering, an SMC sampler or annealed importance sampling.

All three go the same way from a law that is known to the model. Every estimate has a 95 % interval.
Where its error is not plain, the interval is wide and says so: SMC and AIS then have the bound of
Markov's inequality and no upper end, and tempering the hull of its estimates.
"""

from collections.abc import Callable
from typing import Literal

from torch import Tensor

from latticework.data.base import Dataset
from latticework.experiments.records.estimates import Estimate, KeyNumber
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures.log_z_by_annealing import by_annealing
from latticework.experiments.tasks.measures.log_z_by_tempering import by_tempering
from latticework.experiments.tasks.target import ensure_trained
from latticework.models.base import AnnealedModel, EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling import annealing
from latticework.sampling.adaptation import Adaptation
from latticework.sampling.exact import exact_if_cheap
from latticework.sampling.learning.held_out import log_odds


def log_z(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    budget: Budget,
    estimator: Literal["tempering", "smc", "ais"],
    path: Callable[..., AnnealedModel],
    runs: int = 10,
    betas: Callable[[int], Tensor] | None = None,
    back: int = 0,
    adapt: Adaptation | None = None,
    pretrain: Callable[..., EnergyModel] | None = None,
) -> None:
    """Estimate log Z, in nats, with a kernel and the chains and steps of `budget`.

    `estimator`: "ais" takes the chains along the path with a step at each beta, "smc" the same
    chains as the particles of `runs` independent runs, and "tempering" makes the steps in as many
    ladders, of which the second half counts. AIS and SMC go along `path` (`models.annealed`), from
    independent sites with the frequencies of the data if there are any, and by `betas`; without
    it, by equal steps for AIS, and for SMC as a pilot spaces them. With data, `back` chains of AIS
    start at training rows and give an upper end. `adapt` chooses fields of the kernel beforehand:
    for AIS and SMC in each block of betas, for tempering at each level if the kernel has a step
    size, else at b = 1. Tempering begins at the same independent sites.

    Raises ValueError for a kernel that is not exact, for fewer than two chains, or if `runs` does
    not divide them; others as `tasks.ais.ais` does.
    """
    if estimator == "smc" and (runs < 2 or budget.chains % runs or budget.chains == runs):
        raise ValueError(
            f"task.runs must be 2 or more and divide budget.chains into particles, got {runs} and "
            f"{budget.chains}"
        )
    if budget.chains < 2:
        raise ValueError(f"budget.chains must be 2 or more for an interval, got {budget.chains}")
    model = ensure_trained(model, data, run, pretrain).requires_grad_(False).to(run.device)
    began = run.seconds
    if estimator == "tempering":
        by_tempering(model, sampler, log_odds(data), run, budget, adapt)
    else:
        annealing.require_exact(sampler)
        numbers = runs if estimator == "smc" else 0
        by_annealing(model, sampler, data, run, budget, path, numbers, betas, back, adapt)
    known = exact_if_cheap(model)
    run.note(
        estimation_seconds=run.seconds - began - run.notes.get("compile_seconds", 0),
        log_z_exact=None if known is None else float(known.log_z),
    )


def headline(record: Record) -> list[KeyNumber]:
    """Log Z with its interval beside the exact value, the Markov bound, and the costs, in nats."""
    document, beside = record.document, {}
    for name, key in (("95 % low", "low"), ("95 % high", "high"), ("exact", "exact")):
        if (value := document[f"log_z_{key}"]) is not None:
            beside[name] = Estimate(value)
    numbers = [KeyNumber("log_z", document["log_z"], references=beside)]
    if (bound := document.get("log_z_at_least")) is not None:
        numbers.append(KeyNumber("log_z_at_least", bound))
        of = {"of": Estimate(document["effective_of"])}
        numbers.append(KeyNumber("effective_chains", document["ess"], references=of))
    else:
        numbers.append(KeyNumber("barrier", document["barrier"]))
        numbers.append(KeyNumber("round_trips", document["round_trips"]))
    return [*numbers, KeyNumber("evaluations", document["evaluations"])]
