"""Targets on which learned samplers are judged, by samplers that need no training.

    python -m workshop.learned_targets --out docs/results

Lattices of 16x16 sites on a torus: Ising at couplings of 0.4407, 0.6 and 1.2 a bond, and Potts with
three values at 1.005 and 1.2, where an agreeing bond counts 1. Two quantities are measured: the
bonds' sum a site, and the magnetisation: for Ising the mean spin, whose mean is 0, for Potts the
share of the first value, whose mean is 1/3. A local sampler that stays in one phase gets the first
right and the second wrong.

`learned_targets.csv` has, for each sampler, the errors of one run of about ten seconds of one core
with their Monte Carlo standard errors, and the seconds in which these would be `WANTED`, unless
chains disagree (R-hat) or are five standard errors from the exact value. Seconds are those of the
processor, with all that a sampler learns. Compilation is not counted.
`free_energy.csv` has -log P(m) of Ising at 0.6, from all levels of tempered ladders.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from latticework.models.ising import Lattice
from latticework.models.potts import LatticePotts
from latticework.samplers.base import Sampler
from latticework.samplers.sweep import GibbsSweep
from latticework.samplers.swendsen_wang import SwendsenWang
from latticework.samplers.tempered import Tempered
from latticework.sampling.diagnostics import quantities
from latticework.sampling.engine import select_kernel
from latticework.sampling.sample import sample

SIDE, CHAINS, BRIEF, DRAWS = 16, 8, 200, 4000
WANTED = {"bonds": 0.001, "magnetisation": 0.01}  # standard errors
TARGETS = {
    "ising 0.4407": Lattice((SIDE, SIDE), 0.4407 / 2),  # which counts each bond twice
    "ising 0.6": Lattice((SIDE, SIDE), 0.3),
    "ising 1.2": Lattice((SIDE, SIDE), 0.6),
    "potts 1.005": LatticePotts((SIDE, SIDE), 3, 1.005),
    "potts 1.2": LatticePotts((SIDE, SIDE), 3, 1.2),
}
SAMPLERS = {
    "sweeps": GibbsSweep(),
    "Swendsen-Wang": SwendsenWang(),
    "tempered sweeps": Tempered(GibbsSweep(), steps=10),
}


def exact_values(model: Any) -> dict[str, float | None]:
    """The exact values of the two quantities. Bonds are the slope of log Z along the coupling."""
    if isinstance(model, LatticePotts):
        return {"bonds": None, "magnetisation": 1 / 3}
    step = 1e-4
    ends = [
        float(Lattice(model.shape, model.coupling + side * step).log_z_and_mean()[0])
        for side in (-1, 1)
    ]
    return {"bonds": (ends[1] - ends[0]) / (4 * step) / SIDE**2, "magnetisation": 0.0}


def observed(model: Any, x: Tensor, log_prob: Tensor) -> NDArray[np.float64]:
    """Both quantities of each draw, `[chains, draws, 2]`."""
    if isinstance(model, LatticePotts):
        bonds, magnetisation = log_prob / model.coupling, x[..., 0].mean(-1)
    else:
        bonds, magnetisation = log_prob / (2 * model.coupling), 2 * x.mean(-1) - 1
    return torch.stack((bonds / SIDE**2, magnetisation), -1).double().numpy()


def measured(name: str, kernel: Sampler, model: Any, seconds: float) -> dict[str, Any]:
    def run(steps: int) -> tuple[Any, float]:
        began, thin = time.process_time(), max(1, steps // DRAWS)
        draws = steps // thin
        result = sample(
            model, kernel, chains=CHAINS, steps=draws * thin, thin=thin, burn_in=draws // 5 * thin,
            engine="compiled", diagnose=False, seed=0,
        )  # fmt: skip
        return result, time.process_time() - began

    run(BRIEF)  # compiles
    (_, first), brief, spent = run(BRIEF), BRIEF, 0.0
    while spent < 0.5:
        brief *= 4
        spent = run(brief)[1] - first  # both learn the schedule
    steps = brief * max(1, round((seconds - first) / spent))
    result, seconds = run(steps)
    row: dict[str, Any] = {"sampler": name, "steps": steps, "seconds": round(seconds, 1)}
    truth, numbers = exact_values(model), quantities(observed(model, result.draws, result.log_prob))
    for place, (quantity, wanted) in enumerate(WANTED.items()):
        mean, error, hat = (float(numbers[n][place]) for n in ("mean", "mcse_mean", "r_hat"))
        known = truth[quantity]
        off = None if known is None else mean - known
        needed = round(seconds * (error / wanted) ** 2, 2)
        right = hat < 1.01 and (off is None or abs(off) < 5 * error)
        row |= {
            quantity: round(mean, 5),
            f"{quantity}, error": None if off is None else round(off, 5),
            f"{quantity}, standard error": round(error, 5),
            f"{quantity}, R-hat": round(hat, 3),
            f"{quantity}, seconds to {wanted}": needed if right else None,
        }
    return row


def free_energy(model: Any, steps: int) -> pd.DataFrame:
    """-log P(m) in nats from all ladders and from each half, with 0 at its minimum.

    States of all levels, which have the mean of the levels' laws together, are weighted by the
    target over that mean. The levels' log Z solve the equations of the multistate Bennett
    acceptance ratio (M. R. Shirts and J. D. Chodera, Journal of Chemical Physics 2008).
    """
    rng = Generator().manual_seed(0)
    with torch.no_grad():
        x = model.domain.uniform(CHAINS, rng).float()
        sampler = Tempered(GibbsSweep(), steps=10)
        fields: dict[str, Any] = select_kernel(sampler, model, "compiled")[0].learn_fields(x, model)
        kernel = select_kernel(replace(sampler, **fields), model, "compiled")[0]
        ones: list[Tensor] = []
        energies: list[Tensor] = []
        state = kernel.init(x, model)
        for step in range(steps):
            state, _ = kernel.step(state, model, rng)
            if step >= steps // 10 and step % 5 == 0:
                order, replicas = state.level.argsort(0), state.kernel.x
                pairs = (ones, replicas.sum(-1)), (energies, model.log_prob(replicas))
                for readings, values in pairs:
                    readings.append(
                        values.view(order.shape).gather(0, order).T
                    )  # [ladders, levels]
    b = state.schedule[1:].numpy()
    counts, energy = torch.stack(ones).long().numpy(), torch.stack(energies).double().numpy()
    table = pd.DataFrame({"magnetisation": 2 * np.arange(SIDE**2 + 1) / SIDE**2 - 1})
    half = CHAINS // 2
    parts = {"all": slice(None), "one half": slice(0, half), "other half": slice(half, None)}
    for name, part in parts.items():
        weights = np.exp(log_weights(energy[:, part], b))
        share = np.bincount(counts[:, part].ravel(), weights, minlength=SIDE**2 + 1)
        with np.errstate(divide="ignore"):
            values = -np.log(share + share[::-1])  # both signs have the same law
        table[name] = (values - values.min()).round(3)
    return table


def log_weights(energy: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log of the target over the mean of the levels' laws, for draws `[..., levels]`."""
    values = np.multiply.outer(b, energy.ravel())  # [levels, draws]
    slope = energy.reshape(-1, len(b)).mean(0)  # slope of log Z along b
    log_z = np.append(0, np.cumsum((slope[1:] + slope[:-1]) / 2 * np.diff(b)))
    for _ in range(30):
        mean = np.logaddexp.reduce(values - log_z[:, None], 0)
        log_z = np.logaddexp.reduce(values - mean, 1)
    return energy.ravel() - mean - log_z[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--steps", type=int, default=20_000, help="of the free energy's ladders")
    given = parser.parse_args()
    torch.set_num_threads(1)
    table = []
    for target, model in TARGETS.items():
        for name, kernel in SAMPLERS.items():
            table.append({"target": target, **measured(name, kernel, model, given.seconds)})
            print(table[-1], flush=True)
            pd.DataFrame(table).to_csv(given.out / "learned_targets.csv", index=False)
    energies = free_energy(TARGETS["ising 0.6"], given.steps)
    energies.to_csv(given.out / "free_energy.csv", index=False)
    print(energies.iloc[SIDE**2 // 2])


if __name__ == "__main__":
    main()
