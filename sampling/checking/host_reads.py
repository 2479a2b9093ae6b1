"""A guard against steps that read device data on the host."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class HostReadError(AssertionError):
    """A step read device data on the host."""


class NoHostReads(TorchDispatchMode):
    """A context that raises HostReadError for an operation that reads device data on the host.

    Such an operation cannot be part of a captured CUDA graph.
    """

    READS = (
        "_local_scalar_dense", "nonzero", "masked_select", "unique", "multinomial", "lift_fresh",
        "aten::equal", "allclose", "repeat_interleave.Tensor", "bincount",
    )  # fmt: skip

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing is compiled here, and skipping the compiler would import it (1 s)."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        indexing = name.startswith("aten::index") and isinstance(args[1], (list, tuple))
        masked = indexing and any(t is not None and t.dtype == torch.bool for t in args[1])
        reads = masked or any(read in name for read in self.READS)
        if reads:
            raise HostReadError(f"{name} reads device data on the host")
        return func(*args, **(kwargs or {}))
