"""Devices by name, and threads of the processor."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import torch
from torch import nn


def find_device(name: str) -> torch.device:
    """The device of this name; "auto" is a GPU if there is one.

    On a GPU, convolutions then compute in float32. By default PyTorch lets them round to TF32, with
    10 bits, which would change the target of a residual network.

    Raises ValueError for a device that is not there, and for Apple's GPUs.
    """
    if name == "mps":
        raise ValueError(
            "device=mps is not supported, because GPUs of Apple have no double precision, which "
            "draws and metrics need; take device=cpu"
        )
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda"):
        _require_cuda(name)
        torch.backends.cudnn.allow_tf32 = False
    return torch.device(name)


def free_memory() -> int | None:
    """Bytes of memory that a process can still take; None where the system does not tell."""
    available = None
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, size = line.partition(":")
            if name == "MemAvailable":
                available = int(size.split()[0]) * 1024
        group = Path("/sys/fs/cgroup")
        most = (group / "memory.max").read_text().strip()
        if available is not None and most.isdigit():
            used = int((group / "memory.current").read_text())
            available = min(available, max(0, int(most) - used))
    except (OSError, ValueError):  # another system, or a container without these files
        pass
    return available


def device_of(model: nn.Module) -> torch.device:
    """The device of the first parameter or buffer; the CPU if there is none."""
    tensor = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if tensor is None else tensor.device


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Let PyTorch, and kernels compiled for the CPU, use `count` threads.

    PyTorch and MKL divide even products of a few rows among all threads. Where another program
    runs, the threads wait for one another, and a product takes a thousand times as long. Sums are
    also rounded differently by each number of threads.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _require_cuda(name: str) -> None:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (torch.device(name).index or 0) < count:
        return
    seen = {0: "no CUDA device", 1: "1 CUDA device"}.get(count, f"{count} CUDA devices")
    built = "; it is built without CUDA (docs/installation.md)" if not torch.version.cuda else ""
    raise ValueError(
        f"device={name} is not available: this PyTorch sees {seen}{built}; "
        "device=auto takes what there is"
    )


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
