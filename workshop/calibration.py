"""Write the tables and the figure of docs/calibration.md from the records of the experiment.

python -m workshop.calibration OUTPUTS   # the folder of the runs; of what is there, say so
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from latticework.experiments.figures import calibration
from latticework.experiments.papers.docs_pages import replace_block
from latticework.experiments.records import verdict_rules
from latticework.experiments.records.record import Record, load_record

DOCS = Path(__file__).resolve().parents[1] / "docs"
FIGURE = "calibration.png"
TABLES: dict[str, Callable[..., pd.DataFrame]] = {
    "rules": calibration.rules,
    "targets": calibration.targets,
    "log-z": calibration.log_z,
    "intervals": calibration.intervals,
}


def finished_records(outputs: Path) -> list[Record]:
    """The finished records at the paper's scale."""
    folders = sorted((outputs / "calibration" / "paper").glob("*/run.json"))
    return [load_record(file.parent) for file in folders]


def describe_halves(records: list[Record]) -> str:
    """How many targets, samplers and runs each half has."""
    lines = []
    for half in ("choosing", "judging"):
        try:
            rows = calibration.collect_rows(records, half)
        except LookupError:
            lines.append(f"- {half}: no runs yet")
            continue
        cells = len(rows.groupby(["target", "sampler"]))
        wrong = int(verdict_rules.is_wrong(rows).sum())
        lines.append(
            f"- {half}: {len(rows):,} runs, {wrong:,} of them wrong, of {cells} pairs of a target "
            f"and a sampler on {rows['target'].nunique()} targets"
        )
    return "\n".join(lines)


def refresh(page: str, records: list[Record]) -> str:
    """The page with the tables of these records."""
    page = replace_block(page, "runs", describe_halves(records))
    for name, table in TABLES.items():
        parts = []
        for half in ("judging", "choosing"):
            try:
                rows = table(records, half)
            except LookupError as error:
                parts.append(f"{half.capitalize()} half: {error}.")
                continue
            parts.append(f"{half.capitalize()} half:\n\n{rows.to_markdown(index=False)}")
        page = replace_block(page, name, "\n\n".join(parts))
    return page


def write_figure(records: list[Record], folder: Path) -> str:
    """Draw the figure of the judging half, if it has runs; return the Markdown that shows it."""
    try:
        plot = calibration.draw_thresholds(records)
    except LookupError:
        return "The judging half has not been run."
    plot.figure.savefig(folder / FIGURE, dpi=100)
    return f"![Wrong runs against refused ones, as the limit of R-hat moves]({FIGURE})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("outputs", type=Path)
    records = finished_records(parser.parse_args().outputs)
    page = DOCS / "calibration.md"
    text = refresh(page.read_text(encoding="utf-8"), records)
    text = replace_block(text, "thresholds", write_figure(records, DOCS))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
