"""The checks themselves: unconnected states, the power that is told, false alarms."""

import numpy as np
import pytest
import torch
from faulty_samplers import check_on_targets, found

from latticework.models.base import Function
from latticework.models.domains import Binary
from latticework.samplers.base import Info, Sampler, State, metropolis
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.gwg import GWG
from latticework.samplers.langevin import DMALA
from latticework.samplers.locally_balanced import LocallyBalanced
from latticework.samplers.path_auxiliary import PAFS
from latticework.sampling.checking.check_case import (
    SECOND_TEST_STEPS,
    CheckCase,
    describe_deviation,
    smallest_visible_error,
)
from latticework.sampling.checking.suite import CHECKS, decisions_of
from latticework.sampling.checking.targets import SMALL_TARGETS, Target


class Once(Sampler):
    """Moves all chains to the first state in step 5, and forgets it in later steps."""

    memory = ("grad",)

    def at(self, x, model):
        return State(x, model.log_prob(x), torch.zeros(len(x)))

    def step(self, state, model, rng):
        moved, info = Gibbs().step(Gibbs().at(state.x, model), model, rng)
        x = torch.where((state.grad == 4).unsqueeze(1), model.domain.low, moved.x)
        return self.at(x, model)._replace(grad=state.grad + 1), info


def test_later_steps_are_counted():
    case = CheckCase(Once(), SMALL_TARGETS["binary"](), 1e-9, chains=5000)
    found = CHECKS["invariance"](case)
    assert found.status == "fails"
    assert f"after {SECOND_TEST_STEPS} steps" in found.detail


@pytest.mark.parametrize(
    ("times", "least", "most"), [(0.5, 0, 0.05), (1, 0.25, 0.75), (2, 0.95, 1)]
)
def test_the_power_that_is_told(times, least, most):
    """Independent draws from a law whose likeliest state is too likely."""
    target, draws, level = SMALL_TARGETS["binary"](), 20_000, 1e-8
    tilted = target.law.copy()
    best = tilted.argmax()
    tilted[best] *= 1 + times * smallest_visible_error(draws, target.law, level)
    tilted[np.arange(len(tilted)) != best] *= (1 - tilted[best]) / (1 - target.law[best])
    rng = np.random.default_rng(0)
    found = [
        describe_deviation(target, rng.choice(len(tilted), draws, p=tilted), level)
        for _ in range(60)
    ]
    assert least <= np.mean([bool(wrong) for wrong in found]) <= most


class Sweep(Sampler):
    """Every site in a fixed order in one step: exact without detailed balance."""

    def at(self, x, model):
        return Gibbs().at(x, model)

    def step(self, state, model, rng):
        for _ in range(model.domain.dim):
            state, info = Gibbs().step(state, model, rng)
        return state, info


class Still(Sampler):
    def at(self, x, model):
        return State(x, model.log_prob(x), x)

    def step(self, state, model, rng):
        return state, Info(torch.ones(len(state.x)))


def test_a_sweep_is_exact_without_detailed_balance():
    case = CheckCase(Sweep(), SMALL_TARGETS["binary"](), 1e-6, chains=20_000)
    assert CHECKS["invariance"](case).status == "ok"
    balance = CHECKS["detailed balance"](case)
    assert balance.status == "no"
    assert balance.flow is not None


def test_the_identity_does_not_move():
    report, _ = check_on_targets(Still(), "binary")
    assert found(report, "invariance").status == "ok"
    assert found(report, "all states reached").status == "fails"
    assert "never changed these sites: 0, 1, 2" in found(report, "all states reached").detail


def reached(sampler, target):
    return CHECKS["all states reached"](CheckCase(sampler, target, 1e-6))


@pytest.mark.parametrize("shape", [(2,), (10,)], ids=str)
def test_states_that_no_move_connects_are_found(shape):
    """Rows of two sites that flip together: of four states, two are reached from each."""

    class Pairs(Sampler):
        def at(self, x, model):
            return State(x, model.log_prob(x), x)

        def step(self, state, model, rng):
            chosen = torch.rand(len(state.x), shape[0] - 1, generator=rng).argmax(-1, True)
            x = model.domain.move_one(model.domain.move_one(state.x, chosen), chosen + 1)
            new = self.at(x, model)
            return metropolis(state, new, new.log_prob - state.log_prob, rng)

    target = Target(Function(lambda x: x @ torch.linspace(-0.5, 0.5, shape[0]), Binary(*shape)))
    found = reached(Pairs(), target)
    assert found.status == "fails"
    odd = target.z.sum(1) % 2 == 1
    shares = {f"{target.law[part].sum():.2g}" for part in (odd, ~odd)}
    assert all(share in found.detail for share in shares)


ROUGH = torch.randn(2**8, generator=torch.Generator().manual_seed(3))


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler",
    [Gibbs(), DMALA(0.1), DMALA(0.3), DMALA(torch.inf), GWG(), LocallyBalanced(), PAFS(2)],
    ids=str,
)
@pytest.mark.parametrize("slope", [0.0, 8.0])
def test_slow_chains_and_rare_states_are_no_alarm(sampler, slope):
    """Independent sites, and one mode for each random state: up to barriers of exp(-8)."""
    bits = 2.0 ** torch.arange(8)

    def log_prob(x):
        return slope * ROUGH.to(x)[(x.detach() @ bits.to(x)).long()] + x.sum(-1)

    found = reached(sampler, Target(Function(log_prob, Binary(8))))
    assert found.status in ("ok", "-"), found.detail


def test_false_alarms_are_as_rare_as_stated():
    """At level 1/100 instead of 1e-8, the counts of a right sampler fail about as often."""
    target, failed, seeds = SMALL_TARGETS["binary"](), 0, 120
    for seed in range(seeds):
        case = CheckCase(DMALA(0.5), target, 0.2 / decisions_of(target, False), None, 2000, seed)
        failed += CHECKS["invariance"](case).status == "fails"
    assert 1 <= failed < 0.2 * seeds
