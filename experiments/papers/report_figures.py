"""Draw the figures and tables of the report, or take those of unchanged records as they are."""

import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
from rich.console import Console
from rich.progress import track

from latticework.experiments.figures.plot import Plot
from latticework.experiments.papers.draw import make_all
from latticework.experiments.papers.drawn import Drawn
from latticework.experiments.papers.kept import forget_oldest, kept_or_drawn
from latticework.experiments.papers.rendering import render
from latticework.experiments.papers.run_status import ExperimentStatus
from latticework.experiments.runs import errors

log = logging.getLogger(__name__)


def draw_experiments(
    statuses: Iterable[ExperimentStatus], keep: Path | None
) -> dict[tuple[str, str], Drawn]:
    """The figures and tables of each experiment and scale that has records.

    With a folder `keep`, those of unchanged records are taken from there.
    """
    drawable = [status for status in statuses if status.drawable_records]
    drawn = {}
    for status in track(drawable, "figures", console=Console(stderr=True), transient=True):
        key = status.experiment, status.scale
        drawn[key] = kept_or_drawn(keep, status.stamp, partial(draw_experiment, status))
    if keep is not None:
        forget_oldest(keep)
    return drawn


def draw_experiment(status: ExperimentStatus) -> Drawn:
    """Draw every figure and table of the experiment from the records to be shown."""
    log.info("drawing %s, scale=%s", status.experiment, status.scale)
    drawn = Drawn()
    for item in make_all(status.config, status.drawable_records):
        if isinstance(plot := item.content, Plot):
            try:
                drawn.pictures.append(render(item.name, plot))
            except Exception as error:  # noqa: BLE001 - such as a label that cannot be typeset
                drawn.reasons_not_made.append(
                    f"{item.name} was not made: {errors.describe_error(error)}"
                )
                drawn.failed.append(drawn.reasons_not_made[-1])
            plt.close(plot.figure)
        elif item.content is not None:
            drawn.tables.append((item.name, item.content))
        else:
            drawn.reasons_not_made.append(f"{item.name} was not made: {item.reason_not_made}")
            drawn.failed.extend(drawn.reasons_not_made[-1:] if item.failed else ())
    return drawn
