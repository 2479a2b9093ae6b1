"""Models learned by task=ebm_learning: read from its record, or learned here.

A run that needs them has the settings of that task in its own configuration, under `learning`
(conf/experiment/parts/ebm_use.yaml). If a finished record has the same settings, model, sampler,
data and seeds, its models are read. Otherwise the task learns the models here, and they are stored
as a shared artifact (`experiments.runs.storage`).
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from latticework.data.base import Dataset
from latticework.experiments.records.identity import identity
from latticework.experiments.records.record import Record, load_all
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.storage import load_or_make_artifact
from latticework.experiments.tasks.learning.data import require_data
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler

log = logging.getLogger(__name__)
States = dict[str, dict[str, Tensor]]  # state_dicts by name
FILES = "ema_*.safetensors"  # what the task stores after so many updates
KEY = "learning"  # its settings in the configuration of who uses it


def snapshots(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    learn: Callable[..., None],
    experiment: str = "ebm_learning",
) -> States:
    """The stored models by name (`ema_005000`), in the order of their updates.

    `learn` is the task that learns a model if `experiment` has no record of it; `sampler` is the
    sampler used in learning. Raises ValueError without data.
    """
    data = require_data(data)
    wanted = _learning_settings(run.config, KEY, data.fingerprint)
    for record in _finished(run, experiment):
        settings = _learning_settings(record.config, "task", record.document["data"]["fingerprint"])
        if identity(settings) == identity(wanted):
            assert isinstance(record.path, Path)
            run.note(learned_by=str(record.path.relative_to(run.outputs)))
            return {file.stem: load_file(file) for file in sorted(record.path.glob(FILES))}

    def make() -> dict[str, Tensor]:
        log.info("no record of %s has these settings: learning the model first", experiment)
        part = Run(
            run.path / KEY,
            device=run.device,
            seed=run.seed,
            model_seed=run.model_seed,
            outputs=run.outputs,
            config=wanted,
            checkpoint=run.checkpoint,
            engine=run.engine,
        )
        part.path.mkdir(exist_ok=True)
        part.load_checkpoints(wanted, force=run.config.get("force", False))
        learn(model=model, sampler=sampler, data=data, run=part)
        part.checkpoints.remove()
        return {
            f"{file.stem}/{name}": tensor
            for file in part.path.glob(FILES)
            for name, tensor in load_file(file).items()
        }

    states: States = {}
    for name, tensor in sorted(load_or_make_artifact(run, "ebm", identity(wanted), make).items()):
        snapshot, _, key = name.partition("/")
        states.setdefault(snapshot, {})[key] = tensor
    run.note(learned_by=run.notes["artifacts"][-1])
    return states


def last(*, model: EnergyModel, run: Run, **settings: Any) -> EnergyModel:
    """`model` with its last stored state. `settings` are those of `snapshots`."""
    states = snapshots(model=model, run=run, **settings)
    model.load_state_dict(states[max(states)])
    return model.requires_grad_(False)


def _learning_settings(config: dict[str, Any], key: str, fingerprint: str) -> dict[str, Any]:
    """The configuration of the run that learns; the task's settings are at `config[key]`.

    Without the engine: networks have none that is compiled.
    """
    parts = {name: config[name] for name in ("model", "sampler", "seed", "model_seed")}
    data = {**config["data"], "fingerprint": fingerprint}
    return {**parts, "data": data, "task": config[key]}


def _finished(run: Run, experiment: str) -> list[Record]:
    try:
        records = load_all(run.outputs / experiment / run.config["scale"])
    except FileNotFoundError:
        return []
    return [record for record in records if record.document.get("data")]
