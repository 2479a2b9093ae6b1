"""Learning before the first step of `Tempered`: the schedule of b, and scales."""

from math import ceil, inf
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from latticework.models.base import AnnealedModel, Cache, EnergyModel
from latticework.models.domains import Binary
from latticework.samplers.base import acceptance, own_generator
from latticework.samplers.scale import RANGE, change_of_log

if TYPE_CHECKING:
    from latticework.samplers.tempered import Tempered

LEARNING_LADDERS = 8  # ladders that learn the schedule
MIN_LEVELS = 6  # levels of the first schedule, and at least: a barrier not yet seen looks low
MIN_REJECTED_SHARE = 1e-3  # rejected share of swaps that a pair counts for at least
MAX_LEVELS = 256  # levels of a learned schedule


class LadderState(NamedTuple):
    x: Tensor  # [chains, *domain.shape], the replicas with b = 1
    kernel: Any  # the kernel's state of all replicas, [replicas * chains, ...]
    known: Cache  # what the path knows of the replicas: x, l(x) and, if at hand, its gradient
    level: Tensor  # [replicas, chains], the level of each replica
    schedule: Tensor  # b of each level, float64 [levels]
    scales: Tensor  # scale of the kernel at each level, float64 [levels]; [0] if all have its own
    turn: Tensor  # 0 if the next swaps are of the pairs (0, 1), (2, 3), ..., else 1
    up: Tensor  # log pi_(i+1)(x) - log pi_i(x) of x at level i, float64 [levels - 1, chains]
    down: Tensor  # the other way, of x at level i + 1
    cold: Tensor  # [replicas, chains], 1 where a replica has been at b = 1 since it left the base
    trips: Tensor  # int64 [chains], replicas that went from the base to b = 1 and back


class Learned(NamedTuple):
    """Result of learning, with numbers of the last round."""

    state: LadderState  # with the schedule and scales
    trip_steps: float  # predicted steps of a round trip, Syed et al. (2022), Section 3.5
    slowest_trip_steps: float  # the same by the rejections of the slowest ladder alone
    mean: Tensor  # share of high values of each site at b = 1, [dim]; [0] if it is not binary


def learn_ladder(
    sampler: "Tempered", model: EnergyModel, x: Tensor, last: Tensor | None = None
) -> Learned:
    """Learn the schedule and scales in all rounds, by ladders of their own.

    Syed et al. (2022), Section 5. In the steps of a round the scale of each level follows its
    acceptance, and their geometric mean goes on. Ladders start at draws from b = 0, and at `x`
    `[chains, *shape]` where all these are impossible or there is no such level. With `last`
    `[ladders, *shape]`, where other ladders ended, their replicas at b = 1 start there, so that
    they begin in the modes that those found.
    """
    rng = own_generator(x.device)
    fixed, first = sampler.schedule, int(sampler.draws_base(model))
    schedule = first_schedule(sampler, x)
    state, made = start_ladders(sampler, model, x, schedule, last, rng), 0
    trip_steps, slowest = inf, inf
    mean = x.new_zeros(model.domain.dim if isinstance(model.domain, Binary) else 0)
    for number in range(sampler.rounds):
        rejected, impossible = torch.zeros_like(schedule[1:]), torch.zeros_like(schedule[1:])
        rejected_by_ladder = torch.zeros_like(state.up)
        logs, mean = torch.zeros_like(state.scales), torch.zeros_like(mean)
        for _ in range(2**number):
            made, level = made + 1, state.level
            state, info = sampler.step_replicas(state, model, rng)
            rejections = 1 - acceptance(state.up + state.down)
            rejected += rejections.mean(1)
            rejected_by_ladder += rejections
            if first:  # more levels would not make draws from b = 0 possible
                impossible[0] += state.up[0].isneginf().double().mean()
            if len(mean):
                assert isinstance(model.domain, Binary)
                mean = mean + (state.x == model.domain.high).to(mean).mean(0) / 2**number
            if len(logs):
                scales = adapt_scales(sampler, state.scales, level, info.accept_prob, made)
                state, logs = state._replace(scales=scales), logs + scales.log()
        trip_steps = float(predict_trip_steps(rejected, 2**number))
        slowest = float(predict_trip_steps(rejected_by_ladder, 2**number).max())
        rejected = (rejected - impossible) / (2**number - impossible).clamp(min=MIN_REJECTED_SHARE)
        barrier = float(rejected.sum())
        scales = (logs / 2**number).exp()
        if fixed is not None:
            state = state._replace(scales=scales)
            continue
        levels = sampler.levels or min(MAX_LEVELS, max(MIN_LEVELS, ceil(2 * barrier) + 1))
        spaced = even_schedule(schedule, rejected.clamp(min=MIN_REJECTED_SHARE), levels)
        # A level takes the states of the old level with the nearest b.
        nearest = (spaced[first:, None] - schedule[None, first:]).abs().argmin(1)
        place = state.level.argsort(0).index_select(0, nearest)
        chain = torch.arange(LEARNING_LADDERS, device=x.device)
        hot = state.kernel.x.unflatten(0, (-1, LEARNING_LADDERS))[place, chain]
        if len(scales):
            scales = torch.cat((scales[:first], scales[first:][nearest]))
        schedule = spaced
        state = sampler._at(hot, state.x, schedule, model, scales)
    return Learned(state, trip_steps, slowest, mean)


def first_schedule(sampler: "Tempered", x: Tensor) -> Tensor:
    """The schedule that learning begins with: the fixed one, or evenly spaced levels."""
    if sampler.schedule is not None:
        return torch.tensor(sampler.schedule, dtype=torch.float64, device=x.device)
    levels = sampler.levels or MIN_LEVELS
    return torch.linspace(0, 1, levels, dtype=torch.float64, device=x.device)


def start_ladders(
    sampler: "Tempered",
    model: EnergyModel,
    x: Tensor,
    schedule: Tensor,
    last: Tensor | None,
    rng: Generator,
) -> LadderState:
    """The ladders that learn, before their first step (`learn_ladder`)."""
    count = len(schedule)
    chain = torch.arange(LEARNING_LADDERS, device=x.device) % len(x)
    start = x[chain].expand(count + 1, LEARNING_LADDERS, *x.shape[1:])
    if sampler.draws_base(model):
        start = draw_possible_base(sampler.path(model, x), count * LEARNING_LADDERS, x, rng)
        start = start.unflatten(0, (count, LEARNING_LADDERS))
    return sampler._at(start[1:], start[0] if last is None else last, schedule, model)


def predict_trip_steps(rejected: Tensor, steps: int) -> Tensor:
    """Steps of a round trip by the `rejected` swaps `[pairs, ...]` in that many steps, `[...]`."""
    return 2 + 2 * (rejected / (steps - rejected)).sum(0)


def draw_possible_base(path: AnnealedModel, count: int, x: Tensor, rng: Generator) -> Tensor:
    """Draws from b = 0, `[count, *shape]`; possible ones take the places of the others.

    A replica would stay where f is 0. If no draw is possible, the rows of `x` take all places.
    """
    drawn = path.draw(count, rng).to(x)
    path.move_to(torch.ones((), device=x.device))
    possible = path.log_prob(drawn).isfinite()
    replacements = drawn[possible] if possible.any() else x
    number = torch.arange(int((~possible).sum()), device=x.device)
    drawn[~possible] = replacements[number % len(replacements)]
    return drawn


def adapt_scales(
    sampler: "Tempered", scales: Tensor, level: Tensor, accepted: Tensor, made: int
) -> Tensor:
    """`scales` after step `made`, in which replicas at `level` accepted with these probabilities.

    A scale stays within a factor of `RANGE` of the kernel's own.
    """
    assert sampler.acceptance is not None
    first = getattr(sampler.inner, str(sampler.inner.scale))
    share = accepted.double().view_as(level).gather(0, level.argsort(0)).mean(1)
    changed = scales.clone()
    changed[-len(level) :] *= change_of_log(made, share, sampler.acceptance).exp()
    return changed.clamp_(first / RANGE, first * RANGE)


def even_schedule(schedule: Tensor, rejected: Tensor, levels: int) -> Tensor:
    """`levels` points from end to end of `schedule` that divide it into equal sums of `rejected`.

    By linear interpolation of the cumulative rejection, `rejected` `[len(schedule) - 1]`.
    """
    total = pad(rejected.cumsum(0), (1, 0))
    goal = torch.linspace(0, 1, levels, dtype=total.dtype, device=total.device) * total[-1]
    left = torch.searchsorted(total, goal, right=True).sub_(1).clamp_(0, len(rejected) - 1)
    part = (goal - total[left]) / rejected[left]
    even = torch.lerp(schedule[left], schedule[left + 1], part)
    even[0], even[-1] = schedule[0], schedule[-1]
    return even


def rows_at(level: Tensor, of: int) -> Tensor:
    """The rows of the replicas that are at level `of`, one a chain."""
    replicas, chains = (level == of).long().argmax(0), level.shape[1]
    return replicas * chains + torch.arange(chains, device=level.device)


def by_row(chosen: Tensor, like: Tensor) -> Tensor:
    return chosen.view(-1, *[1] * (like.ndim - 1))


def mix_rows(values: Cache, other: Cache, chosen: Tensor, rows: Tensor) -> None:
    """Overwrite row `rows[c]` of `values` by row c of `other` where `chosen[c]`."""
    for old, new in zip(values, other, strict=True):
        mixed = torch.where(by_row(chosen, new), new, old.index_select(0, rows))
        old.index_copy_(0, rows, mixed)
