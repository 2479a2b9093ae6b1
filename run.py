"""Run one experiment: `python run.py experiment=rbm_sampling sampler=dmala scale=quick`."""

from pathlib import Path

import hydra
from hydra.utils import instantiate
from omegaconf import DictConfig

from latticework.experiments.config import errors, resolvers
from latticework.experiments.running import watch
from latticework.experiments.running.recording import record
from latticework.experiments.running.run import Run

CONF = Path(__file__).resolve().parent / "conf"
resolvers.register(CONF)


def perform(cfg: DictConfig, run: Run) -> None:
    """Build data, model and sampler, and run the task with them."""
    data = instantiate(cfg.data).load() if cfg.data else None
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
    task(model=model, sampler=sampler, data=data, run=run)


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def job(cfg: DictConfig) -> None:
    """Execute one run, which may be part of a sweep."""
    record(cfg, perform)


def main() -> None:
    """The command line."""
    with watch.watched(), errors.told():
        job()


if __name__ == "__main__":
    main()
