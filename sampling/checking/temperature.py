"""The temperature of draws: how much warmer or colder than their target a source made them.

For draws of pi^beta, the sites given all others have the law softmax(beta log pi). `beta` maximises
the sum of these conditional log-probabilities over sites and draws, the pseudolikelihood of
J. Besag ("Statistical Analysis of Non-lattice Data", The Statistician 1975), which needs no
normaliser. Its standard error is that of an M-estimate, from the spread of the scores of draws or
chains, whose number gives the quantile of Student's t.
"""

from collections.abc import Callable
from typing import NamedTuple, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from latticework.models.base import EnergyModel
from latticework.sampling.checking.draws import as_states
from latticework.sampling.intervals import t_half_width
from latticework.sampling.pseudolikelihood import conditional_terms, require_listed_sites
from latticework.sampling.targets import States, as_model

MAX_NEWTON_STEPS = 100
TOLERANCE = 1e-8  # relative error of beta
LARGEST_STEP = 2.0  # factor by which a step of Newton's method may change beta


class Temperature(NamedTuple):
    """The inverse temperature of draws relative to their target, with a 95 % interval."""

    beta: float  # 1: as the target; below: warmer
    low: float
    high: float

    def __str__(self) -> str:
        interval = f"[{self.low:.3g}, {self.high:.3g}]"
        return f"beta {self.beta:.3g} {interval}, temperature {1 / self.beta:.3g}"


def temperature(
    draws: Tensor | np.ndarray,
    target: EnergyModel | nn.Module | Callable[[Tensor], Tensor],
    **states: Unpack[States],
) -> Temperature:
    """The inverse temperature beta with which `draws` follow `target`^beta.

    Args:
        draws: independent draws `[draws, *domain.shape]`, or chains `[chains, draws, ...]`, whose
            draws may depend on one another: the interval then takes each chain as one, and is
            wide for few chains.
        target: the unnormalised log-probability, as in `latticework.sample`.
        states: `domain`, `sites` and `values` of a function, as in `latticework.sample`.

    Raises:
        ValueError: if there is a single chain, if the draws are not states of the domain, if sites
            cannot be listed one by one, or if no finite beta fits: all draws are then modes of the
            target, or beta is not positive.
    """
    model = as_model(target, **states)
    require_listed_sites(model, "a temperature")
    x = as_states(draws, model.domain)
    if len(x) == 1:
        raise ValueError(
            "one chain does not tell the error of its temperature; give several chains, or "
            "independent draws as [draws, sites]"
        )
    at_value, log_probs = conditional_terms(x.flatten(0, 1), model)
    groups = torch.arange(len(x)).repeat_interleave(x.shape[1])
    beta, converged = 1.0, False
    for _ in range(MAX_NEWTON_STEPS):
        score, curvature = _scores(beta, at_value, log_probs)
        step = float(score.sum() / curvature.sum())
        before, beta = beta, min(max(beta + step, beta / LARGEST_STEP), beta * LARGEST_STEP)
        if converged := abs(beta - before) < TOLERANCE * before:
            break
    if not converged:
        raise ValueError(
            "no finite positive beta fits these draws: each is a mode of the target, or "
            "none depends on it"
        )
    score, curvature = _scores(beta, at_value, log_probs)
    by_group = torch.zeros(len(x), dtype=torch.float64).index_add_(0, groups, score)
    spread = by_group.square().sum() * len(x) / (len(x) - 1)
    half = t_half_width(len(x)) * float(spread.sqrt() / curvature.sum())
    return Temperature(beta, beta - half, beta + half)


def _scores(beta: float, at_value: Tensor, log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """The derivative of each draw's log-pseudolikelihood, and less the second one, `[draws]`."""
    weights = (beta * log_probs).softmax(2)
    finite = log_probs.masked_fill(log_probs == -torch.inf, 0)  # 0 * -inf is NaN
    mean = (weights * finite).sum(2)
    variance = (weights * (finite - mean.unsqueeze(2)).square()).sum(2)
    return (at_value - mean).sum(1), variance.sum(1)
