"""Reproduce figures and tables of the papers: run what is missing, then write the report.

python -m latticework.scripts.reproduce fig3 table2 --scale quick
python -m latticework.scripts.reproduce all device=cpu          # everything, at the paper's scale

Finished runs are skipped and interrupted runs resume. If an experiment fails, the others still run.
Words that contain "=" are passed to run.py.
"""

import subprocess
import sys
from pathlib import Path

import latticework.scripts.report
from latticework.experiments.papers.exhibits import Catalogue, catalogue
from latticework.experiments.papers.run_status import SCALES
from latticework.experiments.result_tables import show_table
from latticework.experiments.runs.sweeps import extra_override_sets
from latticework.scripts.arguments import outputs, parser_of

ROOT = Path(__file__).resolve().parent.parent


def list_commands(
    known: Catalogue, names: list[str], scale: str, overrides: list[str]
) -> list[list[str]]:
    """The arguments of each run.py command, in order. Raises KeyError for an unknown exhibit."""
    chosen = None if names == ["all"] else [known[name] for name in names]
    result = []
    for experiment in known.experiments(chosen):
        words = [f"experiment={experiment}", f"scale={scale}", *overrides]
        for extra in ([], *extra_override_sets(experiment)):
            result.append([*words, *extra])
    return result


def tables(known: Catalogue, names: list[str], scale: str, outputs: Path) -> list[Path]:
    """The written tables of the exhibits `names`, as Markdown; none for `all`."""
    files = []
    for name in names if names != ["all"] else []:
        for experiment, shown in known[name].items_by_experiment.items():
            for file in sorted((outputs / experiment / scale / "tables").glob("*.md")):
                if shown is None or file.stem in shown:
                    files.append(file)
    return files


def main(words: list[str] | None = None) -> int:
    """Return the exit status: 1 if an experiment failed."""
    parser = parser_of("reproduce", __doc__)
    parser.add_argument("words", nargs="+", help="all, or ids such as fig3; overrides of run.py")
    parser.add_argument("--scale", choices=SCALES, default="paper")
    chosen = parser.parse_args(words)
    overrides: list[str] = []
    names: list[str] = []
    folder = outputs()
    place: list[str] = []
    for word in chosen.words:
        (overrides if "=" in word else names).append(word)
        if word.startswith("outputs="):
            folder = Path(word.removeprefix("outputs="))
            place = ["--outputs", str(folder)]
    try:
        todo = list_commands(catalogue(), names, chosen.scale, overrides)
    except KeyError as error:
        parser.error(error.args[0])
    failed = []
    for arguments in todo:
        text = " ".join(["python run.py", *arguments])
        print(f"\n{text}", flush=True)
        if _status([sys.executable, str(ROOT / "run.py"), *arguments]):
            failed.append(text)
    latticework.scripts.report.main(place)
    for file in tables(catalogue(), names, chosen.scale, folder):
        show_table(file)
    if failed:
        print("\nfailed:", *failed, sep="\n  ", file=sys.stderr)
    return int(bool(failed))


def _status(command: list[str]) -> int:
    """The exit status of `command`. Ctrl-C reaches both processes; this one waits for the other."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            raise


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
