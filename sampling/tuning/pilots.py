"""Pilots: short runs of a candidate, and their rates.

A pilot goes on from where the candidate's last one ended, unless it is given other states.

A pilot keeps few draws. The first one spreads them over all its steps. A later one knows how fast
the chains mix: it spaces draws so that one is worth at most `MAX_ESS_PER_DRAW` independent ones,
and ends when it has enough of them, because an ESS near the number of draws cannot be told.
"""

import math
import time
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.samplers.tempered import Tempered
from latticework.sampling.adaptation import AcceptanceControl, AdaptationWarning, run_adaptation
from latticework.sampling.budget import Allowance, Spent, Unit
from latticework.sampling.chain import seconds_per_step
from latticework.sampling.engine import Engine, engine_for_adaptation, select_kernel
from latticework.sampling.tuning import setup as tuning
from latticework.sampling.tuning.space import with_fields

ADAPTATION = AcceptanceControl(rounds=20)
MAX_PILOT_R_HAT = 1.2  # limit above which the chains of a pilot, a short run, stay apart
# Limit above which tempering is tried: a pilot is too short to tell slow chains from those apart.
MAX_UNDOUBTED_R_HAT = 1.1
TIMED_STEPS, TIMED_BLOCKS = 2, 3  # steps of a block and blocks, which give a first idea of a cost


@dataclass(frozen=True)
class PilotRun:
    """A measured candidate. `rate` is its ESS for each second, or evaluation by each chain.

    An ESS of as many as there are chains is taken off before, because starts have it. The rate is
    that of all the candidate's pilots since its chains last stayed apart. R-hat is the larger one
    of this pilot and of it with the one before, because chains may gather by chance.
    """

    name: str
    sampler: Sampler
    rate: float
    r_hat: float
    steps: int
    ess: float = 0.0  # ESS of the worst quantity
    gained: float = 0.0  # ESS of which `rate` is made
    cost: float = 0.0  # seconds, or evaluations by each chain, of which `rate` is made
    run: tuning.SampledRun | None = field(default=None, repr=False, compare=False)

    @property
    def mixes(self) -> bool:
        """Whether the chains do not stay apart."""
        return self.r_hat <= MAX_PILOT_R_HAT

    @property
    def last_states(self) -> Tensor | None:
        """The last state of each chain; None if the budget was too short for a run."""
        return None if self.run is None else self.run.result.draws[:, -1].contiguous()

    def pool(self, earlier: "PilotRun") -> "PilotRun":
        """This pilot with the rate of both: one short pilot tells an ESS only roughly."""
        gained, cost = self.gained + earlier.gained, self.cost + earlier.cost
        return replace(self, gained=gained, cost=cost, rate=gained / cost)

    @property
    def is_doubtful(self) -> bool:
        """Whether the chains may be stuck, so that tempering is worth a trial."""
        return self.r_hat > MAX_UNDOUBTED_R_HAT


class Pilots:
    """Pilots on one target, what each step costs, and what all have cost together."""

    def __init__(
        self, model: EnergyModel, x: Tensor | None, chains: int, engine: Engine, seed: int
    ) -> None:
        chains = chains if x is None else len(x)
        pilots_engine: Any = engine_for_adaptation(engine)
        self.setup = tuning.TuningSetup(
            model, chains, engine=pilots_engine, x=x, pays_for_draws=True
        )
        self.model, self.seed = model, seed
        self.runs: list[PilotRun] = []
        self.evaluations, self.began = 0.0, time.perf_counter()
        self._costs: dict[Any, float] = {}
        self._last_by_name: dict[str, PilotRun] = {}

    @property
    def seconds(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.began

    @property
    def spent(self) -> Spent:
        """The cost so far, with evaluations by each chain."""
        return {"seconds": self.seconds, "evaluations": self.evaluations / self.setup.chains}

    def cost(self, sampler: Sampler, unit: Unit) -> float:
        """The cost of a step, known once for a sampler whatever its scale."""
        key = self._cost_key(sampler, unit)
        if key not in self._costs:
            timed = unit == "seconds"
            self._costs[key] = self._time_step(sampler) if timed else self.setup.cost(sampler, unit)
        return self._costs[key]

    def _cost_key(self, sampler: Sampler, unit: Unit) -> tuple[Any, ...]:
        """The key of a sampler's cost, which its scale hardly changes."""
        return type(sampler), getattr(sampler, "sites", 0), unit

    def _time_step(self, sampler: Sampler, chains: int | None = None) -> float:
        """Seconds of a step, by few of them."""
        rng, setup = Generator().manual_seed(0), self.setup
        if chains is not None:
            setup = replace(setup, chains=chains, x=None)
        x = setup.draw_starts(rng)
        kernel, _ = select_kernel(sampler, self.model, setup.engine, (), x)
        return seconds_per_step(kernel, self.model, x, rng, steps=TIMED_STEPS, blocks=TIMED_BLOCKS)

    def adapt(self, sampler: Sampler, allowed: Allowance) -> Sampler:
        """The sampler with the scale that its acceptance chooses, in as many steps as allowed.

        It stays as it is where that is not even one step a round.
        """
        each = self.cost(sampler, allowed.unit) * ADAPTATION.rounds
        steps = min(ADAPTATION.steps, int(allowed.amount / each))
        if not steps:
            return sampler
        rng = Generator().manual_seed(self.seed)
        x = self.setup.draw_starts(rng)
        self.evaluations += self.cost(sampler, "evaluations") * len(x) * ADAPTATION.rounds * steps
        rule, engine = replace(ADAPTATION, steps=steps), self.setup.engine
        with warnings.catch_warnings(action="ignore", category=AdaptationWarning):
            return run_adaptation(rule, sampler, self.model, x, rng, engine).sampler

    def measure(
        self, name: str, sampler: Sampler, allowed: Allowance, x: Tensor | None = None
    ) -> PilotRun:
        """A pilot of one candidate, from `x` or from where its last one ended.

        Its rate is 0 if the budget is too short to tell.
        """
        cost, last = self.cost(sampler, allowed.unit), self._last_by_name.get(name)
        steps = int(allowed.amount / cost)
        if allowed.unit == "evaluations":
            steps = self.setup.steps_for(sampler, allowed)
        elif last is not None and last.run is not None:  # what a step took beside other work
            steps = int(allowed.amount / (last.run.result.seconds / last.steps))
        draws, steps = self._spread_draws(name, sampler, steps)
        pilot = PilotRun(name, sampler, 0.0, math.inf, steps)
        if draws >= tuning.MIN_DRAWS / 2:
            if x is None and last is not None:
                x = last.last_states
            setup = replace(self.setup, max_draws=draws)
            run = setup.sample_run(sampler, steps, self.seed + len(self.runs), x)
            quality = tuning.quality(run.result)
            self.evaluations += run.result.evaluations
            if allowed.unit == "seconds":  # where other work slows one of the two, the other counts
                cost = min(cost, run.result.seconds / run.steps)
                self._costs[self._cost_key(sampler, "seconds")] = cost
            # Chains that stay apart have an ESS of about their number, which steps do not add to.
            gained = max(0.0, quality.worst - self.setup.chains) + quality.score - quality.worst
            r_hat = quality.r_hat
            if last is not None and last.run is not None:
                r_hat = max(r_hat, tuning.quality(last.run.result, run.result).r_hat)
            pilot = PilotRun(
                name, sampler, gained / (run.steps * cost), r_hat, run.steps,
                quality.worst, gained, run.steps * cost, run,
            )  # fmt: skip
            if last is not None and last.mixes and pilot.mixes:
                pilot = pilot.pool(last)
            self._last_by_name[name] = pilot
        self.runs.append(pilot)
        return pilot

    def _spread_draws(self, name: str, sampler: Sampler, steps: int) -> tuple[int, int]:
        """How many draws of a chain to keep, and of how many steps, at most `steps`."""
        gap, measuring = self.setup.gap(sampler), int(steps * (1 - tuning.WARM_UP))
        thin = max(gap, measuring // tuning.MAX_DRAWS)
        last = self._last_by_name.get(name)
        if last is not None and last.ess > 0:
            apart = tuning.MAX_ESS_PER_DRAW * self.setup.chains * last.steps / last.ess
            thin = min(thin, max(gap, int(apart)))
        draws = min(tuning.MAX_DRAWS, measuring // thin)
        return draws, min(steps, math.ceil(draws * thin / (1 - tuning.WARM_UP)))

    def temper(self, best: PilotRun, allowed: Allowance) -> PilotRun | None:
        """A pilot of the best at several temperatures, with its schedule learned and then fixed.

        None where learning would take more than half of what is allowed.
        """
        tempered = Tempered(best.sampler, learn_base=True)
        steps, replicas = 2**tempered.rounds - 1, tempered.learning_replicas
        if allowed.unit == "seconds":
            learning = steps * self._time_step(best.sampler, replicas)
        else:
            each = self.cost(best.sampler, "evaluations")
            learning = steps * replicas * each / self.setup.chains
        if learning > allowed.amount / 2:
            return None
        fields, spent = self.setup.learn_fields(tempered)
        self.evaluations += spent["evaluations"] * self.setup.chains
        ready = with_fields(tempered, fields)
        return self.measure(f"tempered {best.name}", ready, allowed.subtract(spent))
