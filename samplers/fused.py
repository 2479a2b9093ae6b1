"""Any sampler on any model as compiled code: blocks of steps that PyTorch's Inductor has fused.

A step is recorded once as a graph of operations, and a few copies of it, one after the other, are
compiled as one function. It reads its random numbers from a tape (`models.distributions.Tape`) that
Philox fills by a key of the run's generator for each block, and the model's tensors as they are at
each call, so a model that learns needs no new compilation.

The state of a chain holds all steps of a block and the number of those that the chain has made. So
the same seed gives the same numbers however a caller divides the steps into calls, and a checkpoint
resumes in the middle of a block. A block runs on one thread, so numbers do not depend on threads.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.samplers.base import Info, Wrapper
from latticework.samplers.fused_block import CompiledBlock
from latticework.samplers.fused_state import (
    FusedState,
    current_state,
    end_of_block,
    leaves_of,
    map_tensors,
    one_step_block,
    select_step,
    state_after,
    with_leaves,
)
from latticework.samplers.sums import NOTHING, MultiStepSampler, SumRequest, Sums, empty_sums

log = logging.getLogger(__name__)


class Draws(NamedTuple):
    x: Tensor  # [draws, chains, *domain.shape]
    log_prob: Tensor  # [draws, chains]
    accept: Tensor  # [chains], float64: the sum of the acceptance probabilities of all steps
    invalid: int  # how many of all chains' steps met NaN or +inf


@dataclass(frozen=True)
class Fused(Wrapper, MultiStepSampler):
    """`sampler` by compiled code, on the CPU. A block is compiled when its shapes are first met.

    `call` is the number of steps after which chains are refreshed, 0 if they never are: no block
    then extends beyond it.
    """

    call: int = 0
    engine = "fused"
    compiled: dict[Any, "CompiledBlock"] = field(default_factory=dict, repr=False, compare=False)

    def init(self, x: Tensor, model: EnergyModel) -> FusedState:
        return one_step_block(self.sampler.init(x, model))

    def at(self, x: Tensor, model: EnergyModel) -> FusedState:
        return one_step_block(self.sampler.at(x, model))

    def refresh(self, state: FusedState, model: EnergyModel) -> FusedState:
        return one_step_block(self.sampler.refresh(current_state(state), model))

    def relocate(self, x: Tensor, state: FusedState, model: EnergyModel) -> FusedState:
        return one_step_block(self.sampler.relocate(x, current_state(state), model))

    def log_prob(self, state: FusedState, model: EnergyModel) -> Tensor:
        return self.sampler.log_prob(select_step(state.states, int(state.made) - 1), model)

    def wrap_state(self, state: Any) -> FusedState:
        """The chains of this kernel where those of the sampler are."""
        return one_step_block(state)

    def unwrap_state(self, state: FusedState) -> Any:
        """The sampler's state where the chains are; its tensors are copies."""
        return current_state(state)

    def compile(self, state: FusedState, model: EnergyModel) -> "CompiledBlock":
        """The compiled block for states of these shapes. Raises NotFusedError if there is none."""
        key = (id(model), *((leaf.shape[1:], leaf.dtype) for leaf in leaves_of(state.states)))
        block = self.compiled.get(key)
        if block is None or not block.fits(state):
            log.info("compiling %s for states %s", type(self.sampler).__name__, [*state.x.shape])
            block = CompiledBlock(self.sampler, model, current_state(state), self.call)
            self.compiled[key] = block
        return block

    def step(self, state: FusedState, model: EnergyModel, rng: Generator) -> tuple[Any, Info]:
        block = self.compile(state, model)
        if int(state.made) == len(state.infos[0]):
            state = end_of_block(state, block.run_blocks(state, 1, rng), block.steps, 1)
        else:
            state = state_after(state, int(state.made) + 1)
        accept, invalid, *unsettled = select_step(state.infos, int(state.made) - 1)
        log_ratio = accept.log().masked_fill_(invalid, torch.nan)
        return state, Info(accept.clone(), log_ratio, *unsettled)

    def advance(
        self,
        state: Any,
        model: EnergyModel,
        rng: Generator,
        steps: int,
        wanted: SumRequest = NOTHING,
    ) -> tuple[Any, Sums]:
        block = self.compile(state, model)
        sums = empty_sums(state.x, steps, wanted, block.loops)
        before = state.x
        for state, every in _stretches(state, block, rng, steps):  # noqa: B020
            infos = every[block.leaves :]
            steps -= len(infos[0])
            _add_to_sums(sums, before, every[block.x], infos, steps, wanted)
            before = state.x
        return state, sums

    def draw(
        self,
        state: FusedState,
        model: EnergyModel,
        rng: Generator,
        steps: int,
        thin: int,
        counting: EnergyModel,
    ) -> tuple[FusedState, Draws]:
        """The last state, and a draw every `thin` of `steps` steps.

        `counting` is the model for the log-probability of draws.
        """
        block, done = self.compile(state, model), 0
        x, log_prob, accept = [], [], torch.zeros(len(state.x), dtype=torch.float64)
        invalid = 0
        for state, every in _stretches(state, block, rng, steps):  # noqa: B020
            accept += every[block.leaves].sum(0, dtype=torch.float64)
            invalid += int(every[block.leaves + 1].sum())
            rows = slice((-done - 1) % thin, None, thin)
            done += len(every[0])
            states = with_leaves(state.states, (leaf[rows].clone() for leaf in every))
            x.append(states.x)
            log_prob.append(self._log_probs(states, counting))
        return state, Draws(torch.cat(x), torch.cat(log_prob), accept, invalid)

    def _log_probs(self, states: Any, model: EnergyModel) -> Tensor:
        """The log-probability after each step, `[steps, chains]`; one call if chains are rows."""
        shape = states.x.shape[:2]
        if all(leaf.shape[:2] == shape for leaf in leaves_of(states)):
            flat = map_tensors(lambda leaf: leaf.flatten(0, 1), states)
            return self.sampler.log_prob(flat, model).view(shape)
        rows = [
            self.sampler.log_prob(select_step(states, number), model) for number in range(shape[0])
        ]
        return torch.stack(rows) if rows else states.x.new_empty(shape)


def _stretches(
    state: FusedState, block: "CompiledBlock", rng: Generator, steps: int
) -> Iterator[tuple[FusedState, list[Tensor]]]:
    """`steps` steps in stretches: the state after each, and leaves and infos after each step of it.

    These are valid until the next stretch.
    """
    first = int(state.made)
    if steps and first < len(state.infos[0]):  # the rest of a block that was begun
        made = min(steps, len(state.infos[0]) - first)
        every = [*leaves_of(state.states), *state.infos]
        state = state_after(state, first + made)
        yield state, [leaf[first : first + made] for leaf in every]
        steps -= made
    while steps:
        blocks = min(block.calls, -(-steps // block.steps))
        made, every = min(steps, blocks * block.steps), block.run_blocks(state, blocks, rng)
        steps -= made
        last = (1, 1) if steps else (block.steps, made - (blocks - 1) * block.steps)
        state = end_of_block(state, every, *last)
        yield state, [leaf[:made] for leaf in every]


def _add_to_sums(
    sums: Sums, before: Tensor, x: Tensor, infos: list[Tensor], left: int, wanted: SumRequest
) -> None:
    """Add steps that began at `before`: positions and infos, `[steps, chains, ...]`.

    `left` steps of the call follow.
    """
    accept, invalid, *unsettled = infos
    sums.accept[:] += accept.sum(0, dtype=torch.float64).numpy()
    sums.invalid[:] += invalid.sum(0).numpy()
    for numbers in unsettled:
        sums.unsettled[:] += numbers.sum(0).long().numpy()
    if wanted.changed:
        sites = x != torch.cat((before.unsqueeze(0), x[:-1]))
        sums.changed[:] += sites.reshape(*x.shape[:3], -1).any(-1).sum((0, 2)).numpy()
    if wanted.total:
        sums.total[:] += x.flatten(2).sum(0).numpy()
    draws, traced = sums.trace.shape[:2]
    if left < draws:
        last = x[-(draws - left) :, :traced].flatten(2).numpy()
        sums.trace[draws - left - len(last) : draws - left] = last
