"""Maximum mean discrepancy between states and exact draws (A. Gretton et al., JMLR 2012)."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.models.domains import Binary, Categorical
from latticework.samplers.sums import SumRequest
from latticework.sampling.metrics import Metric, Reference, Steps, needs


class Within(NamedTuple):
    """Mean kernel value between the members of one set, `[]` each."""

    all_pairs: Tensor  # including each state with itself: the V-statistic's term
    distinct: Tensor  # without these: the U-statistic's term; NaN for a single state


def hamming_kernel(x: Tensor, y: Tensor) -> Tensor:
    """k(x_i, y_j) = exp(-(1/d) sum_k [x_ik != y_jk]) of states of d sites, `[n, m]`.

    States are `[n, d]` in {0, 1}, or one-hot `[n, d, values]`, where two values of a site differ in
    two entries. Zhang et al. (2022), Section 7.2.
    """
    scale = -x.shape[1] * (x.ndim - 1)  # entries that differ if all sites do
    x, y = x.flatten(1), y.flatten(1)
    differing = x.sum(-1).unsqueeze(1) + y.sum(-1) - 2 * (x @ y.T)
    return (differing / scale).exp()


def sums_within(x: Tensor) -> Within:
    """The terms of an MMD that depend on a single set of states."""
    n, total = len(x), hamming_kernel(x, x).sum()
    # A state is at distance 0 from itself, so the diagonal sums to n.
    distinct = (total - n) / (n * (n - 1)) if n > 1 else torch.full_like(total, torch.nan)
    return Within(total / n**2, distinct)


def mmd_squared(x: Tensor, y: Tensor, within_y: Within | None = None) -> tuple[Tensor, Tensor]:
    """The V-statistic and the unbiased U-statistic of MMD^2 between `n` and `m` states.

    A. Gretton et al., "A Kernel Two-Sample Test", JMLR 2012. `within_y` is `within(y)`.
    """
    mine, theirs = sums_within(x), within_y or sums_within(y)
    between = 2 * hamming_kernel(x, y).mean()
    v, u = (a + b - between for a, b in zip(mine, theirs, strict=True))
    return v, u


class Samples(NamedTuple):
    x: Tensor  # the current states
    truth: Tensor
    within: Within  # terms of the truth
    floor: tuple[Tensor, Tensor]  # V and U of ground-truth samples in place of the chains


@dataclass(frozen=True)
class MMD(Metric):
    """Squared maximum mean discrepancy between the current states and ground-truth samples.

    `mmd_v` is the V-statistic; its logarithm `log_mmd` is shown in Figure 4 of Zhang et al. (2022).
    `mmd_u` is the unbiased U-statistic, which may be negative. `log_mmd_floor` is the value
    with as many independent ground-truth samples in place of the chains. Raises ValueError if
    states have entries other than 0 and 1, or if there are fewer samples than chains.
    """

    wanted = SumRequest()

    def init(self, model: EnergyModel, state: Any, reference: Reference) -> Samples:
        domain = model.domain
        if not (isinstance(domain, Categorical) or (isinstance(domain, Binary) and domain.is_unit)):
            raise ValueError(
                f"the kernel of MMD is defined on states of 0 and 1, got {domain}; leave MMD out "
                "of task.metrics"
            )
        truth = needs(self, reference.samples, "samples")
        floor = needs(self, reference.floor, "floor")[: len(state.x)]
        if len(floor) < len(state.x):  # the V-statistic depends on their number
            raise ValueError(
                f"the floor of MMD needs as many samples as there are chains, {len(state.x)}, got "
                f"{len(floor)}; set task.truth.floor={len(state.x)}"
            )
        within = sums_within(truth)
        return Samples(state.x, truth, within, mmd_squared(floor, truth, within))

    def update(self, carry: Samples, state: Any, sums: Steps, steps: int) -> Samples:
        return carry._replace(x=state.x)

    def read(self, carry: Samples) -> dict[str, Tensor]:
        biased, unbiased = mmd_squared(carry.x, carry.truth, carry.within)
        return {
            "log_mmd": biased.log(),
            "mmd_v": biased,
            "mmd_u": unbiased,
            "log_mmd_floor": carry.floor[0].log(),
            "mmd_u_floor": carry.floor[1],
        }
