"""Made-up records, in memory, for what reads records; and a task whose process dies."""

from __future__ import annotations

import ctypes
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from latticework.experiments.records.record import Record
from latticework.sampling.loop_state import LoopState

TARGETS = {
    "gibbs": ("latticework.samplers.gibbs.Gibbs", {"sites": 1}),
    "block_gibbs": ("latticework.samplers.block_gibbs.BlockGibbs", {}),
    "hamming_ball": ("latticework.samplers.hamming.HammingBall", {"sites": 10}),
    "dsvgd": ("latticework.samplers.svgd.DiscreteSVGD", {}),
    "rmala": ("latticework.samplers.relaxed.RMALA", {}),
    "locally_balanced": ("latticework.samplers.locally_balanced.LocallyBalanced", {}),
    "gwg": ("latticework.samplers.gwg.GWG", {"flips": 1}),
    "gwg4": ("latticework.samplers.gwg.GWG", {"flips": 4}),
    "dula": ("latticework.samplers.langevin.DULA", {"step_size": 0.2}),
    "dmala": ("latticework.samplers.langevin.DMALA", {"step_size": 0.4}),
    "sample_penalization": ("latticework.samplers.rates.SamplePenalization", {}),
    "rates_herding": ("latticework.samplers.rates.RatesHerding", {}),
    "rates_fpcd": ("latticework.samplers.rates.RatesFPCD", {"decay": 1.0, "fast_step_size": 0.01}),
    "stochastic_dula": ("latticework.samplers.stochastic_dula.StochasticDULA", {}),
}


class Fake(Record):
    """A record whose tables and arrays are given."""

    def arrays(self, name: str) -> dict[str, Any]:
        return self.document["stored"][name]

    def has_array(self, name: str) -> bool:
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
            "task": {"chains": 4, "steps": 100},
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


def measured(
    sampler: str,
    target: str,
    seed: int = 0,
    *,
    ess: float = 100.0,
    r_hat: float | None = 1.0,
    sites: int = 25,
    metrics: dict[str, Any] | None = None,
    **document: Any,
) -> Record:
    """A record of the benchmark: 100 steps of 4 chains, two evaluations and 0.01 s a step."""
    return fake(
        metrics,
        seed=seed,
        choices={"sampler": sampler, "target": target},
        config={"model": {"sites": sites}, "model_seed": 0},
        ess={"min": ess, "median": 2 * ess, "energy": 3 * ess},
        r_hat=r_hat,
        steps=100,
        seconds_per_step=0.01,
        evaluations_per_step=2.0,
        sites=sites,
        tuned={"step_size": 0.4},
        engine="eager",
        **document,
    )


def noise(seed: int, place: int = 0) -> float:
    """A small deterministic number that differs between seeds and places."""
    return float(np.random.default_rng([seed, place]).normal(scale=0.01))


@dataclass(eq=False)
class Processes(LoopState):
    """The processes that have run iterations of `dying`."""

    processes: list[int]


def dying(*, run: Any, death: str, **_: Any) -> None:
    """A task of three iterations. Seed 1 dies in the second unless it resumes from a checkpoint."""
    memory = Processes([])
    for iteration in run.resumable(memory, "dying", total=3):
        memory.processes = [*memory.processes, os.getpid()]
        run.log(iteration, processes=len(set(memory.processes)))
        if iteration == 2 and run.seed == 1 and len(set(memory.processes)) == 1:
            {
                "SIGSEGV": lambda: ctypes.string_at(0),
                "SIGABRT": os.abort,
                "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
            }[death]()
