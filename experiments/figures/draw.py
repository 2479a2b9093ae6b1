"""Draw every figure and write every table that an experiment names, from its records."""

import logging
from pathlib import Path
from typing import Any

import matplotlib as mpl
from hydra.utils import instantiate
from omegaconf import DictConfig

from experiments.figures.style import mark_substitute
from experiments.record import load_all
from experiments.tables.table import write

log = logging.getLogger(__name__)


def draw_all(config: DictConfig, folder: Path) -> list[Path]:
    """Make what `config.figures` and `config.tables` name; the paths of the PNGs and CSVs.

    An entry is a function of the records, instantiated with its settings, that gives a Figure or a
    DataFrame: `folder/figures/<name>.{png,pdf}`, `folder/tables/<name>.{csv,md,tex}`. What the
    records do not suffice for is skipped, saying why.
    """
    entries = [(*item, kind) for kind in ("figures", "tables") for item in _entries(config, kind)]
    if not entries:
        return []
    mpl.use("Agg")
    try:
        records = load_all(folder)
    except FileNotFoundError as error:
        log.warning("no figures: %s", error)
        return []
    written = []
    for name, spec, kind in entries:
        try:
            made = instantiate(spec, _convert_="all", _partial_=True)(records)
        except LookupError as error:
            log.warning("%s was not drawn: %s", name, error)
            continue
        (folder / kind).mkdir(exist_ok=True)
        if kind == "tables":
            written.append(write(made, folder / kind / f"{name}.csv")[0])
            continue
        mark_substitute(made, records)
        target = folder / kind / f"{name}.png"
        made.savefig(target, dpi=160)
        made.savefig(target.with_suffix(".pdf"))
        mpl.pyplot.close(made)
        written.append(target)
    return written


def _entries(config: DictConfig, kind: str) -> list[tuple[Any, Any]]:
    return list((config.get(kind) or {}).items())
