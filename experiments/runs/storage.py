"""Storage of runs: files written as a whole, checkpoints, and artifacts that several runs share.

Content is written to a temporary file next to the target, flushed to disk, and then renamed. If the
disk is full or the process is killed, the target keeps its earlier content.

docs/records.md says how a task resumes from its checkpoints, and what an artifact is.
"""

import hashlib
import io
import json
import logging
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import safetensors.torch
import torch
from filelock import FileLock
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from latticework.experiments.runs.errors import UnwritableError
from latticework.samplers.base import Sampler

log = logging.getLogger(__name__)
Content = bytes | memoryview
CHECKPOINTS_PER_LOOP = 2  # checkpoints of a loop
Document = dict[str, Any]  # a checkpoint
Tensors = dict[str, Tensor]
FILE, CHECKSUM = "tensors.safetensors", "sha256"  # the second is a key of spec.json
PLAIN = (bool, int, float, str, tuple)


class ArtifactUser(Protocol):
    """The part of a run (`run.Run`) that artifacts need."""

    outputs: Path
    device: torch.device
    model_seed: int
    notes: dict[str, Any]

    def note(self, **values: Any) -> None: ...


def write_atomically(target: Path, content: Content | str) -> None:
    """Write `content` to `target`. If that fails, raises UnwritableError; `target` is unchanged.

    One process writes it at a time, as it holds the lock of the record or artifact.
    """
    data = content.encode() if isinstance(content, str) else content
    partial = target.with_name(f"{target.name}.partial")
    with convert_write_errors(target, len(data)):
        try:
            partial.unlink(
                missing_ok=True
            )  # left by a killed process, or a link that another planted
            with partial.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
        except OSError:
            with suppress(OSError):
                partial.unlink()
            raise


def without_links(path: str, flags: int) -> int:
    """An opener for `open` that refuses a link in place of the file."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


@contextmanager
def convert_write_errors(target: Path, size: int | None = None) -> Iterator[None]:
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


def serialise_checkpoint(document: Any) -> Content:
    """`document` serialised by torch.save, in memory.

    If torch.save wrote to disk itself, a full disk would raise an unclear internal error.
    """
    buffer = io.BytesIO()
    torch.save(document, buffer)
    return buffer.getbuffer()


def serialise_tensors(values: Tensors) -> Content:
    """Tensors on any device, as a safetensors file."""
    return safetensors.torch.save({k: v.detach().cpu().contiguous() for k, v in values.items()})


def serialise_arrays(values: dict[str, np.ndarray]) -> Content:
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
        stays = file.name.startswith(".") or file.suffix == ".log"
        if (file.is_file() and not stays) or file.name == "checkpoints":
            if not copy:
                shutil.move(file, target / file.name)
            elif file.is_dir():
                shutil.copytree(file, target / file.name)
            else:
                shutil.copy2(file, target / file.name)
    log.info("an earlier record was %s to %s", "copied" if copy else "moved", target)


class Checkpoints:
    """The checkpoints of one run, in `folder`: `<loop>-<iteration>.pt`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, document: Document) -> None:
        """Store `document` under its `loop` and `iteration`; keep the loop's last KEPT.

        Raises UnwritableError on failure; earlier checkpoints are unchanged.
        """
        with convert_write_errors(self.folder):
            self.folder.mkdir(exist_ok=True)
        loop = document["loop"]
        target = self.folder / f"{loop}-{document['iteration']:010}.pt"
        write_atomically(target, serialise_checkpoint(document))
        for old in self._of(loop)[:-CHECKPOINTS_PER_LOOP]:
            old.unlink()

    def load(self, fits: Callable[[Document], str]) -> dict[str, Document]:
        """The newest usable checkpoint of each loop, by the loop's name.

        `fits` returns the reason why a checkpoint cannot be used, or an empty string. A checkpoint
        also needs the final checkpoints of the loops that ran before it.
        """
        newest: dict[str, Document] = {}
        for loop in sorted({file.name.rpartition("-")[0] for file in self.folder.glob("*-*.pt")}):
            for file in reversed(self._of(loop)):
                document, fault = _read_checkpoint(file)
                fault = fault or fits(document)
                if not fault:
                    newest[loop] = document
                    break
                log.warning("the checkpoint %s is not used: %s", file, fault)
        usable: dict[str, Document] = {}
        for loop, document in sorted(newest.items(), key=lambda item: len(item[1]["earlier"])):
            ends = {name: final["iteration"] for name, final in usable.items()}
            if all(ends.get(name) == end for name, end in document["earlier"].items()):
                usable[loop] = document
        return usable

    def remove(self) -> None:
        """Delete all checkpoints, and files that were only partly written."""
        if self.folder.is_dir():
            for file in (*self.folder.glob("*.pt"), *self.folder.glob("*.partial")):
                file.unlink()
            if not any(self.folder.iterdir()):
                self.folder.rmdir()

    def _of(self, loop: str) -> list[Path]:
        return sorted(f for f in self.folder.glob("*.pt") if f.name.rpartition("-")[0] == loop)


def _read_checkpoint(file: Path) -> tuple[Document, str]:
    """The document and an empty string, or an empty document and what is wrong with the file."""
    try:
        with zipfile.ZipFile(file) as archive:
            if (member := archive.testzip()) is not None:  # torch.load does not look at checksums
                return {}, f"damaged ({member})"
        return torch.load(file, map_location="cpu", weights_only=True), ""
    except Exception as error:  # noqa: BLE001 - of many kinds when a file is damaged
        return {}, f"damaged ({type(error).__name__})"


def load_or_make_artifact(
    run: ArtifactUser, kind: str, spec: dict[str, Any], make: Callable[[], Tensors]
) -> Tensors:
    """The tensors that `make()` returns for `spec`, read from disk if they already exist.

    `spec` must hold everything that the result depends on, as JSON values. The run's record notes
    the artifact's name. A damaged file is moved aside with a warning, and computed again.
    """
    text = json.dumps(spec, indent=2, sort_keys=True)
    name = f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    folder = run.outputs / "artifacts" / name
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / FILE
    with FileLock(folder / ".lock"):
        if file.exists() and (fault := _describe_damage(folder)):
            aside = file.replace(file.with_name(f"{FILE}.damaged"))
            log.warning("%s is damaged (%s): moved to %s, computing it again", file, fault, aside)
        if not file.exists():
            log.info("computing the shared artifact %s", name)
            content = serialise_tensors(make())
            noted = {**spec, CHECKSUM: hashlib.sha256(content).hexdigest()}
            write_atomically(folder / "spec.json", json.dumps(noted, indent=2, sort_keys=True))
            write_atomically(file, content)
    run.note(artifacts=[*run.notes.get("artifacts", []), name])
    return load_file(file, device=str(run.device))


def _describe_damage(folder: Path) -> str:
    """Describe the damage of the tensors in `folder`; "" if they are intact.

    Older artifacts have no checksum: their file must be readable.
    """
    try:
        known = json.loads((folder / "spec.json").read_text()).get(CHECKSUM)
        digest = hashlib.sha256((folder / FILE).read_bytes()).hexdigest()
        load_file(folder / FILE)
    except (SafetensorError, OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "" if known in (None, digest) else "its content was changed"


def hash_model(model: nn.Module) -> str:
    """Hash a model: its classes with their plain settings, domain, parameters and buffers.

    Targets given as functions (`models.base.Function`) on the same domain have the same hash.
    """
    digest = hashlib.sha256(str(getattr(model, "domain", "")).encode())
    for name, module in model.named_modules():
        settings = {k: v for k, v in vars(module).items() if isinstance(v, PLAIN)}
        settings.pop("training")
        settings.pop("untrained", None)  # the weights themselves are hashed
        digest.update(f"{name} {type(module).__name__} {sorted(settings.items())}".encode())
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        digest.update(name.encode())
        digest.update(value.detach().contiguous().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def artifact_spec(
    sampler: Sampler, model: nn.Module, run: ArtifactUser, **settings: Any
) -> dict[str, Any]:
    """The specification of what a sampler gives on a model, for the runs of the model seed."""
    identity = {"model": hash_model(model), "sampler": repr(sampler), "seed": run.model_seed}
    return identity | settings
