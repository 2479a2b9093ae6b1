"""Generate the pages of docs/ from the records committed in docs/results/records.

docs/results/<exhibit>.md shows a figure or table of a paper; README.md there lists them. Numbers,
commands and facts come from the records. Causes and caveats are in a short hand-written note per
exhibit, docs/results/notes/<exhibit>.md. A note types numbers of the paper, of settings and of the
data; a number of runs is computed from the committed records, by `{{ last(...) }}`.
"""

import re
from collections import defaultdict
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd

from latticework.experiments import CONF
from latticework.experiments.figures.benchmark import winners
from latticework.experiments.papers import report_pages
from latticework.experiments.papers.claims.ledger import OURS, Entry
from latticework.experiments.papers.claims.verdict import Number
from latticework.experiments.papers.exhibits import Catalogue, Exhibit, catalogue
from latticework.experiments.papers.rendering import markdown, write_table
from latticework.experiments.papers.report_content import (
    Part,
    Report,
    Section,
    build_report,
    peak_memory,
    verdicts,
)
from latticework.experiments.papers.run_status import ExperimentStatus, load_statuses
from latticework.experiments.records.estimates import (
    duration,
    estimate,
    format_estimate,
    last_reading,
)
from latticework.experiments.records.grouping import require_one_setting
from latticework.experiments.records.record import BUNDLES, load_all
from latticework.experiments.runs.sweeps import declared_sweep

ROOT = CONF.parent
UNKNOWN = "not measured"
HIDDEN = ("Scale", "Records")  # facts that are the same in every section
TABLES = "tables"  # the folder of docs/results with the tables
BESIDE = "beside"  # the end of a table's name that opens its section; the other tables are folded
BENCH_COLUMNS = ("turns", "ours_low", "ours_high", "plain_low", "plain_high")  # left out


def refresh(root: Path = ROOT, bundles: Path = BUNDLES) -> list[Path]:
    """Write docs/results, except its notes, and the generated blocks of other pages.

    Raises RuntimeError before it writes anything if a figure or table fails.
    """
    known = catalogue()
    report = build_report(None, bundles=bundles, known=known)
    if report.failed:
        raise RuntimeError(f"nothing was written: {'; '.join(report.failed)}")
    results = root / "docs" / "results"
    written = [results / "ledger.md"]
    written[0].write_text(ledger_page(report))
    for section in report.sections:
        for part in section.parts:
            for picture in part.drawn.pictures:
                name = stem(section.exhibit, part.experiment, picture.name)
                written += picture.write(results / f"{name}.png")
            for name, frame in part.drawn.tables:
                (results / TABLES).mkdir(exist_ok=True)
                file = results / TABLES / f"{stem(section.exhibit, part.experiment, name)}.csv"
                written += write_table(frame, file)
    for name, text in results_pages(report, results, bundles).items():
        written.append(results / name)
        written[-1].write_text(text)
    for file, name, text in blocks(report, known, root, bundles):
        file.write_text(replace_block(file.read_text(), name, text))
        written.append(file)
    return written


def blocks(
    report: Report, known: Catalogue, root: Path, bundles: Path
) -> list[tuple[Path, str, str]]:
    """The generated blocks of other pages: the file, the block's name, and its content."""
    return [
        (root / "README.md", "ledger", summary(report)),
        (root / "docs" / "reproducing.md", "times", times(known, bundles)),
        (root / "docs" / "benchmark.md", "winners", best_samplers(bundles)),
    ]


def replace_block(page_text: str, name: str, text: str) -> str:
    """The page with the text between `<!-- name -->` and `<!-- /name -->` replaced.

    Raises ValueError if the page has no such block.
    """
    block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not block.search(page_text):
        raise ValueError(f"the page has no block <!-- {name} --> ... <!-- /{name} -->")
    return block.sub(lambda found: f"{found[1]}\n{text.strip()}\n\n{found[2]}", page_text)


# docs/results.


def ledger_page(report: Report) -> str:
    """The content of docs/results/ledger.md."""
    command = "`python -m latticework.scripts.report --committed`"
    head = f"# Ledger\n\nMade by {command} from docs/results/records.\n\n"
    return head + report_pages.ledger(report).strip() + "\n"


def stem(exhibit: Exhibit, experiment: str, name: str) -> str:
    """File name of a figure or table in docs/results, without the suffix.

    Figures of the first paper keep their names. If experiments of an exhibit share a name, only
    the first keeps it.
    """
    sharing = (other for other, names in exhibit.of.items() if name in (names or ()))
    first = next(sharing, experiment)
    return name if exhibit.paper == "langevin" and experiment == first else f"{experiment}-{name}"


def results_pages(report: Report, folder: Path, bundles: Path = BUNDLES) -> dict[str, str]:
    """The pages of docs/results by file name, given the figures and tables in `folder`.

    README.md lists the pages of the exhibits; bench.md has what `workshop.bench` measured, in
    bench.csv and bench_*.csv.
    """
    shown = [_page(section, folder, bundles) for section in report.sections]
    papers = groupby(shown, lambda page: page["exhibit"].cited)
    pages = {
        f"{p['exhibit'].name}.md": report_pages.render("exhibit.md.jinja", page=p) for p in shown
    }
    pages["README.md"] = report_pages.render(
        "results.md.jinja", pages=[(n, list(p)) for n, p in papers]
    )
    pages["bench.md"] = report_pages.render(
        "bench.md.jinja",
        benches=[_bench(file) for file in sorted(folder.glob("bench[._]*csv"))],
        pictures=[file.stem for file in sorted(folder.glob("bench_*.png"))],
        note=_note(folder, "bench", bundles),
    )
    return pages


def _page(section: Section, folder: Path, bundles: Path) -> dict[str, Any]:
    """What exhibit.md.jinja and results.md.jinja show of an exhibit.

    `lead` are the tables of BESIDE, `printed` the numbers that the paper prints too.
    """
    numbers = _numbers(section.entries)
    parts = [_part(section.exhibit, part, folder) for part in section.parts]
    return {
        "exhibit": section.exhibit,
        "state": section.state,
        "claims": verdicts([entry for entry in section.entries if not entry.claim.own_reading]),
        "readings": verdicts([entry for entry in section.entries if entry.claim.own_reading]),
        "lead": [table for part in parts for table in part["tables"] if table[0].endswith(BESIDE)],
        "parts": parts,
        "entries": section.entries,
        "printed": [number for number in numbers if number.paper],
        "others": [number for number in numbers if not number.paper],
        "note": _note(folder, section.exhibit.name, bundles),
    }


def _numbers(entries: list[Entry]) -> list[Number]:
    """The numbers of the entries, each once; where two experiments share a name, with theirs."""
    found = [(one, e.claim.experiment) for e in entries if e.finding for one in e.finding.numbers]
    origins: dict[str, set[str]] = defaultdict(set)
    for one, experiment in found:
        origins[one.what].add(experiment)
    named = (
        replace(one, what=f"{one.what} ({experiment})") if len(origins[one.what]) > 1 else one
        for one, experiment in found
    )
    return list(dict.fromkeys(named))


def _part(exhibit: Exhibit, part: Part, folder: Path) -> dict[str, Any]:
    """What it shows of an experiment. Files are named without suffix.

    A picture is an SVG, which has a width. Those too large for it are PNGs as wide as the page.
    """

    def files(kind: str, pattern: str) -> list[str]:
        names = (part.holding.config.get(kind) or {}) if part.holding else {}
        wanted = exhibit.of[part.experiment]
        shown = [str(name) for name in names if wanted is None or name in wanted]
        stems = [stem(exhibit, part.experiment, name) for name in shown]
        return [name for name in stems if (folder / pattern.format(name)).exists()]

    pictures, tables = files("figures", "{}.png"), files("tables", TABLES + "/{}.md")
    return {
        "command": part.command,
        "pictures": [
            (name, ".svg" if (folder / f"{name}.svg").exists() else ".png") for name in pictures
        ],
        "pages": [name for name in pictures if (folder / f"{name}.html").exists()],
        "numbers": [name for name in pictures if (folder / f"{name}.csv").exists()],
        "tables": [(name, (folder / TABLES / f"{name}.md").read_text().strip()) for name in tables],
        "facts": [fact for fact in part.facts if fact[0] not in HIDDEN],
        "remedies": part.remedies,
        "problems": [text for text in part.problems if text not in part.drawn.reasons_not_made],
    }


def _note(folder: Path, name: str, bundles: Path) -> str:
    """The hand-written note, with its numbers of runs; "" if there is none."""
    file = folder / "notes" / f"{name}.md"
    if not file.exists():
        return ""
    return report_pages.filled(file.read_text().strip(), last=partial(format_last_reading, bundles))


def format_last_reading(
    bundles: Path, experiment: str, column: str, settings: dict[str, Any]
) -> str:
    """Format the last reading of a column of metrics.csv, the mean over some committed runs.

    `settings` are dotted keys of the configuration, or groups with their options, such as
    {"sampler": "dmala", "task.steps": 100}. Raises LookupError if no run has them, or if the runs
    with them differ in more than their seed.
    """
    records = load_all(bundles / f"{experiment}.zip")
    for key, value in settings.items():
        records = [one for one in records if value in (one.choices.get(key), one.setting(key))]
        if not records:
            raise LookupError(f"no committed run of {experiment} has {key}={value}")
    return format_estimate(
        estimate(last_reading(record, column) for record in require_one_setting(records))
    )


def _bench(file: Path) -> tuple[str, str, str]:
    """A benchmark's file name, its command with the machine, and its table."""
    head = file.read_text().splitlines()[0].removeprefix("# ")
    command, _, machine = head.partition("; ")
    frame = pd.read_csv(file, comment="#")
    if "contender" in frame:
        frame = _contenders(frame)
    frame = frame.drop(columns=[name for name in BENCH_COLUMNS if name in frame])
    return file.name, f"{command}  # {machine}", frame.to_markdown(index=False)


def _contenders(frame: pd.DataFrame) -> pd.DataFrame:
    """Steps per second with a column per contender, and our share of the limit.

    Without a compiled kernel, the speed of fused steps as a multiple of the others.
    """
    keys = ["model", "chains", "sampler", "threads"]
    names = list(dict.fromkeys(frame["contender"]))

    def wide_of(column: str) -> pd.DataFrame:
        return frame.pivot(index=keys, columns="contender", values=column)[names]

    own = "compiled" if "compiled" in names else "eager"
    shares = {f"{own} / limit": wide_of("of_limit")[own]}
    if "fused" in names and own == "eager":
        ratios = wide_of("ours_ratio").drop(columns="fused")
        shares = {f"fused / {name}": ratios[name] for name in ratios}
    wide = wide_of("steps_per_second").assign(**shares).map(lambda value: f"{value:.4g}")
    order = pd.MultiIndex.from_frame(frame[keys].drop_duplicates())
    return wide.replace("nan", "").loc[order].reset_index()


# Blocks of other pages.


def summary(report: Report) -> str:
    """The ledger in two sentences, one for each paper, and one for our readings."""
    groups = {name: entries for name, entries, _ in report.groups}
    ours = groups.pop(OURS)
    papers = "; ".join(f"{name}: {verdicts(entries)}" for name, entries in groups.items())
    return (
        f"{report.tested} {papers}. Of {len(ours)} readings of our own, {verdicts(ours)}. "
        "See the [ledger](docs/results/ledger.md)."
    )


def best_samplers(bundles: Path = BUNDLES) -> str:
    """A table of the best samplers of each target of the benchmark, at the paper's scale."""
    held = load_statuses(["benchmark"], None, bundles, ("paper",))["benchmark"]
    if not (held and held[0].records):
        return "No records are committed yet: `python run.py experiment=benchmark` makes them."
    return markdown(winners(held[0].records))


def times(known: Catalogue, bundles: Path = BUNDLES) -> str:
    """A table of the requirements of each exhibit: data, runs, time, memory (paper scale)."""
    names: dict[str, list[str]] = {}
    for exhibit in known.exhibits:
        for experiment in exhibit.of:
            names.setdefault(experiment, []).append(exhibit.name)
    names |= {experiment: ["aside"] for experiment in known.aside}
    held = load_statuses(list(names), None, bundles, ("paper",))
    rows = []
    for name, some in held.items():
        one, noted = (some[0] if some else None), known.times.get(name, {})
        documents = [record.document for record in one.records] if one else []
        sweep = declared_sweep(name, "paper")
        rows.append(
            {
                "id": ", ".join(names[name]),
                "`python run.py experiment=`": f"`{name}`",
                "data": _data(sweep.config),
                "runs": len(sweep.runs),
                "one core": time_of(one, noted, gpu=False),
                "GPU": time_of(one, noted, gpu=True),
                "memory": peak_memory(documents) or UNKNOWN,
            }
        )
    cells = (rows[0], *(row.values() for row in rows))
    head, *lines = (f"| {' | '.join(map(str, row))} |" for row in cells)
    return "\n".join([head, f"|{'---|' * len(rows[0])}", *lines])


def _data(config: Any) -> str:
    data = config.get("data")
    choice = config.hydra.runtime.choices.get("data")
    swept = (config.hydra.sweeper.get("params") or {}).get("data")
    return str(swept or choice).replace(",", ", ") if data or swept else "none"


def time_of(held: ExperimentStatus | None, noted: dict[str, str], *, gpu: bool) -> str:
    """Time of all runs of the sweep on a CPU or GPU.

    If declared runs are missing, the time in exhibits.yaml is used, because missing runs may cost
    more, such as those of a larger model. Without such an entry, the mean of the finished runs is
    extrapolated.
    """
    place = "gpu" if gpu else "cpu"
    documents = [record.document for record in held.records] if held else []
    mine = [d for d in documents if d.get("device", "cpu").startswith("cpu") != gpu]
    partly = held is None or held.missing or len(mine) < len(documents)
    if held is None or not mine or (partly and place in noted):
        return str(noted.get(place, UNKNOWN))
    total = sum(document["seconds"] for document in mine) / len(mine) * len(held.runs)
    if partly:
        return f"{duration(total)}, extrapolated from {len(mine)} runs"
    return f"{duration(total)}, measured"
