"""Facts about the machine and the code, for the record."""

import os
import platform
import resource
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]


def find_device(name: str) -> torch.device:
    """The device of this name; "auto" is a GPU if there is one. ValueError if it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda"):
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (torch.device(name).index or 0) >= count:
            seen = f"{count} CUDA device{'s' * (count > 1)}" if count else "no CUDA device"
            raise ValueError(f"device={name} is not available: this PyTorch sees {seen}")
    if name == "mps" and not torch.backends.mps.is_available():
        raise ValueError("device=mps is not available: this PyTorch sees no GPU of Apple")
    return torch.device(name)


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
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    name = next(models, platform.processor() or platform.machine())
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"


@cache
def versions() -> dict[str, str]:
    """The versions of Python and of the packages that compute."""
    versions = {"python": sys.version.split()[0]}
    for package in ("latticework", "torch", "numpy", "numba", "llvmlite", "hydra-core", "arviz"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # an un-installed checkout
            continue
    return versions


def facts(device: torch.device) -> dict[str, Any]:
    """What besides the configuration may change the numbers of a run on `device`."""
    return {
        "device": device_name(device),
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        **commit(),
    }


@cache
def commit() -> dict[str, Any]:
    """The git commit, and whether the checkout had changes; None each if this is no checkout.

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
