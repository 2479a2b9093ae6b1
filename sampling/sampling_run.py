"""A run of `sample`, which goes on until its verdict holds or its budget ends, and later again.

The verdict is asked after `steps` steps and whenever these have doubled, not after each block.
Stopping at the first of many verdicts that hold would choose runs in which chance made the chains
agree. With few looks, each at no less than half new draws, this matters less (docs/long_runs.md).
"""

import copy
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.samplers.base import require_count
from latticework.sampling.budget import Allowance
from latticework.sampling.devices import on_threads
from latticework.sampling.draw_loop import DrawLoop
from latticework.sampling.progress import ProgressLine
from latticework.sampling.result import SampleResult
from latticework.sampling.running_moments import RunningMoments
from latticework.sampling.sample_arguments import describe_bytes, require_memory
from latticework.sampling.stored_draws import StoredDraws
from latticework.sampling.summary_result import SummaryResult
from latticework.sampling.watch import Watch, shows_progress

Goal = Literal["converged"]


@dataclass(eq=False)
class SamplingRun:
    """Chains, the fields of their result that do not change, and what came before the draws."""

    loop: DrawLoop
    about: dict[str, Any]  # fields of `SampleResult`
    seconds: float  # before the draws
    threads: int
    diagnoses: bool = True  # whether memory for diagnostics is needed

    def go_on(
        self,
        steps: int,
        *,
        goal: Goal | None = None,
        budget: Allowance | None = None,
        began: float | None = None,
        progress: bool | None = None,
    ) -> SampleResult:
        """The result after `steps` more steps, or more of them if there is a goal.

        The budget counts from `began`, a time of `time.perf_counter()`, else from now. Raises
        KeyboardInterrupt at a second Ctrl-C.
        """
        loop, draws = self.loop, steps // self.loop.thin
        began = time.perf_counter() if began is None else began
        line = None
        if shows_progress(progress):
            sampler_name = type(self.about["sampler"]).__name__
            size = describe_bytes(loop.store.bytes_of(loop.store.draws + draws))
            line = ProgressLine(loop.steps + steps, sampler_name, size)
        watch = Watch(budget, chains=loop.store.chains, began=began, line=line)
        exactly = budget is not None and budget.unit == "evaluations"
        with watch, on_threads(self.threads):
            loop.make(draws, watch.look, exactly)
            result = self.result(watch.stopped)
            while goal and not watch.stopped and not result.converged:
                more = loop.store.draws
                if line is not None:
                    line.total = 2 * loop.steps
                try:
                    self.require_memory(more)
                except ValueError as error:
                    watch.stopped = f"stopped by its memory: {error}"
                else:
                    loop.make(more, watch.look, exactly)
                result = self.result(watch.stopped)
        return result

    def result(self, stopped: str) -> SampleResult:
        """The result of the draws so far."""
        loop, store = self.loop, self.loop.store
        kind = SummaryResult if isinstance(store, RunningMoments) else SampleResult
        note = f"{stopped} after {loop.steps:,} steps" if stopped else ""
        fields = {
            **self.about,
            "draws": store,
            "log_prob": loop.log_prob,
            "acceptance": loop.acceptance,
            "evaluations": loop.evaluations,
            "seconds": self.seconds + loop.seconds,
            "ladders": loop.draws.ladders(loop.steps),
            "stopped": note,
        }
        made: SampleResult = kind(**fields, run=self)
        return made

    def continue_from_here(
        self,
        steps: int,
        until: Goal | None,
        budget: str | None,
        progress: bool | None,
    ) -> SampleResult:
        """The result after more steps of copies of these chains; `SampleResult.continue_`."""
        require_count(steps=steps)
        if steps % self.loop.thin:
            raise ValueError(f"steps must be a multiple of thin, {self.loop.thin}, got {steps}")
        allowed = read_budget(budget, until)
        twin = copy.copy(self)
        twin.loop = self.loop.fork()
        twin.require_memory(steps // twin.loop.thin)
        return twin.go_on(steps, goal=until, budget=allowed, progress=progress)

    def require_memory(self, draws: int) -> None:
        """Raise ValueError if so many more draws do not fit."""
        steps, thin = draws * self.loop.thin, self.loop.thin
        require_memory(self.loop.store, self.loop.precision, steps, thin, self.diagnoses)


def read_budget(budget: str | None, goal: Goal | None) -> Allowance | None:
    """The budget that is written. Raises ValueError for an unknown goal or one without a budget."""
    if goal not in (None, "converged"):
        raise ValueError(f'until must be "converged" or left out, got {goal!r}')
    if goal and budget is None:
        raise ValueError(
            'until="converged" needs a budget, because some chains never converge: budget="5min" '
            'or budget="20000evaluations" (of each chain)'
        )
    return None if budget is None else Allowance.read(budget)


def require_reachable(goal: Goal | None, caveat: str, chains: int) -> None:
    """Raise ValueError if chains with this caveat, or a single one, never reach the goal."""
    if goal and chains == 1:
        caveat = "a single chain cannot show what it has missed; take chains=4"
    if goal and caveat:
        raise ValueError(f'until="converged" would never hold: {caveat}')


def store_of(keep: str | Path, model: EnergyModel, x: Tensor) -> StoredDraws | RunningMoments:
    """A store of draws of chains at `x`, as `keep` says. Raises ValueError for anything else."""
    if keep == "draws":
        return StoredDraws(model.domain, x)
    if keep == "summary":
        return RunningMoments(x, model.list_edges())
    if isinstance(keep, str | Path) and Path(keep).suffix == ".npy":
        return StoredDraws(model.domain, x, Path(keep))
    raise ValueError(f'keep must be "draws", "summary" or the name of a .npy file, got {keep!r}')
