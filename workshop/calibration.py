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
TABLES: dict[str, Callable[..., pd.DataFrame]] = {
    "rules": calibration.rules,
    "targets": calibration.targets,
    "log-z": calibration.log_z,
    "intervals": calibration.intervals,
}


def read_records(outputs: Path) -> list[Record]:
    """The finished records at the paper's scale."""
    folders = sorted((outputs / "calibration" / "paper").glob("*/run.json"))
    return [load_record(file.parent) for file in folders]


def describe(records: list[Record]) -> str:
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
    page = replace_block(page, "runs", describe(records))
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("outputs", type=Path)
    records = read_records(parser.parse_args().outputs)
    page = DOCS / "calibration.md"
    page.write_text(refresh(page.read_text(encoding="utf-8"), records), encoding="utf-8")
    try:
        plot = calibration.thresholds(records)
    except LookupError as error:
        print(f"no figure: {error}")
        return
    plot.figure.savefig(DOCS / "calibration.png", dpi=100)


if __name__ == "__main__":
    main()
