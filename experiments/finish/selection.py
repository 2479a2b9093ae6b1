"""Choose the records for a command's figures, and where the figures go.

An experiment declares a set of runs. A command that asks for some of these redraws the figures of
all of them, in `figures/` and `tables/`. A command with other settings draws only its own runs, in
`figures/own/<overrides>/` and `tables/own/<overrides>/`, and leaves the experiment's figures
unchanged.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from latticework.experiments.records.folders import DRAWING, Written, run_name
from latticework.experiments.records.record import Record, load_all
from latticework.experiments.runs.sweeps import Sweep, asked, declared, exists

log = logging.getLogger(__name__)
OWN = "own"


def drawn(
    config: DictConfig,
    words: Sequence[str],
    folder: Path,
    records: Sequence[Record] | None = None,
) -> Written:
    """Draw the figures and tables of `config` for a command with the overrides `words`.

    `config` includes `hydra`. `records` default to those in `folder`, below which the files are
    written.
    """
    if not any(config.get(kind) for kind in DRAWING):
        return Written([], [])
    from latticework.experiments.papers.draw import draw_all  # imports Matplotlib and pandas

    if records is None:
        try:
            records = load_all(folder)
        except FileNotFoundError as error:
            log.warning("no figures: %s", error)
            return Written([], [])
    sweep, command = _experiment(config), asked(config, words)
    mine, others = sweep.divided(records)
    if not (mine or words):  # redrawing an experiment that has only runs with other settings
        return draw_all(config, folder, others, OWN)
    wanted = command.found(records) if command.runs else others
    declares_all = bool(command.runs) and command.kinds <= sweep.kinds
    if declares_all or (wanted and {id(r) for r in wanted} <= {id(r) for r in mine}):
        return draw_all(config, folder, mine)
    return draw_all(config, folder, wanted, f"{OWN}/{run_name(words, command.skipped)}", words)


def _experiment(config: DictConfig) -> Sweep:
    """The declared sweep of the experiment; if its YAML is not in conf/, that of `config`."""
    if exists(config.name):
        return declared(config.name, config.scale)
    return asked(config)
