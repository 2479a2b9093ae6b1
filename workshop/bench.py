"""Benchmark samplers: steps and effective samples per second of our kernels, peers and the limit.

    python -m workshop.bench                 print all rows (hours)
    python -m workshop.bench --tables docs/results           write the tables of the docs (hours)
    python -m workshop.bench --tables docs/results bench_tori
    python -m workshop.bench --quick         a rough result within a minute or two
    python -m workshop.bench --out FILE.csv  also write FILE.csv and FILE_limit.png
    python -m workshop.bench --only 5x5/100 rbm --contenders eager numba limit
    python -m workshop.bench --earlier ../before --contenders compiled earlier --ess 0

`--earlier` times the kernels of another checkout of the library beside those of this one.

For each workload (a model, a number of chains, a sampler), all contenders run in turns, each in a
process of its own on the same cores. A turn gives one time of each contender, and ratios are those
of one turn: a slowdown of the machine affects both sides. Tables have the median and the range over
turns. docs/speed.md says what the contenders and the limit are.
"""

import argparse
import os
import platform
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import nan
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
from rich.console import Console

from latticework.experiments.records.record import versions
from latticework.sampling.diagnostics import convergence
from workshop.bench_contenders import CONTENDERS, missing
from workshop.bench_workers import RemoteWorker, cores
from workshop.bench_workloads import TABLE, TABLES, Workload, chosen

PEERS = ("thrml", "hamon", "dwave-samplers", "openjij", "ferrotherm", "mcising")
LIBRARIES = ("torch", "numba", "jax", *PEERS)
OURS = ("compiled", "fused", "eager")  # the first that takes part is compared with all others
TARGET = ["model", "chains", "sampler", "threads"]  # columns that tell workloads apart
SLOW = 1.0  # seconds a burst; fewer turns from there on
QUICK = 10_000  # sites of all chains of a quick run
TRACED = 16  # chains of a trace
DRAWS = 1_000
PANELS = 3  # panels of a figure
FEWEST = 100  # draws from which effective sample sizes are estimated


@dataclass(frozen=True)
class Effort:
    """How long to measure. Seconds."""

    turns: int
    burst: float  # seconds of one contender in a turn
    trace: float  # seconds of a sampler on a model; 0 for no effective sample sizes


@dataclass(frozen=True)
class Row:
    """One contender's result: medians, and the smallest and largest value over turns.

    Steps are those of all chains. `of_limit` is the speed as a share of the limit's. `ours_ratio`
    is our speed (of the compiled engine if there is one) divided by this contender's. Effective
    samples are those of all chains; NaN where no trace was affordable.
    """

    model: str
    chains: int
    sampler: str
    threads: int
    contender: str
    turns: int
    steps_per_second: float
    low: float
    high: float
    of_limit: float
    of_limit_low: float
    of_limit_high: float
    ours_ratio: float
    ours_ratio_low: float
    ours_ratio_high: float
    energy_ess_per_second: float = nan
    magnetisation_ess_per_second: float = nan


def spread(values: list[float]) -> tuple[float, float, float]:
    """Median, smallest and largest; three NaN for no values."""
    return (median(values), min(values), max(values)) if values else (nan, nan, nan)


def rows_of(work: Workload, threads: int, times: dict[str, list[float]]) -> list[Row]:
    """A row for each contender, from its seconds per step in each turn."""
    limit = times.get("limit", [])
    mine = next((times[name] for name in OURS if name in times), [])
    rows = []
    for name, seconds in times.items():
        speed = spread([1 / s for s in seconds])
        of_limit = spread([best / s for best, s in zip(limit, seconds, strict=False)])
        of_ours = spread([s / ours for ours, s in zip(mine, seconds, strict=False)])
        place = (work.model, work.chains, work.sampler, threads, name)
        rows.append(Row(*place, len(seconds), *speed, *of_limit, *of_ours))
    return rows


class Bench:
    """Workers of all contenders for one number of threads, and what they measure."""

    def __init__(
        self, contenders: list[str], threads: int, effort: Effort, log: Console, earlier: str = ""
    ) -> None:
        self.threads, self.effort, self.log = threads, effort, log
        self.contenders, self.earlier = contenders, earlier
        self.workers: dict[str, RemoteWorker] = {}

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()

    def started(self, work: Workload) -> dict[str, RemoteWorker]:
        """Workers with chains for `work`, by contender."""
        result = {}
        for name in self.contenders:
            if not CONTENDERS[name].takes(work, self.threads):
                continue
            if name not in self.workers:
                source = self.earlier if name == "earlier" else ""
                self.workers[name] = RemoteWorker(name, self.threads, source)
            if reason := self.workers[name].start(work):
                self.log.print(f"{name} declines {work.name}: {reason}", style="yellow")
            else:
                result[name] = self.workers[name]
        return result

    def compare(self, work: Workload) -> list[Row]:
        """The rows of one workload: all contenders in turns."""
        workers = self.started(work)
        steps = {name: worker.steps_in(self.effort.burst) for name, worker in workers.items()}
        times: dict[str, list[float]] = {name: [] for name in workers}
        turns = self.effort.turns
        for turn in range(turns):
            for name, worker in workers.items():
                times[name].append(worker.seconds(steps[name]))
            slowest = max(seconds[-1] * steps[name] for name, seconds in times.items())
            if slowest > SLOW and turn >= 2:
                break
        return rows_of(work, self.threads, times)

    def efficiency(self, work: Workload, rows: list[Row]) -> tuple[float, float]:
        """Effective samples of energy and magnetisation per step of one chain.

        It depends on the kernel alone, so the fastest contender makes the trace, of TRACED chains.
        """
        speeds = {r.contender: r.steps_per_second for r in rows if CONTENDERS[r.contender].is_ours}
        if not self.effort.trace or not speeds:
            return nan, nan
        name = max(speeds, key=lambda each: speeds[each])
        single = work.sampler in ("gibbs-1", "gwg-1")
        every = max(1, work.sites // 4) if single else 1
        fewer = replace(work, chains=TRACED)
        self.workers[name].start(fewer)
        trace = self.workers[name].trace(fewer, DRAWS, every, self.effort.trace)
        if len(trace) < FEWEST:
            return nan, nan
        ess_of_functions = convergence(trace)["ess"]
        energy, magnetisation = (
            float(ess) / (trace.shape[0] * TRACED * every) for ess in ess_of_functions
        )
        return energy, magnetisation


def with_ess(row: Row, per_step: tuple[float, float]) -> Row:
    """The row with effective samples per second; a contender of another law has none."""
    if not CONTENDERS[row.contender].is_ours:
        return row
    energy, magnetisation = (ess * row.chains * row.steps_per_second for ess in per_step)
    return replace(row, energy_ess_per_second=energy, magnetisation_ess_per_second=magnetisation)


def measure(
    workloads: list[Workload],
    contenders: list[str],
    threads: list[int],
    effort: Effort,
    log: Console,
    earlier: str = "",
) -> Iterator[Row]:
    """Rows of all workloads. Effective samples per step are estimated once per model, sampler.

    `earlier` is the folder from which the contender of this name imports the library.
    """
    known: dict[tuple[str, str], tuple[float, float]] = {}
    for count in threads:
        bench = Bench(contenders, count, effort, log, earlier)
        try:
            for work in workloads:
                log.print(f"{count} thread(s): {work.name}", style="dim")
                rows = bench.compare(work)
                target = work.model, work.sampler
                if target not in known:
                    known[target] = bench.efficiency(work, rows)
                yield from (with_ess(row, known[target]) for row in rows)
        finally:
            bench.close()


# Output.


def three_digits(value: float) -> str:
    if value != value:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(rows: list[Row]) -> str:
    """Steps per second of each contender, and our share of the limit."""
    frame = pd.DataFrame(map(asdict, rows))
    names = list(dict.fromkeys(frame.contender))
    ours = frame[frame.contender == next((name for name in OURS if name in names), "")]
    speeds = frame.pivot(index=TARGET, columns="contender", values="steps_per_second")[names]
    if "limit" in names:
        speeds["ours / limit"] = ours.set_index(TARGET).of_limit
    for name in names if "limit" not in names else ():
        if name not in set(ours.contender):
            theirs = frame[frame.contender == name]
            speeds[f"ours / {name}"] = theirs.set_index(TARGET).ours_ratio
    title = "steps of all chains per second, and ours as multiples of others"
    return f"{title}\n{speeds.to_string(float_format=three_digits, na_rep='')}"


def write(path: Path, rows: Sequence[Any], module: str = "workshop.bench") -> None:
    """Write a CSV of dataclasses. A comment in its first line has the command and the machine."""
    command = shlex.join(["python", "-m", module, *sys.argv[1:]])
    used = [f"{name} {number}" for name, number in versions(LIBRARIES).items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        machine = f"{platform.machine()}, {os.cpu_count()} cores"
        file.write(f"# {command}; {', '.join(used)}, {machine}\n")
        frame = pd.DataFrame(map(asdict, rows))
        frame.to_csv(file, index=False, float_format="%.5g", na_rep="nan", lineterminator="\n")


def plot(path: Path, rows: list[Row]) -> None:
    """Speed as a share of the limit, on the fewest threads that were measured.

    One panel for each of the PANELS largest models, with a row per sampler.
    """
    import matplotlib.pyplot as plt

    from latticework.experiments.figures.line_names import label_lines_and_legend
    from latticework.experiments.figures.style import PAGE_INCHES, key_of_dashes, new_figure

    shown = [r for r in rows if r.contender != "limit" and r.of_limit == r.of_limit]
    if not shown:
        return
    threads = min(row.threads for row in shown)
    shown = [row for row in shown if row.threads == threads]
    parts: dict[tuple[int, str], list[Row]] = {}
    for row in shown:
        size = Workload(row.model, row.chains, row.sampler).sites * row.chains
        parts.setdefault((size, f"{row.model}, {row.chains} chains"), []).append(row)
    large = sorted(parts)[-PANELS:]
    figure, axes = new_figure(len(large), width=PAGE_INCHES / len(large), height=4.2, squeeze=False)
    for ax, (size, title) in zip(axes[0], large, strict=True):
        _dots(ax, parts[size, title])
        ax.set(title=title, xlabel="speed / limit", xscale="log")
    note = f"Median over turns; bar: smallest to largest. {shown[0].threads} thread(s)."
    label_lines_and_legend(figure, note, key_of_dashes(limit=":"))
    figure.savefig(path, dpi=220)
    plt.close(figure)


def _dots(axes: Any, rows: list[Row]) -> None:
    """A row per sampler, with a dot per contender."""
    from latticework.experiments.figures.style import GREY, numbered_style

    samplers = list(dict.fromkeys(row.sampler for row in rows))
    for index, name in enumerate(CONTENDERS):
        if of_contender := [row for row in rows if row.contender == name]:
            middle = [row.of_limit for row in of_contender]
            below = [row.of_limit - row.of_limit_low for row in of_contender]
            above = [row.of_limit_high - row.of_limit for row in of_contender]
            where = [samplers.index(row.sampler) + index / 12 for row in of_contender]
            look = {**numbered_style(index), "markevery": None, "markersize": 5, "capsize": 2}
            axes.errorbar(middle, where, xerr=(below, above), ls="none", label=name, **look)
    axes.axvline(1, linestyle=":", color=GREY)
    axes.set_yticks([place + 0.25 for place in range(len(samplers))], samplers)
    axes.invert_yaxis()


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks that the command line asks for."""
    available = len(cores())
    parser = argparse.ArgumentParser("workshop.bench", description="Time the samplers.")
    add = parser.add_argument
    add("--out", type=Path, help="CSV file to write; by default none is written")
    add("--quick", action="store_true", help="small workloads, a rough result")
    add("--threads", type=int, nargs="+", default=sorted({1, min(2, available)}), metavar="N")
    help_ess = "longest trace for effective samples of a sampler on a model; 0 for none"
    add("--ess", type=float, default=20.0, metavar="SECONDS", help=help_ess)
    special = {name for name, contender in CONTENDERS.items() if contender.environment}
    usual = [name for name in CONTENDERS if name not in {"earlier", *special}]
    help_contenders = "by default those of each table, or all but avx2, sse2 and earlier"
    add("--contenders", nargs="+", choices=CONTENDERS, metavar="NAME", help=help_contenders)
    add("--only", nargs="+", default=[], help="parts of MODEL/CHAINS/SAMPLER names")
    help_tables = f"write tables of the docs to FOLDER: {', '.join(TABLES)}; by default all"
    add("--tables", nargs="+", default=[], metavar=("FOLDER", "NAME"), help=help_tables)
    help_earlier = "another checkout, whose kernels are the contender `earlier`"
    add("--earlier", type=Path, metavar="FOLDER", help=help_earlier)
    options = parser.parse_args(arguments)
    earlier = str((options.earlier / "src").resolve()) if options.earlier else ""
    if ("earlier" in (options.contenders or usual)) != bool(earlier):
        parser.error("the contender earlier and --earlier FOLDER need each other")
    if earlier and not Path(earlier, "latticework").is_dir():
        parser.error(f"--earlier must be a checkout with src/latticework, got {options.earlier}")
    if not all(1 <= count <= available for count in options.threads):
        parser.error(f"--threads must be between 1 and the {available} cores of this process")
    folder, *names = options.tables or [None]
    if unknown := set(names) - set(TABLES):
        parser.error(f"no table {', '.join(sorted(unknown))}; there are {', '.join(TABLES)}")
    console = Console() if sys.stdout.isatty() else Console(width=160)
    effort = Effort(3, 0.02, 0) if options.quick else Effort(5, 0.2, options.ess)

    def run(workloads: list[Workload], contenders: list[str], out: Path | None) -> None:
        present = [name for name in contenders if not missing(name)]
        for name in contenders:
            if absent := missing(name):
                text = f"{name} is left out: {' and '.join(absent)} not installed"
                console.print(text, style="yellow")
        rows = list(measure(workloads, present, options.threads, effort, console, earlier))
        if rows:
            print(table(rows))
        if rows and out is not None:
            write(out, rows)
            plot(out.with_name(f"{out.stem}_limit.png"), rows)

    if folder:
        for name in names or TABLES:
            workloads = [w for w in TABLES[name].workloads if w in set(chosen(options.only))]
            contenders = options.contenders or list(TABLES[name].contenders) or usual
            run(workloads, contenders, Path(folder) / f"{name}.csv")
        return
    workloads = list(chosen(options.only))
    if options.quick and not options.only:
        workloads = [w for w in TABLE if w.kind == "ising" and w.sites * w.chains <= QUICK]
    if not workloads:
        parser.error(f"--only matches none of {', '.join(work.name for work in chosen([]))}")
    run(workloads, options.contenders or usual, options.out)


if __name__ == "__main__":
    main()
