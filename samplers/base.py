"""The kernel interface: `init` checks a start, `at` evaluates it, `step` advances every chain once.

A sampler is a frozen dataclass. Its fields are its hyperparameters and its YAML keys. It has no
other attributes: memory is in the State, randomness in the generator, diagnostics in Info. Two
rules let the same kernel run eagerly and as a captured CUDA graph:

- A State holds only tensors, or tuples of tensors.
- A step reads no device data on the host: no `.item()`, no data-dependent shapes. The only
  exception is `all_done_on_cpu`, and only on the CPU.

A step may reuse the memory of the state it is given, so that a one-site sampler need not copy a
million sites. After `state, info = sampler.step(state, model, rng)`, the old state is invalid.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.distributions import FUSING_ENTRIES, bernoulli_mask
from latticework.models.domains import SWAPS, USERS_MOVES, Binary, Domain, Moves, Subset
from latticework.moved import RenamedMethods
from latticework.samplers.checks import check_start


class State(NamedTuple):
    """A position with the target's value and gradient there, so that no step recomputes them."""

    x: Tensor  # [chains, *domain.shape]
    log_prob: Tensor  # [chains]
    grad: Tensor  # [chains, *domain.shape]


class Info(NamedTuple):
    """Diagnostics of a step. The next step does not depend on them."""

    accept_prob: Tensor  # [chains], 1 for samplers that never reject
    log_ratio: Tensor | None = None  # [chains], before min(1, exp(.)); NaN where there is no energy
    unsettled: Tensor | None = None  # [chains], 1 where an inner loop ended at its bound, else 0


class Sampler(RenamedMethods, ABC):
    """A Markov kernel. `at` and `step` may return any NamedTuple of tensors with a field `x`."""

    old_names: ClassVar = {
        "learnt": "learn_fields",
        "moved_to": "relocate",
        "within": "unwrap_state",
    }
    exact: bool = True  # whether a step leaves the target invariant, which AIS must rely on
    uses_gradient: bool = False  # whether the target's gradient is read: `init` then checks it
    scale: str | None = None  # the step-size field that adaptation may tune
    scale_by_chain: bool = False  # whether a step can have a scale for each chain, `[chains]`
    target_acceptance: str = "locally_balanced"  # proposals whose optimal rate is targeted
    memory: tuple[str, ...] = ()  # fields of the state, besides x, that are no function of x
    swaps: bool = False  # whether it serves a `Subset`, whose moves are swaps
    makes_moves: bool = False  # whether it serves `Moves`, by the user's moves
    draws_all_sites: bool = False  # whether a step draws all sites anew, as a sweep of Gibbs does
    anneals: bool = False  # whether a step sets the beta of its target, an AnnealedModel, itself
    interacting: bool = False  # whether chains depend on one another, as particles do
    # Steps of one chain that `learn_fields` makes, by a kernel where it can.
    learning_steps: int = 0
    stationary_start: bool = True  # whether chains from the target are stationary at once; else
    #                                the rest of the state needs a burn-in first, and AIS refuses

    def init(self, x: Tensor, model: EnergyModel) -> Any:
        """The initial state at `x`, `[chains, *domain.shape]`.

        First checks `x` and the target there, which costs one evaluation. Raises ValueError if a
        check of `samplers.checks` fails. Does not modify `x`.
        """
        self.require_moves(model)
        check_start(x, model, self.uses_gradient)
        return self.at(x, model)

    def require_moves(self, model: EnergyModel) -> None:
        """Raise UnsupportedModelError for a `Subset` or `Moves` whose moves it does not make."""
        advice = ""
        if isinstance(model.domain, Subset) and not self.swaps:
            advice = SWAPS
        if isinstance(model.domain, Moves) and not self.makes_moves:
            advice = USERS_MOVES
        if advice:
            got = f"{type(model).__name__} on {model.domain}; {advice}"
            raise UnsupportedModelError(self, model, "sites that move on their own", got)

    def require_support(self, x: Tensor, model: EnergyModel) -> None:
        """Raise what `init` raises. Override it if `init` learns something, which may take long."""
        self.init(x, model)

    def learn_fields(self, x: Tensor, model: EnergyModel) -> dict[str, Tensor]:
        """The fields of what `init` learns from the target; a sampler that has them learns nothing.

        Runs that share a sampler learn them once. `x` gives the shape of states, type and device.
        """
        return {}

    @property
    def inner(self) -> "Sampler":
        """The kernel that moves states at one temperature: this sampler, unless it has several."""
        return self

    def unwrap_state(self, state: Any) -> Any:
        """The state of the sampler itself, where that of its kernel holds more."""
        return state

    @abstractmethod
    def at(self, x: Tensor, model: EnergyModel) -> Any:
        """The state at `x` without checks, for use inside a step and in loops.

        Raises UnsupportedModelError if the sampler does not support the model. Neither this method
        nor later steps may modify `x`: a sampler that overwrites its states must copy it.
        """

    @abstractmethod
    def step(self, state: Any, model: EnergyModel, rng: Generator) -> tuple[Any, Info]:
        """Advance every chain once. The given state must not be used afterwards."""

    def refresh(self, state: Any, model: EnergyModel) -> Any:
        """The state after the target changed (PCD, AIS). Override it to keep other memory."""
        return self.at(state.x, model)

    def relocate(self, x: Tensor, state: Any, model: EnergyModel) -> Any:
        """The state at new positions `x`, given an earlier `state` elsewhere (for replay buffers).

        Override it to keep memory that does not depend on the position, such as a scan's.
        """
        return self.at(x, model)

    def log_prob(self, state: Any, model: EnergyModel) -> Tensor:
        """The target's log-probability at `state.x`, `[chains]`.

        As the state holds it, else from one evaluation. Override it where the state has it in
        another form.
        """
        return state.log_prob if hasattr(state, "log_prob") else model.log_prob(state.x)


class UsesKernel(Sampler):
    """A sampler that moves states by the kernel `inner`, and has its needs."""

    @property
    @abstractmethod
    def inner(self) -> Sampler: ...

    @property
    def uses_gradient(self) -> bool:  # type: ignore[override]
        return self.inner.uses_gradient

    @property
    def swaps(self) -> bool:  # type: ignore[override]
        return self.inner.swaps

    @property
    def makes_moves(self) -> bool:  # type: ignore[override]
        return self.inner.makes_moves


@dataclass(frozen=True)
class Wrapper(UsesKernel):
    """Another implementation of `sampler`, with its properties; subclasses add the steps."""

    sampler: Any

    @property
    def inner(self) -> Sampler:
        return self.sampler

    @property
    def exact(self) -> bool:  # type: ignore[override]
        return self.sampler.exact

    @property
    def stationary_start(self) -> bool:  # type: ignore[override]
        return self.sampler.stationary_start


class UnsupportedModelError(TypeError):
    """The sampler does not support the model."""

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
    """The state at `x`. Its gradient is a tensor of its own, which `select_rows` may overwrite."""
    log_prob, grad = model.log_prob_and_grad(x)
    return State(x, log_prob, grad.contiguous())


AnyState = TypeVar("AnyState", bound=tuple)


def metropolis(
    current: AnyState, proposed: AnyState, log_ratio: Tensor, rng: Generator
) -> tuple[AnyState, Info]:
    """Accept each chain's proposal with probability min(1, exp(log_ratio)), `[chains]`.

    A ratio of NaN or infinity rejects. In every field of the two states, chains are the first
    dimension. `proposed` and `log_ratio` may be overwritten. Eq. (3) of Zhang et al. (2022).
    """
    if (log_prob := getattr(proposed, "log_prob", None)) is not None:
        log_ratio = reject_impossible(log_ratio, log_prob)
    accepted, accept_prob = decide(log_ratio, rng)
    return select_rows(accepted, proposed, current), Info(accept_prob, log_ratio)


def reject_impossible(log_ratio: Tensor, log_prob: Tensor) -> Tensor:
    """`log_ratio`, with -inf in place of NaN where the proposals have `log_prob` -inf.

    The gradient at such a state is often NaN, which makes the ratio NaN.
    """
    unknown = (log_prob == -torch.inf).logical_and_(log_ratio.isnan())
    return log_ratio.masked_fill_(unknown, -torch.inf)


def decide(log_ratio: Tensor, rng: Generator) -> tuple[Tensor, Tensor]:
    """Which proposals are accepted, and their probability; both have the shape of `log_ratio`."""
    accept_prob = acceptance(log_ratio)
    return bernoulli_mask(accept_prob, rng), accept_prob


def acceptance(log_ratio: Tensor) -> Tensor:
    """min(1, exp(log_ratio)), but 0 for NaN and infinity, which finite energies never give."""
    return log_ratio.nan_to_num(nan=-torch.inf, posinf=-torch.inf).clamp_(max=0).exp_()


def select_rows(chosen: Tensor, new: AnyState, old: AnyState) -> AnyState:
    """For each chain, the row of `new` if `chosen` `[chains]`, else that of `old`.

    The tensors of `new` may be overwritten. They must not share memory with each other.
    """

    def pick(a: Any, b: Any) -> Any:
        if isinstance(a, tuple):
            return tuple(map(pick, a, b))
        if a is b:
            return a
        rows = chosen if a.ndim == 1 else chosen.view(-1, *[1] * (a.ndim - 1))
        plain = type(a) is Tensor and not a.is_cuda and a.dtype == torch.float32
        if not plain or a.numel() < FUSING_ENTRIES:
            return torch.where(rows, a, b)
        # Bitwise torch.where, in place and several times faster: b ^ ((a ^ b) & mask).
        bits, alternative = a.view(torch.int32), b.view(torch.int32)
        return (
            bits.bitwise_xor_(alternative)
            .bitwise_and_(-rows.int())
            .bitwise_xor_(alternative)
            .view(a.dtype)
        )

    return type(new)(*map(pick, new, old))


@lru_cache(maxsize=32)
def on_device(numbers: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """The numbers as a tensor, copied to the device once: a step may not wait for the host."""
    return torch.tensor(numbers, device=device, dtype=dtype)


def all_done_on_cpu(done: Tensor) -> bool:
    """Whether all of `done` is true; always False on devices other than the CPU.

    Use it in loops that have reached a fixed point, where further rounds change nothing. On the
    CPU such a loop can end early. On other devices the test would be a host read, so the loop runs
    to its bound, as a captured CUDA graph must.
    """
    real = type(done) is Tensor  # not one that is traced
    return real and done.device.type == "cpu" and bool(done.numpy().all())


def own_generator(device: torch.device) -> Generator:
    """A generator for what a sampler draws before its first step, when it has no other.

    Its seed is always the same, and one that no run has by chance: a run with the same seed would
    repeat these numbers in its first step.
    """
    return Generator(device).manual_seed(0x1A77_1CE5_EED5)


def require_positive(**values: float) -> None:
    """Raise ValueError naming the first of `values` that is not a positive number."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")


def require_count(**values: int) -> None:
    """Raise ValueError naming the first of `values` that is not an integer of at least 1."""
    for name, value in values.items():
        if not (isinstance(value, Integral) and value >= 1) or isinstance(value, bool):
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
