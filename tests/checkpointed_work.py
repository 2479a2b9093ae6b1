"""A loop of work with every kind of state, whose runs break off and go on."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from latticework.experiments.runs.run import Run
from latticework.models.dense_ising import DenseIsing
from latticework.samplers.gibbs import Gibbs
from latticework.sampling.clock import Clock
from latticework.sampling.loop_state import LoopState, to_checkpoint

CONFIG = {"name": "made up", "seed": 0}


class CrashError(Exception):
    """Simulates the death of a process."""


def begin(path, config=CONFIG, checkpoint=0.0, device="cpu", force=False):
    path.mkdir(exist_ok=True)
    run = Run(path, config=config, checkpoint=checkpoint, device=device)
    run.load_checkpoints(config, force=force)
    return run


@dataclass(eq=False)
class Everything(LoopState):
    """A little of everything that a task may keep."""

    model: Any
    stepper: Any
    schedule: Any
    inner: "Inner"
    history: list
    best: float | None
    clock: Clock


@dataclass(eq=False)
class Inner(LoopState):
    """A memory within a memory, as a chain is."""

    rng: Any
    state: Any


@dataclass
class One(LoopState):
    value: Any = None


def memory_of(run, hidden=3):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, hidden), torch.nn.Linear(hidden, 1))
    ising = DenseIsing(torch.zeros(4, 4))
    stepper = torch.optim.Adam(model.parameters(), lr=0.1)
    rng = run.rng("chain")
    inner = Inner(rng, Gibbs().init(ising.domain.uniform(5, rng), ising))
    schedule = torch.optim.lr_scheduler.LinearLR(stepper, 0.1, 1.0, total_iters=10)
    return ising, Everything(model, stepper, schedule, inner, [], None, Clock(run.device))


def work(run, total=12, crash_at=None, **settings):
    """Chains of Gibbs-1, and a network that learns from them; a row every third iteration."""
    ising, memory = memory_of(run, **settings)
    for iteration in run.resumable(memory, "work", total=total):
        inner = memory.inner
        inner.state, _ = Gibbs().step(inner.state, ising, inner.rng)
        noise = torch.rand(5, 1, generator=inner.rng)
        loss = memory.model(inner.state.x + noise).square().mean()
        memory.stepper.zero_grad()
        loss.backward()
        memory.stepper.step()
        memory.schedule.step()
        memory.history.append(loss.item())
        memory.best = min(memory.history)
        if iteration % 3 == 0:
            run.log(iteration, loss=loss.detach())
        if iteration == crash_at:
            raise CrashError
    return memory


def content(run, memory):
    """All that the run ends with."""
    parts = to_checkpoint({k: v for k, v in memory.state_dict().items() if k != "clock"})
    return repr(parts), (run.path / "metrics.csv").read_text()


def content_of_whole_run(folder):
    """The content of a run in `folder` that nothing broke off."""
    run = begin(folder / "run")
    return content(run, work(run))


def crash_work(path, at):
    with pytest.raises(CrashError):
        work(begin(path), crash_at=at)


def files(path):
    return sorted(file.name for file in (path / "checkpoints").iterdir())
