"""Facts about the machine, the code and the files that a configuration names, for the record.

A configuration holds only the paths of files such as a stored model (`task.pretrain.file`) or a
language model's folder (`model.language.checkpoint`). run.json also holds their checksums
(`inputs`), so a run whose file was replaced does not count as finished.
"""

import hashlib
import json
import os
import pkgutil
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

from latticework.experiments.records.identity import PARTS, flatten_settings
from latticework.experiments.records.record import versions

ROOT = Path(__file__).resolve().parents[2]
# Packages whose version can change the numbers.
NUMERIC_PACKAGES = ("latticework", "torch", "numpy", "numba", "llvmlite", "hydra-core", "arviz")
FILE_PATH_KEYS = ("file", "files", "checkpoint")  # the keys that name a user's files or folders


def peak_memory(device: torch.device) -> int:
    """Peak memory of the process in bytes: an upper bound for this run.

    On a GPU, the peak of the memory that PyTorch reserved there.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.machine()}, {os.cpu_count()} cores)"


@cache
def processor() -> str:
    """The model of the CPU, and the instructions that PyTorch uses of it, such as AVX2."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    name = platform.processor() or platform.machine()
    for line in lines:
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


def environment_facts(device: torch.device, config: dict[str, Any]) -> dict[str, Any]:
    """Facts besides the configuration that may change the numbers of a run on `device`."""
    return {
        "device": device_name(device),
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "versions": versions(NUMERIC_PACKAGES),
        **commit(),
        "sources": source_hashes(config),
    }


def source_hashes(config: dict[str, Any]) -> dict[str, str]:
    """Hashes of the Python files that define the parts of `config`, by module name.

    They reveal uncommitted changes, and changes of a user's own sampler in another folder. Files
    that these files import are not included.
    """
    modules: set[str] = set()
    for key in PARTS:
        modules |= set(_modules(config.get(key)))
    hashes = {}
    for name in sorted(modules):
        if mark := _hash(name):
            hashes[name] = mark
    return hashes


def changed_modules(earlier: dict[str, Any], config: dict[str, Any]) -> str:
    """Modules of the parts of `config` whose files have changed since the facts `earlier`.

    "" if there are none. Older records do not name the files.
    """
    return _changed_names(earlier.get("sources") or {}, source_hashes(config))


def _changed_names(known: dict[str, str], now: dict[str, str]) -> str:
    """The names whose mark in `now` is another than the `known` one."""
    return ", ".join(name for name, mark in now.items() if known.get(name, mark) != mark)


def _modules(value: Any) -> Iterator[str]:
    """The modules that define the classes and functions that a nested configuration names."""
    for key, name in flatten_settings(value).items():
        if key.rpartition(".")[2] == "_target_":
            with suppress(ImportError, AttributeError, ValueError):  # told when the part is built
                yield getattr(pkgutil.resolve_name(str(name)), "__module__", "")


@cache
def _hash(module: str) -> str:
    """A hash of the module's file; "" without one. Read once per process, as `commit` is."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file else ""


@cache
def commit() -> dict[str, Any]:
    """The git commit, and whether the checkout had changes; both None outside a checkout.

    The folder of an installed package may lie in the repository of another project. Read once per
    process: all runs of a sweep execute the code that was loaded at its start.
    """

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise OSError(done.stderr)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() == ROOT:
            return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except OSError:  # no git, or no repository
        pass
    return {"commit": None, "dirty": None}


def input_checksums(config: Any) -> dict[str, str]:
    """SHA-256 of each file or folder that `config` names and that exists, by its dotted key."""
    checksums = {}
    for key, name in _input_files(config):
        path = Path(name).expanduser()
        if path.exists():
            checksums[key] = _digest_of_path(path)
    return checksums


def _digest_of_path(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents of a folder's files that are not hidden."""
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    files = {}
    for entry in path.glob("[!.]*"):
        if entry.is_file():
            files[entry.name] = _digest_of_path(entry)
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def changed_inputs(earlier: dict[str, Any], config: Any) -> str:
    """Keys of files that have changed since `earlier`, the facts of a record; "" if none.

    Files that are missing or have no checksum in the record are ignored.
    """
    return _changed_names(earlier.get("inputs") or {}, input_checksums(config))


def _input_files(config: Any) -> Iterator[tuple[str, str]]:
    """The values of FILE_PATH_KEYS in a nested configuration, with their dotted keys."""
    for key, value in flatten_settings(config).items():
        if key.rpartition(".")[2] not in FILE_PATH_KEYS:
            continue
        paths = {key: value}
        if isinstance(value, list):
            paths = {f"{key}.{place}": path for place, path in enumerate(value)}
        for name, path in paths.items():
            if isinstance(path, str):
                yield name, path
