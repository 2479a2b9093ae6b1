"""Measure chains and learning on a CUDA device.

    python -m workshop.gpu --out docs/results     writes gpu_chains.csv, gpu_learning.csv
    python -m workshop.gpu --page docs/gpu.md     puts both tables into the page

Eager and captured steps take turns, and a ratio is that of one turn. Files have the median over
turns, the smallest and the largest value; the page has the last two in brackets. The clock of timed
runs is compared with CUDA events. An update of learning has 40 steps of DMALA on the network of
Zhang et al. (2022), Table 1, with 100 chains.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import torch
from torch import Generator
from torch.optim import Adam

from latticework.data.base import Dataset
from latticework.experiments.papers.docs_blocks import replace_block
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.buffer_learning import Learning
from latticework.models.resnet import ResNet
from latticework.samplers.langevin import DMALA
from latticework.sampling.chain import capture, deep_copy, make_block
from latticework.sampling.clock import Clock
from latticework.sampling.devices import find_device
from workshop.bench_models import model_of, sampler_of_workload
from workshop.bench_workloads import Workload

TURNS, BURST = 5, 0.3  # and about as many seconds a turn
BLOCK = 20  # steps of one graph
WORKLOADS = [
    *[Workload("ising-25x25", 256, name) for name in ("gibbs-1", "gwg-1", "dula", "dmala")],
    *[Workload("rbm-784x500", 100, name) for name in ("gwg-1", "dmala", "block-gibbs")],
    *[Workload("ising-1000x1000", 100, name) for name in ("dmala", "sweep")],
    Workload("regular-10000x3", 100, "dmala"),
    *[Workload("resnet-28x64x8", chains, "dmala") for chains in (100, 500)],
    *[Workload("resnet-28x64x8-bf16", chains, "dmala") for chains in (100, 500)],
]
SETTINGS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bf16=gradient": {"bf16": "gradient"},
    "bf16=all": {"bf16": "all"},
    "compile=true": {"compile": True},
    "bf16=all, compile=true": {"bf16": "all", "compile": True},
}
Advance = Callable[[], None]


def seconds(advance: Advance) -> float:
    with (clock := Clock(torch.device("cuda"))):
        advance()
    return clock.seconds


def repeated(advance: Advance, count: int) -> None:
    for _ in range(count):
        advance()


def in_turns(ways: dict[str, Advance], calls: int = 0) -> dict[str, list[float]]:
    """Seconds of a call of each in each turn. As many calls as fill `BURST` seconds, or `calls`."""
    counts = {}
    for name, advance in ways.items():
        advance()  # a warm-up; a graph is captured
        counts[name] = calls or max(1, round(BURST / seconds(advance)))
    seconds_by_way: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(TURNS):
        for name, advance in ways.items():
            calls_together = partial(repeated, advance, counts[name])
            seconds_by_way[name].append(seconds(calls_together) / counts[name])
    return seconds_by_way


def by_events(advance: Advance) -> float:
    """Seconds of a call between two events on the device."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    advance()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1000


def spread_columns(name: str, values: list[float]) -> dict[str, float]:
    """The columns of a measured quantity: the median, the smallest and the largest value."""
    return {name: median(values), f"{name} low": min(values), f"{name} high": max(values)}


def chains(work: Workload) -> dict[str, Any]:
    """Steps a second of all chains together, eager and captured, and the peak of memory."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    model, sampler = model_of(work).cuda(), sampler_of_workload(work)
    rng = Generator("cuda").manual_seed(0)
    with torch.no_grad():
        state = sampler.init(model.domain.uniform(work.chains, rng), model)
        eager = make_block(sampler, model, rng, BLOCK, ())
        captured = capture(eager, state, [], rng)
        states = {"eager": deep_copy(state), "captured": state}

        def advance(name: str, block: Any) -> None:
            states[name], _ = block(states[name], [])

        ways: dict[str, Advance] = {
            "eager": partial(advance, "eager", eager),
            "captured": partial(advance, "captured", captured),
        }
        seconds_by_way = in_turns(ways)
        replays = partial(repeated, ways["captured"], 20)
        clock = [by_events(replays) / seconds(replays) for _ in range(TURNS)]
    steps = {}
    for name, times in seconds_by_way.items():
        steps[name] = [BLOCK / s for s in times]
    ratio = [a / b for a, b in zip(steps["captured"], steps["eager"], strict=True)]
    return {
        "model": work.model,
        "chains": work.chains,
        "sampler": work.sampler,
        **spread_columns("eager steps a second", steps["eager"]),
        **spread_columns("captured steps a second", steps["captured"]),
        **spread_columns("ratio", ratio),
        **spread_columns("events / clock", clock),
        "peak GB": round(torch.cuda.max_memory_allocated() / 1e9, 2),
    }


def time_learning(name: str, side: int = 28, maps: int = 64, blocks: int = 8) -> dict[str, Any]:
    """Milliseconds of an update, eager and captured."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    rows = torch.rand(1000, side**2, generator=Generator().manual_seed(0)).round().byte()
    data = Dataset(rows, rows[:10], rows[:10], (side, side), "random pixels")
    with TemporaryDirectory() as folder:

        def learner(captured: bool) -> Advance:
            torch.manual_seed(0)
            model = ResNet((side, side), maps, blocks, **SETTINGS[name]).cuda()
            run = Run(Path(folder), device="cuda")
            start = model.domain.uniform(1000, run.rng("start"))
            made = Learning(
                model, DMALA(0.15), data, run, iterations=100, steps=40, batch=100, l1=0.0,
                largest_gradient=float("inf"), largest_loss=float("inf"), schedule=None, ema=0.999,
                stepper=Adam(model.parameters(), lr=1e-4), chains=start,
            )  # fmt: skip
            made.replay.captured = not captured
            return partial(made.learn, 1)

        began = time.perf_counter()
        ways = {"eager": learner(False), "captured": learner(True)}
        for advance in ways.values():
            advance()
        torch.cuda.synchronize()
        first = time.perf_counter() - began
        seconds_by_way = in_turns(ways)
    ratio = [
        a / b for a, b in zip(seconds_by_way["eager"], seconds_by_way["captured"], strict=True)
    ]
    ms = {}
    for way, times in seconds_by_way.items():
        ms[way] = [1000 * s for s in times]
    return {
        "network": name,
        **spread_columns("eager ms", ms["eager"]),
        **spread_columns("captured ms", ms["captured"]),
        **spread_columns("ratio", ratio),
        "first updates s": round(first, 1),
        "peak GB": round(torch.cuda.max_memory_allocated() / 1e9, 2),
    }


MEASURED: dict[str, list[Callable[[], dict[str, Any]]]] = {  # by the name of the file
    "gpu_chains": [partial(chains, work) for work in WORKLOADS],
    "gpu_learning": [partial(time_learning, name) for name in SETTINGS],
}


def fill_page(page: str, folder: Path) -> str:
    """The page with the tables of the files in `folder`."""
    for name in MEASURED:
        table = pd.read_csv(folder / f"{name}.csv")
        for column in [c.removesuffix(" low") for c in table if c.endswith(" low")]:
            ends = table.pop(f"{column} low"), table.pop(f"{column} high")
            each = zip(table[column], *ends, strict=True)
            table[column] = [f"{m:.3g} ({low:.3g} to {high:.3g})" for m, low, high in each]
        page = replace_block(page, name, table.to_markdown(index=False, disable_numparse=True))
    return page


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m workshop.gpu", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, help="the folder of the files that are written")
    parser.add_argument("--page", type=Path, help="the page whose tables are those of the files")
    given = parser.parse_args(words)
    if given.out is not None:
        measure_all(given.out)
    if given.page is not None:
        given.page.write_text(fill_page(given.page.read_text(), given.page.parent / "results"))


def measure_all(folder: Path) -> None:
    """Write the files. Each row is kept, whatever the next one does."""
    find_device("cuda")  # convolutions in float32
    for name, cases in MEASURED.items():
        rows: list[dict[str, Any]] = []
        for case in cases:
            rows.append(case())
            print(*rows[-1].values(), sep="\t", flush=True)
            table = pd.DataFrame(rows).assign(
                device=torch.cuda.get_device_name(), torch=torch.__version__
            )
            table.to_csv(folder / f"{name}.csv", index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
