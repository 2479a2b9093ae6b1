"""The sampler that `sample` takes where none is named: by structure, then by measurement.

`CANDIDATES` lists exact samplers, those of a structure first; at most five that support the target
take part. Successive halving (K. Jamieson and A. Talwalkar, "Non-stochastic Best Arm Identification
and Hyperparameter Optimization", AISTATS 2016) gives all the same part of the pilot's budget, keeps
the better half and repeats this. Candidates whose chains agree come first, by their score:
the ESS of the worst quantity for a unit of the budget, as in a race. The others stay in the order
of `CANDIDATES`, because the ESS of chains that stay apart says little. Each round begins at the
last states of the survivor whose chains stay furthest apart, so that chains which agree only
because they began in one mode are found out. Where the last two disagree
about the target, or the chains of the best may be stuck, replicas at higher temperatures are tried:
of the best, or of the last two if the best does not mix.

The choice is frozen. No draw of a pilot is part of the result.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.samplers.tempered import Tempered
from latticework.sampling.budget import Allowance, Spent
from latticework.sampling.diagnostics import largest_r_hat
from latticework.sampling.engine import Engine, NotCompiledError, select_kernel
from latticework.sampling.naming import parse_sampler, short_repr
from latticework.sampling.targets import why_unsupported
from latticework.sampling.tuning.agreement import ChainSummary, disagreements
from latticework.sampling.tuning.pilots import PilotRun, Pilots
from latticework.sampling.tuning.setup import fit_blocks
from latticework.sampling.verdict import entry_name

# Names of exact samplers, in the order in which they are taken.
CANDIDATES = (
    "swendsen_wang", "block_gibbs", "gibbs_sweep", "metropolis_sweep",
    "gibbs(sites=3, scan=scopes)", "gibbs", "dmala", "gwg", "gibbs(sites=2, scan=random)",
    "hamming_ball", "locally_balanced", "random_walk",
)  # fmt: skip
MAX_CANDIDATES = 5
PILOT_SHARE = 0.2  # the part of the budget that pilots may spend; tempering may spend as much again
MIN_PILOT_SECONDS = 3.0  # seconds of all pilots, where no budget is given and the run is short
MIN_CHAINS = 4
ADAPTATION_SHARE = 0.25  # the part of the pilots' budget in which acceptances choose scales


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
    contest = Contest(model, x, max(chains, MIN_CHAINS), engine, seed)
    choice = contest.choose(steps, budget)
    pilots = tuple(replace(pilot, run=None) for pilot in choice.pilots)  # their draws are no result
    return replace(choice, pilots=pilots)


class Contest:
    """The candidates on one target, and which of them is left."""

    def __init__(
        self, model: EnergyModel, x: Tensor | None, chains: int, engine: Engine, seed: int
    ) -> None:
        self.model, self.engine = model, engine
        self.pilots = Pilots(model, x, chains, engine, seed)

    def choose(self, steps: int, budget: Allowance | None) -> SamplerChoice:
        """The best candidate for that many steps, or for the budget."""
        candidates = self.list_candidates()
        if not candidates:
            raise ValueError(
                f"no sampler that is tried by itself supports {self.model.domain}; name one"
            )
        if budget is None:
            costs = [self.pilots.cost(sampler, "seconds") for sampler in candidates.values()]
            seconds = max(MIN_PILOT_SECONDS / PILOT_SHARE, steps * min(costs))
            budget = Allowance(seconds, "seconds")
        allowed = budget.part(PILOT_SHARE)
        self._adapt_scales(candidates, allowed.part(ADAPTATION_SHARE))
        first, *behind = self._halve(candidates, allowed.part(1 - ADAPTATION_SHARE))
        apart = self._disagreement([first, *behind])
        best = first
        if apart or first.is_doubtful:
            tried = [first] if first.mixes else [first, *behind]
            for pilot in tried:
                best = self._try_tempering(pilot, best, allowed.part(1 / len(tried)), bool(apart))
        return SamplerChoice(
            best.sampler, tuple(self.pilots.runs), budget.unit, self.pilots.seconds,
            self.pilots.evaluations, apart,
        )  # fmt: skip

    def list_candidates(self) -> dict[str, Sampler]:
        """The samplers that take part, by name."""
        taken: dict[str, Sampler] = {}
        for name in CANDIDATES:
            sampler, _ = fit_blocks(parse_sampler(name), {}, self.model)
            if sampler in taken.values() or why_unsupported(sampler, self.model):
                continue
            if self.engine == "compiled" and not self._has_kernel(sampler):
                continue
            taken[name] = sampler
            if len(taken) == MAX_CANDIDATES:
                break
        return taken

    def _has_kernel(self, sampler: Sampler) -> bool:
        try:
            select_kernel(sampler, self.model, self.engine)
        except NotCompiledError:
            return False
        return True

    def _adapt_scales(self, candidates: dict[str, Sampler], allowed: Allowance) -> None:
        """Choose the scales of those that have one, at equal cost."""
        scaled = [name for name, sampler in candidates.items() if sampler.scale is not None]
        for name in scaled:
            candidates[name] = self.pilots.adapt(candidates[name], allowed.part(1 / len(scaled)))

    def _halve(self, candidates: dict[str, Sampler], allowed: Allowance) -> list[PilotRun]:
        """The last pilots of the last two, the better one first; of one, if there is no other.

        Each round plans with what the earlier ones left; they took longer where other work began.
        Two candidates have two rounds, because only the second begins at states of both.
        """
        rounds = min(len(candidates), max(2, math.ceil(math.log2(len(candidates)))))
        before, left = self.pilots.spent, list(candidates.items())
        measured: list[PilotRun] = []
        for later in range(rounds, 0, -1):
            spent: Spent = {unit: now - before[unit] for unit, now in self.pilots.spent.items()}
            unspent = allowed.subtract(spent)
            if measured and not unspent.amount:
                break
            share = unspent.part(1 / (later * len(left)))
            x = spread_states(measured[: len(left)])
            measured = [self.pilots.measure(name, sampler, share, x) for name, sampler in left]
            measured.sort(key=lambda pilot: (not pilot.mixes, -pilot.rate if pilot.mixes else 0.0))
            survivors = measured[: max(2, math.ceil(len(left) / 2))]
            left = [(each.name, each.sampler) for each in survivors]
        return measured[:2]

    def _disagreement(self, pilots: Sequence[PilotRun]) -> str:
        """In what the pilots disagree about the target; "" if they agree or one has no run."""
        if len(pilots) < 2 or any(pilot.run is None for pilot in pilots):
            return ""
        shape = self.model.domain.shape
        entries = [entry_name(index, None) for index in np.ndindex(*shape)]
        seen = [summarise(pilot) for pilot in pilots]
        return "; ".join(disagreements(seen, ["the log-probability", *entries]))

    def _try_tempering(
        self, candidate: PilotRun, best: PilotRun, allowed: Allowance, apart: bool
    ) -> PilotRun:
        """The candidate at several temperatures, if that is better than the best so far; the best.

        A sampler that mixes is better than one whose chains stay apart: their ESS says nothing
        about the whole target. Where samplers disagree, one that agrees with itself is better.
        """
        if why_unsupported(Tempered(candidate.sampler, levels=2, rounds=1), self.model):
            return best
        try:
            pilot = self.pilots.temper(candidate, allowed)
        except ValueError:  # a target that cannot be softened
            return best
        if pilot is None:
            return best
        if not pilot.rate and not best.mixes:
            # Learning left no time to measure. Stuck chains need tempering, whatever it costs.
            return best if isinstance(best.sampler, Tempered) else pilot
        if pilot.mixes != best.mixes:
            return pilot if pilot.mixes else best
        agrees = pilot.r_hat <= largest_r_hat(self.pilots.setup.chains)
        return pilot if pilot.rate > best.rate or (apart and agrees) else best


def spread_states(pilots: Sequence[PilotRun]) -> Tensor | None:
    """The last states of the pilot whose chains stay furthest apart; None if all chains agree."""
    apart = [pilot for pilot in pilots if not pilot.mixes and math.isfinite(pilot.r_hat)]
    return max(apart, key=lambda pilot: pilot.r_hat).last_states if apart else None


def summarise(pilot: PilotRun) -> ChainSummary:
    """The target as the chains of a pilot saw it."""
    assert pilot.run is not None
    result = pilot.run.result
    log_prob = result.log_prob.double()
    means = torch.cat(
        (log_prob.mean(1, keepdim=True), result.draws.double().mean(1).flatten(1)), -1
    )
    mixed = pilot.r_hat <= largest_r_hat(len(log_prob))
    effective = min(float(log_prob.numel()), pilot.ess)
    return ChainSummary(
        pilot.name, mixed, means.numpy(), log_prob[:, -1].numpy(), float(log_prob.max()), effective
    )
