"""Atomic writing of a record's files, and moving aside of records that a new one replaces.

Content is written to a temporary file next to the target, flushed to disk, and then renamed. If the
disk is full or the process is killed, the target keeps its earlier content.
"""

import io
import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from latticework.experiments.runs.errors import UnwritableError

log = logging.getLogger(__name__)
Content = bytes | memoryview


def write(target: Path, content: Content | str) -> None:
    """Write `content` to `target`. If that fails, raises UnwritableError; `target` is unchanged."""
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
    """Raise UnwritableError for any error in writing `size` bytes to `target`."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or str(error)
        much = "" if size is None or size < 1e5 else f" ({size / 1e6:,.1f} MB)"
        raise UnwritableError(
            f"could not write {target}{much}: {why}. Make room there, or choose another folder by "
            "outputs=..., and give the same command again; finished records are unchanged"
        ) from error


@contextmanager
def folder(target: Path) -> Iterator[Path]:
    """An empty temporary folder. At the end of the block, its files replace those in `target`."""
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
    """`document` serialised by torch.save, in memory.

    If torch.save wrote to disk itself, a full disk would raise an unclear internal error.
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


def set_aside(path: Path, outputs: Path, *, copy: bool = False) -> None:
    """Move the record in `path`, finished or with checkpoints, to a folder in `superseded`.

    With `copy`, it also stays in `path`, for a run that needs parts of it. run.json is moved last,
    so that an interrupted move is detected. `path` is below `outputs`, but links may lead to
    another file system.
    """
    moment = time.time_ns() % 10**9  # two within one second keep apart
    stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{moment:09}"
    # Not resolved: a link would lead out of `outputs`.
    target = outputs / "superseded" / f"{path.relative_to(outputs)}-{stamp}"
    target.mkdir(parents=True)
    for file in sorted(path.iterdir(), key=lambda file: file.name == "run.json"):
        kept = file.name.startswith(".") or file.suffix == ".log"
        if (file.is_file() and not kept) or file.name == "checkpoints":
            if not copy:
                shutil.move(file, target / file.name)
            elif file.is_dir():
                shutil.copytree(file, target / file.name)
            else:
                shutil.copy2(file, target / file.name)
    log.info("an earlier record was %s to %s", "copied" if copy else "moved", target)
