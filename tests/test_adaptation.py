"""Scales that are chosen by acceptance in burn-in: the optimum is found, and then frozen."""

import math
from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from targets import TARGETS
from torch import Generator

import latticework as lw
from latticework.experiments import CONF
from latticework.sampling.adaptation import OPTIMAL, AdaptationWarning, run_adaptation
from latticework.sampling.chain import Chain
from latticework.sampling.loop_state import to_checkpoint
from latticework.sampling.sample_arguments import rule_of
from workshop.samplers_table import names


class Product(lw.EnergyModel):
    """Independent sites with normal log-odds."""

    def __init__(self, dim: int = 200) -> None:
        super().__init__()
        self.domain = lw.Binary(dim)
        self.odds = 1.5 * torch.randn(dim, generator=Generator().manual_seed(0))

    def forward(self, x):
        return x @ self.odds

    def draw(self, chains: int, rng: Generator):
        return torch.bernoulli(self.odds.sigmoid().expand(chains, -1), generator=rng)


PRODUCT = Product()
LATTICE = TARGETS["lattice"].model


def adaptation(sampler, seed=0, rule=None):
    rng = Generator().manual_seed(seed)
    return run_adaptation(
        rule or lw.AcceptanceControl(), sampler, PRODUCT, PRODUCT.draw(32, rng), rng
    )


def jumps(sampler, steps=60):
    """Mean acceptance, and the expected number of sites that a step changes, from the target."""
    rng = Generator().manual_seed(1)
    state = sampler.init(PRODUCT.draw(64, rng), PRODUCT)
    accepted = changed = 0.0
    for _ in range(steps):
        before = state.x.clone()
        state, info = sampler.step(state, PRODUCT, rng)
        accepted += float(info.accept_prob.mean()) / steps
        changed += float((state.x != before).sum(1).float().mean()) / steps
    return accepted, changed


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler",
    [lw.DMALA(0.01), lw.DMALA(20.0), lw.PAFS(1), lw.RandomWalk(1), lw.RandomWalk(40)],
    ids=str,
)
def test_the_optimum_of_product_targets_is_found(sampler):
    """The acceptance of fresh chains is the target, where a step changes the most sites."""
    found = adaptation(sampler).sampler
    goal = OPTIMAL[sampler.target_acceptance]
    scale = getattr(found, found.scale)
    whole = isinstance(scale, int)
    accepted, changed = jumps(found)
    # A whole number cannot meet the target: its neighbours enclose it.
    slack = 0.03 if not whole or scale > 20 else 0.06
    assert abs(accepted - goal) < slack
    factors = (0.25, 0.5, 2.0, 4.0)
    others = [scale * factor for factor in factors]
    others = [max(1, round(other)) for other in others] if whole else others
    distances = [jumps(replace(found, **{found.scale: other}))[1] for other in others]
    assert changed > 0.9 * max(distances)
    assert changed > 1.3 * max(distances[0], distances[-1])  # control: far scales are worse


def test_nothing_adapts_after_the_burn_in():
    """The draws are those of one frozen sampler from where the burn-in ended, bit for bit."""
    result = lw.sample(PRODUCT, lw.DMALA(3.0), chains=4, steps=30, burn_in=10, adapt=0.574, seed=5)
    assert result.sampler == result.adapted.sampler != lw.DMALA(3.0)
    with pytest.raises(FrozenInstanceError):
        result.sampler.step_size = 1.0

    rng = Generator().manual_seed(5)
    start = PRODUCT.domain.uniform(4, rng)
    found = run_adaptation(lw.AcceptanceControl(0.574), lw.DMALA(3.0), PRODUCT, start, rng)
    assert found.sampler == result.sampler
    chain = Chain(found.sampler, PRODUCT, found.x, rng, every=1)
    for step in range(40):
        chain.advance()
        if step >= 10:
            assert torch.equal(chain.state.x, result.draws[:, step - 10])


def test_the_start_is_not_forgotten():
    """Blocks that meet the target leave the scale where it started."""
    rule, start = lw.AcceptanceControl(0.5), lw.DMALA(0.3)
    for blocks in range(5):
        trial = rule.trial(start, PRODUCT, [0.5] * blocks)
        assert trial.step_size == pytest.approx(0.3)
    assert rule.trial(start, PRODUCT, [0.6]).step_size == pytest.approx(0.3 * math.exp(0.2))
    assert rule.trial(start, PRODUCT, [0.6, 0.5]).step_size == pytest.approx(0.3 * math.exp(0.2))
    second = 0.2 - 2 * 2**-0.6 * 0.1
    assert rule.trial(start, PRODUCT, [0.6, 0.4]).step_size == pytest.approx(0.3 * math.exp(second))


def test_the_frozen_scale_is_the_geometric_mean_of_the_last_half():
    rule, acceptances = lw.AcceptanceControl(0.5), [0.9, 0.2, 0.7, 0.4]
    late = [rule.trial(lw.DMALA(1.0), PRODUCT, acceptances[:n]).step_size for n in (3, 4)]
    frozen = rule.freeze(lw.DMALA(1.0), PRODUCT, acceptances).step_size
    assert frozen == pytest.approx(math.sqrt(late[0] * late[1]))


def test_a_scale_that_counts_sites_stays_within_them():
    rule, model = lw.AcceptanceControl(), TARGETS["binary"].model  # of three sites
    assert rule.trial(lw.PAFS(2), model, [1.0] * 10) == lw.PAFS(3)
    assert rule.trial(lw.PAFS(2), model, [0.0] * 10) == lw.PAFS(1)
    assert rule.trial(lw.PAFS(2), model, [1.0] * 10 + [0.0] * 9) == lw.PAFS(
        1
    )  # bounds hold nothing back
    assert rule.trial(lw.DMALA(1), model, [1.0]).step_size not in (1, 2, 3)  # given as an integer


def test_a_scale_stays_within_a_factor_of_a_hundred():
    """Where no scale brings the acceptance down, it would grow for ever."""
    rule = lw.AcceptanceControl(0.5)
    up = [rule.trial(lw.DMALA(0.3), PRODUCT, [1.0] * n).step_size for n in (5, 500, 5000)]
    assert up[0] < up[1] == up[2] == pytest.approx(30.0)
    assert rule.trial(lw.DMALA(0.3), PRODUCT, [0.0] * 500).step_size == pytest.approx(0.003)
    assert (
        rule.trial(lw.DMALA(0.3), PRODUCT, [1.0] * 500 + [0.0]).step_size < 30.0
    )  # and comes back


def test_what_was_reached_is_reported_and_a_miss_is_told(recwarn):
    """On a flat target nearly all is accepted, whatever the scale."""
    found = adaptation(lw.DMALA(1.0))
    assert found.aimed == OPTIMAL["locally_balanced"]
    late = found.trajectory["acceptance"][30:]
    assert found.reached == pytest.approx(sum(late) / 30)
    assert not recwarn.list
    told = "reached an acceptance of 1.000 and aimed at 0.300 .step_size="
    with pytest.warns(AdaptationWarning, match=told):
        result = lw.sample(lambda x: x.sum(-1) * 0, lw.DMALA(1.0), sites=4, steps=2, adapt=0.3)
    assert "acceptance 1.000 (aimed at 0.3), " in repr(result)


def test_the_words_of_yaml_name_the_same_rules():
    for name in names("adapt"):
        file = OmegaConf.load(CONF / "adapt" / f"{name}.yaml")
        assert rule_of(name) == instantiate(file)
    assert rule_of("random_walk") == lw.AcceptanceControl("random_walk")
    assert rule_of(0.7) == lw.AcceptanceControl(0.7)
    cycle = lw.sample(LATTICE, lw.ACS(4.0, 0.1, 2), chains=2, steps=2, adapt="cycle").adapted
    assert (cycle.aimed, set(cycle.fields)) == (
        None,
        set(lw.CycleControl().field_names(cycle.sampler)),
    )


@pytest.mark.parametrize(
    "sampler", [lw.Gibbs(), lw.DULA(0.1), lw.GWG(), lw.ACS(2.0, 0.2, 4)], ids=str
)
def test_a_sampler_without_a_scale_is_refused(sampler):
    with pytest.raises(ValueError, match=f"{type(sampler).__name__} has no scale"):
        lw.sample(PRODUCT, sampler, steps=2, adapt="locally_balanced")


@pytest.mark.parametrize(
    ("sampler", "rule", "engine"),
    [
        (lw.DMALA(0.3), lw.AcceptanceControl(rounds=6), "eager"),
        pytest.param(
            lw.DMALA(0.3), lw.AcceptanceControl(rounds=6), "compiled", marks=pytest.mark.slow
        ),
        (lw.PAFS(2), lw.AcceptanceControl(rounds=6), "eager"),
        (lw.RMALA(0.3, 0.5), lw.AcceptanceControl(rounds=6), "eager"),
        (lw.ACS(4.0, 0.1, 2), lw.CycleControl(sizes=2, balances=2), "eager"),
    ],
    ids=str,
)
def test_an_interrupted_burn_in_resumes_bit_for_bit(sampler, rule, engine):
    saved = {}

    def interrupted(memory, total):
        for number in range(total):
            yield number
            if number == 3:
                saved.update(to_checkpoint(memory))

    def resumed(memory, total):
        memory.load_state_dict(saved)
        yield from range(4, total)

    x = LATTICE.domain.uniform(4, Generator().manual_seed(0))
    whole, again = (
        run_adaptation(rule, sampler, LATTICE, x, Generator().manual_seed(seed), engine, loop)
        for seed, loop in ((1, interrupted), (2, resumed))
    )
    assert again.fields == whole.fields
    assert set(whole.fields) == set(rule.field_names(sampler))
    assert again.trajectory == whole.trajectory
    assert all(len(values) == rule.blocks(sampler) for values in whole.trajectory.values())
    assert torch.equal(again.x, whole.x)


# The cycle of ACS.

CYCLE = lw.ACS(largest_step=8.0, smallest_step=1.0, period=2, largest_balance=0.9)
RULE = lw.CycleControl(
    target=0.5, sizes=4, balances=3
)  # step sizes 1, 2, 4, 8; balances 0.5, 0.7, 0.9


def test_blocks_of_the_cycle_try_one_step_and_one_balance_each():
    down, up = [0.1, 0.6, 0.2, 0.9], [0.9, 0.8, 0.3, 0.9]
    tries = [RULE.trial(CYCLE, LATTICE, (down + up + [0.0] * 6)[:n]) for n in range(14)]
    assert RULE.blocks(CYCLE) == len(tries)
    steps, balances = [8, 4, 2, 1, 1, 2, 4, 8, 4, 4, 4, 2, 2, 2], [0.9] * 4 + [0.5] * 4
    balances += [0.5, 0.7, 0.9] * 2
    for trial, step, balance in zip(tries, steps, balances, strict=True):
        (size,), (found,) = trial.cycle_of_steps(), trial.cycle_of_balances()
        assert (size, found) == (pytest.approx(step), pytest.approx(balance))


def test_the_cycle_is_bounded_by_acceptance_and_has_the_best_balances():
    down, up = [0.1, 0.6, 0.2, 0.9], [0.9, 0.8, 0.3, 0.9]
    found = RULE.freeze(CYCLE, LATTICE, [*down, *up, 0.1, 0.3, 0.2, 0.6, 0.5, 0.4])
    assert found.largest_step == pytest.approx(4)  # the first from above that is accepted enough
    assert found.smallest_step == pytest.approx(2)  # the last before one is not
    assert found.balances == pytest.approx([0.7, 0.5])
    none = RULE.freeze(CYCLE, LATTICE, [0.0] * 8 + [1.0] * 6)
    assert none.largest_step == none.smallest_step == pytest.approx(1)
