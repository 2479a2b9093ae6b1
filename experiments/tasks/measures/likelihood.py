"""Log-likelihoods of data rows, and the independent sites that annealing starts from."""

import torch
from torch import Tensor

from latticework.data.base import Dataset
from latticework.models.base import EnergyModel

SMOOTHING = 0.01  # a site's frequency m becomes m (1 - 2 * 0.01) + 0.01
ROWS = 500  # data rows evaluated at once


def log_odds(data: Dataset | None) -> Tensor | None:
    """Log-odds of each site over the training rows, smoothed; None without data."""
    if data is None:
        return None
    return (data.mean * (1 - 2 * SMOOTHING) + SMOOTHING).logit()


def score_rows(model: EnergyModel, rows: Tensor, log_z: float) -> dict[str, float]:
    """Mean log-likelihood of `rows`, its standard error over rows, and their number."""
    device = next((t.device for t in (*model.parameters(), *model.buffers())), rows.device)
    with torch.no_grad():
        parts = [model.log_prob(part.float().to(device)) for part in rows.split(ROWS)]
    scores = torch.cat(parts).double() - log_z
    error = float(scores.std()) / len(rows) ** 0.5
    return {"mean": float(scores.mean()), "rows_error": error, "rows": len(rows)}
