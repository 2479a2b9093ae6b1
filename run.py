"""Run one experiment: `python run.py experiment=rbm_sampling sampler=dmala scale=quick`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":  # in a checkout, installed or not
    sys.path.insert(0, str(Path(__file__).resolve().parent / "src"))
    from latticework.scripts.command_line import main

    main()
    sys.exit()

from collections.abc import Callable
from functools import lru_cache, partial

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from latticework.experiments import CONF
from latticework.experiments.runs import configuration

if TYPE_CHECKING:
    from latticework.data.base import Dataset
    from latticework.experiments.runs.outcomes import Outcome
    from latticework.experiments.runs.run import Run

configuration.register()


@lru_cache(maxsize=1)
def load_data(loader: str) -> Dataset:
    """Return the data of a loader's configuration in YAML; the runs of a sweep read them once."""
    return instantiate(OmegaConf.create(loader)).load()


def prepare(cfg: DictConfig, run: Run) -> Callable[[], None]:
    """Build data, model, sampler and task; the function returned runs the task."""
    data = load_data(OmegaConf.to_yaml(cfg.data, resolve=True)) if cfg.data else None
    if data is not None:
        parts = ("variant", "substitute", "fingerprint")
        run.note(data={part: getattr(data, part) for part in parts})
    with run.seed_global_rng("model"):
        model = instantiate(cfg.model)
    sampler = instantiate(cfg.sampler, _convert_="all")
    task = instantiate(cfg.task, _convert_="all")
    model = model if model is None else model.to(run.device)
    return partial(task, model=model, sampler=sampler, data=data, run=run)


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def job(cfg: DictConfig) -> Outcome:
    """Execute one run, which may be part of a sweep."""
    # Imports PyTorch, which --help and mistakes in a command's words do not need.
    from latticework.experiments.runs.recording import run_and_record

    return run_and_record(cfg, prepare)
