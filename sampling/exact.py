"""Exact normalisers and means of small models, as ground truth for estimates.

    log Z = log sum_x exp(log_prob(x)),     mean = sum_x x exp(log_prob(x) - log Z)

A model may exploit its structure in `EnergyModel.log_z_and_mean`: a lattice uses transfer matrices,
an RBM sums over its hidden layer. Any other finite model is enumerated in chunks, so that memory
does not grow with the number of states. An RBM with more hidden units than are cheap is enumerated
over these.
"""

import copy
from collections.abc import Callable
from itertools import chain
from math import prod
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.domains import Domain

MAX_STATES = 2**26  # states; some tens of seconds
MAX_CHEAP_STATES = 2**16  # states; a fraction of a second
CHUNK = 2**15  # states held at once
HIDDEN = 24  # units of an RBM that are summed over; minutes with a thousand visible units


class Exact(NamedTuple):
    log_z: Tensor  # scalar, float64
    mean: Tensor  # [*domain.shape], float64; of one-hot states: the probability of each value


def exact(model: EnergyModel) -> Exact:
    """The log normaliser and the mean of x: by the model's own method, else by enumeration.

    Without such a method, raises ValueError for an infinite domain or more than 2^26 states. If an
    RBM has fewer hidden units than visible ones, the hidden ones are enumerated, at most 24.
    """
    if (closed_form := model.log_z_and_mean()) is not None:
        return Exact(*closed_form)
    if (layer := model.hidden_layer()) is not None:
        domain, size, evaluate = layer
        if domain.dim <= HIDDEN:
            return _sum_states(domain, evaluate, size)
        if model.domain.dim > HIDDEN:
            raise ValueError(
                f"an RBM is summed over its smaller layer, of at most {HIDDEN} units; this one has "
                f"{size} visible and {domain.dim} hidden units: estimate log Z by tempering "
                "(temper=True), and means by sampling"
            )
    return sum_all_states(model)


def exact_if_cheap(model: EnergyModel) -> Exact | None:
    """`exact` if it is fast, with at most CHEAP states to enumerate; else None."""
    try:
        closed_form = model.log_z_and_mean()
        if closed_form is not None:
            return Exact(*closed_form)
        return sum_all_states(model) if few_states(model) else None
    except ValueError:  # a lattice that is too wide, no state of positive probability
        return None


def few_states(model: EnergyModel) -> bool:
    """Whether the domain has at most CHEAP states."""
    try:
        return model.domain.count() <= MAX_CHEAP_STATES
    except ValueError:  # infinitely many
        return False


@torch.no_grad()
def sum_all_states(model: EnergyModel) -> Exact:
    """The log normaliser and the mean by enumeration in chunks, in float64 if the model can."""
    domain = model.domain
    model, home = _in_double(model)
    if (count := domain.count()) > MAX_STATES:
        raise ValueError(
            f"enumeration is limited to 2^26 states, {domain} has {count:.3g}; "
            "estimate its means by sampling"
        )

    def evaluate(x: Tensor) -> tuple[Tensor, Tensor]:
        x = x.to(home)
        return model.log_prob(x), x.flatten(1).double()

    condition = ""
    if model.is_conditioned:
        condition = " given the known values, so the evidence is impossible"
    total = _sum_states(domain, evaluate, prod(domain.shape), condition)
    return Exact(total.log_z, total.mean.view(domain.shape))


@torch.no_grad()
def _sum_states(
    domain: Domain,
    evaluate: Callable[[Tensor], tuple[Tensor, Tensor]],
    size: int,
    condition: str = "",
) -> Exact:
    """The log normaliser, and the mean of `size` numbers a state.

    `evaluate` gives the log-probabilities of a chunk of states, and those numbers. `condition` ends
    the message for a target without any possible state.
    """
    count = domain.count()
    rows = max(1, CHUNK * 26 // max(26, size))  # as much memory as 26 sites take
    largest = torch.tensor(-torch.inf, dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    weighted = torch.zeros(size, dtype=torch.float64)
    for start in range(0, count, rows):
        log_prob, values = evaluate(
            domain.list_states(torch.arange(start, min(start + rows, count)))
        )
        log_prob = log_prob.double().cpu()
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
        weighted = weighted * shrink + (weight.to(values) @ values).double().cpu()
    if largest == -torch.inf:
        raise ValueError(f"no state of {domain} has a positive probability{condition}")
    return Exact(largest + total.log(), weighted / total)


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
