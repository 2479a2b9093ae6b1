"""Means of sites by their conditional probabilities (Rao-Blackwell): less noise from equal draws.

The mean of P(x_i | all other sites) over draws of x has the expectation of x_i, and never a larger
variance in a single draw. A. E. Gelfand and A. F. M. Smith, "Sampling-Based Approaches to
Calculating Marginal Densities", JASA 1990.
"""

from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.models.domains import Binary, Categorical, Ordinal

MAX_NUMBERS = 2**22  # numbers of states that are evaluated together, which bounds the memory


def why_no_conditional_means(model: EnergyModel) -> str:
    """Why the sites of a target have no conditional means; "" if they have."""
    if not isinstance(model.domain, Binary | Categorical | Ordinal):
        return f"the sites of {model.domain} do not have a few values each, given the others"
    return ""


@torch.no_grad()
def conditional_means(model: EnergyModel, draws: Tensor) -> Tensor:
    """The mean of each entry of x given all other sites, at `draws` `[chains, draws, *shape]`.

    Float64, of the same shape; of one-hot sites it is the probability of each value. It costs what
    `EnergyModel.differences` of all sites costs, a draw. Raises ValueError for a domain on which
    sites do not take a few values each.
    """
    if why := why_no_conditional_means(model):
        raise ValueError(f"there are no conditional means: {why}; average x itself")
    chains, length = draws.shape[:2]
    place = next(chain(model.parameters(), model.buffers()), draws).device
    means = torch.empty(draws.shape, dtype=torch.float64)
    together = max(1, MAX_NUMBERS // max(1, draws[:, :1].numel()))
    if model.chains is not None:  # each chain has a law of its own
        together = 1
    for first in range(0, length, together):
        block = draws[:, first : first + together]
        values = _means_of_states(model, block.flatten(0, 1).to(place)).cpu()
        means[:, first : first + together] = values.view(chains, -1, *draws.shape[2:])
    return means


def _means_of_states(model: EnergyModel, x: Tensor) -> Tensor:
    """The mean of each entry given the rest, float64, of the shape of the states `x`."""
    domain = model.domain
    sites, cache = torch.arange(domain.dim, device=x.device), model.cache(x)
    if isinstance(domain, Binary):
        share = model.log_odds(x, cache, sites).double().sigmoid()
        return domain.low + (domain.high - domain.low) * share
    log_probs = model.differences(x, cache, sites).double()
    if (allowed := domain.allowed_values(sites)) is not None:
        log_probs = log_probs.masked_fill(~allowed, -torch.inf)
    shares = log_probs.softmax(-1)
    return shares if isinstance(domain, Categorical) else shares @ domain.values().to(shares)


def average_conditionals(model: EnergyModel, draws: Tensor, every: int) -> NDArray[np.float64]:
    """`conditional_means` of each `every`-th draw, `[chains, draws, entries]`."""
    return conditional_means(model, draws[:, ::every]).flatten(2).numpy()
