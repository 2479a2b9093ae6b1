"""The context of one run: device, seeded generators, and the record being written.

A record is a folder. `metrics.csv` grows while the run goes on; `run.json` is written last and
means *finished*; `error.txt` holds the traceback of a run that failed.
"""

import csv
import hashlib
import json
import logging
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from experiments.progress import progress

log = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parent.parent
# Keys that say where and how a run happens, not what it computes. What a run takes from `scales` is
# in its other keys; the rest of it belongs to other scales.
ENVIRONMENT = ("outputs", "device", "threads", "force", "logger", "figures", "tables", "scales")
SOURCES = ("root", "cache", "download", "strict")  # of `data`: where files are looked for
T = TypeVar("T")


class Logger(Protocol):
    """Where metrics go besides the record."""

    def start(self, path: Path, config: dict[str, Any]) -> None: ...
    def log(self, step: int, values: dict[str, float]) -> None: ...
    def finish(self) -> None: ...


class Run:
    """What a task is given to work with: chance, a record to write, shared settings."""

    def __init__(
        self,
        path: Path,
        *,
        device: torch.device | str = "cpu",
        seed: int = 0,
        model_seed: int = 0,
        outputs: Path | None = None,
        loggers: Sequence[Logger] = (),
    ) -> None:
        self.path, self.device = path, torch.device(device)
        self.seed, self.model_seed = seed, model_seed
        self.outputs = outputs or path.parent
        self.loggers = loggers
        self.notes: dict[str, Any] = {}
        self._columns: list[str] = []

    def rng(self, purpose: str, device: torch.device | str | None = None) -> torch.Generator:
        """A generator that depends on the seed and its purpose only, never on the sampler."""
        return _generator(self.seed, purpose, device or self.device)

    def shared_rng(self, purpose: str, device: torch.device | str | None = None) -> torch.Generator:
        """The same for what runs share, whatever their seed: models, training, ground truth."""
        return _generator(self.model_seed, f"shared/{purpose}", device or self.device)

    @contextmanager
    def seeded(self, purpose: str) -> Iterator[None]:
        """For code that can only use the global generator, such as `nn.Module.__init__`."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_derive(self.model_seed, f"shared/{purpose}"))
            yield

    def progress(self, items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
        """`items`, shown as a bar on a terminal and as plain lines elsewhere."""
        yield from progress(items, what, total, self.latest)

    def latest(self) -> dict[str, float]:
        """The last row logged, for the progress display."""
        return self._latest if self._columns else {}

    def log(self, step: int, **values: Tensor | float) -> None:
        """Append a row to metrics.csv. Every row must have the columns of the first."""
        row = {"step": step, **{name: float(value) for name, value in values.items()}}
        self._latest = row
        with (self.path / "metrics.csv").open("a", newline="") as file:
            writer = csv.DictWriter(file, self._columns or list(row))
            if not self._columns:
                self._columns = list(row)
                writer.writeheader()
            writer.writerow(row)
        for logger in self.loggers:
            logger.log(step, {name: value for name, value in row.items() if name != "step"})

    def save(self, name: str, **arrays: Tensor | np.ndarray) -> None:
        """Store arrays as `<name>.npz`, compressed; states of zeros and ones as bytes."""
        stored: dict[str, Any] = {key: _array(value) for key, value in arrays.items()}
        np.savez_compressed(self.path / f"{name}.npz", **stored)

    def save_all(self, arrays: dict[str, Tensor]) -> None:
        """Each array in a file of its own name."""
        for name, value in arrays.items():
            self.save(name, **{name: value})

    def note(self, **values: Any) -> None:
        """Facts for run.json, JSON values."""
        self.notes.update(values)


def _array(value: Tensor | np.ndarray) -> np.ndarray:
    array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
    if array.dtype == np.float32 and np.isin(array, (0, 1)).all():
        return array.astype(np.uint8)
    return array


def _derive(seed: int, purpose: str) -> int:
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _generator(seed: int, purpose: str, device: torch.device | str) -> torch.Generator:
    return torch.Generator(device).manual_seed(_derive(seed, purpose))


def record(cfg: DictConfig, perform: Callable[[DictConfig, Run], None]) -> None:
    """Run `perform` inside the record that Hydra's output folder names.

    A finished record of the same configuration is left as it is (`force=true` runs it again); one
    of another configuration is moved to `outputs/superseded`. A failure leaves `error.txt` and is
    raised by the end-of-sweep callback, so that the other runs of a sweep go on.
    """
    path = Path(HydraConfig.get().runtime.output_dir)
    config = cast(dict[str, Any], OmegaConf.to_container(cfg, resolve=True))
    outputs = Path(config["outputs"]).resolve()
    if (path / "run.json").exists():
        earlier = json.loads((path / "run.json").read_text())
        # Made from a substitute, it only stands for as long as nobody looks elsewhere.
        kept = SOURCES if (earlier.get("data") or {}).get("substitute") else ()
        if _identity(earlier["config"], kept) == _identity(config, kept) and not cfg.force:
            log.info("already finished: %s (force=true runs it again)", path)
            return
        _set_aside(path, outputs)
    for stale in (*path.glob("*.npz"), path / "metrics.csv", path / "error.txt"):
        stale.unlink(missing_ok=True)
    try:
        _execute(cfg, config, path, outputs, perform)
    except Exception as error:  # noqa: BLE001 - whatever a run raises belongs in its record
        summary = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
        (path / "error.txt").write_text(f"{summary}\n\n{traceback.format_exc()}")
        log.error("failed: %s\n%s", path, traceback.format_exc())


def _execute(
    cfg: DictConfig,
    config: dict[str, Any],
    path: Path,
    outputs: Path,
    perform: Callable[[DictConfig, Run], None],
) -> None:
    from hydra.utils import instantiate

    if cfg.threads != "auto":
        torch.set_num_threads(cfg.threads)
    run = Run(
        path,
        device=_device(cfg.device),
        seed=cfg.seed,
        model_seed=cfg.model_seed,
        outputs=outputs,
        loggers=[instantiate(logger) for logger in (cfg.logger or {}).values()],
    )
    for logger in run.loggers:
        logger.start(path, config)
    started = time.perf_counter()
    try:
        perform(cfg, run)
    finally:
        for logger in run.loggers:
            logger.finish()
    hydra = HydraConfig.get()
    document = {
        "config": config,
        "choices": {k: v for k, v in hydra.runtime.choices.items() if not k.startswith("hydra")},
        "overrides": list(hydra.overrides.task),
        "seconds": time.perf_counter() - started,
        "device": _device_name(run.device),
        "threads": torch.get_num_threads(),
        "versions": _versions(),
        **_commit(),
        **run.notes,
    }
    partial = path / "run.json.partial"
    partial.write_text(json.dumps(document, indent=2))
    partial.replace(path / "run.json")
    log.info("finished: %s", path)


def _identity(config: dict[str, Any], sources: Sequence[str]) -> dict[str, Any]:
    """What decides the numbers of a run; of SOURCES only those in `sources`."""
    identity = {key: value for key, value in config.items() if key not in ENVIRONMENT}
    if isinstance(data := config.get("data"), dict):
        dropped = set(SOURCES) - set(sources)
        identity["data"] = {key: value for key, value in data.items() if key not in dropped}
    return identity


def _set_aside(path: Path, outputs: Path) -> None:
    moment = time.time_ns() % 10**9  # two within one second keep apart
    stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{moment:09}"
    target = outputs / "superseded" / f"{path.relative_to(outputs)}-{stamp}"
    target.mkdir(parents=True)
    for file in path.iterdir():
        if file.is_file() and file.suffix in (".json", ".csv", ".npz", ".txt"):
            file.rename(target / file.name)
    log.info("an earlier record was moved to %s", target)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device={name} was asked for, but this PyTorch sees no CUDA device")
    return torch.device(name)


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.machine()}, {os.cpu_count()} cores)"


def _versions() -> dict[str, str]:
    versions = {"python": sys.version.split()[0]}
    for package in ("latticework", "torch", "numpy", "hydra-core", "arviz"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # an un-installed checkout
            continue
    return versions


@cache
def _commit() -> dict[str, Any]:
    """As it was at the first run of a sweep, which is the code that all of them execute."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise OSError(done.stderr)
        return done.stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except OSError:  # no git, or not a checkout
        return {"commit": None, "dirty": None}
