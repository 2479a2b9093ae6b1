"""Draw every figure that an experiment's configuration names, from its records."""

import logging
from pathlib import Path

import matplotlib as mpl
from hydra.utils import instantiate
from omegaconf import DictConfig

from experiments.figures.style import mark_substitute
from experiments.record import load_all

log = logging.getLogger(__name__)


def draw_all(config: DictConfig, folder: Path) -> list[Path]:
    """Write `folder/figures/<name>.{png,pdf}` for each entry of `config.figures`; the PNGs' paths.

    An entry is a function of the records, instantiated with its settings. A figure that the records
    do not suffice for is skipped, saying why.
    """
    figures = config.get("figures") or {}
    if not figures:
        return []
    mpl.use("Agg")
    try:
        records = load_all(folder)
    except FileNotFoundError as error:
        log.warning("no figures: %s", error)
        return []
    written = []
    for name, spec in figures.items():
        try:
            figure = instantiate(spec, _convert_="all", _partial_=True)(records)
        except LookupError as error:
            log.warning("%s was not drawn: %s", name, error)
            continue
        mark_substitute(figure, records)
        target = folder / "figures" / f"{name}.png"
        target.parent.mkdir(exist_ok=True)
        figure.savefig(target, dpi=160)
        figure.savefig(target.with_suffix(".pdf"))
        mpl.pyplot.close(figure)
        written.append(target)
    return written
