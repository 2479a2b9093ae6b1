"""How well a model explains rows that it was not trained on, which says when to stop."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Generator, Tensor

from latticework.data.base import TrainingData, derive, fixed_subset
from latticework.models.base import EnergyModel
from latticework.models.domains import Binary
from latticework.models.paths import path_of
from latticework.samplers.base import Sampler
from latticework.sampling.annealing import (
    anneal,
    estimate_log_normaliser,
    require_exact,
    sigmoid,
)
from latticework.sampling.pseudolikelihood import mean_pseudolikelihood, require_listed_sites

Score = Literal["pseudolikelihood", "ais"]
SMOOTHING = 0.01  # a site's frequency m becomes m (1 - 2 * 0.01) + 0.01
ROWS_AT_ONCE = 500  # rows evaluated at once
ROWS_READ = 1000  # held-out rows that are scored, at most
COSTLY_ROWS_READ, COSTLY_SITES_READ = 200, 64  # where a site costs an evaluation of the model
AIS_CHAINS, AIS_STEPS = 100, 500


def log_odds(data: TrainingData | None) -> Tensor | None:
    """Log-odds of each site over the training rows, smoothed; None without data."""
    if data is None:
        return None
    return (data.mean * (1 - 2 * SMOOTHING) + SMOOTHING).logit()


def mean_log_likelihood(model: EnergyModel, rows: Tensor, log_z: float) -> dict[str, float]:
    """Mean log-likelihood of `rows`, its standard error over rows, and their number."""
    device = next((t.device for t in (*model.parameters(), *model.buffers())), rows.device)
    with torch.no_grad():
        parts = [model.log_prob(part.float().to(device)) for part in rows.split(ROWS_AT_ONCE)]
    scores = torch.cat(parts).double() - log_z
    error = float(scores.std()) / len(rows) ** 0.5
    return {"mean": float(scores.mean()), "rows_error": error, "rows": len(rows)}


def score_by(
    word: str, rows: Tensor, data: TrainingData, model: EnergyModel, kernel: Sampler, seed: int
) -> Callable[[EnergyModel], float]:
    """The function that scores a model on held-out rows: larger is better, in nats a row.

    "pseudolikelihood" sums log p(site given the rest). "ais" is the log-likelihood, whose log Z
    chains of `kernel` estimate. Each call draws the same random numbers. Raises ValueError where
    the model's sites, or the kernel, do not allow it.
    """
    if word == "ais":
        require_exact(kernel)
        rows = fixed_subset(rows, ROWS_READ)
        odds = log_odds(data) if isinstance(model.domain, Binary) else None

        def log_likelihood(model: EnergyModel) -> float:
            path = path_of(model, odds).to(rows.device)
            rng = Generator(rows.device).manual_seed(seed)
            betas = sigmoid(AIS_STEPS).to(rows.device)
            annealed = anneal(kernel, path, path.draw(AIS_CHAINS, rng), betas, rng)
            ratio = estimate_log_normaliser(annealed.log_weight, rng).value
            return mean_log_likelihood(model, rows, float(path.log_z_start()) + ratio)["mean"]

        return log_likelihood
    require_listed_sites(model, "the pseudolikelihood")
    sites = torch.arange(model.domain.dim)
    if not model.closed_differences:
        rows = fixed_subset(rows, COSTLY_ROWS_READ)
        order = torch.randperm(model.domain.dim, generator=derive(0, "sites"))
        sites = order[:COSTLY_SITES_READ]
    rows = fixed_subset(rows, ROWS_READ).float()
    return lambda model: mean_pseudolikelihood(rows, model, sites)
