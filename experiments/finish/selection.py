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
from latticework.experiments.records.record import Record
from latticework.experiments.runs.sweeps import asked, declared, exists

log = logging.getLogger(__name__)
OWN = "own"


def drawn(
    config: DictConfig, words: Sequence[str], folder: Path, records: Sequence[Record]
) -> Written:
    """Draw the figures and tables of `config` for a command with the overrides `words`.

    `config` includes `hydra`. `records` are those in `folder`, below which the files are written.
    """
    if not any(config.get(kind) for kind in DRAWING):
        return Written([], [])
    if not records:
        log.warning("no figures: no finished run under %s", folder)
        return Written([], [])
    from latticework.experiments.papers.draw import draw_all  # imports Matplotlib and pandas

    command = asked(config, words)  # an experiment outside of conf/ declares what its YAML has
    sweep = declared(config.name, config.scale) if exists(config.name) else asked(config)
    mine, others = sweep.divided(records)
    if not (mine or words):  # redrawing an experiment that has only runs with other settings
        return draw_all(config, folder, others, OWN)
    wanted = command.found(records) if command.runs else others
    declares_all = bool(command.runs) and command.kinds <= sweep.kinds
    if declares_all or (wanted and {id(r) for r in wanted} <= {id(r) for r in mine}):
        return draw_all(config, folder, mine)
    return draw_all(config, folder, wanted, f"{OWN}/{run_name(words, command.skipped)}", words)
