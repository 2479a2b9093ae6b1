"""How often the printed 95 % intervals of log Z hold its exact value, by estimator and engine.

    python -m workshop.interval_coverage --out docs/results/coverage.csv

All repetitions of a row are the chains of one call: eight ladders each of tempering, `CHAINS`
chains of AIS, or as many particles in ten runs of an SMC sampler. Short budgets are rows, too:
there intervals must be wide, and say so.
"""

import argparse
import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
from torch import Generator

from latticework.models.annealed import GeometricPath
from latticework.models.base import EnergyModel
from latticework.models.dense_ising import erdos_renyi
from latticework.samplers.base import Sampler
from latticework.samplers.gwg import GWG
from latticework.samplers.tempered import Tempered
from latticework.sampling.annealing import anneal, estimate_log_normaliser, linear
from latticework.sampling.engine import select_kernel
from latticework.sampling.exact import exact_if_cheap
from latticework.sampling.ladder_estimates import Ladders, levels_of

LADDERS, CHAINS, RUNS = 8, 40, 10
ROWS = (  # estimator, its engines, and steps of the kernel in each ladder or chain
    ("tempering", ("eager", "compiled", "fused"), (20, 80, 320, 640, 1280)),
    ("smc", ("eager", "fused"), (6, 100, 500, 2000)),
    ("ais", ("eager", "fused"), (6, 100, 500, 2000)),
)


class LogZInterval(NamedTuple):
    """An interval of log Z - exact log Z, and whether it says that it is plain."""

    low: float
    high: float
    plain: bool


def tempered(
    model: EnergyModel, kernel: Sampler, engine: str, steps: int, repetitions: int, seed: int
) -> list[LogZInterval]:
    """Intervals of ladders whose second half of the steps counts, as in task=log_z."""
    rng = Generator().manual_seed(seed)
    x = model.domain.uniform(repetitions * LADDERS, rng).float()
    schedule = Tempered(kernel, rounds=6).learn_fields(x[:LADDERS], model)["schedule"]
    sampler = Tempered(kernel, schedule=schedule)
    moving, _ = select_kernel(sampler, model, engine, (), x, steps)
    state, readings = moving.init(x, model), []
    for _ in range(steps):
        state, _ = moving.step(state, model, rng)
        readings.append(levels_of(moving.unwrap_state(state)))
    last = moving.unwrap_state(state)
    ladders = Ladders.from_draws(last, readings, last.trips, steps)
    groups = [slice(first, first + LADDERS) for first in range(0, len(x), LADDERS)]
    return [LogZInterval(*ladders.select_ladders(group).interval) for group in groups]


def annealed(
    model: EnergyModel,
    kernel: Sampler,
    engine: str,
    steps: int,
    repetitions: int,
    seed: int,
    runs: int,
) -> list[LogZInterval]:
    """Intervals of AIS, or with `runs` of SMC, with equal steps of beta."""
    path, rng = GeometricPath(model), Generator().manual_seed(seed)
    x = path.draw(repetitions * CHAINS, rng)
    done = anneal(kernel, path, x, linear(steps), rng, 1, repetitions * runs, engine)
    base, intervals = float(path.log_z_start()), []
    for log_weight in done.log_weight.view(repetitions, -1):
        low, high = estimate_log_normaliser(log_weight, rng, runs).interval
        intervals.append(LogZInterval(base + low, base + high, high < math.inf))
    return intervals


def measure_coverage(
    model: EnergyModel,
    kernel: Sampler,
    estimator: str,
    engine: str,
    steps: int,
    repetitions: int = 400,
    seed: int = 0,
) -> dict[str, object]:
    """The row of a table: how many of the intervals hold the exact log Z of `model`."""
    known = exact_if_cheap(model)
    assert known is not None
    with torch.no_grad():
        if estimator == "tempering":
            intervals = tempered(model, kernel, engine, steps, repetitions, seed)
        else:
            runs = RUNS if estimator == "smc" else 0
            intervals = annealed(model, kernel, engine, steps, repetitions, seed, runs)
    exact = float(known.log_z)
    plain = [each for each in intervals if each.plain]
    widths = sorted(each.high - each.low for each in plain)
    return {
        "estimator": estimator,
        "engine": engine,
        "steps": steps,
        "repetitions": repetitions,
        "cover": _share_that_hold(exact, intervals),
        "plain": round(len(plain) / repetitions, 4),
        "plain that cover": _share_that_hold(exact, plain) if plain else "",
        "median width": round(float(widths[len(widths) // 2]), 3) if plain else "",
    }


def _share_that_hold(exact: float, of: list[LogZInterval]) -> float:
    return round(sum(each.low <= exact <= each.high for each in of) / len(of), 4)


def rows(repetitions: int) -> Iterator[dict[str, object]]:
    model = erdos_renyi(16, 4, 0.35)
    for estimator, engines, budgets in ROWS:
        for steps, engine in product(budgets, engines):
            yield measure_coverage(model, GWG(), estimator, engine, steps, repetitions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("coverage.csv"))
    parser.add_argument("--repetitions", type=int, default=400)
    given = parser.parse_args()
    torch.set_num_threads(1)
    table = []
    for row in rows(given.repetitions):
        table.append(row)
        print(row, flush=True)
        pd.DataFrame(table).to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
