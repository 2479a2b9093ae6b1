"""Estimates from the ladders of a tempered chain: log Z with an interval, the barrier, round trips.

C. H. Bennett, "Efficient estimation of free energy differences from Monte Carlo data", Journal of
Computational Physics 1976: for levels i and i + 1 with draws x and y, the difference C of their log
normalisers solves sum sigmoid(up(x) - C) = sum sigmoid(down(y) + C). Here up(x) is
log pi_(i+1)(x) - log pi_i(x) and down(y) the other way. Its sum over the levels is log Z_1 / Z_0.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.samplers.ladder import LadderState
from latticework.sampling.diagnostics import round_noise
from latticework.sampling.intervals import t_half_width
from latticework.sampling.verdict import Convergence, verdict

Works = NDArray[np.float64]  # [draws, levels - 1, ladders]
Levels = tuple[Tensor, Tensor, Tensor]  # `up`, `down` and `level` of a state

MAX_KNOWN_REJECTION = 0.75  # the largest rejection of swaps with which the barrier is called known
MIN_ROUND_TRIPS = 10  # mean trips of a ladder; with fewer, draws may depend on their start
MAX_NEWTON_STEPS = 50  # iterations at most; about five are needed
NEWTON_TOLERANCE = 1e-10  # tolerance of C
ROUNDING = 1e-6  # relative error of log-probabilities in single precision


class LogZ(NamedTuple):
    """An estimate of the log normaliser, in nats, from the second half of the draws.

    The interval is NaN with a single ladder. It has no ends (-inf, inf) where `doubt` says why: the
    ladders made fewer than `MIN_ROUND_TRIPS` round trips on average, or the chains at b = 1 have
    not converged. All ladders may then be as far from their law as their starts, which no
    comparison of ladders can see.
    """

    value: float  # Bennett's estimate, from all ladders together
    low: float  # 95 % interval: Student's t with the jackknife over ladders
    high: float
    forward: float  # by importance sampling from each level to the next
    backward: float  # the other way; far from `forward`, the levels overlap too little
    doubt: str = ""  # why the interval has no ends

    def __str__(self) -> str:
        doubt = f"; {self.doubt}" if self.doubt else ""
        return (
            f"log Z {self.value:.2f} [{self.low:.2f}, {self.high:.2f}] "
            f"(forward {self.forward:.2f}, backward {self.backward:.2f}{doubt})"
        )


def levels_of(state: LadderState) -> Levels:
    """Copies of what `Ladders` keeps of a state."""
    return state.up.clone(), state.down.clone(), state.level.clone()


@dataclass(frozen=True, eq=False)
class Ladders:
    """The records of the levels in the second half of the draws.

    A ladder is the replicas of one chain. The first half lets the replicas below b = 1 forget their
    starts. Numbers are those of the draws, every `thin` steps, but round trips are counted in all
    steps.
    """

    schedule: NDArray[np.float64]  # b, [levels]
    up: Works  # log pi_(i+1)(x) - log pi_i(x) of x at level i
    down: Works  # log pi_i(x) - log pi_(i+1)(x) of x at level i + 1
    level: NDArray[np.int64]  # [draws, replicas, ladders], of each replica
    trips: NDArray[np.int64]  # [ladders], round trips from the base to b = 1 and back
    steps: int  # in which these were counted
    # Scale of the kernel at each level, [levels]; [0] if all levels have the kernel's own.
    scales: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    # Log-odds of the independent sites at b = 0, [sites]; [0] if they are uniform.
    log_odds: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    # Whether the number of states is known, which is the normaliser at b = 0.
    known_base: bool = True

    def __repr__(self) -> str:
        draws, levels, ladders = self.up.shape
        return (
            f"<{ladders} ladders of {levels + 1} levels from {self.base}, {draws} draws: barrier "
            f"{self.barrier:.2f}, {self.trips.mean():.1f} round trips of "
            f"{self.predicted_trips:.0f} predicted; {self.log_z}>"
        )

    @property
    def base(self) -> str:
        """The law at b = 0, in words."""
        if not len(self.log_odds):
            return "uniform sites"
        share = 1 / (1 + np.exp(-self.log_odds))
        return f"independent sites, high with probability {share.min():.2g} to {share.max():.2g}"

    @property
    def rejections(self) -> NDArray[np.float64]:
        """Mean probability that a swap of the levels i and i + 1 is rejected, `[levels - 1]`."""
        accepted = np.exp(np.minimum(self.up + self.down, 0))
        return 1 - accepted.mean((0, 2))

    @property
    def barrier(self) -> float:
        """Lambda, the sum of the rejections; about the same for every fine schedule."""
        return float(self.rejections.sum())

    @property
    def barrier_known(self) -> bool:
        """Whether no rejection is above 0.75, where the sum would be too small."""
        return bool(self.rejections.max() <= MAX_KNOWN_REJECTION)

    @property
    def predicted_trips(self) -> float:
        """Round trips of a ladder in `steps` steps if replicas move as a Markov chain of levels.

        Syed et al. (2022): a rate of 1 / (2 + 2 sum r / (1 - r)), which local moves do not reach
        where they hardly change the energy.
        """
        r = np.minimum(self.rejections, 1 - 1e-12)
        return float(self.steps / (2 + 2 * (r / (1 - r)).sum()))

    @classmethod
    def from_draws(
        cls,
        state: LadderState,
        draws: Sequence[Levels],
        trips: Tensor,
        steps: int,
        log_odds: Sequence[float] | Tensor | None = None,
        known_base: bool = True,
    ) -> "Ladders":
        """From the last state, `levels_of` each draw, and `trips` `[chains]` in `steps` steps.

        The first half of the draws is left out. `log_odds` are those of b = 0, whose normaliser is
        known or not.
        """
        draws = draws[len(draws) // 2 :]
        up, down, level = (torch.stack(parts).cpu().numpy() for parts in zip(*draws, strict=True))
        schedule, scales = state.schedule.cpu().numpy(), state.scales.cpu().numpy()
        odds = np.array([] if log_odds is None else log_odds, np.float64)
        return cls(schedule, up, down, level, trips.cpu().numpy(), steps, scales, odds, known_base)

    @property
    def verdict(self) -> Convergence:
        """Whether the chains at b = 1 have mixed, by their log-probabilities relative to p0."""
        energy = round_noise(-self.down[:, -1].T.astype(np.float32))
        if (energy == energy[0, 0]).all():
            return Convergence(True, "converged: the target is that of b = 0")
        return verdict(energy, energy[..., None])

    @property
    def log_z(self) -> LogZ | None:
        """`estimate_log_z` by the ladders' own `verdict`."""
        return self.estimate_log_z(self.verdict)

    def estimate_log_z(self, chains: Convergence) -> LogZ | None:
        """The log normaliser of the target; None if it is not known at the ladder's first b.

        `chains` is the verdict of the chains at b = 1. Unless they have converged, the interval has
        no ends.
        """
        if self.schedule[0] != 0 or not self.known_base:
            return None
        log_z = estimate(self.up, self.down)
        if doubt := log_z.doubt or self._why_unsure(chains):
            log_z = log_z._replace(low=-np.inf, high=np.inf, doubt=doubt)
        elif np.isnan(log_z.high):
            log_z = log_z._replace(doubt="an interval needs two ladders or more")
        return log_z

    def _why_unsure(self, chains: Convergence) -> str:
        """Why all ladders may be equally far from their law, else ""."""
        trips = float(self.trips.mean())
        if trips < MIN_ROUND_TRIPS:
            return (
                f"not to be trusted: {trips:.1f} round trips a ladder, fewer than "
                f"{MIN_ROUND_TRIPS}; take more steps, or log_odds= of sites nearer to the target"
            )
        if len(self.trips) > 1 and not chains.converged:
            return f"not to be trusted: {chains.text}; take more steps"
        return ""

    @property
    def interval(self) -> tuple[float, float, bool]:
        """95 % interval of log Z, and whether it is plain.

        It is plain if it has two ends and the barrier is known. If not, it is the hull of the
        interval and all estimates. Raises ValueError unless b begins at 0.
        """
        log_z = self.log_z
        if log_z is None:
            raise ValueError("log Z needs a schedule that begins at b = 0, where it is known")
        ends = [log_z.low, log_z.high]
        plain = bool(np.isfinite(ends).all()) and self.barrier_known
        if not plain:
            ends += [log_z.forward, log_z.backward]
        return min(ends), max(ends), plain

    def select_ladders(self, ladders: slice) -> "Ladders":
        """Some of the ladders, with all their draws."""
        return replace(
            self,
            up=self.up[..., ladders],
            down=self.down[..., ladders],
            level=self.level[..., ladders],
            trips=self.trips[ladders],
        )


def estimate(up: Works, down: Works) -> LogZ:
    """The log normaliser from the works of draws from all levels, which are normalised at b = 0.

    Its cost grows with the number of works alone: the jackknife leaves a ladder out by one step of
    Newton's method from the estimate of all.
    """
    possible = np.isfinite(up).mean((0, 2))
    if not possible.all():
        doubt = "not to be trusted: no draw of a level is possible at the next"
        return LogZ(np.nan, np.nan, np.nan, -np.inf, np.nan, doubt)
    ladders = up.shape[-1]
    pooled = bennett(up, down)
    value, half = float(pooled.sum()), np.nan
    if ladders > 1:
        each = _without_each(up, down, pooled).sum(0)
        error = float(np.sqrt((ladders - 1) * np.square(each - each.mean()).mean()))
        half = error * t_half_width(ladders) + ROUNDING * max(1, abs(value))
    # States that are impossible at the next level are never drawn there.
    forward, backward = _log_mean_exp(up).sum(), (np.log(possible) - _log_mean_exp(down)).sum()
    return LogZ(value, value - half, value + half, float(forward), float(backward))


def bennett(up: Works, down: Works) -> NDArray[np.float64]:
    """Differences of log normalisers of neighbouring levels, `[levels - 1]`, by Newton's method."""
    c = (_log_mean_exp(up) - _log_mean_exp(down)) / 2
    for _ in range(MAX_NEWTON_STEPS):
        step = _newton_step(*(sums.sum(1) for sums in _sums_by_ladder(up, down, c)))
        c = c + step
        if np.abs(step).max() < NEWTON_TOLERANCE:
            break
    return c


def _without_each(up: Works, down: Works, c: NDArray[np.float64]) -> NDArray[np.float64]:
    """`bennett` without each ladder, `[levels - 1, ladders]`: one step from `c`, that of all."""
    remaining = (sums.sum(1, keepdims=True) - sums for sums in _sums_by_ladder(up, down, c))
    return c[:, None] + _newton_step(*remaining)


def _sums_by_ladder(
    up: Works, down: Works, c: NDArray[np.float64]
) -> tuple[NDArray[np.float64], ...]:
    """Sums of sigmoid(up - c) and sigmoid(down + c) and of their squares over the draws.

    Each is `[levels - 1, ladders]`.
    """
    from scipy.special import expit

    forward, backward = expit(up - c[:, None]), expit(down + c[:, None])
    return forward.sum(0), backward.sum(0), np.square(forward).sum(0), np.square(backward).sum(0)


def _newton_step(
    forward: NDArray[np.float64],
    backward: NDArray[np.float64],
    forward_squares: NDArray[np.float64],
    backward_squares: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The step of c from sums of sigmoids and of their squares, which have its shape."""
    slopes = forward_squares / forward + backward_squares / backward
    return (np.log(forward) - np.log(backward)) / (2 - slopes)


def _log_mean_exp(values: Works) -> NDArray[np.float64]:
    """Log of the mean of exp over draws and ladders, `[levels - 1]`."""
    largest = values.max((0, 2), keepdims=True)
    return np.log(np.exp(values - largest).mean((0, 2))) + largest[0, :, 0]
