"""Compare the results with the papers, in a folder of HTML pages that opens from disk.

python -m latticework.scripts.report                 # outputs/report/index.html
python -m latticework.scripts.report --scale quick   # only records at that scale
python -m latticework.scripts.report --committed     # docs/results and the pages that quote it

Reads only records: those in the outputs folder and, for experiments without paper-scale records
there, those committed in docs/results/records. Figures of unchanged records are not drawn again:
they are kept in outputs/report/kept.
"""

import logging
from pathlib import Path

from latticework.experiments.papers.docs_pages import read_notes, refresh_pages
from latticework.experiments.papers.report_builder import build_report
from latticework.experiments.papers.report_html import write_report
from latticework.experiments.papers.run_status import SCALES
from latticework.experiments.records.escapes import escape_terminal
from latticework.experiments.runs.errors import one_line_errors
from latticework.scripts.arguments import outputs, parser_of


def main(words: list[str] | None = None) -> None:
    parser = parser_of("report", __doc__)
    parser.add_argument("--scale", choices=SCALES, help="only this scale; default: the best")
    parser.add_argument("--outputs", type=Path, default=outputs(), help="the folder of the records")
    parser.add_argument(
        "--committed", action="store_true", help="read only docs/results/records, write docs/"
    )
    chosen = parser.parse_args(words)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("latticework").setLevel(logging.INFO)  # what is drawn takes a minute
    if chosen.committed:
        for file in refresh_pages():
            print(f"written: {file}")
        return
    folder = chosen.outputs / "report"
    scales = [chosen.scale] if chosen.scale else SCALES
    report = build_report(chosen.outputs, scales=scales, keep=folder / "kept")
    if report.notice:
        print(report.notice)
    print(report.tested)
    print(f"report: {write_report(report, folder, read_notes())}")
    if report.failed:
        raise SystemExit("\n".join(map(escape_terminal, report.failed)))


if __name__ == "__main__":
    with one_line_errors():
        main()
