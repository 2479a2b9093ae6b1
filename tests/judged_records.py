"""Records of runs, made up so that a claim is true of them or is not."""

from __future__ import annotations

from itertools import product

import numpy as np
from fakes import fake, noise
from made_records.langevin_learning import network

from latticework.experiments.papers.claims.claim import Claim
from latticework.experiments.papers.claims.ledger import CLAIMS
from latticework.experiments.papers.claims.verdict import Verdict
from latticework.experiments.records.estimates import (
    format_estimate,
)
from latticework.experiments.records.record import Record

SEEDS = range(5)


HOLDS, FAILS, OPEN = Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN


def curves(level: dict[str, float], column: str, speed: dict[str, float] | None = None, **extra):
    """Each sampler's curve falls to its level within the seconds that it needs for 100 steps."""
    return [
        fake(
            {
                "step": [0, 50, 100],
                "seconds": np.array([0.0, 0.5, 1.0]) * (speed or {}).get(name, 1.0),
                column: np.array([0.0, 0.5, 1.0]) * (value + noise(seed, place)),
                **{key: [value_] * 3 for key, value_ in extra.items()},
            },
            sampler=name,
            seed=seed,
        )
        for (place, (name, value)), seed in product(enumerate(level.items()), SEEDS)
    ]


def fig5(true: bool) -> list[Record]:
    """The Langevin samplers lead, by more with few steps, and reach -5 in half the seconds."""
    level = {(5, "gwg"): -3.0, (100, "gwg"): -5.1, (100, "gibbs"): -5.2}
    for ours in ("dula", "dmala"):
        level |= {(5, ours): -5.0 if true else -2.9, (100, ours): -5.5 if true else -5.05}
    records = []
    for (steps, name), value in level.items():
        speed = {"dula": 0.4, "dmala": 0.4} if true else {}
        for record in curves({name: value}, "log_rmse", speed):
            record.config["task"] = {"steps": steps}
            records.append(record)
    return records


def table1(data: str) -> list[Record]:
    score = {"gibbs": -117.0, "gwg": -80.0, "dula": -81.0, "dmala": -79.0}
    return [network(name, data, value, 0.4, 0.2, 40.0) for name, value in score.items()]


def words() -> list[Record]:
    """On models by CD, Gibbs is stuck in one state, at different ISLs from two starts."""
    records = []
    for method, name, start, seed in product(
        ("cd", "sml", "fpcd"), ("block_gibbs", "rates_fpcd"), ("data_mean", "uniform"), SEEDS
    ):
        isl, stuck = [-400, -380, -330, -310, -300], (method, name) == ("cd", "block_gibbs")
        if stuck:
            isl = [-400, -330, -318, -315, -321] if start == "data_mean" else [-530] * 5
        record = fake(
            {"step": [1, 5, 30, 100, 1000], "isl": np.array(isl) + noise(seed)},
            sampler=name,
            seed=seed,
            choices={"negatives": method, "model": "rbm_reviews", "start": start},
            commonest_share=0.9 if stuck else 1e-3,
        )
        records.append(record)
    return records


def cost() -> list[Record]:
    return [
        fake(
            sampler=name,
            seed=seed,
            choices={"model": f"rbm_{data}"},
            seconds_per_step=(1.0 if name == "block_gibbs" else 3.0) * (1 + noise(seed)),
        )
        for data, name, seed in product(("usps", "mnist"), ("block_gibbs", "rates_fpcd"), SEEDS)
    ]


def the(name: str) -> Claim:
    (found,) = [one for one in CLAIMS if one.name == name]
    return found


def judge_claim(name: str, records: list[Record]) -> str:
    """The verdict with all margins and numbers, or why there is none."""
    try:
        finding = the(name).judge(records)
    except LookupError as error:
        return f"{name}: none, {error}"
    found, needs = finding.verdict()
    margins = [margin.text() for margin in finding.margins]
    numbers = [f"{one.quantity}: {format_estimate(one.here)}" for one in finding.numbers]
    return "\n  ".join([f"{name}: {found}; {needs}", *margins, *numbers, finding.note])
