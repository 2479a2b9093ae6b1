"""Generate the committed results: figures, tables, ledger, results page and table of times.

Everything is made from the records committed in docs/results/records.
"""

import re
from pathlib import Path
from typing import Any

from latticework.experiments.figures.tables.benchmark import winners
from latticework.experiments.papers import page
from latticework.experiments.papers.exhibits import Catalogue, catalogue
from latticework.experiments.papers.holdings import Holding, holdings
from latticework.experiments.papers.results import results_page, stem
from latticework.experiments.papers.table_files import write
from latticework.experiments.papers.view import Report, gather
from latticework.experiments.records.duration import duration
from latticework.experiments.records.record import BUNDLES
from latticework.experiments.runs.sweeps import CONF, declared

ROOT = CONF.parent
UNKNOWN = "not measured"


def refresh(root: Path = ROOT, bundles: Path = BUNDLES) -> list[Path]:
    """Write docs/results, except its notes, and the generated blocks of other pages.

    Raises RuntimeError before it writes anything if a figure or table fails.
    """
    report, known = gather(None, bundles=bundles), catalogue()
    if report.failed:
        raise RuntimeError(f"nothing was written: {'; '.join(report.failed)}")
    results = root / "docs" / "results"
    written = [results / "ledger.md"]
    written[0].write_text(ledger_page(report))
    for section in report.sections:
        for part in section.parts:
            for picture in part.drawn.pictures:
                target = results / f"{stem(section.exhibit, part.experiment, picture.name)}.png"
                target.write_bytes(picture.png)
                written.append(target)
                beside = {".csv": picture.csv, ".html": picture.html, ".json": picture.proof}
                for suffix, text in beside.items():
                    if text:
                        written.append(target.with_suffix(suffix))
                        written[-1].write_text(text, encoding="utf-8")
            for name, frame in part.drawn.tables:
                file = results / f"{stem(section.exhibit, part.experiment, name)}.csv"
                written += write(frame, file)
    written.append(results / "README.md")
    written[-1].write_text(results_page(report, results))
    for file, name, text in blocks(report, known, root, bundles):
        file.write_text(replaced(file.read_text(), name, text))
        written.append(file)
    return written


def blocks(
    report: Report, known: Catalogue, root: Path, bundles: Path
) -> list[tuple[Path, str, str]]:
    """The generated blocks of other pages: the file, the block's name, and its content."""
    return [
        (root / "README.md", "ledger", summary(report)),
        (root / "docs" / "reproducing.md", "times", times(known, bundles)),
        (root / "docs" / "benchmark.md", "winners", best_samplers(known, bundles)),
    ]


def replaced(page_text: str, name: str, text: str) -> str:
    """The page with the text between `<!-- name -->` and `<!-- /name -->` replaced.

    Raises ValueError if the page has no such block.
    """
    block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not block.search(page_text):
        raise ValueError(f"the page has no block <!-- {name} --> ... <!-- /{name} -->")
    return block.sub(lambda found: f"{found[1]}\n{text.strip()}\n\n{found[2]}", page_text)


def ledger_page(report: Report) -> str:
    """The content of docs/results/ledger.md."""
    command = "`python -m latticework.scripts.report --committed`"
    head = f"# Ledger\n\nMade by {command} from docs/results/records.\n\n"
    return head + page.ledger(report).strip() + "\n"


def summary(report: Report) -> str:
    """The ledger in a sentence for the claims of each paper, and one for our readings."""
    sentences = []
    for name, entries, counts in report.groups:
        others = [f"{verdict}: {n}" for verdict, n in counts.items() if n and verdict != "holds"]
        rest = f" ({'; '.join(others)})" if others else ""
        sentences.append(f"{name}: {counts['holds']} of {len(entries)} claims hold here{rest}.")
    return " ".join(sentences) + " See the [ledger](docs/results/ledger.md)."


def best_samplers(known: Catalogue, bundles: Path = BUNDLES) -> str:
    """A table of the best samplers of each target of the benchmark, at the paper's scale."""
    held = holdings(["benchmark"], None, known.also, bundles, ("paper",))["benchmark"]
    if not (held and held[0].records):
        return "No records are committed yet: `python run.py experiment=benchmark` makes them."
    return winners(held[0].records).to_markdown(index=False, disable_numparse=True)


def times(known: Catalogue, bundles: Path = BUNDLES) -> str:
    """A table of the requirements of each exhibit: data, runs, time, memory (paper scale)."""
    names: dict[str, list[str]] = {}
    for exhibit in known.exhibits:
        for experiment in exhibit.of:
            names.setdefault(experiment, []).append(exhibit.name)
    for experiment in known.aside:
        names[experiment] = ["aside"]
    there = [name for name in names if (CONF / "experiment" / f"{name}.yaml").is_file()]
    held = holdings(there, None, known.also, bundles, ("paper",))
    rows = [
        "| id | `python run.py experiment=` | data | runs | one core | GPU | memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in there:
        sweep = declared(name, "paper", known.also.get(name, ()))
        some = held[name][0] if held[name] else None
        cells = [
            ", ".join(names[name]),
            f"`{name}`",
            _data(sweep.config),
            str(len(sweep.runs)),
            time_of(some, known.times.get(name, {}), gpu=False),
            time_of(some, known.times.get(name, {}), gpu=True),
            _memory(some),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _data(config: Any) -> str:
    data = config.get("data")
    choice = config.hydra.runtime.choices.get("data")
    swept = (config.hydra.sweeper.get("params") or {}).get("data")
    return str(swept or choice).replace(",", ", ") if data or swept else "none"


def time_of(held: Holding | None, noted: dict[str, str], *, gpu: bool) -> str:
    """Time of all runs of the sweep on a CPU or GPU.

    If declared runs are missing, the time in exhibits.yaml is used, because missing runs may cost
    more, such as those of a larger model. Without such an entry, the mean of the finished runs is
    extrapolated.
    """
    place = "gpu" if gpu else "cpu"
    documents = [record.document for record in held.records] if held else []
    mine = [d for d in documents if d["device"].startswith("cpu") != gpu]
    partly = held is None or held.missing or len(mine) < len(documents)
    if held is None or not mine or (partly and place in noted):
        return str(noted.get(place, UNKNOWN))
    total = sum(document["seconds"] for document in mine) / len(mine) * len(held.runs)
    if partly:
        return f"{duration(total)}, extrapolated from {len(mine)} runs"
    return f"{duration(total)}, measured"


def _memory(held: Holding | None) -> str:
    peaks = [record.document.get("peak_memory_bytes") for record in held.records] if held else []
    known = [peak for peak in peaks if peak]
    return f"{max(known) / 2**30:.2g} GiB" if known else UNKNOWN
