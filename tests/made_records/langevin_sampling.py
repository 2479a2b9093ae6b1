"""Made-up records for the claims of Zhang et al. (2022), Sections 5 to 7.2: laws, Ising, an RBM."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from fakes import fake, noise

from latticework.experiments.records.record import Record
from made_records.building import SEEDS, Made, curves, each, facts

EXACT = ("gibbs", "hamming_ball", "locally_balanced", "gwg", "gwg4")
BASELINES = ("gibbs", "hamming_ball", "gwg")  # of the RBM


# The law of DULA, exact.


def slopes(binary: float = -1.0, spin: float = -4.0) -> list[Record]:
    """Slopes on {0, 1} and on {-1, 1}, where a step is measured in units of 4.

    Each has a second model, whose slope is the theorem's.
    """
    found = ((1.0, binary), (1.0, -1.0), (4.0, spin), (4.0, -4.0))
    return [fake({"unit": [unit]}, slope=slope) for unit, slope in found]


def bounds(column: str, low: float = 0.1, high: float = 0.3) -> list[Record]:
    """A bias at two settings, below bounds of 0.2 and 0.4."""
    return [fake({column: [low, high], "theorem": [0.2, 0.4]})]


def biases(bound: float = 0.5, **bias: float) -> list[Record]:
    """The bias at three epsilons for each of two step sizes; `bias` names it by both."""
    default = {"small_0": 0.01, "small_1": 0.02, "small_2": 0.04}
    default |= {"large_0": 0.1, "large_1": 0.2, "large_2": 0.3}
    sizes = {"small": 0.1, "large": 1.0}
    return [
        fake(
            {"step_size": [sizes[size]], "exact": [value], "theorem": [bound]},
            config={"model": {"a": 1.0, "b": 0.1, "epsilon": 0.5 * int(place)}},
        )
        for (size, place), value in (
            (key.split("_"), value) for key, value in {**default, **bias}.items()
        )
    ]


def draws(biased: str = "") -> list[Record]:
    """Distances that fall as those of independent draws do, but for the `biased` sampler.

    Each sampler keeps a bias to the law that it does not have: DULA to the target.
    """
    own = {"dmala": "total_variation", "dula": "to_unadjusted"}
    steps = np.array([100.0, 1_000.0, 10_000.0])
    records = []
    for name, column in own.items():
        for seed in SEEDS:
            independent = (1 + noise(seed)) / np.sqrt(steps)
            flat = np.full(len(steps), 0.1)
            columns = {"total_variation": flat, "to_unadjusted": flat}
            if name != biased:  # near at the first reading, which does not count
                columns = {**columns, column: independent * np.array([0.01, 2.0, 2.0])}
            table = {"step": steps, "independent": independent, **columns}
            records.append(fake(table, sampler=name, seed=seed, states=9))
    return records


def unbounded(biased: int = 0, wide: float = -1.0) -> list[Record]:
    """Errors that fall as those of independent draws, but for the `biased` window.

    `wide` is added to the logarithm of the error of windows above 1.
    """
    steps = np.array([100.0, 1_000.0, 10_000.0])
    records = []
    for window in (1, 2, 4):
        for seed in SEEDS:
            error = np.array([9.0, 0.0, 0.0]) + noise(seed)  # the first reading does not count
            if window != biased:
                error = error - np.log(steps) / 2
            table = {"step": steps, "log_rmse": error + wide * (window > 1)}
            records.append(
                fake(table, sampler="dmala", seed=seed, config={"model": {"window": window}})
            )
    return records


def preconditioned(
    column: str, scaled: float = -6.0, plain: float = -0.3, other: float = -9.0
) -> list[Record]:
    """The error with the preconditioner, and at three step sizes without, at the last step.

    `other` is the error without one at an earlier step and in the column that is not read.
    """
    unread = {"log_rmse": "thinned", "thinned": "log_rmse"}[column]
    records = []
    for name in ("dula", "dmala"):
        for seed in SEEDS:
            power = np.array([1, 0, 0, 0] * 2)
            error = np.array([0.0, other, other, other, scaled, 0.0, plain, 0.5]) + noise(seed)
            table = {
                "step": [10] * 4 + [100] * 4,
                "power": power,
                "step_size": [1.0, 0.1, 1.0, 10.0] * 2,
                column: error,
                unread: np.where(power == 1, 0.0, other),
            }
            records.append(fake(table, sampler=name, seed=seed))
    return records


# Ising models.


def moves(**values: float) -> list[Record]:
    """Acceptance and sites proposed of DMALA at alpha = 0.6 and of GWG-6."""
    default = {"dmala_acceptance": 0.52, "dmala_sites": 6.0}
    found = {**default, "gwg_acceptance": 0.43, "gwg_sites": 5.0, **values}
    return [
        fake(
            {
                "acceptance": [found[f"{name}_acceptance"] + noise(seed) / 10],
                "proposed": [found[f"{name}_sites"] + noise(seed)],
            },
            sampler=name,
            seed=seed,
            settings=settings,
        )
        for name, settings in (("dmala", {"step_size": 0.6}), ("gwg", {"flips": 6}))
        for seed in SEEDS
    ]


def several_flips(ratio: float = 6.0) -> list[Record]:
    """The time of a step of GWG-6 over that of DMALA at alpha = 0.6."""
    records = []
    for name, settings, time in (("dmala", {"step_size": 0.6}, 1.0), ("gwg", {"flips": 6}, ratio)):
        for seed in SEEDS:
            seconds = time * (1 + noise(seed))
            records.append(
                fake(sampler=name, seed=seed, settings=settings, seconds_per_step=seconds)
            )
    return records


def effective(**ess: float) -> list[Record]:
    """Effective samples of three sites; the median is each sampler's own. A step takes 0.01 s."""
    default = {**dict.fromkeys(EXACT, 50.0), "dmala": 80.0}
    return [
        fake(
            sampler=name,
            seed=seed,
            stored={
                "convergence": {
                    "ess": np.array([1.0, value * (1 + noise(seed)), 1e4]),
                    "chains": np.array(4),
                    "draws": np.array(100),
                }
            },
            seconds_per_step=0.01,
        )
        for name, value in {**default, **ess}.items()
        for seed in SEEDS
    ]


def ising(
    seconds: dict[str, float] | None = None, ensemble: float = -4.0, **levels: float
) -> list[Record]:
    """DMALA's error is the smallest; DSVGD has that of its ensemble beside."""
    others = (*EXACT, "dsvgd", "rmala", "dula")
    records = curves("log_rmse", {**dict.fromkeys(others, -3.0), "dmala": -5.0, **levels}, seconds)
    for record in records:
        if record.choices["sampler"] == "dsvgd":
            end = ensemble + noise(record.config["seed"])
            record.metrics["log_rmse_ensemble"] = record.metrics["step"] / 100 * end
    return records


def costs(
    timed: bool = True, choices: dict[str, str] | None = None, config: Any = None, **more: float
) -> list[Record]:
    """The time of a step, as an entry of run.json (`timed`) or as the pace of a curve."""
    times = {"gibbs": 1.0, "gwg": 2.5, "dula": 1.0, "dmala": 2.5, **more}
    if timed:
        return facts("seconds_per_step", times, choices=choices, config=config)
    levels = dict.fromkeys(times, -1.0)
    return curves("log_rmse", levels, times, choices=choices, config=config)


COSTS = {
    "DMALA takes six times Gibbs' time": {"dmala": 6.0, "gwg": 5.5},
    "DMALA takes Gibbs' time": {"dmala": 1.0, "gwg": 1.0},
    "DMALA takes 2.3 times GWG's time": {"gwg": 1.1},
    "DMALA takes 0.4 of GWG's time": {"gwg": 6.0},
    "DULA takes 2.3 times Gibbs' time": {"dula": 2.3},
    "DULA takes 0.4 of Gibbs' time": {"dula": 0.4},
}


def connectivities(seconds: dict[str, float] | None = None, **at_second: float) -> list[Record]:
    """Two connectivities; `at_second` are levels at the second one."""
    levels = {"gibbs": -3.0, "gwg": -3.0, "dula": -3.0, "dmala": -5.0}
    return [
        record
        for coupling, found in ((0.1, levels), (0.25, {**levels, **at_second}))
        for record in curves("log_rmse", found, seconds, config={"model": {"coupling": coupling}})
    ]


def ahead(gwg: float = -3.0, dmala: float = -5.0) -> list[Record]:
    return curves("log_rmse", {"gwg": gwg, "dmala": dmala}, config={"model": {"coupling": 0.25}})


# The RBM.


def rbm(seconds: dict[str, float] | None = None, **levels: float) -> list[Record]:
    """DMALA has the lowest MMD, and DULA a lower one than the baselines."""
    default = {**dict.fromkeys(BASELINES, -3.0), "dula": -5.0, "dmala": -6.5}
    records = curves("log_mmd", {**default, **levels}, seconds)
    for record in records:
        record.metrics["log_mmd_floor"] = -8.0
    return records


def term(with_term: float = 0.51, without: float = 5e-5) -> list[Record]:
    """Acceptance of DMALA with its step-size term, and without (an infinite step size)."""
    return [
        fake({"acceptance": [rate * (1 + noise(seed))]}, seed=seed, settings={"step_size": size})
        for size, rate in ((0.2, with_term), (math.inf, without))
        for seed in SEEDS
    ]


def images(**away: float) -> list[Record]:
    """MMD to the data; on static MNIST both are as far, which the claim does not ask for."""
    default = {"omniglot_dula": 0.2, "omniglot_dmala": 0.05, "caltech_dula": 0.2}
    default |= {"caltech_dmala": 0.05, "static_mnist_dula": 0.05, "static_mnist_dmala": 0.05}
    records = []
    for key, far in {**default, **away}.items():
        data, _, name = key.rpartition("_")
        records += facts("mmd_to_data", {name: far}, choices={"data": data})
    return records


SEVERAL_SLOW = {"steps take longer": {"seconds": {"dula": 5.0, "dmala": 10.0}}}
SLOW = {"DMALA's steps take ten times as long": {"seconds": {"dmala": 10.0}}}
NEARER = {
    **each(BASELINES, -9.0),
    **each(("dula", "dmala"), -2.5),
}
SLOWER = {f"{name} is slow": {"seconds": {name: 10.0}} for name in ("dula", "dmala")}

MADE: dict[str, Made] = {
    "fig1a-rate": Made(slopes, {
        "steeper on {0, 1}": {"binary": -1.02},
        "flatter on {0, 1}": {"binary": -0.98},
        "steeper on {-1, 1}": {"spin": -4.08},
        "flatter on {-1, 1}": {"spin": -3.92},
    }),
    "fig1a-bound": Made(partial(bounds, "exact"), each(("low", "high"), 0.5)),
    "fig1b-epsilon": Made(biases, {
        "falls between the first two": {"small_0": 0.03},
        "falls at the end": {"large_2": 0.15},
        "above the bound": {"large_2": 0.6},
    }),
    "thm6.1-bound": Made(partial(bounds, "bias"), each(("low", "high"), 0.5)),
    "fig2-acceptance": Made(moves, {
        "DMALA accepts less": {"dmala_acceptance": 0.4},
        "DMALA proposes less": {"dmala_sites": 4.0},
    }),
    "fig2-levels": Made(moves, {
        **each(("dmala_acceptance",), 0.56),
        **each(("dmala_acceptance", "gwg_acceptance"), 0.48),
        **each(("dmala_sites",), 5.4),
        **each(("dmala_sites",), 6.6),
        **each(("gwg_acceptance",), 0.39),
    }),
    "fig2-gwg-cost": Made(several_flips, {**each(("ratio",), 1.2), **each(("ratio",), 13.0)}),
    "fig2-ess": Made(effective, {**each(EXACT, 90.0)}),
    "fig3-iterations": Made(ising, {
        **each((*EXACT, "dsvgd", "rmala", "dula"), -6.0), **each(("ensemble",), -6.0),
    }, true=SEVERAL_SLOW),
    "fig3-seconds": Made(ising, {
        **each((*EXACT, "dsvgd", "rmala", "dula"), -6.0), **each(("ensemble",), -6.0), **SLOW,
    }),
    "fig3-seconds-compiled": Made(ising, {**each((*EXACT, "dula"), -6.0), **SLOW}),
    "fig3-dula": Made(ising, {
        **each(("locally_balanced", "gwg"), 97.0),  # apart at the first horizon too
        **each(("locally_balanced", "gwg"), -103.0),
    }, undecided={
        **each(("locally_balanced", "gwg"), -2.6),  # apart at the end alone
        **each(("locally_balanced", "gwg"), -3.4),
    }),
    "fig3-cost": Made(costs, COSTS),
    "fig4-cost": Made(costs, COSTS),
    "fig7-connectivity": Made(
        connectivities, each(("gibbs", "gwg", "dula"), -6.0), true=SEVERAL_SLOW
    ),
    "fig7-connectivity, fresh": Made(ahead, each(("gwg",), -6.0)),
    "fig7-cost": Made(connectivities, {
        **each(("gibbs", "gwg", "dula"), -6.0),
        "Gibbs takes more steps in DMALA's time": {"seconds": {"gibbs": 1e-3}},
        "GWG takes more steps in DMALA's time": {"seconds": {"gwg": 1e-3}},
    }),
    "fig4-iterations": Made(rbm, NEARER, true=SEVERAL_SLOW),
    "fig4-lowest": Made(rbm, each(("dula",), -9.0), true=each(BASELINES, -9.0)),
    "fig4-level": Made(rbm, {**each(("dmala",), -5.9), **each(("dmala",), -7.1)}),
    "fig4-seconds": Made(rbm, {**NEARER, **SLOWER}),
    "fig4-seconds-compiled": Made(rbm, {**NEARER, **SLOWER}),
    "fig9-mediocre": Made(images, each(("omniglot_dula", "caltech_dula"), 0.01)),
    "appB-law": Made(draws, {name: {"biased": name} for name in ("dmala", "dula")}),
    "appC-means": Made(unbounded, {f"window {w}": {"biased": w} for w in (1, 2, 4)}),
    "appC-windows": Made(unbounded, {"wider windows": {"wide": 1.0}}),
    "appD-acceptance": Made(term, {
        **each(("with_term",), 0.2), **each(("with_term",), 1.2),
        **each(("without",), 2e-5), **each(("without",), 2e-4),
    }),
    "appH-preconditioner": Made(partial(preconditioned, "log_rmse"), each(("plain",), -7.0)),
    "appH-thinned": Made(partial(preconditioned, "thinned"), each(("plain",), -7.0)),
}  # fmt: skip
