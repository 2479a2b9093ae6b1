"""Tempering: replicas of a chain from an easy law to the target, around any exact kernel.

S. Syed, A. Bouchard-Cote, G. Deligiannidis and A. Doucet, "Non-reversible parallel tempering: a
scalable highly parallel MCMC scheme", JRSSB 2022.

    paper                  here
    beta_0 < .. < beta_N   `schedule`, from 0 to 1
    pi_beta                the geometric path from independent sites to the target; for an RBM,
                           the path whose b scales its parameters, so that it is an RBM too
    r_i                    mean probability that a swap of the levels i and i + 1 is rejected
    Lambda                 the sum of all r_i: the communication barrier

A step moves every replica by the kernel on the target of its level. Then neighbours are swapped,
the pairs (0, 1), (2, 3), ... and (1, 2), (3, 4), ... in turn, each with probability
min(1, exp((b_(i+1) - b_i) (l(x_i) - l(x_(i+1))))), where l = log f - log p0. Level 0 is no replica:
it is drawn afresh from p0 in each step. The joint law of the replicas is the product of the laws of
their levels. `x` is the replica at level N, where b = 1. The replicas of one chain are a ladder;
ladders are independent.
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, isfinite, log
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from latticework.models.base import AnnealedModel, Cache, EnergyModel
from latticework.models.distributions import Tape, bernoulli_mask
from latticework.models.domains import Binary, Integer
from latticework.models.paths import cached_path
from latticework.samplers import make_sampler
from latticework.samplers.base import (
    Info,
    Sampler,
    UnsupportedModelError,
    UsesKernel,
    acceptance,
    own_generator,
    require_count,
)
from latticework.samplers.ladder import (
    LEARNING_LADDERS,
    MIN_LEVELS,
    LadderState,
    by_row,
    learn_ladder,
    mix_rows,
    rows_at,
)
from latticework.samplers.scale import with_scales

MIN_BASE_PROBABILITY = 0.02  # probability of a value of a site in a learned base, at least
# Predicted steps of a round trip from uniform sites, up to which no base is learned. A base of the
# site means makes a mode of small mass rarer at b = 0: it is not tried where trips are frequent.
MAX_TRIP_STEPS = 24
MIN_BASE_GAIN = 1.0  # nats between a learned base and the uniform one, below which it is not tried


@dataclass(frozen=True)
class Tempered(UsesKernel):
    """`kernel` at several temperatures, with swaps, so that chains leave their modes.

    `init` learns the schedule in `rounds` rounds of 1, 2, 4, ... steps: after each, its levels are
    spaced for equal rejections, and their number becomes twice the barrier, 6 at least, so that
    about half of all swaps are accepted. Ladders of its own learn it, from uniform states. The
    schedule is then fixed. `levels` fixes the number of its levels, and `schedule` all of them;
    then it is not learned.

    `acceptance` adapts the scale of the kernel, such as its step size, at each level in the same
    rounds, so that it accepts this share of its proposals there: at low b longer steps are
    accepted. The scales are then fixed too. `scales` gives them.

    Sites are uniform at b = 0, or independent with `log_odds`, such as the frequencies of data. The
    nearer that law is to the target, the fewer levels are needed. With `learn_base`, `learn_fields`
    finds them: on a binary domain the rounds are made twice, the second time from the site means
    that the ladders saw at b = 1, kept from 0 and 1. These ladders go on from the states at b = 1
    of the first ones, so that they begin in all modes that were found. The base whose slowest
    ladder has the faster predicted round trips stays. It is not tried where round trips are
    frequent, or with means near 1/2.

    Where states are impossible, level 0 draws some, whose swaps are rejected. They do not count for
    the schedule, as no level can change that. Zeros in tables and couplings of -inf are softened
    below b = 1 instead (`models.annealed.SoftenedPath`). A learned schedule has at most
    `MAX_LEVELS` levels.

    If `schedule` does not begin with 0, level 0 is a replica as the others, and log Z cannot be
    told. Only this serves an infinite domain, where f^b must have a finite sum at the first b. On
    `Moves` whose states are not listed, level 0 is a replica at b = 0, kept uniform by the moves.

    The replicas below b = 1 start where learning ended, or at uniform states, so chains need a
    burn-in even if they start with the target's law. A step costs `steps` steps of the kernel for
    every replica, and an evaluation of the states drawn from p0. Where b is low, one step often
    suffices, because it forgets l: compiled kernels save the others in the share `hot` of the
    levels; eager ones move all levels together. A step keeps the target's law if the kernel does.
    """

    stationary_start = False
    memory = (
        *("kernel", "known", "level", "schedule", "scales"),
        *("turn", "up", "down", "cold", "trips"),
    )
    kernel: Sampler | str = "dmala"  # or its name, such as "gwg(flips=2)"
    rounds: int = 8  # rounds of learning the schedule
    levels: int | None = None  # their number, that with b = 0 included; None: from the barrier
    schedule: list[float] | Tensor | None = None  # b, rising to 1; None: learned
    acceptance: float | None = None  # the scale aims at it, at each level; None: one scale
    scales: list[float] | Tensor | None = None  # a scale a level; None: learned for `acceptance`
    log_odds: list[float] | Tensor | None = None  # at b = 0, on a binary domain; None: uniform
    steps: int = 1  # steps of the kernel from swap to swap
    hot: float = 0.0  # share of the levels, the lowest b first, of one step if compiled
    learn_base: bool | None = None  # whether `learn_fields` finds `log_odds`, where there are none

    def __post_init__(self) -> None:
        require_count(rounds=self.rounds, steps=self.steps)
        kernel = self.inner
        if not isinstance(kernel, Sampler):
            raise TypeError(f"kernel must be a sampler, such as DMALA(0.4), got {kernel!r}")
        if not (kernel.exact and kernel.stationary_start):
            raise ValueError(
                "tempering needs a kernel that keeps the law of its target from the first step, "
                f"and {kernel} does not; choose another, such as gibbs, gwg or dmala"
            )
        if not 0 <= self.hot < 1:
            raise ValueError(
                f"hot must be a share of the levels, 0 or more and below 1: {self.hot}"
            )
        if self.levels is not None and self.levels < 2:
            raise ValueError(f"levels must be 2 or more, got {self.levels}")
        for name in ("schedule", "scales", "log_odds"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, [float(each) for each in given])
        self._check_scales(kernel)
        self._check_schedule()

    def _check_schedule(self) -> None:
        if self.schedule is not None:
            b = self.schedule
            rises = all(low < high for low, high in pairwise(b))
            if len(b) < 2 or not rises or b[0] < 0 or b[-1] != 1:
                raise ValueError(
                    "schedule must be two numbers or more that rise from 0 or above to 1, such as "
                    f"[0.0, 0.3, 0.6, 1.0], got {self.schedule}"
                )
        if self.log_odds is not None and not all(map(isfinite, self.log_odds)):
            raise ValueError(
                f"log_odds must be finite, got {self.log_odds}; frequencies of 0 and 1 give "
                "infinite ones, so move them inside"
            )
        if self.log_odds is not None and not self.has_base:
            raise ValueError(f"log_odds are those of b = 0, which {self.schedule} does not have")

    def _check_scales(self, kernel: Sampler) -> None:
        if self.acceptance is not None and not 0 < self.acceptance < 1:
            raise ValueError(f"acceptance must be between 0 and 1, got {self.acceptance}")
        if self.acceptance is None and self.scales is None:
            return
        if not kernel.scale_by_chain:
            raise ValueError(
                "acceptance and scales are for kernels whose scale may differ by level, such as "
                f"dmala, dlmc, avg, dhams or edlp, got {kernel}; leave them out"
            )
        start = getattr(kernel, str(kernel.scale))
        if not 0 < start < inf:
            raise ValueError(f"adaptation starts from a finite {kernel.scale}, got {start}")
        if self.scales is not None:
            levels = 0 if self.schedule is None else len(self.schedule)
            if len(self.scales) != levels or not all(scale > 0 for scale in self.scales):
                raise ValueError(
                    "scales must be a positive number for each level of schedule, got "
                    f"{self.scales} and the schedule {self.schedule}"
                )

    @property
    def inner(self) -> Sampler:
        """The kernel, also where `kernel` is its name."""
        return make_sampler(self.kernel) if isinstance(self.kernel, str) else self.kernel

    @property
    def has_base(self) -> bool:
        """Whether the schedule begins at b = 0, where log Z is known."""
        return self.schedule is None or float(self.schedule[0]) == 0

    def draws_base(self, model: EnergyModel) -> bool:
        """Whether level 0 is drawn afresh: at b = 0, from independent sites or uniform states."""
        return self.has_base and model.domain.draws_uniform

    @property
    def learns(self) -> bool:
        """Whether `init` learns the schedule or scales."""
        return self.schedule is None or (self.acceptance is not None and self.scales is None)

    @property
    def learning_steps(self) -> int:  # type: ignore[override]
        """Steps of all ladders that learn; if a base is tried, it takes as many again."""
        return LEARNING_LADDERS * (2**self.rounds - 1) if self.learns else 0

    @property
    def learning_replicas(self) -> int:
        """Replicas that learn together, by the number of levels at first."""
        return LEARNING_LADDERS * MIN_LEVELS if self.learns else 0

    def learn_fields(self, x: Tensor, model: EnergyModel) -> dict[str, Tensor]:
        if not self.learns:
            return {}
        self.inner.require_moves(model)
        ladder, base = learn_ladder(self, model, x), {}
        slow = ladder.trip_steps > MAX_TRIP_STEPS
        if self.learn_base and slow and self._can_learn_base(model):
            mean = ladder.mean.clamp(MIN_BASE_PROBABILITY, 1 - MIN_BASE_PROBABILITY)
            entropy = torch.special.entr(torch.stack((mean, 1 - mean))).sum()
            if len(mean) * log(2) - float(entropy) >= MIN_BASE_GAIN:
                by_means = replace(self, log_odds=mean.logit())
                with_base = learn_ladder(by_means, model, x, ladder.state.x)
                # A base that hardly has some mode holds the ladders there, and the others move on.
                if with_base.slowest_trip_steps < ladder.slowest_trip_steps:
                    ladder, base = with_base, {"log_odds": mean.logit()}
        scales = {} if self.acceptance is None else {"scales": ladder.state.scales}
        return {"schedule": ladder.state.schedule, **scales, **base}

    def _can_learn_base(self, model: EnergyModel) -> bool:
        learns = self.schedule is None and self.log_odds is None
        return learns and isinstance(model.domain, Binary)

    def at(self, x: Tensor, model: EnergyModel) -> LadderState:
        if self.learns:
            ladder = learn_ladder(self, model, x).state
            count = len(ladder.level)
            replicas = ladder.kernel.x.unflatten(0, (count, -1))
            chain = torch.arange(len(x), device=x.device) % replicas.shape[1]
            place = ladder.level.argsort(0).index_select(1, chain)
            hot = replicas[place, chain].to(x.dtype)
            return self._at(hot, x, ladder.schedule, model, ladder.scales)
        schedule = torch.tensor(self.schedule, dtype=torch.float64, device=x.device)
        count = len(schedule) - self.draws_base(model)
        hot = x.expand(count, *x.shape)
        if self.draws_base(model):
            path = self.path(model, x)
            path.move_to(torch.ones((), device=x.device))
            drawn = path.draw(count * len(x), own_generator(x.device)).to(x)
            hot = torch.where(by_row(path.log_prob(drawn).isfinite(), x), drawn, hot.flatten(0, 1))
        return self._at(hot.view(count, *x.shape), x, schedule, model)

    def _at(
        self,
        hot: Tensor,
        x: Tensor,
        schedule: Tensor,
        model: EnergyModel,
        scales: Tensor | None = None,
    ) -> LadderState:
        """A state with `x` at b = 1 and `hot` `[replicas, chains, *shape]` at the other levels."""
        scales = self._first_scales(schedule) if scales is None else scales
        schedule = schedule.float().double()  # what models of single precision see
        replicas = torch.cat((hot[:-1].flatten(0, 1), x))
        first = len(schedule) - len(hot)
        level = torch.arange(first, len(schedule), device=x.device)
        level = level.unsqueeze(1).expand(-1, len(x)).contiguous()
        kernel, known = self.kernel_at_levels(replicas, level, schedule, scales, model)
        up = schedule.new_zeros(len(schedule) - 1, len(x))
        turn = torch.zeros((), dtype=torch.long, device=x.device)
        trips = torch.zeros(len(x), dtype=torch.long, device=x.device)
        return LadderState(
            x.clone(), kernel, known, level, schedule, scales, turn, up, up.clone(),
            torch.zeros_like(level), trips,
        )  # fmt: skip

    def _first_scales(self, schedule: Tensor) -> Tensor:
        if self.scales is not None:
            return schedule.new_tensor(self.scales)
        if self.acceptance is None:
            return schedule[:0]
        return torch.full_like(schedule, getattr(self.inner, str(self.inner.scale)))

    def mover(self, level: Tensor, scales: Tensor, x: Tensor) -> Sampler:
        """The kernel of the replicas `x`, each with the scale of its level."""
        if not len(scales):
            return self.inner
        return with_scales(self.inner, scales[level].flatten().to(x))

    def kernel_at_levels(
        self, replicas: Tensor, level: Tensor, schedule: Tensor, scales: Tensor, model: EnergyModel
    ) -> tuple[Any, Cache]:
        """The kernel's state at `replicas`, all at their levels, and what the path knows there."""
        path = self.path(model, replicas)
        path.move_to(schedule[level].flatten())
        kernel = self.mover(level, scales, replicas).at(replicas, path)
        return kernel, path.know(kernel.x)

    def refresh(self, state: LadderState, model: EnergyModel) -> LadderState:
        path = self.path(model, state.x)
        path.move_to(state.schedule[state.level].flatten())
        mover = self.mover(state.level, state.scales, state.x)
        kernel = mover.refresh(state.kernel, path)
        return state._replace(kernel=kernel, known=path.know(kernel.x))

    def relocate(self, x: Tensor, state: LadderState, model: EnergyModel) -> LadderState:
        """The replicas at b = 1 move to `x`; the others stay."""
        rows = rows_at(state.level, len(state.schedule) - 1)
        replicas = state.kernel.x.index_copy(0, rows, x)
        moved = state._replace(x=x.clone(), kernel=state.kernel._replace(x=replicas))
        return self.refresh(moved, model)

    def log_prob(self, state: LadderState, model: EnergyModel) -> Tensor:
        rows = rows_at(state.level, len(state.schedule) - 1)
        known = tuple(part.index_select(0, rows) for part in state.known)
        return self.path(model, state.x).target_log_prob(state.x, known)

    def step(
        self, state: LadderState, model: EnergyModel, rng: Generator
    ) -> tuple[LadderState, Info]:
        coldest = rows_at(state.level, len(state.schedule) - 1)
        state, info = self.step_replicas(state, model, rng)
        parts: Any = (None if part is None else part.index_select(0, coldest) for part in info)
        return state, Info(*parts)

    def step_replicas(
        self, state: LadderState, model: EnergyModel, rng: Generator
    ) -> tuple[LadderState, Info]:
        """A step, with what its kernel says of all replicas, which have levels of `state`."""
        path = self.path(model, state.x)
        with path.on_copies() if isinstance(rng, Tape) else nullcontext():  # a recorded step
            kernel, known, info = self.move_replicas(state, model, path, rng)
            return self.exchange(state._replace(kernel=kernel, known=known), path, rng), info

    def move_replicas(
        self, state: LadderState, model: EnergyModel, path: AnnealedModel, rng: Generator
    ) -> tuple[Any, Cache, Info]:
        """All replicas after `steps` steps of the kernel; the path stays at their b."""
        b = state.schedule[state.level].flatten()
        mover = self.mover(state.level, state.scales, state.x)
        path.move_to(b, state.kernel.x, state.known)
        kernel, info = mover.step(mover.refresh(state.kernel, path), path, rng)
        for _ in range(self.steps - 1):
            path.move_to(b)  # it forgets the point, which the next step may overwrite
            kernel, info = mover.step(kernel, path, rng)
        if self.steps > 1:
            path.move_to(b)
        return kernel, path.know(kernel.x), info

    def exchange(self, state: LadderState, path: AnnealedModel, rng: Generator) -> LadderState:
        """The swaps after the replicas have moved: levels change, and fresh states enter.

        `known` is that of `state.kernel.x`, and the path is at the replicas' b.
        """
        kernel, known, level, schedule = state.kernel, state.known, state.level, state.schedule
        fresh_base = len(level) < len(schedule)  # level 0 is no replica
        chains, last, first = len(state.x), len(schedule) - 1, int(fresh_base)
        place = level.argsort(0)  # the replica of each level

        def work(levels: Tensor) -> Tensor:  # by level, [replicas, chains]
            ratio = path.log_ratio(known, schedule[levels.clamp(0, last)].flatten())
            return ratio.view_as(level).gather(0, place)

        up, down = work(level + 1)[:-1], work(level - 1)[1 - first :]
        fresh: Cache = ()
        if fresh_base:
            path.move_to(torch.zeros(chains, device=level.device))
            drawn, base = path.draw(chains, rng).to(state.x), path.log_z_start()
            fresh = path.know_like(drawn, known)  # works are those of a p0 that is normalised
            up = torch.cat(((path.log_ratio(fresh, schedule[1]) + base).unsqueeze(0), up))
            down[0] -= base

        pair = torch.arange(last, device=level.device).unsqueeze(1)
        swap = bernoulli_mask(acceptance(up + down), rng) & ((pair + state.turn) % 2 == 0)
        above, below = pad(swap, (0, 0, 0, 1)), pad(swap[first:], (0, 0, 1 + first, 0))
        after = level + above.gather(0, level).long() - below.gather(0, level).long()
        cold, trips = state.cold, state.trips
        if fresh_base:  # where its swap is accepted, a fresh state takes the place at level 1
            rows = rows_at(level, 1)
            mix_rows((*known, kernel.x), (*fresh, drawn), swap[0], rows)
            left = torch.zeros_like(level).scatter(0, place[:1], swap[:1].long())
            trips = trips + (cold * left).sum(0)
            cold = cold * (1 - left)
        elif self.has_base:  # level 0 is a replica
            left = (after == 0).long()
            trips = trips + (cold * left).sum(0)
            cold = cold * (1 - left)
        cold = torch.maximum(cold, (after == last).long())
        x = kernel.x.index_select(0, rows_at(after, last))
        return LadderState(
            x, kernel, known, after, schedule, state.scales, 1 - state.turn, up, down, cold, trips
        )

    def path(self, model: EnergyModel, x: Tensor) -> AnnealedModel:
        """The path of targets, for states such as `x`."""
        if self.has_base and isinstance(model.domain, Integer):
            needs = "on an infinite domain a schedule that begins above 0, such as [0.3, 0.6, 1.0]"
            raise UnsupportedModelError(self, model, needs, str(self.schedule))
        odds = None if self.log_odds is None else tuple(self.log_odds)
        powers = not (self.has_base and model.domain.is_counted)
        return cached_path(model, powers, odds, x.dtype, x.device)
