"""The error of log Z for equal seconds: ours beside ferrotherm, where log Z is known exactly.

    python -m workshop.log_z_peers --out docs/results/log_z_peers.csv

Every contender gets about the same seconds on one core; compilation is not counted. ferrotherm
(`pip install ferrotherm`) anneals (AIS) and runs one chain at each temperature without swaps (BAR).
"""

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Generator

from latticework.models.annealed import GeometricPath
from latticework.models.dense_ising import sherrington_kirkpatrick
from latticework.models.ising import critical_lattice
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.gwg import GWG
from latticework.samplers.sweep import GibbsSweep, MetropolisSweep
from latticework.samplers.tempered import Tempered
from latticework.sampling.annealing import anneal, estimate_log_normaliser, linear
from latticework.sampling.exact import exact_if_cheap
from latticework.sampling.sample import sample

SEEDS, CHAINS, RUNGS = 3, 8, 48
BRIEF = (20, 60)  # units of two short runs, which tell how many fit the seconds


class Found(NamedTuple):
    """Log Z with the ends of its 95 % interval, infinite where there is none."""

    value: float
    low: float = -math.inf
    high: float = math.inf


Contender = Callable[[int, int], Found]  # takes units and a seed


def tempering(model: Any, kernel: Tempered) -> Contender:
    def run(units: int, seed: int) -> Found:
        log_z = sample(
            model, kernel, steps=units, burn_in=units // 2, chains=CHAINS, engine="compiled",
            seed=seed, diagnose=False,
        ).log_z  # fmt: skip
        assert log_z is not None
        return Found(log_z.value, log_z.low, log_z.high)

    return run


def annealing(model: Any, kernel: Any) -> Contender:
    def run(units: int, seed: int) -> Found:
        path, rng = GeometricPath(model), Generator().manual_seed(seed)
        done = anneal(kernel, path, path.draw(100, rng), linear(units), rng)
        estimate, base = estimate_log_normaliser(done.log_weight, rng), float(path.log_z_start())
        low, high = estimate.interval
        return Found(base + estimate.value, base + low, base + high)

    return run


def ferrotherm(edges: torch.Tensor, weights: torch.Tensor, sites: int, by: str) -> Contender:
    """`weights` are those of pairs of spins in {-1, 1}, and there are no fields."""
    from ferrotherm import Model

    rows = [(*pair, weight) for pair, weight in zip(edges.tolist(), weights.tolist(), strict=True)]

    def run(units: int, seed: int) -> Found:
        sim = Model(sites).couple_many(rows).build(beta=1.0, seed=seed)
        if by == "ais":
            value = sim.ln_z_ais(1.0, rungs=units, sweeps=1, runs=100)
            return Found(value, sim.ln_z_lower(0.05))
        value, error = sim.ln_z_bar(1.0, rungs=RUNGS, burn_in=units // 2, draws=units)[:2]
        return Found(value, value - 1.96 * error, value + 1.96 * error)

    return run


def torus_models(side: int, relative: float) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """The lattice, and its edges and weights as a graph of spins."""
    site = torch.arange(side * side).view(side, side)
    edges = torch.stack(
        [torch.stack((site, site.roll(-1, axis)), -1).view(-1, 2) for axis in (0, 1)]
    )
    coupling = math.log(1 + math.sqrt(2)) / 2 * relative
    model = critical_lattice((side, side), relative=relative)
    return model, edges.view(-1, 2), torch.full((2 * side * side,), coupling)


def contenders(target: str) -> tuple[float, dict[str, Contender]]:
    """Log Z, and who estimates it."""
    if target == "sk_16":
        dense = sherrington_kirkpatrick(16, 1.0)
        edges = torch.triu_indices(16, 16, 1).T
        weights = 2 * dense.coupling[edges[:, 0], edges[:, 1]]
        model: Any = dense
        ours = {
            "tempering": tempering(model, Tempered(Gibbs(), steps=16)),
            "ais": annealing(model, GWG()),
        }
    else:
        model, edges, weights = torus_models(
            50, {"ising_50x50_at": 1.0, "ising_50x50_above": 1.1}[target]
        )
        kernel = Tempered(MetropolisSweep(), steps=3, hot=0.7)
        ours = {"tempering": tempering(model, kernel), "ais": annealing(model, GibbsSweep())}
    known = exact_if_cheap(model)
    assert known is not None
    for by in ("bar", "ais"):
        ours[f"ferrotherm {by}"] = ferrotherm(edges, weights, model.domain.dim, by)
    return float(known.log_z), ours


def timed(run: Contender, units: int, seed: int) -> tuple[Found, float]:
    began = time.perf_counter()
    return run(units, seed), time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("log_z_peers.csv"))
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument(
        "--only", nargs="+", default=["ising_50x50_at", "ising_50x50_above", "sk_16"]
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    table = []
    for target in given.only:
        exact, those = contenders(target)
        for name, run in those.items():
            run(BRIEF[0], 0)  # compiles
            (_, first), (_, second) = (timed(run, units, 0) for units in BRIEF)
            each = max((second - first) / (BRIEF[1] - BRIEF[0]), 1e-9)
            units = max(BRIEF[0], int((given.seconds - first) / each))
            for seed in range(SEEDS):
                log_z, seconds = timed(run, units, seed)
                row = {
                    "target": target, "contender": name, "seed": seed, "units": units,
                    "seconds": round(seconds, 1), "error": round(log_z.value - exact, 3),
                    "low": round(log_z.low - exact, 3), "high": round(log_z.high - exact, 3),
                }  # fmt: skip
                print(row, flush=True)
                table.append(row)
                pd.DataFrame(table).to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
