"""Task: the log normaliser of a model by annealed importance sampling, and log-likelihoods with it.

Chains start from independent sites with the frequencies of the data and end at the model. They
estimate log Z and bound it from below in expectation. Chains in the other direction start from
training rows. They bound log Z from above as far as such rows, after `burn_in` steps, are
distributed like draws from the model. Several models, such as the snapshots of one run of
learning, are compared by a shorter run each; the one with the largest log-likelihood of the
validation rows is used (Zhang et al. 2022, App. I.4).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Generator, Tensor

from latticework.data.base import Dataset, fixed_subset
from latticework.experiments.records.estimates import Estimate, KeyNumber
from latticework.experiments.records.likelihood import (
    likelihood_or_ends,
    log_z_lower_bound,
    log_z_or_ends,
    log_z_upper_end,
)
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.target import ensure_trained
from latticework.models.base import AnnealedModel, EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.adaptation import Adaptation, run_adaptation
from latticework.sampling.annealing import (
    Annealing,
    AnnealingKernel,
    LogNormaliser,
    anneal,
    estimate_log_normaliser,
    require_exact,
    start,
    stepper,
)
from latticework.sampling.engine import NotCompiledError
from latticework.sampling.exact import exact_if_cheap
from latticework.sampling.loop_state import LoopState

log = logging.getLogger(__name__)
SMOOTHING = 0.01  # a site's frequency m becomes m (1 - 2 * 0.01) + 0.01
ROWS = 500  # data rows evaluated at once


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
    require_exact(kernel := kernel or sampler)
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
    scores = {"valid": _score(model, valid, log_z), "test": _score(model, test, log_z)}
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

    numbers = [number("log_z", log_z_or_ends(record), beside=beside)]
    for name, end in (
        ("at_least", log_z_lower_bound(record)),
        ("from_rows", log_z_upper_end(record)),
    ):
        if end is not None:
            numbers.append(number(f"log_z_{name}", end))
    if "log_likelihood" in document:
        numbers.append(number("test_log_likelihood", likelihood_or_ends([record]), better="higher"))
    chains = Estimate(record.budget.chains)
    return [*numbers, KeyNumber("effective_chains", document["ess"], beside={"of": chains})]


def kernel_for_path(
    run: Run, kernel: Sampler, path: AnnealedModel, adapt: Adaptation | None = None
) -> Sampler:
    """The kernel that chains move by; engine=fused compiles whole steps of AIS with `kernel`.

    Raises NotCompiledError for engine=fused with an adaptation.
    """
    if run.engine != "fused":
        return run.kernel(kernel, path)
    if adapt is not None:
        raise NotCompiledError(
            "engine=fused is not possible: a step would be compiled for each block of betas, whose "
            "kernels the adaptation chooses; use engine=auto or adapt=none"
        )
    return kernel


@dataclass(eq=False)
class Passage(LoopState):
    """Chains on their way along the path."""

    chains: Annealing
    rng: Generator


@dataclass(eq=False)
class Pilot(LoopState):
    x: Tensor  # where its chains are
    rng: Generator
    chosen: list[dict[str, Any]]  # fields of the kernel, of each block so far


@dataclass(frozen=True)
class Annealer:
    """Takes chains along the path, or the particles of `runs` runs of SMC.

    `base` is log Z at its start.
    """

    run: Run
    kernel: Sampler
    path: AnnealedModel
    budget: Budget
    base: float
    runs: int = 0

    def run_annealing(
        self, name: str, x: Tensor, betas: Tensor, kernels: Sequence[Sampler], forward: bool
    ) -> tuple[LogNormaliser, Annealing]:
        """Take chains from `x` along `betas`, with a row of metrics.csv at each reading.

        There is a kernel for each block of betas. A new one costs a new CUDA graph on a GPU.
        """
        run, every, kernel = self.run, self.budget.every, kernels[0]
        betas = betas.to(run.device)
        with torch.no_grad():
            memory = Passage(start(kernel, self.path, x, betas), run.rng(name))
        step = None
        for block in run.resumable(memory, name, total=len(kernels)):
            with torch.no_grad():
                if step is None or kernels[block - 1] is not kernel:
                    kernel = kernels[block - 1]
                    chains, rng = memory.chains, memory.rng
                    fused = None
                    if run.engine == "fused":
                        move, most = AnnealingKernel(kernel, betas, self.runs), len(betas) - 1
                        fused = run.kernel(move, self.path, (), x, most, every)
                    step = stepper(chains, kernel, self.path, betas, rng, every, self.runs, fused)
                memory.chains = step(memory.chains)
            found = self.estimated(memory.chains)
            run.log(
                block * every,
                forward=forward,
                beta=betas[block * every],
                log_ratio=found.value,
                ess=found.ess,
            )
        return self.estimated(memory.chains), memory.chains

    def estimated(self, chains: Annealing) -> LogNormaliser:
        rng = self.run.rng("bootstrap", device="cpu")
        return estimate_log_normaliser(chains.log_weight.cpu(), rng, self.runs)

    def pilot(self, rule: Adaptation, ladder: Tensor) -> list[Sampler]:
        """A kernel for each block of betas, with the fields that `rule` chooses at its middle beta.

        The pilot's own chains move along the path and stop at each of these betas for the steps of
        the rule. The kernels are then frozen. They do not depend on the chains of the run, so the
        weights stay unbiased. The fields are noted as `frozen`, a list for each.
        """
        run, path, every = self.run, self.path, self.budget.every
        middle = ladder[(every + 1) // 2 :: every].to(run.device)
        rng = run.rng("pilot")
        memory = Pilot(path.draw(self.budget.chains, rng), rng, [])
        kernel: Any = self.kernel
        for block in run.resumable(memory, "pilot", total=self.budget.readings):
            before = replace(kernel, **(memory.chosen[-1] if memory.chosen else {}))
            path.move_to(middle[block - 1])
            found = run_adaptation(rule, before, path, memory.x, memory.rng, run.engine)
            memory.x, memory.chosen = found.x, [*memory.chosen, found.fields]
        run.note(frozen={name: [one[name] for one in memory.chosen] for name in memory.chosen[0]})
        return [kernel_for_path(run, replace(kernel, **one), path) for one in memory.chosen]

    def trial(self, model: EnergyModel, rows: Tensor, ladder: Tensor) -> float:
        """Mean log-likelihood of `rows`, from a short run."""
        rng = self.run.rng("trial")
        x = self.path.draw(self.budget.chains, rng)
        done = anneal(self.kernel, self.path, x, ladder, rng, self.budget.every)
        return _score(model, rows, self.base + self.estimated(done).value)["mean"]

    def run_forward(
        self, model: EnergyModel, ladder: Tensor, kernels: Sequence[Sampler]
    ) -> LogNormaliser:
        """By chains from independent sites to the model; stored, and log Z noted."""
        run, base = self.run, self.base
        x = self.path.draw(self.budget.chains, run.rng("start"))
        there, last = self.run_annealing("annealing", x, ladder, kernels, forward=True)
        run.save("log_weight", forward=last.log_weight)
        run.save("last", x=last.kernel.x)
        known = exact_if_cheap(model)
        run.note(
            log_z=base + there.value,
            log_z_error=there.error,
            log_z_bootstrap=there.bootstrap,
            ess=there.ess,
            log_z_lower=base + there.bound,
            log_z_lower_error=there.bound_error,
            log_z_exact=None if known is None else float(known.log_z),
        )
        return there

    def run_reverse(
        self, data: Dataset, ladder: Tensor, kernels: Sequence[Sampler], back: int, burn_in: int
    ) -> None:
        """The upper bound on log Z by `back` chains from training rows to independent sites."""
        run, base = self.run, self.base
        rng = run.rng("rows", device="cpu")
        rows = torch.randint(len(data.train), (back,), generator=rng)
        x = data.batch(rows, rng).to(run.device)
        held = torch.ones(burn_in, dtype=ladder.dtype)
        path = torch.cat((held, ladder.flip(0)))
        own = [kernels[-1]] * (burn_in // self.budget.every) + [*reversed(kernels)]
        again, last = self.run_annealing("annealing back", x, path, own, forward=False)
        run.save("log_weight_back", back=last.log_weight)
        run.note(
            log_z_back=base - again.value,
            log_z_back_error=again.error,
            ess_back=again.ess,
            log_z_upper=base - again.bound,
            log_z_upper_error=again.bound_error,
        )


@dataclass(eq=False)
class Choosing(LoopState):
    scores: list[float] = field(default_factory=list)  # of the candidates tried so far


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


def log_odds(data: Dataset | None) -> Tensor | None:
    """Log-odds of each site over the training rows, smoothed; None without data."""
    if data is None:
        return None
    return (data.mean * (1 - 2 * SMOOTHING) + SMOOTHING).logit()


def _score(model: EnergyModel, rows: Tensor, log_z: float) -> dict[str, float]:
    """Mean log-likelihood of `rows`, its standard error over rows, and their number."""
    device = next((t.device for t in (*model.parameters(), *model.buffers())), rows.device)
    with torch.no_grad():
        parts = [model.log_prob(part.float().to(device)) for part in rows.split(ROWS)]
    scores = torch.cat(parts).double() - log_z
    error = float(scores.std()) / len(rows) ** 0.5
    return {"mean": float(scores.mean()), "rows_error": error, "rows": len(rows)}
