"""The sampler that `sample` takes where none is named: by structure, then by measurement.

`CANDIDATES` lists exact samplers, those of a structure first; at most five that support the target
take part. Successive halving (K. Jamieson and A. Talwalkar, "Non-stochastic Best Arm Identification
and Hyperparameter Optimization", AISTATS 2016) gives all the same part of the pilot's budget, keeps
the better half and repeats this. The score is the ESS of the worst quantity for a unit of the
budget, as in a race. Where the last two disagree about the target, or the best has not mixed, the
best is also tried with replicas at higher temperatures.

The choice is frozen. No draw of a pilot is part of the result.
"""

import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.samplers.tempered import Tempered
from latticework.sampling.adaptation import AcceptanceControl, AdaptationWarning, run_adaptation
from latticework.sampling.budget import Allowance, Unit
from latticework.sampling.diagnostics import largest_r_hat
from latticework.sampling.engine import Engine
from latticework.sampling.naming import parse_sampler, short_repr
from latticework.sampling.targets import why_unsupported
from latticework.sampling.tuning.agreement import ChainSummary, disagreements
from latticework.sampling.tuning.setup import MIN_DRAWS, SampledRun, TuningSetup, fit_blocks
from latticework.sampling.verdict import entry_name

# Names of exact samplers, in the order in which they are taken.
CANDIDATES = (
    "swendsen_wang", "block_gibbs", "gibbs_sweep", "gibbs(sites=3, scan=scopes)", "gibbs", "dmala",
    "gwg", "gibbs(sites=2, scan=random)", "locally_balanced", "random_walk",
)  # fmt: skip
MAX_CANDIDATES = 5
PILOT_SHARE = 0.2  # the part of the budget that pilots may spend
MIN_PILOT_SECONDS = 2.0  # seconds of all pilots, where no budget is given and the run is short
MIN_PILOT_STEPS = 200  # steps of a pilot, however slow the machine is at the moment
MIN_CHAINS = 4
ADAPTATION_SHARE = 0.5  # the part of the pilots' budget after which scales stay as they are
ADAPTATION = AcceptanceControl(rounds=20)


@dataclass(frozen=True)
class PilotRun:
    """A measured candidate. `rate` is its ESS for each second, or evaluation by each chain."""

    name: str
    sampler: Sampler
    rate: float
    r_hat: float
    steps: int
    run: SampledRun | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class SamplerChoice:
    """The sampler that was chosen, the pilots behind it, and what they cost."""

    sampler: Sampler
    pilots: tuple[PilotRun, ...]  # all rounds, the last pilot of each candidate last
    unit: str  # "seconds" or "evaluations" by each chain, of `rate`
    seconds: float
    evaluations: float  # all chains together
    disagreement: str = ""  # in what the last two samplers disagreed about the target

    def __str__(self) -> str:
        last = {pilot.name: pilot for pilot in self.pilots}
        ranked = sorted(last.values(), key=lambda pilot: -pilot.rate)
        rates = ", ".join(f"{pilot.name} {pilot.rate:.3g}" for pilot in ranked)
        unit = "a second" if self.unit == "seconds" else "an evaluation"
        return f"{short_repr(self.sampler)} by pilots of {self.seconds:.3g} s; ESS {unit}: {rates}"


def choose_sampler(
    model: EnergyModel,
    *,
    x: Tensor | None,
    chains: int,
    steps: int,
    budget: Allowance | None,
    engine: Engine,
    seed: int,
) -> SamplerChoice:
    """The sampler for a run of `steps` steps or of `budget`.

    Raises ValueError if no candidate supports the model.
    """
    choice = _Contest(model, x, max(chains, MIN_CHAINS), engine, seed).choose(steps, budget)
    pilots = tuple(replace(pilot, run=None) for pilot in choice.pilots)  # their draws are no result
    return replace(choice, pilots=pilots)


class _Contest:
    """Pilots of candidates on one target, and what they have cost."""

    def __init__(
        self, model: EnergyModel, x: Tensor | None, chains: int, engine: Engine, seed: int
    ) -> None:
        chains = chains if x is None else len(x)
        self.setup = TuningSetup(model, chains, engine=engine, x=x, pays_for_draws=True)
        self.model, self.engine, self.seed = model, engine, seed
        self.pilots: list[PilotRun] = []
        self.evaluations, self.began = 0.0, time.perf_counter()
        self._costs: dict[Any, float] = {}

    def choose(self, steps: int, budget: Allowance | None) -> SamplerChoice:
        candidates = self._candidates()
        if not candidates:
            raise ValueError(
                f"no sampler that is tried by itself supports {self.model.domain}; name one"
            )
        unit = "seconds" if budget is None else budget.unit
        if budget is None:
            cheapest = min(self._cost(sampler, "seconds") for sampler in candidates.values())
            budget = Allowance(max(MIN_PILOT_SECONDS / PILOT_SHARE, steps * cheapest), "seconds")
        allowed = budget.part(PILOT_SHARE)
        for name, sampler in candidates.items():
            if sampler.scale is not None and self._left(allowed.part(ADAPTATION_SHARE)).amount:
                candidates[name] = self._adapt(sampler)
        parts = max(1, math.ceil(math.log2(len(candidates)))) + 1  # rounds, and tempering
        for_rounds = self._left(allowed)
        left = list(candidates.items())
        while True:
            share = for_rounds.part(1 / (parts * len(left)))
            measured = [self._measure(name, sampler, share) for name, sampler in left]
            measured.sort(key=lambda pilot: -pilot.rate)
            if len(left) <= 2:
                break
            left = [(each.name, each.sampler) for each in measured[: math.ceil(len(left) / 2)]]
        best = measured[0]
        apart = self._disagreement(measured[:2])
        if apart or not best.r_hat <= largest_r_hat(self.setup.chains):
            best = self._try_tempering(best, for_rounds.part(1 / parts), bool(apart))
        seconds = time.perf_counter() - self.began
        return SamplerChoice(
            best.sampler, tuple(self.pilots), unit, seconds, self.evaluations, apart
        )

    def _left(self, allowed: Allowance) -> Allowance:
        """The part of an allowance that is not spent yet."""
        seconds = time.perf_counter() - self.began
        evaluations = self.evaluations / self.setup.chains
        return allowed.subtract({"seconds": seconds, "evaluations": evaluations})

    def _cost(self, sampler: Sampler, unit: Unit) -> float:
        """The cost of a step, measured once for a sampler whatever its scale."""
        key = self._cost_key(sampler, unit)
        if key not in self._costs:
            self._costs[key] = self.setup.cost(sampler, unit)
        return self._costs[key]

    def _cost_key(self, sampler: Sampler, unit: Unit) -> tuple[Any, ...]:
        """The key of a sampler's cost, which its scale hardly changes."""
        return type(sampler), getattr(sampler, "sites", 0), unit

    def _candidates(self) -> dict[str, Sampler]:
        """The samplers that take part, by name."""
        taken: dict[str, Sampler] = {}
        for name in CANDIDATES:
            sampler, _ = fit_blocks(parse_sampler(name), {}, self.model)
            if sampler in taken.values() or why_unsupported(sampler, self.model):
                continue
            taken[name] = sampler
            if len(taken) == MAX_CANDIDATES:
                break
        return taken

    def _adapt(self, sampler: Sampler) -> Sampler:
        """The sampler with the scale that its acceptance chooses."""
        rng = Generator().manual_seed(self.seed)
        x = self.setup.draw_starts(rng)
        each = self._cost(sampler, "evaluations") * len(x)
        self.evaluations += each * ADAPTATION.steps * ADAPTATION.rounds
        with warnings.catch_warnings(action="ignore", category=AdaptationWarning):
            return run_adaptation(ADAPTATION, sampler, self.model, x, rng, self.engine).sampler

    def _measure(self, name: str, sampler: Sampler, allowed: Allowance) -> PilotRun:
        """A pilot of one candidate; its rate is 0 if the budget is too short to tell."""
        cost = self._cost(sampler, allowed.unit)
        if allowed.unit == "seconds":
            steps = max(MIN_PILOT_STEPS, int(allowed.amount / cost))
        else:
            steps = self.setup.steps_for(sampler, allowed)
        pilot = PilotRun(name, sampler, 0.0, math.inf, steps)
        if steps >= MIN_DRAWS:
            run, quality = self.setup.measure_run(sampler, steps, self.seed + len(self.pilots))
            self.evaluations += run.result.evaluations
            if allowed.unit == "seconds":  # where other work slows one of the two, the other counts
                cost = min(cost, run.result.seconds / run.steps)
                self._costs[self._cost_key(sampler, "seconds")] = cost
            rate = quality.worst / (run.steps * cost)
            pilot = PilotRun(name, sampler, rate, quality.r_hat, run.steps, run)
        self.pilots.append(pilot)
        return pilot

    def _disagreement(self, pilots: Sequence[PilotRun]) -> str:
        """In what the pilots disagree about the target; "" if they agree or one has no run."""
        runs = [pilot.run for pilot in pilots if pilot.run is not None]
        if len(runs) < 2:
            return ""
        seen = [self._summary(pilot) for pilot in pilots]
        shape = self.model.domain.shape
        entries = [entry_name(index, None) for index in np.ndindex(*shape)]
        return "; ".join(disagreements(seen, ["the log-probability", *entries]))

    def _summary(self, pilot: PilotRun) -> ChainSummary:
        assert pilot.run is not None
        result = pilot.run.result
        log_prob = result.log_prob.double()
        means = torch.cat(
            (log_prob.mean(1, keepdim=True), result.draws.double().mean(1).flatten(1)), -1
        )
        mixed = pilot.r_hat <= largest_r_hat(len(log_prob))
        effective = min(float(log_prob.numel()), pilot.rate * pilot.steps)
        return ChainSummary(
            pilot.name, mixed, means.numpy(), log_prob[:, -1].numpy(), float(log_prob.max()),
            effective,
        )  # fmt: skip

    def _try_tempering(self, best: PilotRun, allowed: Allowance, apart: bool) -> PilotRun:
        """The tempered sampler where it is better, or agrees with itself where others disagree."""
        tempered = Tempered(best.sampler, learn_base=True)
        if why_unsupported(tempered, self.model):
            return best
        steps = tempered.learning_steps / self.setup.chains  # as each of them pays
        learning = steps * self._cost(tempered, allowed.unit)
        allowed = Allowance(max(0.0, allowed.amount - learning), allowed.unit)
        try:
            pilot = self._measure(f"tempered {best.name}", tempered, allowed)
        except ValueError:  # a target that cannot be softened
            return best
        limit = largest_r_hat(self.setup.chains)
        doubtful = apart or not best.r_hat <= limit
        return pilot if pilot.rate > best.rate or (doubtful and pilot.r_hat <= limit) else best
