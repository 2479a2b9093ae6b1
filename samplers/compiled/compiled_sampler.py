"""Twins: compiled kernels behind the interface of a sampler.

A twin samples the law of its eager sampler by numba code. It is a `Sampler` itself, so any loop can
use it. Its own method `advance` makes many steps in one call, and returns sums over these steps.
Random numbers differ from the eager sampler's; the transition probabilities are equal.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.forms import Form, LatticeForm, change
from latticework.samplers.base import Info, Wrapper
from latticework.samplers.checks import check_start
from latticework.samplers.compiled.lattice_values import evaluate_lattice
from latticework.samplers.compiled.philox import step_keys
from latticework.samplers.sums import NOTHING, MultiStepSampler, SumRequest, Sums, empty_sums

Keys = NDArray[np.int64]  # keys of Philox, one a step
MAX_LOG_CHANGE = 1200.0  # change of log pi by a move: weights exp(d / 2) and their sums are finite


class Position(NamedTuple):
    """The state of a twin that remembers nothing else."""

    x: Tensor  # [chains, *domain.shape]


@dataclass(frozen=True)
class CompiledSampler(Wrapper, MultiStepSampler):
    """`sampler` by compiled code, on models with one kind of form."""

    def refuses(self, form: Any) -> str:
        """For which forms of its kind there is no kernel, if `form` is one of these; else ""."""
        return ""

    def init(self, x: Tensor, model: EnergyModel) -> Any:
        check_start(x, model, self.uses_gradient, partial(change, form_of(model)))
        return self.at(x, model)

    def at(self, x: Tensor, model: EnergyModel) -> Any:
        form = model.form()
        assert form is not None
        return self.start(x.clone(memory_format=torch.contiguous_format), form)

    @abstractmethod
    def start(self, x: Tensor, form: Any) -> Any:
        """The state at `x` `[chains, *domain.shape]`, which the twin may overwrite."""

    def draw_keys(self, state: Any, steps: int, rng: Generator) -> Any:
        """The keys of the next steps, as `run` takes them. Override it for a key a run."""
        return step_keys(steps, rng)

    @abstractmethod
    def run(self, state: Any, form: Any, keys: Any, sums: Sums) -> Any:
        """The state after the steps of `draw_keys`; adds to `sums`. May overwrite `state`."""

    def advance(
        self,
        state: Any,
        model: EnergyModel,
        rng: Generator,
        steps: int,
        wanted: SumRequest = NOTHING,
    ) -> tuple[Any, Sums]:
        sums = empty_sums(state.x, steps, wanted, self.loops)
        state = self.run(state, model.form(), self.draw_keys(state, steps, rng), sums)
        return state, sums

    def evaluate_states(self, states: Tensor, model: EnergyModel) -> Tensor | None:
        form = model.form()
        return evaluate_lattice(form, states) if isinstance(form, LatticeForm) else None

    def step(self, state: Any, model: EnergyModel, rng: Generator) -> tuple[Any, Info]:
        state, sums = self.advance(state, model, rng, 1)
        accept = torch.from_numpy(sums.accept).to(state.x.dtype)
        log_ratio = accept.log().masked_fill_(torch.from_numpy(sums.invalid > 0), torch.nan)
        unsettled = torch.from_numpy(sums.unsettled).to(accept) if self.loops else None
        return state, Info(accept, log_ratio, unsettled)


@dataclass(frozen=True)
class GroupTwin(CompiledSampler):
    """A twin that can move chains of several targets in one call, as tempering does."""

    def serves_groups(self, state: Any, forms: tuple[Any, ...], chains: int) -> bool:
        """Whether one call can move `chains` chains on each of `forms`.

        `state` is that of the chains on one form.
        """
        return isinstance(state, Position)

    def start(self, x: Tensor, form: Any) -> Any:
        return Position(x)

    def run(self, state: Any, form: Any, keys: Any, sums: Sums) -> Any:
        """The steps of one group."""
        x = state.x.flatten(1).numpy()
        self.run_groups(x, np.arange(len(x))[None], (form,), keys, sums)
        return state

    @abstractmethod
    def run_groups(
        self, x: NDArray[np.float32], rows: NDArray[np.int64], forms: Any, keys: Keys, sums: Sums
    ) -> None:
        """One step for each of `keys`. Overwrites `x`, and adds to `sums`.

        The rows `rows[g]` of `x` are chains on `forms[g]`, and differ from others in the numbers
        that `forms.tempered` scales. `sums` are in the order of `rows` `[groups, chains of each]`.
        """


class SameObjects:
    """Objects, equal to a tuple of the same ones only: a key of what is made of them."""

    def __init__(self, objects: tuple[Any, ...]) -> None:
        self.objects, self.ids = objects, tuple(map(id, objects))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameObjects) and self.ids == other.ids

    def __hash__(self) -> int:
        return hash(self.ids)


def arrays_of(state: Any) -> Any:
    """The state as arrays that share its memory; one-hot x as `[chains, sites * values]`."""
    return type(state)(*((f.view(len(f), -1) if f.ndim == 3 else f).numpy() for f in state))


class NoCompiledKernelError(TypeError):
    """A sampler has no compiled kernel for a model; the message says why."""


def too_large(change: float) -> str:
    """For `refuses` of kernels that hold exp(d / 2), where a move changes log pi by d at most."""
    if not change > MAX_LOG_CHANGE:  # nor NaN, which kernels count
        return ""
    return f"moves that change log pi by {change:,.0f}, as it holds at most {MAX_LOG_CHANGE:,.0f}"


def form_of(model: EnergyModel) -> Form:
    """The model's form. Raises NoCompiledKernelError if it has none that describes it.

    A subclass that overrides an evaluation may define another target than its parent's form.
    """
    name = type(model).__name__
    owner = next(cls for cls in type(model).__mro__ if "form" in cls.__dict__)
    if owner is EnergyModel:
        raise NoCompiledKernelError(f"{name} has no form for compiled kernels")
    below = type(model).__mro__[: type(model).__mro__.index(owner)]
    evaluations = ("forward", "log_prob", "log_prob_and_grad", "gradient")
    if any(method in cls.__dict__ for cls in below for method in evaluations):
        raise NoCompiledKernelError(
            f"{name} changes the target of {owner.__name__} and has no form of its own"
        )
    tensors = [*model.parameters(), *model.buffers()]
    floating = [t for t in tensors if t.is_floating_point()]
    if any(t.is_cuda for t in tensors) or any(t.dtype != torch.float32 for t in floating):
        raise NoCompiledKernelError("compiled kernels run on the CPU in float32")
    form = model.form()
    if form is None:
        raise NoCompiledKernelError(f"{name} on {model.domain} has no form for compiled kernels")
    return form
