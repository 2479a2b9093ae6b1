"""Benchmark samplers and models: steps per second, compared with a plain reference.

    python -m latticework.scripts.bench                 print the tables (some minutes)
    python -m latticework.scripts.bench --out FILE.csv  also write FILE.csv, FILE_sites.csv,
                                            FILE_sites.png and FILE_learning.csv

Our code and the plain reference (scripts/plain_reference.py) are timed alternately in one process.
Each turn gives a ratio; tables report the median and quartiles of these ratios over turns. A
slowdown of the machine affects both sides of a turn, so the ratio is robust to it. A second table
shows the cost of a step against the number of sites of a lattice.
"""

import argparse
import csv
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Generator, Tensor, nn

from latticework.models.base import EnergyModel
from latticework.models.bayes_net import BayesNet, synthetic_bayes_net
from latticework.models.ising import Lattice
from latticework.models.rbm import RBM
from latticework.samplers.base import Sampler
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.gwg import GWG
from latticework.samplers.langevin import DMALA, DULA
from latticework.scripts import bench_learning
from latticework.scripts import plain_reference as plain

Burst = Callable[[int], None]  # runs a number of steps of all chains

# Each sampler, and a function that makes its plain step (Gibbs keeps a site between steps).
SAMPLERS: dict[str, tuple[Sampler, Callable[[], plain.Step]]] = {
    "gibbs-1": (Gibbs(), plain.Gibbs),
    "gwg-1": (GWG(), lambda: plain.gwg),
    "dula": (DULA(0.1), lambda: plain.dula),
    "dmala": (DMALA(0.2), lambda: plain.dmala),
}
CHAINS = {
    "ising-5x5": 100,
    "ising-25x25": 256,
    "ising-100x100": 100,
    "rbm-784x500": 100,
    "bnn-4889x13x500": 50,  # COMPAS
}
SLOW = ("ising-100x100", "bnn-4889x13x500")  # a step of the reference there takes seconds
SCALING = ("gibbs-1", "gwg-1", "dmala")
SCALING_SIDES = (10, 32, 100, 316, 1000)
SCALING_CHAINS = 4


@dataclass(frozen=True)
class Row:
    """One comparison: medians and quartiles of steps (of all chains) per second, and the ratio."""

    model: str
    chains: int
    sampler: str
    threads: int
    turns: int
    ours: float
    ours_low: float
    ours_high: float
    plain: float
    plain_low: float
    plain_high: float
    ratio: float
    ratio_low: float
    ratio_high: float


@dataclass(frozen=True)
class Cost:
    """Microseconds of one step of `chains` chains on a square lattice: median and quartiles."""

    sampler: str
    sites: int
    chains: int
    threads: int
    median: float
    low: float
    high: float


def model_named(name: str) -> EnergyModel:
    """The model `ising-SIDExSIDE`, `rbm-VISIBLExHIDDEN` or `bnn-ROWSxFEATURESxHIDDEN`.

    An RBM has random weights of the size of trained ones.
    """
    kind, sizes = name.split("-")
    if kind == "bnn":
        rows, features, hidden = map(int, sizes.split("x"))
        return synthetic_bayes_net(features, hidden, rows=rows)
    one, two = map(int, sizes.split("x"))
    if kind == "ising":
        return Lattice((one, two), coupling=0.1, bias=0.2)
    model = RBM(one, two)
    model.weight.normal_(0, 0.05, generator=Generator().manual_seed(0))
    return model


def plain_model(model: EnergyModel) -> nn.Module:
    if isinstance(model, RBM):
        return plain.PlainRBM(model.weight.data)
    if isinstance(model, BayesNet):
        features = model.inputs[:, :-1].contiguous()
        return plain.PlainBayesNet(features, model.targets, model.hidden, model.scale)
    assert isinstance(model, Lattice)
    return plain.PlainIsing(model.coupling * model.adjacency(), float(model.bias[0]))


def ours(sampler: Sampler, model: EnergyModel, x: Tensor) -> Burst:
    """Bursts of our sampler, run as in `experiments.sampling.chain`."""
    rng = Generator().manual_seed(1)
    with torch.no_grad():
        state: Any = sampler.init(x, model)

    def burst(steps: int) -> None:
        nonlocal state
        with torch.no_grad():
            for _ in range(steps):
                state, _ = sampler.step(state, model, rng)

    return burst


def theirs(step: plain.Step, model: nn.Module, x: Tensor) -> Burst:
    """Bursts of the plain reference."""

    def burst(steps: int) -> None:
        nonlocal x
        for _ in range(steps):
            x = step(x, model).detach()

    return burst


def seconds(burst: Burst, steps: int) -> float:
    """Seconds per step, averaged over `steps` steps."""
    start = time.perf_counter()
    burst(steps)
    return (time.perf_counter() - start) / steps


def steps_in(burst: Burst, budget: float) -> int:
    """The number of steps that take about `budget` seconds, at least 1. Also warms up."""
    steps = 1
    while (duration := seconds(burst, steps) * steps) < budget / 4:
        steps *= 2
    return max(1, round(steps * budget / duration))


def spread(values: list[float]) -> tuple[float, float, float]:
    """Median, lower and upper quartile."""
    low, _, high = quantiles(values, n=4, method="inclusive")
    return median(values), low, high


def compare(name: str, sampler: str, turns: int, budget: float) -> Row:
    """One row, from `turns` turns. Each side of a turn takes about `budget` seconds or one step."""
    model, chains = model_named(name), CHAINS[name]
    kernel, make_step = SAMPLERS[sampler]
    x = model.domain.uniform(chains, Generator().manual_seed(0))
    sides = ours(kernel, model, x), theirs(make_step(), plain_model(model), x)
    steps = [steps_in(side, budget) for side in sides]
    times = [[seconds(side, n) for side, n in zip(sides, steps, strict=True)] for _ in range(turns)]
    return Row(
        name,
        chains,
        sampler,
        torch.get_num_threads(),
        turns,
        *spread([1 / mine for mine, _ in times]),
        *spread([1 / other for _, other in times]),
        *spread([other / mine for mine, other in times]),
    )


def costs(sampler: str, side: int, turns: int, budget: float) -> Cost:
    model = model_named(f"ising-{side}x{side}")
    x = model.domain.uniform(SCALING_CHAINS, Generator().manual_seed(0))
    burst = ours(SAMPLERS[sampler][0], model, x)
    steps = steps_in(burst, budget)
    times = [1e6 * seconds(burst, steps) for _ in range(turns)]
    return Cost(sampler, side * side, SCALING_CHAINS, torch.get_num_threads(), *spread(times))


def three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(rows: list[Row]) -> Table:
    result = Table(title="steps of all chains per second, and their ratio (quartiles)")
    for name in ("model", "chains", "sampler", "threads", "here", "plain", "ratio"):
        is_text = name in ("model", "sampler")
        result.add_column(name, justify="left" if is_text else "right", no_wrap=True)
    for row in rows:
        result.add_row(
            row.model,
            str(row.chains),
            row.sampler,
            str(row.threads),
            three_digits(row.ours),
            three_digits(row.plain),
            f"{three_digits(row.ratio)} ({three_digits(row.ratio_low)}-"
            f"{three_digits(row.ratio_high)})",
        )
    return result


def cost_table(found: list[Cost]) -> Table:
    result = Table(title=f"microseconds a step, {SCALING_CHAINS} chains on a square lattice")
    for name in ("sampler", "sites", "threads", "median (quartiles)"):
        result.add_column(name, justify="left" if name == "sampler" else "right")
    for cost in found:
        result.add_row(
            cost.sampler,
            f"{cost.sites:,}",
            str(cost.threads),
            f"{cost.median:,.1f} ({cost.low:,.1f}-{cost.high:,.1f})",
        )
    return result


def write(path: Path, rows: list[Any]) -> None:
    """Write a CSV. Its first line is a comment with the command and the machine."""
    command = shlex.join(["python", "-m", "latticework.scripts.bench", *sys.argv[1:]])
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        file.write(f"# {command}; {versions}, {platform.machine()}, {os.cpu_count()} cores\n")
        writer = csv.DictWriter(file, list(asdict(rows[0])), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            numbers = {k: f"{v:.5g}" if isinstance(v, float) else v for k, v in asdict(row).items()}
            writer.writerow(numbers)


def plot(path: Path, found: list[Cost]) -> None:
    """Plot the cost of a step against the number of sites, on logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.6), layout="constrained")
    axes = figure.subplots()
    for sampler in dict.fromkeys(cost.sampler for cost in found):
        line = [cost for cost in found if cost.sampler == sampler]
        middle = [cost.median for cost in line]
        below = [cost.median - cost.low for cost in line]
        above = [cost.high - cost.median for cost in line]
        sites = [cost.sites for cost in line]
        axes.errorbar(sites, middle, (below, above), marker="o", capsize=2, label=sampler)
    largest = max(found, key=lambda cost: cost.median)
    sites = sorted({cost.sites for cost in found})
    linear = [largest.median * n / largest.sites for n in sites]
    axes.plot(sites, linear, ":", color="grey", label="linear in the sites")
    axes.set(xscale="log", yscale="log", xlabel="sites of the lattice", ylabel="µs a step")
    axes.set_title(f"{found[0].chains} chains, {found[0].threads} thread(s)")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def pairs(only: list[str]) -> Iterator[tuple[str, str]]:
    """The (model, sampler) pairs whose name contains any of `only`: `rbm`, `dmala`, `5x5/gwg`."""
    for model in CHAINS:
        for sampler in SAMPLERS:
            name = f"{model}/{sampler}"
            if not only or any(part in name for part in only):
                yield model, sampler


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks that the command line asks for."""
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(
        prog="latticework.scripts.bench", description="Time the samplers."
    )
    parser.add_argument("--out", type=Path, help="CSV file to write; by default none is written")
    parser.add_argument("--quick", action="store_true", help="a rough result within seconds")
    parser.add_argument(
        "--threads", type=int, nargs="+", default=sorted({1, cores}), help="PyTorch's thread counts"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        help="parts of MODEL/SAMPLER names, or `sites`, or `learning`",
    )
    options = parser.parse_args(arguments)
    console = Console()
    turns, budget = (3, 0.02) if options.quick else (7, 0.2)
    chosen = list(pairs(options.only))
    if options.quick and not options.only:
        chosen = [(model, sampler) for model, sampler in chosen if model not in SLOW]
    scaling = not options.only or "sites" in options.only
    learning = "learning" in options.only or not (options.only or options.quick)
    if not chosen and not scaling and not learning:
        parser.error(f"--only matches none of {', '.join('/'.join(pair) for pair in pairs([]))}")

    rows: list[Row] = []
    for threads in options.threads:
        torch.set_num_threads(threads)
        for model, sampler in chosen:
            console.print(f"{threads} thread(s): {model}, {sampler}", style="dim")
            fewer = min(turns, 5) if model in SLOW else turns
            rows.append(compare(model, sampler, fewer, budget))
    found: list[Cost] = []
    if scaling:
        torch.set_num_threads(1)
        sides = SCALING_SIDES[:-2] if options.quick else SCALING_SIDES
        for sampler in SCALING:
            console.print(f"cost of a step against the sites: {sampler}", style="dim")
            found += [costs(sampler, side, turns, budget) for side in sides]
    learned = list(bench_learning.rows(options.threads, min(turns, 5))) if learning else []
    if rows:
        console.print(table(rows))
    if found:
        console.print(cost_table(found))
    if learned:
        console.print(bench_learning.table(learned))
    if options.out is None:
        return
    sites = options.out.with_name(f"{options.out.stem}_sites.csv")
    if rows:
        write(options.out, rows)
    if learned:
        write(options.out.with_name(f"{options.out.stem}_learning.csv"), learned)
    if found:
        write(sites, found)
        plot(sites.with_suffix(".png"), found)


if __name__ == "__main__":
    main()
