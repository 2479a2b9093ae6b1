"""Generate the blocks of README.md and docs/ about the records: verdicts, times, winners."""

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from latticework.experiments.figures.benchmark import winners
from latticework.experiments.papers.claims.ledger import OURS
from latticework.experiments.papers.exhibits import Catalogue
from latticework.experiments.papers.rendering import markdown
from latticework.experiments.papers.report_content import Report, format_verdicts
from latticework.experiments.papers.run_facts import describe_peak_memory
from latticework.experiments.papers.run_status import ExperimentStatus, load_statuses
from latticework.experiments.records.estimates import duration
from latticework.experiments.records.record import BUNDLES
from latticework.experiments.runs.sweeps import declared_sweep

UNKNOWN = "not measured"
REQUIREMENTS = (  # requirements of an experiment, in docs/reproducing.md
    "id", "`python run.py experiment=`", "data", "runs", "one core", "GPU", "memory",
)  # fmt: skip


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
    return block.sub(lambda match: f"{match[1]}\n{text.strip()}\n\n{match[2]}", page_text)


def summary(report: Report) -> str:
    """The ledger in two sentences, one for each paper, and one for our readings."""
    papers, readings = [], ""
    for name, entries, _ in report.groups:
        if name == OURS:
            readings = f"Of {len(entries)} readings of our own, {format_verdicts(entries)}."
        else:
            papers.append(f"{name}: {format_verdicts(entries)}")
    text = f"{report.tested} {'; '.join(papers)}. {readings}"
    return f"{text} See the [ledger](docs/results/ledger.md)."


def best_samplers(bundles: Path = BUNDLES) -> str:
    """A table of the best samplers of each target of the benchmark, at the paper's scale."""
    statuses = load_statuses(["benchmark"], None, bundles, ("paper",))["benchmark"]
    if not (statuses and statuses[0].records):
        return "No records are committed yet: `python run.py experiment=benchmark` makes them."
    return markdown(winners(statuses[0].records))


def times(known: Catalogue, bundles: Path = BUNDLES) -> str:
    """A table of the requirements of each exhibit: data, runs, time, memory (paper scale)."""
    exhibits: dict[str, list[str]] = defaultdict(list)
    for exhibit in known.exhibits:
        for experiment in exhibit.items_by_experiment:
            exhibits[experiment].append(exhibit.name)
    for experiment in known.aside:
        exhibits[experiment] = ["aside"]
    statuses = load_statuses(list(exhibits), None, bundles, ("paper",))
    lines = [f"| {' | '.join(REQUIREMENTS)} |", f"|{'---|' * len(REQUIREMENTS)}"]
    for experiment, names in exhibits.items():
        status = statuses[experiment][0] if statuses[experiment] else None
        cells = _requirements(experiment, status, known.times.get(experiment, {}))
        lines.append(f"| {', '.join(names)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _requirements(
    experiment: str, status: ExperimentStatus | None, declared_times: dict[str, str]
) -> list[str]:
    """The cells of `times` for an experiment, beside the names of its exhibits."""
    sweep = declared_sweep(experiment, "paper")
    documents = [record.document for record in status.records] if status else []
    return [
        f"`{experiment}`",
        _data(sweep.config),
        str(len(sweep.runs)),
        time_of(status, declared_times, gpu=False),
        time_of(status, declared_times, gpu=True),
        describe_peak_memory(documents) or UNKNOWN,
    ]


def _data(config: Any) -> str:
    data = config.get("data")
    choice = config.hydra.runtime.choices.get("data")
    swept = (config.hydra.sweeper.get("params") or {}).get("data")
    return str(swept or choice).replace(",", ", ") if data or swept else "none"


def time_of(status: ExperimentStatus | None, declared_times: dict[str, str], *, gpu: bool) -> str:
    """Time of all runs of the sweep on a CPU or GPU.

    If declared runs are missing, the time in exhibits.yaml is used, because missing runs may cost
    more, such as those of a larger model. Without such an entry, the mean of the finished runs is
    extrapolated.
    """
    place = "gpu" if gpu else "cpu"
    seconds = []
    for record in status.records if status else ():
        if record.document.get("device", "cpu").startswith("cpu") != gpu:
            seconds.append(record.document["seconds"])
    partly = status is None or status.missing or len(seconds) < len(status.records)
    if status is None or not seconds or (partly and place in declared_times):
        return str(declared_times.get(place, UNKNOWN))
    total = duration(sum(seconds) / len(seconds) * len(status.runs))
    if partly:
        return f"{total}, extrapolated from {len(seconds)} runs"
    return f"{total}, measured"
