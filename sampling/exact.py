"""Exact normalisers and means of small models, as ground truth for estimates.

    log Z = log sum_x exp(log_prob(x)),     mean = sum_x x exp(log_prob(x) - log Z)

A model may exploit its structure in `EnergyModel.log_z_and_mean`: a lattice uses transfer matrices,
an RBM sums over its hidden layer. Any other finite model is enumerated in chunks, so that memory
does not grow with the number of states.
"""

import copy
from itertools import chain
from math import prod
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel

LARGEST = 2**26  # states; some tens of seconds
CHEAP = 2**16  # states; a fraction of a second
CHUNK = 2**15  # states held at once


class Exact(NamedTuple):
    log_z: Tensor  # scalar, float64
    mean: Tensor  # [*domain.shape], float64; of one-hot states: the probability of each value


def exact(model: EnergyModel) -> Exact:
    """The log normaliser and the mean of x: by the model's own method, else by enumeration.

    Without such a method, raises ValueError for an infinite domain or more than 2^26 states.
    """
    own = model.log_z_and_mean()
    return enumerated(model) if own is None else Exact(*own)


def cheap(model: EnergyModel) -> Exact | None:
    """`exact` if it is fast, with at most CHEAP states to enumerate; else None."""
    try:
        own = model.log_z_and_mean()
        if own is not None:
            return Exact(*own)
        return enumerated(model) if few_states(model) else None
    except ValueError:  # a lattice that is too wide, no state of positive probability
        return None


def few_states(model: EnergyModel) -> bool:
    """Whether the domain has at most CHEAP states."""
    try:
        return model.domain.count() <= CHEAP
    except ValueError:  # infinitely many
        return False


@torch.no_grad()
def enumerated(model: EnergyModel) -> Exact:
    """The log normaliser and the mean by enumeration in chunks, in float64 if the model can."""
    domain = model.domain
    model, home = _in_double(model)
    if (count := domain.count()) > LARGEST:
        raise ValueError(
            f"enumeration is limited to 2^26 states, {domain} has {count:.3g}; "
            "estimate its means by sampling"
        )
    largest = torch.tensor(-torch.inf, dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    weighted = torch.zeros(prod(domain.shape), dtype=torch.float64)
    for start in range(0, count, CHUNK):
        x = domain.listed(torch.arange(start, min(start + CHUNK, count))).to(home)
        log_prob = model.log_prob(x).double().cpu()
        if not (log_prob < torch.inf).all():
            raise ValueError(
                f"the log-probability is NaN or +inf at some states of {domain}; give finite "
                "numbers, or -inf where states are impossible"
            )
        if (peak := torch.maximum(largest, log_prob.max())) == -torch.inf:
            continue  # no state so far has a positive probability
        shrink = (largest - (largest := peak)).exp()
        weight = (log_prob - largest).exp()
        total = total * shrink + weight.sum()
        weighted = weighted * shrink + weight @ x.double().cpu().flatten(1)
    if largest == -torch.inf:
        known = " given the known values, so the evidence is impossible" * hasattr(
            model, "evidence"
        )
        raise ValueError(f"no state of {domain} has a positive probability{known}")
    return Exact(largest + total.log(), (weighted / total).view(domain.shape))


@torch.no_grad()
def distribution(model: EnergyModel) -> tuple[Tensor, Tensor]:
    """Every state `[states, *domain.shape]` and its probability `[states]`, float64."""
    states, (exact, home) = model.domain.enumerate(), _in_double(model)
    return states.to(_home(model)), exact.log_prob(states.to(home)).double().softmax(0)


def _in_double(model: EnergyModel) -> tuple[EnergyModel, Tensor]:
    """A copy of the model in float64, and a tensor of its device and type.

    The model itself if the copy cannot be evaluated, as with float32 constants.
    """
    home = _home(model)
    try:
        exact, x = copy.deepcopy(model).double(), model.domain.uniform(1, Generator())
        if exact.log_prob(x.to(home).double()).dtype == torch.float64:
            return exact, home.double()
    except (RuntimeError, TypeError):
        pass
    return model, home


def _home(model: EnergyModel) -> Tensor:
    """A tensor with the model's device and floating-point type."""
    tensors = chain(model.parameters(), model.buffers())
    return next((t for t in tensors if t.is_floating_point()), torch.empty(0))
