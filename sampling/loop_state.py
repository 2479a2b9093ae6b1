"""Memory: a dataclass of all that a loop changes, which is saved as a checkpoint and restored.

docs/records.md says how a loop uses it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Generator, Tensor

CPU = torch.device("cpu")


@dataclass(eq=False)
class LoopState:
    """Base of dataclasses that hold what a loop changes. A field may be a Memory itself."""

    def state_dict(self) -> dict[str, Any]:
        """The fields by name: references, as in PyTorch. `to_checkpoint` makes copies."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def load_state_dict(self, saved: Mapping[str, Any], device: torch.device = CPU) -> None:
        """Set every field to what `to_checkpoint` stored of it (`from_checkpoint`)."""
        for name, value in self.state_dict().items():
            setattr(self, name, from_checkpoint(value, saved[name], device))


def to_checkpoint(value: Any) -> Any:
    """`value` as plain containers, numbers and tensors, all of them copies.

    Raises TypeError for anything that a checkpoint cannot hold.
    """
    if isinstance(value, Tensor):
        return value.detach().cpu().clone()
    if isinstance(value, Generator):
        return value.get_state()
    if hasattr(value, "load_state_dict"):
        return to_checkpoint(value.state_dict())
    if isinstance(value, dict):
        return {to_checkpoint(key): to_checkpoint(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [to_checkpoint(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if value is None or isinstance(value, bool):
        return value
    for plain in (int, float, str):
        if isinstance(value, plain):
            return plain(value)  # a subclass, such as numpy.float64, could not be read again
    raise TypeError(
        f"a checkpoint holds tensors, numbers, text, containers of them, generators and objects "
        f"with a state_dict, got {type(value).__name__}"
    )


def from_checkpoint(value: Any, saved: Any, device: torch.device) -> Any:
    """Restore what `to_checkpoint` stored of `value`; generators and objects are restored in place.

    A tensor goes to the device of the one that it replaces, if there is one, else to `device`.
    Raises ValueError for the state of a sampler that had other fields when it was stored.
    """
    if isinstance(value, Generator):
        value.set_state(saved)
        return value
    if isinstance(value, LoopState):
        value.load_state_dict(saved, device)
        return value
    if hasattr(value, "load_state_dict"):
        value.load_state_dict(saved)
        return value
    if isinstance(saved, dict):
        known = value if isinstance(value, dict) else {}
        return {key: from_checkpoint(known.get(key), item, device) for key, item in saved.items()}
    if isinstance(saved, list | tuple):
        same = isinstance(value, list | tuple) and len(value) == len(saved)
        if hasattr(value, "_fields") and not same:
            raise ValueError(
                f"the checkpoint is of another version of the code: {type(value).__name__} has "
                f"{len(value)} fields, and {len(saved)} were stored; delete the checkpoint"
            )
        olds = value if same else [None] * len(saved)
        items = [from_checkpoint(old, new, device) for old, new in zip(olds, saved, strict=True)]
        return type(value)(*items) if hasattr(value, "_fields") else type(saved)(items)
    if isinstance(saved, Tensor):
        return saved.to(value.device if isinstance(value, Tensor) else device)
    return saved


def describe_structure(value: Any) -> str:
    """The structure that a checkpoint and its run must share: fields, classes, shapes."""
    if isinstance(value, LoopState):
        inner = ", ".join(
            f"{k}: {describe_structure(v)}" for k, v in sorted(value.state_dict().items())
        )
        return f"{type(value).__name__} {{{inner}}}"
    if isinstance(value, torch.nn.Module):
        state = value.state_dict()
        return f"{type(value).__name__} { {k: list(v.shape) for k, v in state.items()} }"
    return type(value).__name__ if hasattr(value, "load_state_dict") else ""
