"""Made-up records, in memory, for what reads records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.record import Record

TARGETS = {
    "gibbs": ("samplers.gibbs.Gibbs", {"sites": 1}),
    "block_gibbs": ("samplers.block_gibbs.BlockGibbs", {}),
    "hamming_ball": ("samplers.hamming.HammingBall", {"sites": 10}),
    "dsvgd": ("samplers.svgd.DiscreteSVGD", {}),
    "rmala": ("samplers.relaxed.RMALA", {}),
    "locally_balanced": ("samplers.locally_balanced.LocallyBalanced", {}),
    "gwg": ("samplers.gwg.GWG", {"flips": 1}),
    "gwg4": ("samplers.gwg.GWG", {"flips": 4}),
    "dula": ("samplers.langevin.DULA", {"step_size": 0.2}),
    "dmala": ("samplers.langevin.DMALA", {"step_size": 0.4}),
    "sample_penalization": ("samplers.rates.SamplePenalization", {}),
    "rates_herding": ("samplers.rates.RatesHerding", {}),
    "rates_fpcd": ("samplers.rates.RatesFPCD", {"decay": 1.0, "fast_step_size": 0.01}),
    "stochastic_dula": ("samplers.stochastic.StochasticDULA", {}),
}


class Fake(Record):
    """A record whose tables and arrays are given."""

    def arrays(self, name: str) -> dict[str, Any]:
        return self.document["stored"][name]

    def has(self, name: str) -> bool:
        return name in self.document.get("stored", {})


def fake(
    metrics: dict[str, Any] | None = None,
    *,
    sampler: str = "dmala",
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    choices: dict[str, str] | None = None,
    config: dict[str, Any] | None = None,
    stored: dict[str, Any] | None = None,
    **document: Any,
) -> Record:
    """A record of `sampler` with the columns `metrics`, and the other given parts."""
    target, own = TARGETS[sampler]
    content = {
        "config": {
            "sampler": {"_target_": target, **own, **(settings or {})},
            "seed": seed,
            "model_seed": seed,
            "model": {},
            "task": {"chains": 4},
            **(config or {}),
        },
        "choices": {"sampler": sampler, "model": "some", "data": "some", **(choices or {})},
        "seconds": 1.0,
        "stored": stored or {},
        **document,
    }
    record = Fake(Path(f"{sampler}-{seed}"), content)
    record.__dict__["metrics"] = pd.DataFrame(metrics or {"step": [0]})
    return record


def noise(seed: int, place: int = 0) -> float:
    """A small deterministic number that differs between seeds and places."""
    return float(np.random.default_rng([seed, place]).normal(scale=0.01))
