"""Which records a command's figures are made of, and where they go. Imports no torch.

Runs that an experiment declares are drawn together into `figures/` and `tables/`, whichever part of
them a command asked for. A command with settings of its own draws the runs that it asked for, and
those alone, into `figures/own/<overrides>/`; the experiment's figures stay as they are.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from experiments.figures.draw import draw_all
from experiments.folders import DRAWING, run_name
from experiments.record import Record, load_all
from experiments.report.exhibits import catalogue
from experiments.report.sweeps import Sweep, asked, declared, exists

log = logging.getLogger(__name__)
OWN = "own"


def drawn(
    config: DictConfig,
    words: Sequence[str],
    folder: Path,
    records: Sequence[Record] | None = None,
) -> list[Path]:
    """Draw what the experiment `config` names for a command with the overrides `words`.

    `config` holds `hydra` too; the records are those in `folder` unless given. Returns the paths of
    the PNGs and CSVs, below `folder`.
    """
    if not any(config.get(kind) for kind in DRAWING):
        return []
    if records is None:
        try:
            records = load_all(folder)
        except FileNotFoundError as error:
            log.warning("no figures: %s", error)
            return []
    sweep, command = _experiment(config), asked(config, words)
    mine, others = sweep.divided(records)
    if not (mine or words):  # a redrawing where there are runs with settings of their own alone
        return draw_all(config, folder, others, OWN)
    wanted = command.found(records) if command.runs else others
    declares_all = bool(command.runs) and command.kinds <= sweep.kinds
    if declares_all or (wanted and {id(r) for r in wanted} <= {id(r) for r in mine}):
        return draw_all(config, folder, mine)
    return draw_all(config, folder, wanted, f"{OWN}/{run_name(words, command.skipped)}")


def _experiment(config: DictConfig) -> Sweep:
    """What the experiment declares; of one from elsewhere, what its configuration sweeps over."""
    if exists(config.name):
        return declared(config.name, config.scale, catalogue().also.get(config.name, ()))
    return asked(config)
