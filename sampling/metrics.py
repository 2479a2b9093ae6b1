"""Online metrics: sums accumulated on the device while a chain runs, and read at intervals.

A metric is a frozen dataclass; what it accumulates is its carry, a NamedTuple of tensors.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.models.domains import Binary, Domain, Integer
from latticework.moved import offer_moved_names
from latticework.samplers.base import Info
from latticework.samplers.sums import SumRequest, has_no_nan

LARGEST_TRACE = 2**30  # bytes


class Reference(NamedTuple):
    """Known truths of the target. A metric raises an error if the part it needs is missing."""

    mean: Tensor | None = None  # E[x], [*domain.shape]
    samples: Tensor | None = None  # [n, *domain.shape]
    floor: Tensor | None = None  # more of them: what a perfect sampler gives


class Steps(NamedTuple):
    """Sums over the steps of one update, from an eager step or from the call of a compiled kernel.

    `changed` and `invalid` of an eager step are empty where no metric wants them.
    """

    total: Tensor  # [chains, size], the states after each step
    trace: Tensor  # [draws, chains or fewer, size], the states after the last steps
    accept: Tensor  # [chains], acceptance probabilities
    changed: Tensor  # [chains], how many sites changed
    invalid: Tensor  # [chains], steps that met NaN or +inf
    unsettled: Tensor  # [chains], steps whose inner loop ended at its bound; or empty

    @classmethod
    def of_one(cls, before: Tensor, state: Any, info: Info, wanted: SumRequest) -> "Steps":
        """The sums of one eager step from the states `before`."""
        x, none = state.x, state.x.new_empty(0)
        changed = invalid = none
        if wanted.changed:
            changed = (x != before).view(*x.shape[:2], -1).any(-1).sum(-1)
        if wanted.invalid:
            ratio = info.log_ratio
            invalid = ~(has_no_nan(state) if ratio is None else ratio < torch.inf)
        unsettled = none if info.unsettled is None else info.unsettled
        flat = x.flatten(1)
        return cls(flat, flat.unsqueeze(0), info.accept_prob, changed, invalid, unsettled)


class Metric(ABC):
    """`init` is called once, `update` after the steps of a call, `read` on demand.

    `wanted` are the sums that `update` reads. Without it, the metric has to see every state, and
    chains run eagerly, one step an update (on the device only).
    """

    wanted: SumRequest | None = None

    @abstractmethod
    def init(self, model: EnergyModel, state: Any, reference: Reference) -> Any: ...

    @abstractmethod
    def update(self, carry: Any, state: Any, sums: Steps, steps: int) -> Any:
        """The carry after `steps` steps that ended at `state`. The old one may be overwritten."""

    @abstractmethod
    def read(self, carry: Any) -> dict[str, Tensor]:
        """Scalars by name."""

    def errors(self, carry: Any) -> dict[str, Tensor]:
        """Standard errors over chains of the scalars of `read`, if they are known."""
        return {}

    def arrays(self, carry: Any) -> dict[str, Tensor]:
        """Arrays to store when the chain has ended, by name."""
        return {}


def needs(metric: Metric, what: Tensor | None, name: str) -> Tensor:
    """Return `what`; raise ValueError if it is None, because the metric needs this reference."""
    if what is None:
        raise ValueError(
            f"{type(metric).__name__} needs the reference `{name}`; "
            "set task.truth to a function of experiments.tasks.target that gives it"
        )
    return what


class MarginalSums(NamedTuple):
    total: Tensor  # [chains, *shape], float64, sum of the states since step 0
    states: Tensor  # [], int64, how many are in it
    truth: Tensor  # [*shape]
    scale: Tensor  # [], 2 for {0, 1}: the error is that of the mean spin


@dataclass(frozen=True)
class MarginalError(Metric):
    """Log RMSE of each chain's running mean against the exact mean, over chains and sites.

    Natural logarithm. On {0, 1} the mean is mapped to 2 mean - 1, the mean spin (Zhang et al. 2022,
    Figure 3).
    """

    wanted = SumRequest(total=True)

    def init(self, model: EnergyModel, state: Any, reference: Reference) -> MarginalSums:
        truth = needs(self, reference.mean, "mean")
        if truth.shape != model.domain.shape:
            raise ValueError(
                f"the exact mean must have shape {list(model.domain.shape)}, got "
                f"{list(truth.shape)}"
            )
        unit = isinstance(model.domain, Binary) and model.domain.is_unit
        unit_scalar = truth.new_ones(())
        total, states = state.x.double(), unit_scalar.long()
        return MarginalSums(total, states, truth, unit_scalar * (2.0 if unit else 1.0))

    def update(self, carry: MarginalSums, state: Any, sums: Steps, steps: int) -> MarginalSums:
        total = carry.total.add_(sums.total.view_as(carry.total))
        return carry._replace(total=total, states=carry.states.add_(steps))

    def read(self, carry: MarginalSums) -> dict[str, Tensor]:
        error = (carry.total / carry.states - carry.truth) * carry.scale
        return {"log_rmse": error.square().mean().sqrt().log()}

    def errors(self, carry: MarginalSums) -> dict[str, Tensor]:
        """The delta method: log RMSE = log(mean over chains of each chain's MSE) / 2."""
        error = (carry.total / carry.states - carry.truth) * carry.scale
        mse = error.square().flatten(1).mean(-1)  # [chains]
        return {"log_rmse": mse.std() / len(mse) ** 0.5 / mse.mean() / 2}


class Ensemble(NamedTuple):
    x: Tensor  # [chains, *shape], the current states
    truth: Tensor  # [*shape]
    scale: Tensor  # [], as in MarginalSums


@dataclass(frozen=True)
class EnsembleError(Metric):
    """Log RMSE over sites of the mean of the current states of all chains, natural logarithm.

    For interacting particles, which converge to a fixed set (Han et al. 2020). The error of n
    independent exact draws is about sd / sqrt(n). On {0, 1} it is that of 2 mean - 1.
    """

    wanted = SumRequest()

    def init(self, model: EnergyModel, state: Any, reference: Reference) -> Ensemble:
        sums = MarginalError().init(model, state, reference)
        return Ensemble(state.x, sums.truth, sums.scale)

    def update(self, carry: Ensemble, state: Any, sums: Steps, steps: int) -> Ensemble:
        return carry._replace(x=state.x)

    def read(self, carry: Ensemble) -> dict[str, Tensor]:
        error = (carry.x.mean(0) - carry.truth) * carry.scale
        return {"log_rmse_ensemble": error.square().mean().sqrt().log()}


class Average(NamedTuple):
    total: Tensor  # [], float64
    steps: Tensor  # [], int64: single precision would stop counting at 2^24


class Mean(Metric):
    """A mean since the start, over chains and steps."""

    wanted: SumRequest | None = SumRequest()
    name: str

    def init(self, model: EnergyModel, state: Any, reference: Reference) -> Average:
        zero = torch.zeros((), dtype=torch.float64, device=state.x.device)
        return Average(zero, zero.long())

    @abstractmethod
    def amount(self, state: Any, sums: Steps) -> Tensor:
        """The sum over the steps of one update, of each chain, `[chains]`; empty without steps."""

    def update(self, carry: Average, state: Any, sums: Steps, steps: int) -> Average:
        if not len(amount := self.amount(state, sums)):
            return carry
        mean = amount.to(sums.accept).mean()
        return Average(carry.total.add_(mean), carry.steps.add_(steps))

    def read(self, carry: Average) -> dict[str, Tensor]:
        return {self.name: carry.total / carry.steps}


@dataclass(frozen=True)
class Acceptance(Mean):
    """Mean acceptance probability since the start, over chains and steps."""

    name = "acceptance"

    def amount(self, state: Any, sums: Steps) -> Tensor:
        return sums.accept


@dataclass(frozen=True)
class Unsettled(Mean):
    """Fraction of steps since the start, over chains, at which the inner loop reached its bound.

    An example of a bound is `sweeps` of rates-herding. NaN for samplers without an inner loop.
    """

    name = "unsettled"

    def amount(self, state: Any, sums: Steps) -> Tensor:
        return sums.unsettled


@dataclass(frozen=True)
class Changed(Mean):
    """Mean number of sites that a step changes. A rejected step counts as 0."""

    name = "changed"
    wanted = SumRequest(changed=True)

    def amount(self, state: Any, sums: Steps) -> Tensor:
        return sums.changed


@dataclass(frozen=True)
class Proposed(Mean):
    """Mean number of sites that a proposal changes, accepted or not, over the states visited.

    For binary domains, computed from the logits in the sampler's state. With `draws=0`, each site
    flips independently with probability sigmoid(logit) (DMALA). With `draws=X`, X sites are drawn
    with replacement from softmax(logits), and each distinct one flips (GWG-X). `Changed`, in
    contrast, counts a rejected step as 0.
    """

    draws: int = 0
    name = "proposed"
    wanted = None

    def init(self, model: EnergyModel, state: Any, reference: Reference) -> Average:
        if not (isinstance(model.domain, Binary) and hasattr(state, "logits")):
            raise ValueError(
                "Proposed needs a binary model and a sampler whose state has its proposal's logits "
                f"(gwg, dmala, dula), got {type(state).__name__} on {model.domain}"
            )
        return super().init(model, state, reference)

    def amount(self, state: Any, sums: Steps) -> Tensor:
        if self.draws:
            flipped = 1 - (1 - state.logits.softmax(-1)) ** self.draws
        else:
            flipped = state.logits.sigmoid()
        return flipped.sum(-1)


class Traces(NamedTuple):
    buffer: Tensor  # [draws, chains, *shape], int8; int32 where values are larger
    position: Tensor  # [1], the steps since the start


@dataclass(frozen=True)
class Trace(Metric):
    """The last `draws` states of the first `chains` chains, `thin` steps apart, for ESS and R-hat.

    Stored as the array `trace` `[draws, chains, *shape]`, int8, or int32 where values need it. If
    `thin` does not divide the number of steps, the last two states are closer. Raises ValueError if
    values are no whole numbers, or for more than LARGEST_TRACE bytes.
    """

    draws: int
    chains: int = 4
    thin: int = 1

    def init(self, model: EnergyModel, state: Any, reference: Reference) -> Traces:
        x, kind = state.x[: self.chains], whole_numbers(model.domain)
        if (size := self.draws * x.numel() * kind.itemsize) > LARGEST_TRACE:
            raise ValueError(
                f"a trace of {self.draws} draws of {len(x)} chains of {model.domain} would have "
                f"{size / 1e9:.1f} GB; keep fewer draws, thin more, or leave Trace out of "
                "task.metrics"
            )
        buffer = torch.zeros((self.draws, *x.shape), dtype=kind, device=x.device)
        return Traces(buffer, torch.zeros(1, dtype=torch.long, device=x.device))

    @property
    def wanted(self) -> SumRequest:  # type: ignore[override]
        return SumRequest(draws=self.draws * self.thin, traced=self.chains)

    def update(self, carry: Traces, state: Any, sums: Steps, steps: int) -> Traces:
        """Keep the last of the steps that have one place in the buffer."""
        buffer, end, size = carry.buffer, carry.position.add_(steps), self.thin
        rows = sums.trace[-self.draws * size :, : buffer.shape[1]].to(buffer.dtype)
        window = (end - 1) // size
        if (given := len(rows)) > 1:  # `index_copy_` keeps any of several rows with one place
            windows = min(self.draws, (given + size - 2) // size + 1)  # at most
            window = window - torch.arange(windows, device=end.device)
            window = window.maximum((end - given) // size)  # where repeated, it is the same row
            last = (window * size + size).minimum(end) - 1
            rows = rows.index_select(0, last - (end - given))
        place = window % self.draws
        return Traces(buffer.index_copy_(0, place, rows.view(-1, *buffer.shape[1:])), end)

    def read(self, carry: Traces) -> dict[str, Tensor]:
        return {}

    def arrays(self, carry: Traces) -> dict[str, Tensor]:
        written = -(-int(carry.position) // self.thin)
        if written < self.draws:
            return {"trace": carry.buffer[:written].clone()}
        return {"trace": carry.buffer.roll(-(written % self.draws), 0)}  # the oldest row first


def whole_numbers(domain: Domain) -> torch.dtype:
    """An integer type for the values of `domain`. Raises ValueError if they are not integers."""
    if isinstance(domain, Integer):
        return torch.int32
    values = domain.values()
    if not (values == values.round()).all():
        raise ValueError(
            f"a trace holds whole numbers, and {domain} has the values {values.tolist()}; leave "
            "Trace and second_half out of task.metrics"
        )
    return torch.int8 if values.min() >= -128 and values.max() <= 127 else torch.int32


def second_half(steps: int, draws: int = 1000, chains: int = 4) -> Trace:
    """A trace of the second half of `steps` steps, thinned to at most `draws` states a chain.

    The first half is left out as burn-in.
    """
    traced = max(1, steps // 2)
    thin = -(-traced // draws)
    return Trace(max(1, traced // thin), chains, thin)


if not TYPE_CHECKING:  # else type checkers would accept any name
    __getattr__ = offer_moved_names(__name__)
