"""What the ladders of a tempered chain tell: log Z with an interval, the barrier, round trips.

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

from latticework.samplers.tempered import LadderState

Works = NDArray[np.float64]  # [draws, levels - 1, ladders]
Levels = tuple[Tensor, Tensor, Tensor]  # `up`, `down` and `level` of a state

KNOWN_BELOW = 0.75  # the largest rejection of swaps with which the barrier is called known
ENOUGH = 2  # round trips of a ladder, on average; with fewer, draws may depend on their start
NEWTON = 50  # iterations at most; about five are needed
CLOSE = 1e-10  # of C
ROUNDING = 1e-6  # nats by which estimates of a flat target may differ


class LogZ(NamedTuple):
    """An estimate of the log normaliser, in nats.

    The interval is NaN with a single ladder. It has no ends (-inf, inf) if the ladders made fewer
    than two round trips on average: then all of them may be as far from their law as their starts,
    which no comparison of ladders can see.
    """

    value: float  # Bennett's estimate, from all ladders together
    low: float  # 95 % interval: Student's t with the jackknife over ladders
    high: float
    forward: float  # by importance sampling from each level to the next
    backward: float  # the other way; far from `forward`, the levels overlap too little

    @property
    def agree(self) -> bool:
        """Whether `forward` and `backward` differ by no more than the interval is wide.

        If not, levels overlap too little or the ladders have missed a mode, and the interval may
        be far from the truth. Without an interval it is False.
        """
        return abs(self.forward - self.backward) <= self.high - self.low + ROUNDING < np.inf

    def __str__(self) -> str:
        doubt = "" if self.agree else "; not to be trusted: they differ by more than the interval"
        if np.isnan(self.high):
            doubt = "; an interval needs two ladders or more"
        if np.isinf(self.high):
            doubt = "; not to be trusted: fewer than two round trips a ladder, take more steps"
        return (
            f"log Z {self.value:.2f} [{self.low:.2f}, {self.high:.2f}] "
            f"(forward {self.forward:.2f}, backward {self.backward:.2f}{doubt})"
        )


def levels_of(state: LadderState) -> Levels:
    """Copies of what `Ladders` keeps of a state."""
    return state.up.clone(), state.down.clone(), state.level.clone()


@dataclass(frozen=True, eq=False)
class Ladders:
    """What was recorded of the levels at each draw. A ladder is the replicas of one chain.

    Numbers are those of the draws, every `thin` steps, but round trips are counted in all steps.
    """

    schedule: NDArray[np.float64]  # b, [levels]
    up: Works  # log pi_(i+1)(x) - log pi_i(x) of x at level i
    down: Works  # log pi_i(x) - log pi_(i+1)(x) of x at level i + 1
    level: NDArray[np.int64]  # [draws, replicas, ladders], of each replica
    trips: NDArray[np.int64]  # [ladders], round trips from the base to b = 1 and back
    steps: int  # in which these were counted
    # Scale of the kernel at each level, [levels]; [0] if all levels have the kernel's own.
    scales: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))

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
        return bool(self.rejections.max() <= KNOWN_BELOW)

    @property
    def predicted_trips(self) -> float:
        """Round trips of a ladder in `steps` steps if replicas move as a Markov chain of levels.

        Syed et al. (2022): a rate of 1 / (2 + 2 sum r / (1 - r)), which local moves do not reach
        where they hardly change the energy.
        """
        r = np.minimum(self.rejections, 1 - 1e-12)
        return float(self.steps / (2 + 2 * (r / (1 - r)).sum()))

    @classmethod
    def recorded(
        cls, state: LadderState, draws: Sequence[Levels], trips: Tensor, steps: int
    ) -> "Ladders":
        """From the last state, `levels_of` each draw, and `trips` `[chains]` in `steps` steps."""
        up, down, level = (torch.stack(parts).cpu().numpy() for parts in zip(*draws, strict=True))
        schedule, scales = state.schedule.cpu().numpy(), state.scales.cpu().numpy()
        return cls(schedule, up, down, level, trips.cpu().numpy(), steps, scales)

    @property
    def log_z(self) -> LogZ | None:
        """The log normaliser of the target; None if the ladder does not begin at b = 0."""
        if self.schedule[0] != 0:
            return None
        found = estimate(self.up, self.down)
        if self.trips.mean() < ENOUGH:
            found = found._replace(low=-np.inf, high=np.inf)
        return found

    @property
    def interval(self) -> tuple[float, float, bool]:
        """95 % interval of log Z, and whether it is plain.

        It is plain if forward and backward estimates agree and the barrier is known. If not, it is
        the hull of the interval and all estimates. Raises ValueError unless b begins at 0.
        """
        found = self.log_z
        if found is None:
            raise ValueError("log Z needs a schedule that begins at b = 0, where it is known")
        ends = [found.low, found.high]
        plain = found.agree and self.barrier_known
        if not plain:
            ends += [found.forward, found.backward]
        return min(ends), max(ends), plain

    def only(self, ladders: slice) -> "Ladders":
        """Some of the ladders, with all their draws."""
        return replace(
            self,
            up=self.up[..., ladders],
            down=self.down[..., ladders],
            level=self.level[..., ladders],
            trips=self.trips[ladders],
        )


def estimate(up: Works, down: Works) -> LogZ:
    """The log normaliser from the works of draws from all levels, which are normalised at b = 0."""
    from scipy.stats import t as student

    ladders = up.shape[-1]
    pooled = bennett(up, down)
    value, error = float(pooled.sum()), np.nan
    if ladders > 1:
        kept = [np.arange(ladders) != left for left in range(ladders)]
        each = np.array([bennett(up[..., k], down[..., k], pooled).sum() for k in kept])
        error = float(np.sqrt((ladders - 1) * np.square(each - each.mean()).mean()))
    half = error * (student.ppf(0.975, ladders - 1) if ladders > 1 else np.nan)
    # States that are impossible for the target are drawn at b = 0 only, and never from above.
    possible = np.log(np.isfinite(up).mean((0, 2))).sum()
    forward, backward = _log_mean_exp(up).sum(), possible - _log_mean_exp(down).sum()
    return LogZ(value, value - half, value + half, float(forward), float(backward))


def bennett(
    up: Works, down: Works, start: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Differences of log normalisers of neighbouring levels, `[levels - 1]`, by Newton's method."""
    from scipy.special import expit

    c = start
    if c is None:
        c = (_log_mean_exp(up) - _log_mean_exp(down)) / 2
        c = np.where(np.isfinite(c), c, 0)
    for _ in range(NEWTON):
        forward, backward = expit(up - c[:, None]), expit(down + c[:, None])
        one, other = forward.sum((0, 2)), backward.sum((0, 2))
        slopes = np.square(forward).sum((0, 2)) / one + np.square(backward).sum((0, 2)) / other
        step = (np.log(one) - np.log(other)) / (2 - slopes)
        c = c + step
        if np.abs(step).max() < CLOSE:
            break
    return c


def _log_mean_exp(values: Works) -> NDArray[np.float64]:
    """Log of the mean of exp over draws and ladders, `[levels - 1]`."""
    largest = values.max((0, 2), keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0)
    return np.log(np.exp(values - largest).mean((0, 2))) + largest[0, :, 0]
