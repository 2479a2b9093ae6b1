"""A debug mode that overwrites old states, to find code that reads them too late.

A step may reuse the memory of its old state, but not every sampler does. Code that keeps an old
state may therefore work with one sampler and fail with another. Here every old state is
overwritten.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor
from torch.utils import _pytree as pytree

from latticework.models.base import EnergyModel
from latticework.samplers.base import Info, Wrapper


@dataclass(frozen=True)
class Poisoned(Wrapper):
    """`sampler`, with each old state overwritten after the step: by NaN, or the largest integer.

    A step copies its result, and then overwrites all tensors of the old state, including those that
    it reused. Code that reads an old state gets NaN or an index out of range. Results equal those
    of `sampler` bit for bit. For tests and debugging, in any loop; `run_chain(debug=True)` uses it.
    """

    def at(self, x: Tensor, model: EnergyModel) -> Any:
        return self.sampler.at(x.clone(), model)

    def refresh(self, state: Any, model: EnergyModel) -> Any:
        return self.sampler.refresh(state, model)

    def moved_to(self, x: Tensor, state: Any, model: EnergyModel) -> Any:
        return self.sampler.moved_to(x.clone(), state, model)

    def step(self, state: Any, model: EnergyModel, rng: Generator) -> tuple[Any, Info]:
        after = copied(self.sampler.step(state, model, rng))
        lasting = {memory(t) for t in (*model.parameters(), *model.buffers())}
        for tensor in pytree.tree_leaves(state):
            if memory(tensor) not in lasting:
                overwrite(tensor)
        return after


def copied(tree: Any) -> Any:
    """A deep copy of `tree` (NamedTuples, tuples and lists of tensors)."""
    if isinstance(tree, Tensor):
        return tree.clone()
    if isinstance(tree, tuple | list):  # torch's pytree takes several times as long
        parts = map(copied, tree)
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return tree


def memory(tensor: Tensor) -> int:
    """The address of the memory that `tensor` is a view of."""
    return tensor.untyped_storage().data_ptr()


def overwrite(tensor: Tensor) -> None:
    """Fill the memory that `tensor` is a view of with NaN, the largest integer, or True."""
    everything = tensor.new_empty(0).set_(tensor.untyped_storage())  # an expanded view refuses
    if tensor.is_floating_point():
        everything.fill_(torch.nan)
    else:
        everything.fill_(True if tensor.dtype == torch.bool else torch.iinfo(tensor.dtype).max)
