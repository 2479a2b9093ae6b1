"""Task: the log normaliser of a model by annealed importance sampling, and log-likelihoods with it.

Chains start from independent sites with the frequencies of the data and end at the model. They
estimate log Z and bound it from below in expectation. Chains in the other direction start from
training rows. They bound log Z from above as far as such rows, after `burn_in` steps, are
distributed like draws from the model. Several models, such as the snapshots of one run of
learning, are compared by a shorter run each; the one with the largest log-likelihood of the
validation rows is used (Zhang et al. 2022, App. I.4).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from latticework.data.base import Dataset, fixed_subset
from latticework.experiments.records import likelihood
from latticework.experiments.records.estimates import Estimate, KeyNumber
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures.annealer import Annealer, kernel_for_path
from latticework.experiments.tasks.target import ensure_trained
from latticework.models.base import AnnealedModel, EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling import annealing
from latticework.sampling.adaptation import Adaptation
from latticework.sampling.learning.held_out import log_odds, mean_log_likelihood
from latticework.sampling.loop_state import LoopState

log = logging.getLogger(__name__)


def ais(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    budget: Budget,
    path: Callable[..., AnnealedModel],
    betas: Callable[[int], Tensor],
    back: int,
    burn_in: int = 0,
    kernel: Sampler | None = None,
    adapt: Adaptation | None = None,
    pretrain: Callable[..., EnergyModel] | None = None,
    candidates: Callable[..., dict[str, dict[str, Tensor]]] | None = None,
    trial_steps: int = 10_000,
    points: int | None = None,
    validation_points: int | None = None,
) -> None:
    """Estimate log Z with the chains of `budget`, one step a beta, and `back` chains backwards.

    `path` (models.annealed) is built from the model and the log-odds of independent sites. `kernel`
    replaces `sampler`, which may name how the model was trained. `adapt` chooses its fields in a
    pilot, for each block of betas. `candidates` gives several states of the model; the
    best one, by runs of `trial_steps` betas without a pilot, is used. `points` and
    `validation_points` limit the rows that are scored; None takes all. Without data the sites start
    uniform, and there are neither log-likelihoods nor chains back. Results are noted in nats.

    Raises ValueError if the kernel is not exact, if `adapt` does not support it, if a number of
    steps is no multiple of `every`, if there is a single chain in a direction, or if the model
    should be learned and is not (`experiments.tasks.target`).
    """
    annealing.require_exact(kernel := kernel or sampler)
    if adapt is not None:
        adapt.blocks(kernel)  # raises an error now, and not after hours of trials
    numbers = {"burn_in": burn_in, "trial_steps": trial_steps if candidates else 0}
    for name, number in numbers.items():
        if number % budget.every:
            raise ValueError(f"{name} must be a multiple of every, got {number} and {budget.every}")
    for name, chains in (("budget.chains", budget.chains), ("back", back or 2)):
        if chains < 2:  # known before the chains run for hours
            raise ValueError(f"{name} must be 2 or more for a standard error, got {chains}")
    if pretrain is not None or candidates is None:
        model = ensure_trained(model, data, run, pretrain)
    states = candidates(model=model, sampler=sampler, data=data, run=run) if candidates else {}
    model = model.requires_grad_(False).to(run.device)
    annealed = path(model, log_odds(data)).with_soft_zeros().to(run.device)
    kernel = kernel_for_path(run, kernel, annealed, adapt)
    annealer = Annealer(run, kernel, annealed, budget, float(annealed.log_z_start()))
    if states:
        assert data is not None  # they have been learned from it
        rows, ladder = (
            fixed_subset(data.valid, validation_points),
            betas(trial_steps).to(run.device),
        )
        _load_best_state(model, states, run, lambda: annealer.trial(model, rows, ladder))
    ladder = betas(budget.steps)
    kernels = annealer.pilot(adapt, ladder) if adapt else [kernel] * budget.readings
    log_z = annealer.base + annealer.run_forward(model, ladder, kernels).value
    if data is None:
        return
    valid, test = fixed_subset(data.valid, validation_points), fixed_subset(data.test, points)
    scores = {
        "valid": mean_log_likelihood(model, valid, log_z),
        "test": mean_log_likelihood(model, test, log_z),
    }
    run.note(log_likelihood=scores)
    if back:
        annealer.run_reverse(data, ladder, kernels, back, burn_in)


def headline(record: Record) -> list[KeyNumber]:
    """Log Z with its ends, and the log-likelihood of the test rows, all in nats.

    Errors are standard errors over chains; that of the log-likelihood is the error of log Z. If the
    run is not `settled`, its two ends replace the value.
    """
    document = record.document
    exact = document["log_z_exact"]
    beside = {} if exact is None else {"exact": Estimate(exact)}

    def number(name: str, shown: Estimate | str, **more: Any) -> KeyNumber:
        value, error = (shown, None) if isinstance(shown, str) else (shown.mean, shown.spread)
        return KeyNumber(name, value, error, "chains", **more)

    numbers = [number("log_z", likelihood.log_z_or_ends(record), references=beside)]
    for name, end in (
        ("at_least", likelihood.log_z_lower_bound(record)),
        ("from_rows", likelihood.log_z_upper_end(record)),
    ):
        if end is not None:
            numbers.append(number(f"log_z_{name}", end))
    if "log_likelihood" in document:
        numbers.append(
            number("test_log_likelihood", likelihood.likelihood_or_ends([record]), better="higher")
        )
    chains = Estimate(record.budget.chains)
    return [*numbers, KeyNumber("effective_chains", document["ess"], references={"of": chains})]


@dataclass(eq=False)
class Choosing(LoopState):
    scores: list[float] = field(default_factory=list)  # scores of the candidates tried so far


def _load_best_state(
    model: EnergyModel, states: dict[str, dict[str, Tensor]], run: Run, trial: Callable[[], float]
) -> None:
    """Load the state with the best `trial`; a single state needs no trial.

    A log-likelihood above 0 is impossible for discrete data. It means that the chains of the trial
    missed most of the model's mass, so such a state is left out if there is another.
    """
    names, memory = sorted(states), Choosing()
    if len(names) > 1:
        for number in run.resumable(memory, "choosing", total=len(names)):
            model.load_state_dict(states[names[number - 1]])
            memory.scores.append(trial())
    scores = dict(zip(names, memory.scores, strict=False))
    possible = [name for name, score in scores.items() if score <= 0]
    for name in sorted({*scores} - {*possible}):
        log.warning(
            "the state %s is not considered: its log-likelihood of the validation rows is at most "
            "0 and was estimated as %.4g nats; more trial_steps give a better estimate",
            name,
            scores[name],
        )
    chosen = max(possible or names, key=lambda name: -abs(scores.get(name, 0.0)))
    model.load_state_dict(states[chosen])
    run.note(chosen=chosen, validation_by_candidate=scores)
