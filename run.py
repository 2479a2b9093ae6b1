"""Run one experiment: `python run.py experiment=rbm_sampling sampler=dmala scale=quick`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from importlib import import_module, invalidate_caches
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING

HERE = Path(__file__).resolve().parent
INSTALL = f"run `pip install -e . -c constraints.txt` in {HERE}, or use make, which does so"


def use_own_files() -> None:
    """Let this process and those that it starts import latticework from this checkout.

    Another checkout may be installed, or none. A checkout may have any name, so the path gets a
    folder with a link to it.
    """
    spec = find_spec("latticework")
    if spec is not None and spec.origin and Path(spec.origin).resolve().parent == HERE:
        return
    names = HERE / "build" / "names"
    names.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (names / "latticework").symlink_to(HERE, target_is_directory=True)
    sys.path.insert(0, str(names))
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(names), inherited]))
    invalidate_caches()


if missing := [name for name in ("hydra", "torch") if find_spec(name) is None]:
    needed = f"{missing[0]}, which Latticework needs, is not installed for {sys.executable}"
    sys.exit(f"{needed}: {INSTALL}")
use_own_files()

from latticework.experiments.runs import signals  # noqa: E402 - of this checkout, as was made sure

if __name__ == "__main__":
    with signals.stoppable():  # the imports, too
        import_module("latticework.run").main()
    sys.exit()

import hydra  # noqa: E402 - first of all it is said what to install
from hydra.utils import instantiate  # noqa: E402
from omegaconf import DictConfig, OmegaConf  # noqa: E402

from latticework.experiments import CONF  # noqa: E402
from latticework.experiments.runs import configuration, errors  # noqa: E402

if TYPE_CHECKING:
    from latticework.data.base import Dataset
    from latticework.experiments.runs.run import Run
    from latticework.experiments.runs.sweeps import Outcome

configuration.register()


@lru_cache(maxsize=1)
def loaded(loader: str) -> Dataset:
    """The data of a loader's configuration in YAML; the runs of a sweep read them once."""
    return instantiate(OmegaConf.create(loader)).load()


def prepare(cfg: DictConfig, run: Run) -> Callable[[], None]:
    """Build data, model, sampler and task; the function returned runs the task."""
    data = loaded(OmegaConf.to_yaml(cfg.data, resolve=True)) if cfg.data else None
    if data is not None:
        run.note(
            data={
                "variant": data.variant,
                "substitute": data.substitute,
                "fingerprint": data.fingerprint,
            }
        )
    with run.seeded("model"):
        model = instantiate(cfg.model)
    sampler = instantiate(cfg.sampler, _convert_="all")
    task = instantiate(cfg.task, _convert_="all")
    model = model if model is None else model.to(run.device)
    return partial(task, model=model, sampler=sampler, data=data, run=run)


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def job(cfg: DictConfig) -> Outcome:
    """Execute one run, which may be part of a sweep."""
    # Imports PyTorch, which --help and mistakes in a command's words do not need.
    from latticework.experiments.runs.recording import record

    return record(cfg, prepare)


def versions() -> str:
    """The versions of Latticework, PyTorch and Python, in a line each."""
    try:
        own = version("latticework")
    except PackageNotFoundError:
        own = f"of {HERE}, not installed"
    parts = {"Latticework": own, "PyTorch": version("torch")}
    return "\n".join(f"{k} {v}" for k, v in {**parts, "Python": python_version()}.items())


def main() -> None:
    """The command line: one of `errors.COMMANDS`, or else an experiment."""
    # Read when PyTorch is imported. Threads that wait for work sleep; OpenMP's default is to spin,
    # which takes the time of other programs, and of the thread that is waited for.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    words = sys.argv[1:]
    with signals.stoppable(), errors.told():
        if words and words[0] in errors.COMMANDS:
            sys.exit(import_module(f"latticework.scripts.{words[0]}").main(words[1:]))
        if "--version" in words:
            print(versions())
            return
        configuration.check_names(words)
        configuration.validate_quickly()
        job()
