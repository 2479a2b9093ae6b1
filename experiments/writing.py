"""Files of a record, written whole or not at all.

Content goes to a file beside the target, which is renamed when all of it is on the disk. So a full
disk or a kill leaves what was there before, and nothing half written under a final name.
"""

import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from experiments.mistakes import UnwritableError

Content = bytes | memoryview


def write(target: Path, content: Content | str) -> None:
    """Make `content` the file `target`. Raises UnwritableError; `target` is then as it was."""
    data = content.encode() if isinstance(content, str) else content
    partial = target.with_name(f"{target.name}.partial")
    with told(target, len(data)):
        try:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
        except OSError:
            with suppress(OSError):
                partial.unlink()
            raise


@contextmanager
def told(target: Path, size: int | None = None) -> Iterator[None]:
    """Raise UnwritableError where writing `target`, of `size` bytes, fails for the disk's sake."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or str(error)
        much = "" if size is None or size < 1e5 else f" ({size / 1e6:,.1f} MB)"
        raise UnwritableError(
            f"could not write {target}{much}: {why}. Make room there, or name another folder with "
            "outputs=..., and give the same command again; finished records are as they were"
        ) from error


@contextmanager
def folder(target: Path) -> Iterator[Path]:
    """An empty folder to write files to; at the end they replace those of `target`."""
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    with told(target):
        try:
            partial.mkdir(parents=True)
            yield partial
            target.mkdir(exist_ok=True)
            for file in partial.iterdir():
                file.replace(target / file.name)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def checkpoint(document: Any) -> Content:
    """`document` as torch.save stores it.

    In memory first: PyTorch's own writer reports a full disk as a fault of its C++ code.
    """
    buffer = io.BytesIO()
    torch.save(document, buffer)
    return buffer.getbuffer()


def tensors(values: dict[str, Tensor]) -> Content:
    """Tensors on any device, as a safetensors file."""
    return safetensors.torch.save({k: v.detach().cpu().contiguous() for k, v in values.items()})


def arrays(values: dict[str, np.ndarray]) -> Content:
    """Arrays as a compressed npz file."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **values)  # type: ignore[arg-type]
    return buffer.getbuffer()
