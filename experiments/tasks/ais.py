"""Task: the log normaliser of a model by annealed importance sampling, and log-likelihoods with it.

Chains go from independent sites with the data's frequencies to the model, which estimates log Z and
bounds it from below in expectation. Others go back from training rows to independent sites: as far
as such rows, after `burn_in` steps, are like draws from the model, they bound log Z from above.
Of several models, such as those stored while one was learned, a shorter run for each finds the one
with the largest log-likelihood of the validation rows (Zhang et al. 2022, App. I.4).
"""

import logging
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from data.base import Dataset, some
from experiments.ais import (
    Annealing,
    LogNormaliser,
    anneal,
    estimate_log_normaliser,
    require_exact,
    start,
    stepper,
)
from experiments.budget import Budget
from experiments.context import Run
from experiments.training import trained
from models.base import AnnealedModel, EnergyModel
from samplers.base import Sampler

log = logging.getLogger(__name__)
SMOOTHING = 0.01  # a site's frequency m becomes m (1 - 2 * 0.01) + 0.01
ROWS = 500  # of the data evaluated at once


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
    pretrain: Callable[..., EnergyModel] | None = None,
    candidates: Callable[..., dict[str, dict[str, Tensor]]] | None = None,
    trial_steps: int = 10_000,
    points: int | None = None,
    validation_points: int | None = None,
) -> None:
    """Log Z by the chains of `budget`, whose steps are the betas, and `back` chains back.

    `path` (models.annealed) is made of the model and the log-odds of independent sites; `kernel`
    replaces the sampler where that names how the model was trained. `candidates` gives several
    states of the model, of which the best is taken, by `trial_steps` betas each. `points` and
    `validation_points` limit the rows that are scored, None takes all. Without data, there are no
    log-likelihoods and no chains back, and the sites are uniform. What is found is in run.json, in
    nats. Raises ValueError for a kernel that is not exact, or unless the numbers of steps are
    multiples of `every`, and for a model that is meant to be learned and is not
    (`experiments.training`).
    """
    kernel = kernel or sampler
    require_exact(kernel)
    numbers = {"burn_in": burn_in, "trial_steps": candidates and trial_steps}
    for name, number in numbers.items():
        if (number or 0) % budget.every:
            raise ValueError(f"{name} must be a multiple of every, got {number} and {budget.every}")
    if pretrain is not None or candidates is None:
        model = trained(model, data, run, pretrain)
    states = candidates(model=model, sampler=sampler, data=data, run=run) if candidates else {}
    model = model.requires_grad_(False).to(run.device)
    annealed = path(model, log_odds(data)).to(run.device)
    base = float(annealed.log_z_start())

    def trial() -> float:
        """Mean log-likelihood of the validation rows, from a short run."""
        rng = run.rng("trial")
        ladder = betas(trial_steps).to(run.device)
        done = anneal(
            kernel, annealed, annealed.draw(budget.chains, rng), ladder, rng, budget.every
        )
        log_z = base + _estimated(done, run).value
        assert data is not None
        return _score(model, some(data.valid, validation_points), log_z)["mean"]

    if states:
        _take_best(model, states, run, trial)

    def weights(
        name: str, x: Tensor, betas: Tensor, forward: bool
    ) -> tuple[LogNormaliser, Annealing]:
        memory: dict[str, Any] = {"rng": run.rng(name)}
        betas = betas.to(run.device)
        with torch.no_grad():
            memory["chains"] = start(kernel, annealed, x, betas)
        total, step, began = (len(betas) - 1) // budget.every, None, None
        for block in run.resumable(memory, name, total=total):
            with torch.no_grad():
                if step is None:
                    step = stepper(
                        memory["chains"], kernel, annealed, betas, memory["rng"], budget.every
                    )
                    began = block, time.perf_counter()
                memory["chains"] = step(memory["chains"])
            found = _estimated(memory["chains"], run)
            run.log(
                block * budget.every,
                forward=forward,
                beta=betas[block * budget.every],
                log_ratio=found.value,
                ess=found.ess,
            )
            if began and began[0] == block:
                _foretell(name, time.perf_counter() - began[1], total - block)
        return _estimated(memory["chains"], run), memory["chains"]

    ladder = betas(budget.steps)
    x = annealed.draw(budget.chains, run.rng("start"))
    there, last = weights("annealing", x, ladder, forward=True)
    run.save("log_weight", forward=last.log_weight)
    run.save("last", x=last.kernel.x)
    log_z = base + there.value
    run.note(
        log_z=log_z,
        log_z_error=there.error,
        log_z_bootstrap=there.bootstrap,
        ess=there.ess,
        log_z_lower=base + there.bound,
        log_z_lower_error=there.bound_error,
        log_z_exact=_exact(model),
    )
    if data is None:
        return
    run.note(
        log_likelihood={
            "valid": _score(model, some(data.valid, validation_points), log_z),
            "test": _score(model, some(data.test, points), log_z),
        }
    )
    if back:
        rng = run.rng("rows", device="cpu")
        rows = torch.randint(len(data.train), (back,), generator=rng)
        x = data.batch(rows, rng).to(run.device)
        held = torch.ones(burn_in, dtype=ladder.dtype)
        again, last = weights("annealing back", x, torch.cat((held, ladder.flip(0))), forward=False)
        run.save("log_weight_back", back=last.log_weight)
        run.note(
            log_z_back=base - again.value,
            log_z_back_error=again.error,
            ess_back=again.ess,
            log_z_upper=base - again.bound,
            log_z_upper_error=again.bound_error,
        )


def _take_best(
    model: EnergyModel, states: dict[str, dict[str, Tensor]], run: Run, trial: Callable[[], float]
) -> None:
    """Load the state with the best `trial`; a single one needs none."""
    names = sorted(states)
    memory: dict[str, Any] = {"scores": []}
    if len(names) > 1:
        for number in run.resumable(memory, "choosing", total=len(names)):
            model.load_state_dict(states[names[number - 1]])
            memory["scores"].append(trial())
    scores = dict(zip(names, memory["scores"], strict=False))
    chosen = max(names, key=lambda name: scores.get(name, 0.0))
    model.load_state_dict(states[chosen])
    run.note(chosen=chosen, validation_by_candidate=scores)


def log_odds(data: Dataset | None) -> Tensor | None:
    """Of each site over the training rows, held away from the ends."""
    if data is None:
        return None
    return (data.mean * (1 - 2 * SMOOTHING) + SMOOTHING).logit()


def _estimated(annealing: Annealing, run: Run) -> LogNormaliser:
    return estimate_log_normaliser(annealing.log_weight.cpu(), run.rng("bootstrap", device="cpu"))


def _score(model: EnergyModel, rows: Tensor, log_z: float) -> dict[str, float]:
    """Mean log-likelihood of `rows`, its standard error over rows, and how many there are."""
    device = next((t.device for t in (*model.parameters(), *model.buffers())), rows.device)
    with torch.no_grad():
        parts = [model.log_prob(part.float().to(device)) for part in rows.split(ROWS)]
    scores = torch.cat(parts).double() - log_z
    error = float(scores.std()) / len(rows) ** 0.5
    return {"mean": float(scores.mean()), "rows_error": error, "rows": len(rows)}


def _exact(model: EnergyModel) -> float | None:
    try:
        known = model.log_z_and_mean()
    except ValueError:  # too large for the way that it would take
        return None
    return None if known is None else float(known[0])


def _foretell(name: str, seconds: float, blocks: int) -> None:
    log.info("%s: about %.1f minutes to go", name, seconds * blocks / 60)
