"""Path auxiliary samplers (PAFS): several informed moves from one gradient.

H. Sun, H. Dai, W. Xia and A. Ramamurthy, "Path Auxiliary Proposal for MCMC in Discrete Space",
ICLR 2022. K. Goshvadi et al., "DISCS: A Benchmark for Discrete Sampling", NeurIPS 2023, for paths
without replacement.

A step makes R moves one after the other, R uniform on 1 .. 2 `length` - 1. A move is drawn with
probability proportional to exp(d / 2), where d is its first-order gain. All gains of the path from
x to y use the gradient at x, and those of the path back the gradient at y. The path is an auxiliary
variable: a step accepts with probability min(1, exp(log ratio)),

    log ratio = log pi(y) - log pi(x) + log q(path back given y) - log q(path given x)

so it costs one evaluation, whatever R is.

    PAFS                   sites are drawn without replacement, in order
    PAFSWithReplacement    a site may move again; its gain follows the value that it has by then
"""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.distributions import draw_categorical, draw_distinct, softmax_weights
from latticework.models.domains import Domain
from latticework.samplers.base import Info, Sampler, State, evaluate, metropolis, require_count
from latticework.samplers.paths import moves_in_use, repeat_first_move


class PathState(NamedTuple):
    x: Tensor  # [chains, *domain.shape]
    log_prob: Tensor  # [chains]
    logits: Tensor  # [chains, dim, moves], half the gains, -inf for a move that stays


@dataclass(frozen=True)
class PAFS(Sampler):
    """R distinct sites move, R uniform on 1 .. 2 `length` - 1 (or all sites). On every domain.

    The order of the sites is a Plackett-Luce draw.
    """

    scale = "length"
    uses_gradient = True
    length: int = 3  # U, the mean of R

    def __post_init__(self) -> None:
        require_count(length=self.length)

    def at(self, x: Tensor, model: EnergyModel) -> PathState:
        log_prob, grad = model.log_prob_and_grad(x)
        logits = half_gains(x, grad, model.domain).unflatten(1, (model.domain.dim, -1))
        return PathState(x, log_prob, logits)

    def step(self, state: PathState, model: EnergyModel, rng: Generator) -> tuple[PathState, Info]:
        x, domain = state.x, model.domain
        weights = _of_sites(state.logits)
        sites = draw_distinct(weights, rng, min(2 * self.length - 1, domain.dim))
        index = _draw_moves(state.logits, sites, rng)
        used = moves_in_use(index, rng)
        index = repeat_first_move(index, used)

        proposed = self.at(domain.move_one(x, index), model)
        log_ratio = proposed.log_prob - state.log_prob
        log_ratio += _log_path(proposed.logits, domain.reverse(x, index), used, backward=True)
        log_ratio -= _log_path(state.logits, index, used, backward=False)
        return metropolis(state, proposed, log_ratio, rng)


def half_gains(x: Tensor, grad: Tensor, domain: Domain) -> Tensor:
    """Half the gain of every move that leaves `x`, -inf for others, `[chains, dim * moves]`."""
    return domain.leaving_logits(x, domain.gains(x, grad).mul_(0.5))


def _of_sites(logits: Tensor) -> Tensor:
    """Log of the total weight of each site, `[chains, dim, moves] -> [chains, dim]`."""
    return logits.squeeze(-1) if logits.shape[-1] == 1 else logits.logsumexp(-1)


def _draw_moves(logits: Tensor, sites: Tensor, rng: Generator) -> Tensor:
    """A move of each of `sites` by its weight, as flat indices `[chains, n]`."""
    moves = logits.shape[-1]
    if moves == 1:
        return sites
    rows = logits.gather(1, sites.unsqueeze(-1).expand(-1, -1, moves))
    return sites * moves + draw_categorical(softmax_weights(rows), rng).squeeze(-1)


def _log_path(logits: Tensor, index: Tensor, used: Tensor, backward: bool) -> Tensor:
    """Log-probability of the moves `index` in their order, or in the opposite one, `[chains]`.

    A move is drawn among the sites that are left: those that are not on the path, and those that
    follow on it. Their weights are added from the last one, so that nothing is subtracted.
    """
    weights = _of_sites(logits)
    sites = index // logits.shape[-1]
    unvisited = weights.scatter(1, sites, -inf).logsumexp(1, keepdim=True)
    chosen = weights.gather(1, sites).masked_fill(~used, -inf)
    follow = chosen.logcumsumexp(1) if backward else chosen.flip(1).logcumsumexp(1).flip(1)
    steps = logits.flatten(1).gather(1, index) - torch.logaddexp(unvisited, follow)
    return steps.masked_fill(~used, 0.0).sum(1)


@dataclass(frozen=True)
class PAFSWithReplacement(Sampler):
    """R moves in sequence, with R uniform on 1 .. 2 `length` - 1. On every domain.

    Each move starts from the state that the previous one reached. A step computes the weights
    of all moves 2 (2 `length` - 1) times.
    """

    scale = "length"
    uses_gradient = True
    length: int = 3  # U, the mean of R

    def __post_init__(self) -> None:
        require_count(length=self.length)

    def at(self, x: Tensor, model: EnergyModel) -> State:
        return evaluate(model, x)

    def step(self, state: State, model: EnergyModel, rng: Generator) -> tuple[State, Info]:
        domain, z = model.domain, state.x
        used = moves_in_use(z.new_empty(len(z), 2 * self.length - 1), rng)
        log_ratio, path = -state.log_prob, []
        for move in used.split(1, dim=1):
            logits = half_gains(z, state.grad, domain)
            index = draw_categorical(softmax_weights(logits), rng)
            log_ratio -= _log_move(logits, index, move)
            path.append((move, domain.reverse(z, index)))
            z = _apply_move(z, index, move, domain)

        proposed = self.at(z, model)
        log_ratio += proposed.log_prob
        for move, index in reversed(path):
            log_ratio += _log_move(half_gains(z, proposed.grad, domain), index, move)
            z = _apply_move(z, index, move, domain)
        return metropolis(state, proposed, log_ratio, rng)


def _log_move(logits: Tensor, index: Tensor, used: Tensor) -> Tensor:
    """Log-probability of one move, `[chains]`; 0 where it is not in use."""
    log_q = logits.gather(1, index) - logits.logsumexp(1, keepdim=True)
    return log_q.masked_fill(~used, 0.0).squeeze(1)


def _apply_move(x: Tensor, index: Tensor, used: Tensor, domain: Domain) -> Tensor:
    """The states after the move `index` `[chains, 1]`; `x` where it is not in use."""
    return torch.where(used.view(-1, *[1] * (x.ndim - 1)), domain.move_one(x, index), x)
