"""PT-DMALA: parallel tempering with discrete Langevin proposals.

L. Zheng et al., "Exploring non-convex discrete energy landscapes", 2025 (replica exchange of
discrete Langevin samplers), with the deterministic even-odd swaps of S. Syed, A. Bouchard-Cote,
G. Deligiannidis and A. Doucet, "Non-reversible parallel tempering", JRSSB 2022.

    paper                       here
    1 / tau_k                   b_k, from 1 down
    pi^(b_k)                    the target of replica k
    swap of i and j             accepted with probability min(1, exp((b_i - b_j)(f(x_j) - f(x_i))))

A step moves every replica by DMALA on its own target, with gradient and ratio times b_k. Then it
tries to swap neighbours, the pairs (0, 1), (2, 3), ... and (1, 2), (3, 4), ... in turn. The joint
law of the replicas is the product of their targets. `x` is the replica with b = 1.
"""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from latticework.models.base import EnergyModel
from latticework.models.distributions import bernoulli_mask
from latticework.models.domains import Domain
from latticework.samplers.auxiliary import log_proposal_ratio, logits
from latticework.samplers.base import (
    Info,
    Sampler,
    State,
    acceptance,
    evaluate,
    metropolis,
    own_generator,
    require_positive,
)

PILOTS = 64  # chains that learn the ladder
ROUNDS = 5  # rounds of learning it
MIN_REJECTED_SHARE = 1e-3  # rejected share of swaps that a pair counts for at least


class TemperedState(NamedTuple):
    x: Tensor  # [chains, *domain.shape], the replica with b = 1
    replicas: State  # [replicas * chains, ...], all chains of the first replica first
    ladder: Tensor  # b, [replicas]
    turn: Tensor  # 0 if the next swaps are of the pairs (0, 1), (2, 3), ..., else 1


@dataclass(frozen=True)
class PTDMALA(Sampler):
    """DMALA at several temperatures, with swaps. On every domain.

    `ladder` lists b from 1 down. With `burn_in`, `init` spaces it for even swap rates between the
    same ends, in as many steps of chains of its own. The ladder is then fixed. The hot replicas of
    each chain then move away from its x, in as many steps.

    Without `burn_in`, all replicas of a chain start at its x. Then the chains have the target's law
    only after a burn-in, even if they start with it. A step costs one evaluation with gradient of
    all replicas.
    """

    scale = "step_size"
    uses_gradient = True
    stationary_start = False
    memory = ("replicas", "ladder", "turn")
    step_size: float = 0.2  # alpha, in squared units of the domain's values
    ladder: list[float] = field(default_factory=lambda: [1.0, 0.8, 0.6, 0.4])
    burn_in: int = 0  # steps that learn the ladder, then of the hot replicas; 0 for neither

    def __post_init__(self) -> None:
        require_positive(step_size=self.step_size)
        falls = all(a > b for a, b in pairwise(self.ladder))
        if len(self.ladder) < 2 or self.ladder[0] != 1 or not falls or self.ladder[-1] < 0:
            raise ValueError(
                "ladder must be two numbers or more that fall from 1 and are not negative, such as "
                f"[1.0, 0.6, 0.3], got {self.ladder}"
            )
        if self.burn_in < 0:
            raise ValueError(f"burn_in must be 0 or more, got {self.burn_in}")

    def at(self, x: Tensor, model: EnergyModel) -> TemperedState:
        ladder = torch.tensor(self.ladder, dtype=x.dtype, device=x.device)
        if self.burn_in:
            ladder = even_ladder(replace(self, burn_in=0), model, ladder, self.burn_in)
        turn = torch.zeros((), dtype=torch.long, device=x.device)
        replicas = x.repeat(len(ladder), *[1] * (x.ndim - 1))
        state, rng = self.at_replicas(replicas, ladder, turn, model), own_generator(x.device)
        if not self.burn_in:
            return state
        for _ in range(self.burn_in):
            state, *_ = self.advance(state, model, rng)
        return self.at_replicas(torch.cat((x, state.replicas.x[len(x) :])), ladder, turn, model)

    def refresh(self, state: TemperedState, model: EnergyModel) -> TemperedState:
        return self.at_replicas(state.replicas.x, state.ladder, state.turn, model)

    def relocate(self, x: Tensor, state: TemperedState, model: EnergyModel) -> TemperedState:
        """All replicas move to `x`."""
        replicas = x.repeat(len(state.ladder), *[1] * (x.ndim - 1))
        return self.at_replicas(replicas, state.ladder, state.turn, model)

    def at_replicas(
        self, replicas: Tensor, ladder: Tensor, turn: Tensor, model: EnergyModel
    ) -> TemperedState:
        """The state with these positions, `[replicas * chains, *domain.shape]`."""
        evaluated = evaluate(model, replicas)
        return TemperedState(_first(replicas, ladder), evaluated, ladder, turn)

    def log_prob(self, state: TemperedState, model: EnergyModel) -> Tensor:
        return state.replicas.log_prob[: len(state.x)]

    def step(
        self, state: TemperedState, model: EnergyModel, rng: Generator
    ) -> tuple[TemperedState, Info]:
        after, info, _ = self.advance(state, model, rng)
        return after, info

    def advance(
        self, state: TemperedState, model: EnergyModel, rng: Generator
    ) -> tuple[TemperedState, Info, Tensor]:
        """A step, and the probability of each swap of neighbours, `[replicas - 1, chains]`."""
        ladder, domain = state.ladder, model.domain
        b = ladder.unsqueeze(1).expand(-1, len(state.x)).flatten()
        current = state.replicas
        there = self._logits(current, b, domain)
        proposed = evaluate(model, domain.move_all(current.x, there, rng))
        back = self._logits(proposed, b, domain)
        log_ratio = b * (proposed.log_prob - current.log_prob)
        log_ratio += log_proposal_ratio(current.x, proposed.x, there, back, domain)
        moved, info = metropolis(current, proposed, log_ratio, rng)

        log_prob = moved.log_prob.view(len(ladder), -1)
        swap = acceptance(-ladder.diff().unsqueeze(1) * log_prob.diff(dim=0))
        pair = torch.arange(len(ladder) - 1, device=b.device)
        chosen = ((pair + state.turn) % 2 == 0).unsqueeze(1)
        replicas = _swap(moved, bernoulli_mask(swap, rng) & chosen)

        chains = len(state.x)
        assert info.log_ratio is not None
        info = Info(info.accept_prob[:chains], info.log_ratio[:chains])
        after = TemperedState(_first(replicas.x, ladder), replicas, ladder, 1 - state.turn)
        return after, info, swap

    def _logits(self, state: State, b: Tensor, domain: Domain) -> Tensor:
        """Eq. (2) of Zhang et al. (2022) with the gradient of the tempered target."""
        drive = state.grad * b.view(-1, *[1] * (state.grad.ndim - 1)) / 2
        return logits(state.x, drive, 0.5 / self.step_size, domain)


def _first(replicas: Tensor, ladder: Tensor) -> Tensor:
    """A copy of the first replica's rows."""
    return replicas[: len(replicas) // len(ladder)].clone()


def _swap(state: State, swap: Tensor) -> State:
    """Neighbours k and k + 1 exchanged where `swap` `[replicas - 1, chains]`, in disjoint pairs."""
    up, down = pad(swap.long(), (0, 0, 0, 1)), pad(swap.long(), (0, 0, 1, 0))
    count, chains = up.shape
    source = torch.arange(count, device=swap.device).unsqueeze(1) + up - down
    rows = (source * chains + torch.arange(chains, device=swap.device)).flatten()
    return State(*(part.index_select(0, rows) for part in state))


def even_ladder(sampler: PTDMALA, model: EnergyModel, ladder: Tensor, steps: int) -> Tensor:
    """`ladder` spaced for equal swap rates, between the same ends.

    Syed et al., Section 5: the rejected shares of neighbours add up along the ladder, and their sum
    as a function of b hardly depends on the spacing. Each of ROUNDS rounds estimates it, in the
    second half of its steps, and spaces b evenly on it. Chains start from uniform states and draw
    from `own_generator`.
    """
    rng = own_generator(ladder.device)
    x = model.domain.uniform(PILOTS, rng).to(ladder.dtype)
    state = sampler.at(x, model)._replace(ladder=ladder)
    for _ in range(ROUNDS):
        rejected = ladder.new_zeros(len(ladder) - 1)
        for step in range(max(steps // ROUNDS, 1)):
            state, _, swap = sampler.advance(state, model, rng)
            if 2 * step >= steps // ROUNDS - 1:
                rejected += 1 - swap.mean(1)
        share = rejected / rejected.max().clamp(min=MIN_REJECTED_SHARE)
        ladder = _evenly(ladder, share.clamp(min=MIN_REJECTED_SHARE))
        state = state._replace(ladder=ladder)
    return ladder


def _evenly(ladder: Tensor, share: Tensor) -> Tensor:
    """Points that divide `ladder` into parts of equal `share`, by linear interpolation."""
    total = pad(share.cumsum(0), (1, 0))
    level = torch.linspace(0, 1, len(ladder), dtype=ladder.dtype, device=ladder.device) * total[-1]
    left = torch.searchsorted(total, level, right=True).sub_(1).clamp_(0, len(share) - 1)
    part = (level - total[left]) / share[left]
    even = torch.lerp(ladder[left], ladder[left + 1], part)
    even[0], even[-1] = ladder[0], ladder[-1]
    return even
