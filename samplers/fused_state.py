"""The state of a fused kernel: all steps of a block, and the number of those that were made."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

BLOCK_STEPS = 8  # steps of a block; more of them gain little and take long to compile
STEP_NUMBERS = tuple(torch.arange(BLOCK_STEPS + 1))  # as a State holds them


class FusedState(NamedTuple):
    x: Tensor  # [chains, *domain.shape], where the chains are
    states: Any  # the sampler's, of which each tensor has the steps of the block as its first axis
    infos: tuple[Tensor, ...]  # [steps, chains]: acceptance, invalid; unsettled if the sampler has
    made: Tensor  # int64 scalar: the steps of the block that the chains have made


def end_of_block(state: FusedState, every: list[Tensor], steps: int, made: int) -> FusedState:
    """The state after `made` steps of the last block, of `steps`, among steps that gave `every`."""
    last = iter([leaf[-steps:].clone() for leaf in every])
    states = with_leaves(state.states, last)
    return FusedState(states.x[made - 1], states, tuple(last), STEP_NUMBERS[made])


def state_after(state: FusedState, made: int) -> FusedState:
    """The state after another number of steps of its block."""
    return FusedState(state.states.x[made - 1], state.states, state.infos, STEP_NUMBERS[made])


def one_step_block(state: Any) -> FusedState:
    """A block of one step that ended at `state`."""
    infos = state.x.new_ones(1, len(state.x)), torch.zeros(1, len(state.x), dtype=torch.bool)
    return FusedState(
        state.x, map_tensors(lambda leaf: leaf.unsqueeze(0), state), infos, STEP_NUMBERS[1]
    )


def select_step(tree: Any, number: int) -> Any:
    """The tensors of one step."""
    return map_tensors(lambda leaf: leaf[number], tree)


def current_state(state: FusedState) -> Any:
    """The sampler's state where the chains are. Its tensors are copies, which it may overwrite."""
    row = select_step(state.states, int(state.made) - 1)
    return map_tensors(lambda leaf: leaf.clone(memory_format=torch.contiguous_format), row)


def map_tensors(function: Callable[[Tensor], Any], tree: Any) -> Any:
    """`tree` with each of its tensors replaced; torch's pytree takes several times as long."""
    if isinstance(tree, Tensor):
        return function(tree)
    parts = [map_tensors(function, part) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)


def leaves_of(tree: Any) -> list[Tensor]:
    leaves: list[Tensor] = []
    for part in tree:
        leaves += (part,) if isinstance(part, Tensor) else leaves_of(part)
    return leaves


def with_leaves(tree: Any, leaves: Iterator[Tensor]) -> Any:
    """A tree of the same kind, with other tensors."""
    parts = [
        next(leaves) if isinstance(part, Tensor) else with_leaves(part, leaves) for part in tree
    ]
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
