"""Seconds to the first draw: a new process imports a library, compiles, and makes one step.

    python -m workshop.first_draws                         print all rows (a quarter of an hour)
    python -m workshop.first_draws --out docs/results/bench_first_draws.csv
    python -m workshop.first_draws --only 5x5 rbm --contenders compiled thrml

In each turn, a first process has empty folders for compiled code (cold), and a second one has what
the first one left there (warm). JAX is told to keep all that it compiles, which it does not do by
default. Seconds are those of the clock, from the start of the process to the states after the step,
on one core. Building the model's arrays, or a peer's graph, is part of them.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pandas as pd
from rich.console import Console

from workshop.bench import write
from workshop.bench_contenders import CONTENDERS, missing
from workshop.bench_workers import limit_processes
from workshop.bench_workloads import Workload
from workshop.one_step import DECLINED

WORKLOADS = (
    Workload("ising-5x5", 2, "sweep"),
    Workload("ising-50x50", 100, "sweep"),
    Workload("ising-50x50", 100, "dmala"),
    Workload("rbm-784x500", 100, "dmala"),
    Workload("readme-20", 8, "dmala"),
)
NOT_TIMED = ("earlier", "limit", "avx2", "sse2", "plain")
TURNS = 3


@dataclass(frozen=True)
class FirstDraw:
    """Seconds of a contender: medians over turns, and the smallest and largest value."""

    model: str
    chains: int
    sampler: str
    contender: str
    cold: float
    cold_low: float
    cold_high: float
    warm: float
    warm_low: float
    warm_high: float


def caches_in(folder: str) -> dict[str, str]:
    """Environment variables that keep all compiled code below the folder."""
    return {
        "LATTICEWORK_CACHE": folder,
        "NUMBA_CACHE_DIR": f"{folder}/numba",
        "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def time_first_draw(work: Workload, contender: str, folder: str) -> float | None:
    """Seconds of a new process that makes one step, with its caches in `folder`.

    None if the contender declines. Raises RuntimeError with the last line of what the process wrote
    if it fails.
    """
    words = [contender, work.model, str(work.chains), work.sampler]
    with limit_processes(1, caches_in(folder)):
        start = time.perf_counter()
        command = [sys.executable, "-m", "workshop.one_step", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - start
    if done.returncode == DECLINED:
        return None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{contender} failed on {work.name}: {last}")
    return seconds


def measure_first_draws(
    works: Sequence[Workload], contenders: Sequence[str], turns: int, log: Console
) -> Iterator[FirstDraw]:
    """A row for each workload and each contender that takes it."""
    for work in works:
        for name in contenders:
            if not CONTENDERS[name].takes(work, 1):
                continue
            log.print(f"{work.name}: {name}", style="dim")
            cold: list[float] = []
            warm: list[float] = []
            for _ in range(turns):
                with tempfile.TemporaryDirectory() as folder:
                    first = time_first_draw(work, name, folder)
                    second = None if first is None else time_first_draw(work, name, folder)
                if first is not None and second is not None:
                    cold.append(first)
                    warm.append(second)
            if cold:
                target = work.model, work.chains, work.sampler
                cold_spread = median(cold), min(cold), max(cold)
                yield FirstDraw(*target, name, *cold_spread, median(warm), min(warm), max(warm))


def main(arguments: list[str] | None = None) -> None:
    """Time the first draws that the command line asks for."""
    parser = argparse.ArgumentParser("workshop.first_draws", description="Time first draws.")
    add = parser.add_argument
    usual = [name for name in CONTENDERS if name not in NOT_TIMED]
    add("--out", type=Path, help="CSV file to write; by default none is written")
    add("--turns", type=int, default=TURNS, help=f"cold and warm processes, {TURNS} by default")
    add("--only", nargs="+", default=[], help="parts of MODEL/CHAINS/SAMPLER names")
    add("--contenders", nargs="+", choices=usual, default=usual, metavar="NAME")
    options = parser.parse_args(arguments)
    if options.turns < 1:
        parser.error(f"--turns must be at least 1, got {options.turns}")
    works = []
    for work in WORKLOADS:
        if not options.only or any(part in work.name for part in options.only):
            works.append(work)
    if not works:
        parser.error(f"--only matches none of {', '.join(work.name for work in WORKLOADS)}")
    console = Console() if sys.stdout.isatty() else Console(width=160)
    present = [name for name in options.contenders if not missing(name)]
    rows = list(measure_first_draws(works, present, options.turns, console))
    if rows:
        print(pd.DataFrame(rows).to_string(index=False, float_format="%.2f"))
    if rows and options.out is not None:
        write(options.out, rows, "workshop.first_draws")


if __name__ == "__main__":
    main()
