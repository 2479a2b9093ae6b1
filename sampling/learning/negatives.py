"""Sources of the negative samples that a model learns by.

The source makes it CD, SML, fast PCD, herding, or persistent CD with a replay buffer. `start`
returns the memory that is kept between updates. `draw` returns the negative samples of one update
and the new memory. `contrast` gives the gradient of the update, and `learn` updates the memory once
it is known.

O. Breuleux, Y. Bengio and P. Vincent, "Quickly Generating Representative Samples from an
RBM-Derived Process", Neural Computation 2011, Section 2.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.functional import relu

from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler, require_count
from latticework.sampling.chain import capture, make_block
from latticework.sampling.loop_state import LoopState
from latticework.sampling.metrics import Metric, Reference


class Negatives(ABC):
    """How one update of a model gets its negative samples."""

    @abstractmethod
    def start(self, model: EnergyModel, rng: Generator) -> Any:
        """The memory before the first update."""

    @abstractmethod
    def draw(
        self, memory: Any, model: EnergyModel, positive: Tensor, rng: Generator
    ) -> tuple[Tensor, Any]:
        """Negative samples `[n, visible]` and the memory after them; `positive` is the batch."""

    def value(self, model: EnergyModel, x: Tensor) -> Tensor:
        """The objective `[n]`, raised at the data and lowered at the negatives: log p(x)."""
        return model(x)

    def contrast(self, model: EnergyModel, positive: Tensor, negative: Tensor) -> Tensor:
        """The mean value of `negative` - that of `positive`; adds the gradient to `.grad`."""
        model.requires_grad_(True)
        with torch.enable_grad():
            loss = self.value(model, negative).mean() - self.value(model, positive).mean()
            loss.backward()
        model.requires_grad_(False)
        return loss.detach()

    def learn(self, memory: Any, model: EnergyModel) -> Any:
        """The memory after the update. The model's `.grad` is the gradient of the loss."""
        return memory


@dataclass(frozen=True)
class Contrastive(Negatives):
    """CD-k: one step of `sampler` (BlockGibbs(k)) from the training batch. Hinton 2002."""

    sampler: Sampler

    def start(self, model: EnergyModel, rng: Generator) -> None:
        return None

    def draw(
        self, memory: None, model: EnergyModel, positive: Tensor, rng: Generator
    ) -> tuple[Tensor, None]:
        state, _ = self.sampler.step(self.sampler.at(positive, model), model, rng)
        return state.x, None


@dataclass(frozen=True)
class Persistent(Negatives):
    """SML, or PCD: `particles` chains of `sampler` persist between updates. Tieleman 2008."""

    sampler: Sampler
    particles: int = 100

    def __post_init__(self) -> None:
        require_count(particles=self.particles)

    def start(self, model: EnergyModel, rng: Generator) -> Any:
        return self.sampler.init(model.domain.uniform(self.particles, rng), model)

    def draw(
        self, memory: Any, model: EnergyModel, positive: Tensor, rng: Generator
    ) -> tuple[Tensor, Any]:
        state, _ = self.sampler.step(self.sampler.refresh(memory, model), model, rng)
        return state.x, state


@dataclass(eq=False)
class Chains(LoopState):
    """The memory of `Replay`."""

    buffer: Tensor  # [chains, *shape]
    state: Any  # the sampler's
    carries: list[Any]  # one a metric


class Replay(Negatives):
    """A batch of the buffer `chains` makes `steps` steps and is put back. Du and Mordatch 2019.

    With as many chains as a batch this is PCD. `metrics` watch the steps.
    """

    def __init__(
        self, sampler: Sampler, chains: Tensor, steps: int, batch: int, metrics: Sequence[Metric]
    ) -> None:
        self.sampler, self.chains, self.metrics = sampler, chains, metrics
        self.steps, self.batch, self.captured = steps, batch, False

    def start(self, model: EnergyModel, rng: Generator) -> Chains:
        self.block = make_block(self.sampler, model, rng, self.steps, self.metrics)
        state = self.sampler.init(self.chains[: self.batch], model)
        return Chains(self.chains, state, self.fresh(model, state))

    def fresh(self, model: EnergyModel, state: Any) -> list[Any]:
        """New carries of the metrics."""
        return [metric.init(model, state, Reference()) for metric in self.metrics]

    def draw(
        self, memory: Chains, model: EnergyModel, positive: Tensor, rng: Generator
    ) -> tuple[Tensor, Chains]:
        chains, state = memory.buffer, memory.state
        if len(chains) == self.batch:
            rows: Tensor | slice = slice(None)
            state = self.sampler.refresh(state, model)
        else:
            rows = torch.randperm(len(chains), generator=rng, device=rng.device)[: self.batch]
            state = self.sampler.relocate(chains[rows], state, model)
        if state.x.is_cuda and not self.captured:
            self.block = capture(self.block, state, memory.carries, rng)
            self.captured = True
        memory.state, memory.carries = self.block(state, memory.carries)
        chains[rows] = memory.state.x
        return memory.state.x, memory

    def contrast(self, model: EnergyModel, positive: Tensor, negative: Tensor) -> Tensor:
        return model.contrast(positive, negative)


Fast = tuple[Any, EnergyModel, list[Tensor]]  # the sampler's state, the model at theta + F, and F


@dataclass(frozen=True)
class FastPersistent(Negatives):
    """FPCD: the chains run under theta + F. Tieleman and Hinton, ICML 2009.

    After each update F <- `decay` F + `fast_step_size` g, where g is the gradient that theta
    follows. All particles share one F.
    """

    sampler: Sampler
    particles: int = 100
    fast_step_size: float = 0.01
    decay: float = 0.95

    def __post_init__(self) -> None:
        require_count(particles=self.particles)
        if not (self.fast_step_size >= 0 and 0 <= self.decay <= 1):
            raise ValueError(f"fast_step_size must be 0 or more and decay in [0, 1], got {self}")

    def start(self, model: EnergyModel, rng: Generator) -> Fast:
        x = model.domain.uniform(self.particles, rng)
        fast = [torch.zeros_like(parameter) for parameter in model.parameters()]
        moved = copy.deepcopy(model).requires_grad_(False)
        return self.sampler.init(x, moved), moved, fast

    def draw(
        self, memory: Fast, model: EnergyModel, positive: Tensor, rng: Generator
    ) -> tuple[Tensor, Fast]:
        state, moved, fast = memory
        for target, parameter, change in zip(
            moved.parameters(), model.parameters(), fast, strict=True
        ):
            torch.add(parameter, change, out=target.data)
        state, _ = self.sampler.step(self.sampler.refresh(state, moved), moved, rng)
        return state.x, (state, moved, fast)

    def learn(self, memory: Fast, model: EnergyModel) -> Fast:
        for change, parameter in zip(memory[2], model.parameters(), strict=True):
            if parameter.grad is None:  # log pi does not depend on it
                continue
            change.mul_(self.decay).sub_(parameter.grad, alpha=self.fast_step_size)
        return memory


@dataclass(frozen=True)
class Herding(Negatives):
    """Herding: SML at temperature 0. Welling, ICML 2009 and UAI 2009.

    `particles` chains climb log p(x, h). Each of `sweeps` sweeps sets h, then x, to its most likely
    value given the other. The objective is max_h log p(x, h), at the data too; its gradient has
    h = 1[input > 0]. The parameters do not converge, and the model is given by their last value.
    Only the ratio of the learning rate to the initial weights matters; the paper's rate of 1 is one
    choice. If the ratio is large, all hidden units stay alike.
    """

    particles: int = 100
    sweeps: int = 5

    def __post_init__(self) -> None:
        require_count(particles=self.particles, sweeps=self.sweeps)

    def start(self, model: EnergyModel, rng: Generator) -> Tensor:
        return model.domain.uniform(self.particles, rng)

    def draw(
        self, memory: Tensor, model: Any, positive: Tensor, rng: Generator
    ) -> tuple[Tensor, Tensor]:
        x = memory
        for _ in range(self.sweeps):
            h = (model.hidden_inputs(x) > 0).to(x.dtype)
            x = (model.visible_inputs(h) > 0).to(x.dtype)
        return x, x

    def value(self, model: Any, x: Tensor) -> Tensor:
        return x @ model.visible_bias + relu(model.hidden_inputs(x)).sum(-1)
