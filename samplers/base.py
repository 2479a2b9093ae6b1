"""The kernel interface: `init` checks a start, `at` evaluates it, `step` advances every chain once.

A sampler is a frozen dataclass whose fields are its hyperparameters and its YAML keys. It keeps
nothing on self: memory is in the State, chance in the generator, diagnostics in Info. Two rules let
one kernel run eagerly and as a captured CUDA graph:

- a State holds tensors only (or tuples of them);
- a step reads nothing on the host: no `.item()`, no tensor-dependent shapes. `settled` is the one
  exception, on the CPU alone.

A step may reuse the memory of the state it is given, so that a one-site sampler need not copy a
million sites: after `state, info = sampler.step(state, model, rng)` the old state is gone.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Generator, Tensor

from models.base import EnergyModel
from models.chance import LARGE
from models.domain import Binary, Domain
from samplers.checks import check_start


class State(NamedTuple):
    """A position and the target's value there, so that no step evaluates a point twice."""

    x: Tensor  # [chains, *domain.shape]
    log_prob: Tensor  # [chains]
    grad: Tensor  # [chains, *domain.shape]


class Info(NamedTuple):
    """What a step did, for diagnostics; nothing here feeds the next step."""

    accept_prob: Tensor  # [chains], 1 for samplers that never reject
    log_ratio: Tensor | None = None  # [chains], before min(1, exp(.)); NaN where there is no energy
    unsettled: Tensor | None = None  # [chains], 1 where an inner loop ended at its bound, else 0


class Sampler(ABC):
    """A Markov kernel. `at` and `step` may return any NamedTuple of tensors with a field `x`."""

    exact: bool = True  # whether a step leaves the target invariant, which AIS must rely on
    uses_gradient: bool = False  # whether the target's gradient is read: `init` then checks it

    def init(self, x: Tensor, model: EnergyModel) -> Any:
        """The state at `x`, `[chains, *domain.shape]`, where chains begin.

        Checks `x` and the target there first, at the cost of one evaluation; raises ValueError as
        `samplers.checks` says. `x` itself is left untouched.
        """
        check_start(x, model, self.uses_gradient)
        return self.at(x, model)

    @abstractmethod
    def at(self, x: Tensor, model: EnergyModel) -> Any:
        """The state at `x` without any check: for use inside a step and in loops.

        Raises UnsupportedModelError for a model that cannot be served. `x` is left untouched, by
        later steps too: a sampler that overwrites its states copies it.
        """

    @abstractmethod
    def step(self, state: Any, model: EnergyModel, rng: Generator) -> tuple[Any, Info]:
        """Advance every chain once. The given state must not be used afterwards."""

    def refresh(self, state: Any, model: EnergyModel) -> Any:
        """The state after the target changed (PCD, AIS). Override to keep other memory."""
        return self.at(state.x, model)

    def moved_to(self, x: Tensor, state: Any, model: EnergyModel) -> Any:
        """The state at other positions `x`, after one elsewhere (a replay buffer).

        Override to keep memory that is not a position, such as a scan's.
        """
        return self.at(x, model)


class UnsupportedModelError(TypeError):
    """A sampler was asked to run on a model that it cannot serve."""

    def __init__(
        self, sampler: Sampler, model: EnergyModel, needs: str, got: str | None = None
    ) -> None:
        if got is None:
            got = f"{type(model).__name__} on {model.domain}; choose another sampler or model"
        super().__init__(f"{type(sampler).__name__} needs {needs}, got {got}")


def require_domain(sampler: Sampler, model: EnergyModel, *allowed: type[Domain]) -> None:
    """Raise UnsupportedModelError unless the model's domain is one of `allowed`."""
    if not isinstance(model.domain, allowed):
        names = " or ".join(domain.__name__ for domain in allowed)
        raise UnsupportedModelError(sampler, model, f"a model on a {names} domain")


def require_unit_binary(sampler: Sampler, model: EnergyModel) -> None:
    """Raise UnsupportedModelError unless states are in {0, 1}^dim."""
    if not (isinstance(model.domain, Binary) and model.domain.is_unit):
        raise UnsupportedModelError(sampler, model, "a model on {0, 1}^dim")


def evaluate(model: EnergyModel, x: Tensor) -> State:
    return State(x, *model.log_prob_and_grad(x))


AnyState = TypeVar("AnyState", bound=tuple)


def metropolis(
    current: AnyState, proposed: AnyState, log_ratio: Tensor, rng: Generator
) -> tuple[AnyState, Info]:
    """Accept each chain's proposal with probability min(1, exp(log_ratio)), `[chains]`.

    NaN and infinity reject. Every field of the two states has chains first; `proposed` may be
    overwritten. Eq. (3) of Zhang et al. (2022).
    """
    accepted, accept_prob = decide(log_ratio, rng)
    return select_rows(accepted, proposed, current), Info(accept_prob, log_ratio)


def decide(log_ratio: Tensor, rng: Generator) -> tuple[Tensor, Tensor]:
    """Which proposals are accepted, and with what probability; both shaped as `log_ratio`."""
    accept_prob = acceptance(log_ratio)
    return torch.empty_like(accept_prob).uniform_(generator=rng) < accept_prob, accept_prob


def acceptance(log_ratio: Tensor) -> Tensor:
    """min(1, exp(log_ratio)); 0 for NaN and for infinity, which no finite energy gives."""
    return log_ratio.nan_to_num(nan=-torch.inf, posinf=-torch.inf).clamp_(max=0).exp_()


def select_rows(chosen: Tensor, new: AnyState, old: AnyState) -> AnyState:
    """Chain by chain, the rows of `new` where `chosen` `[chains]`, else those of `old`.

    The tensors of `new` may be overwritten; none may share memory with another.
    """

    def pick(a: Any, b: Any) -> Any:
        if isinstance(a, tuple):
            return tuple(map(pick, a, b))
        if a is b:
            return a
        rows = chosen if a.ndim == 1 else chosen.view(-1, *[1] * (a.ndim - 1))
        if a.is_cuda or a.dtype != torch.float32 or a.numel() < LARGE:
            return torch.where(rows, a, b)
        # The same by bits, without new memory, several times faster: b ^ ((a ^ b) & mask).
        bits, other = a.view(torch.int32), b.view(torch.int32)
        return bits.bitwise_xor_(other).bitwise_and_(-rows.int()).bitwise_xor_(other).view(a.dtype)

    return type(new)(*map(pick, new, old))


def settled(done: Tensor) -> bool:
    """Whether all of `done` is true, asked on the CPU only; False on any other device.

    For loops in which further rounds change nothing. They may end early on the CPU. Elsewhere the
    question would be a host read, so they run to their bound, as a captured CUDA graph must.
    """
    return done.device.type == "cpu" and bool(done.all())


def require_positive(**values: float) -> None:
    """Raise ValueError naming the first of `values` that is not a positive number."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")


def require_count(**values: int) -> None:
    """Raise ValueError naming the first of `values` that is not an integer of at least 1."""
    for name, value in values.items():
        if not (isinstance(value, int) and value >= 1):
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
