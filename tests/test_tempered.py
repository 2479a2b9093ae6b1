"""Tempering: the schedule, scales, log Z and its interval, round trips, settings, both engines."""

from itertools import chain
from math import inf

import numpy as np
import pytest
import torch
from command import command_line
from hydra.utils import instantiate
from replicas import errors_off, run_ladders, works_of_exact_draws
from scipy.stats import binom
from targets import TARGETS
from torch import Generator

import latticework as lw
from latticework.experiments.records.record import load_all
from latticework.samplers.base import UnsupportedModelError
from latticework.samplers.compiled.compiled_sampler import NoCompiledKernelError
from latticework.samplers.compiled.registry import find_compiled_kernel
from latticework.samplers.ladder import (
    LEARNING_LADDERS,
    MAX_LEVELS,
    LadderState,
    even_schedule,
    learn_ladder,
)
from latticework.sampling import ladder_estimates
from latticework.sampling.ladder_estimates import Ladders, LogZ, bennett, estimate
from latticework.sampling.verdict import Convergence
from workshop.interval_coverage import measure_coverage

pytestmark = pytest.mark.usefixtures("no_grad")


@pytest.mark.slow
def test_fused_chains_tell_log_z(monkeypatch):
    """Blocks of two steps, compiled; the schedule is learned eagerly and the same."""
    monkeypatch.setattr("latticework.samplers.fused_block.BLOCK_STEPS", 2)
    target = TARGETS["binary"]
    settings = {"steps": 600, "burn_in": 100, "chains": 8, "diagnose": False, "seed": 0}
    tempered, found = lw.Tempered(lw.GWG(), rounds=4, levels=6), {}
    for engine in ("eager", "fused"):
        found[engine] = lw.sample(target.model, tempered, engine=engine, **settings)
        exact = np.logaddexp.reduce(target.log_prob)
        assert errors_off(found[engine].log_z, exact, 8) < 5
    one, other = found.values()
    assert np.array_equal(one.ladders.schedule, other.ladders.schedule)
    assert one.evaluations == pytest.approx(other.evaluations, rel=0.01)


def test_the_schedule_equalises_rejections():
    """The number of levels follows from the barrier, and a fixed one is kept."""
    model = lw.erdos_renyi(16, 4, 0.35)
    x = torch.zeros(1, 16)
    for levels in (None, 6):
        fields = lw.Tempered(lw.DMALA(0.3), levels=levels).learn_fields(x, model)
        sampler = lw.Tempered(lw.DMALA(0.3), **fields)
        assert sampler.learn_fields(x, model) == {}
        found = run_ladders(sampler, model, 400)
        assert found.rejections.max() - found.rejections.min() < 0.12
        assert (found.schedule[0], found.schedule[-1]) == (0, 1)
        wanted = levels or np.ceil(2 * found.barrier) + 1
        assert abs(len(found.schedule) - wanted) <= 1
    assert even_schedule(torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.3, 0.1]), 3)[
        1
    ] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (lw.DMALA(0.5), "categorical"),
        (lw.Gibbs(), "spins"),
        (lw.BlockGibbs(), "rbm"),
    ],
)
def test_log_z_equals_enumeration(kernel, name):
    target = TARGETS[name]
    found = run_ladders(lw.Tempered(kernel, 6), target.model, 1000).log_z
    exact = np.logaddexp.reduce(target.log_prob)
    for value in (found.value, found.forward, found.backward):
        assert errors_off(found._replace(value=value), exact, 8) < 5
    assert not found.doubt


def test_the_number_of_learned_levels_is_bounded(monkeypatch):
    monkeypatch.setattr("latticework.samplers.ladder.MAX_LEVELS", 8)
    assert MAX_LEVELS > 100
    model = lw.Lattice((30,), 0.0, 3.0)
    found = learn_ladder(lw.Tempered(lw.GibbsSweep(), 4), model, torch.zeros(1, 30)).state
    assert found.level.shape == (7, LEARNING_LADDERS)


def test_the_interval_covers_log_z():
    """The number of 400 intervals of 95 % that cover is binomial."""
    rng, covered = np.random.default_rng(3), 0
    for _ in range(400):
        up, down, exact = works_of_exact_draws(rng, 50, 4)
        found = estimate(up, down)
        covered += found.low <= exact <= found.high
    fewest, most = binom.interval(0.999, 400, 0.95)
    assert fewest <= covered <= most


@pytest.mark.parametrize("steps", [20, pytest.param(320, marks=pytest.mark.slow)])
def test_intervals_of_chains_cover_log_z(steps):
    """Over 100 repetitions. After 20 steps all ladders are where they started, and it is said."""
    model = lw.Lattice((4, 4), 0.1, 0.3)
    found = measure_coverage(model, lw.GibbsSweep(), "tempering", "eager", steps, repetitions=100)
    if steps == 20:
        assert (found["cover"], found["plain"]) == (1, 0)
    else:  # intervals without ends hold everything, so those with two ends are counted
        plain = round(100 * found["plain"])
        fewest, most = binom.interval(0.999, plain, 0.95)
        assert plain > 50
        assert fewest <= plain * found["plain that cover"] <= most


def test_intervals_of_few_steps_would_not_cover(monkeypatch):
    """Control: ladders without a round trip count, and chains that have not converged."""
    monkeypatch.setattr(Ladders, "_why_unsure", lambda *_: "")
    found = measure_coverage(lw.erdos_renyi(16, 4, 0.35), lw.GWG(), "tempering", "eager", 20, 100)
    assert found["cover"] < 0.7


MIXED = Convergence(True, "converged: R-hat 1.001")
APART = Convergence(False, "does not mix: R-hat 1.35 at x[3]")


def exact_ladders(trips=12):
    """Ladders of exact draws of "binary" that say to have made so many round trips each."""
    up, down, _ = works_of_exact_draws(np.random.default_rng(0), 400, 8)
    b, level = np.array([0.0, 0.2, 0.5, 1.0]), np.zeros((400, 3, 8), np.int64)
    return Ladders(b, up, down, level, np.full(8, trips), 400)


def test_log_z_has_two_ends_only_with_round_trips_and_chains_that_mix():
    known = exact_ladders().estimate_log_z(MIXED)
    assert known.low < known.value < known.high < inf
    assert not known.doubt
    for ladders, chains, text in (
        (exact_ladders(9), MIXED, "9.0 round trips a ladder, fewer than 10"),
        (exact_ladders(), APART, "R-hat 1.35 at x[3]"),
    ):
        found = ladders.estimate_log_z(chains)
        assert (found.low, found.high) == (-inf, inf)
        assert found[0] == known.value
        assert text in found.doubt
        assert text in str(found)
    assert (
        exact_ladders().select_ladders(slice(1)).log_z.doubt
        == "an interval needs two ladders or more"
    )


def test_log_z_of_a_result_inherits_the_verdict_of_its_chains():
    """40 draws are too few to judge; the ladders are right and made many round trips."""
    found = lw.sample(
        TARGETS["binary"].model, "gibbs", temper=True, steps=40, burn_in=40, diagnose=False
    )
    object.__setattr__(found, "ladders", exact_ladders())
    assert exact_ladders().log_z.high < inf
    assert not found.verdict.judged
    assert found.log_z == exact_ladders().estimate_log_z(found.verdict)
    assert "not judged" in found.log_z.doubt
    assert found.log_z.high == inf


def test_the_first_half_of_the_draws_is_left_out():
    """Works of 1 in the first three of seven draws would move the estimate."""
    zeros, level = torch.zeros(2, 2), torch.zeros(2, 2).long()
    draws = [(zeros + float(t < 3), zeros - float(t < 3), level) for t in range(7)]
    schedule = torch.tensor([0.0, 0.5, 1.0])
    state = LadderState(*[None] * 4, schedule, schedule[:0], *[None] * 5)
    found = Ladders.from_draws(state, draws, torch.full((2,), 20), 7)
    assert found.up.shape == (4, 2, 2)
    assert found.log_z.value == 0


def test_the_jackknife_leaves_each_ladder_out():
    """One step of Newton's method is near the root without each ladder, found from scratch."""
    up, down, _ = works_of_exact_draws(np.random.default_rng(1), 100, 5)
    fast = ladder_estimates._without_each(up, down, bennett(up, down))
    for ladder in range(5):
        rest = np.arange(5) != ladder
        slow = bennett(up[..., rest], down[..., rest])
        np.testing.assert_allclose(fast[:, ladder], slow, atol=3e-4)


def test_bennett_solves_its_equation():
    up, down, exact = works_of_exact_draws(np.random.default_rng(0), 200_000, 1)
    c = bennett(up, down)
    forward = 1 / (1 + np.exp(c[:, None] - up))
    backward = 1 / (1 + np.exp(-c[:, None] - down))
    np.testing.assert_allclose(forward.sum((0, 2)), backward.sum((0, 2)), rtol=1e-8)
    assert c.sum() == pytest.approx(exact, abs=0.02)
    alone = estimate(up, down)
    assert np.isnan([alone.low, alone.high]).all()


def test_round_trips_of_sites_without_couplings_follow_the_theory():
    model = lw.Lattice((30,), 0.0, 1.0)
    sampler = lw.Tempered(lw.GibbsSweep(), schedule=[0.0, 0.25, 0.5, 0.75, 1.0])
    found = run_ladders(sampler, model, 1500)
    assert found.trips.mean() == pytest.approx(found.predicted_trips, rel=0.15)
    assert found.barrier_known
    two = run_ladders(lw.Tempered(lw.GibbsSweep(), schedule=[0.0, 1.0]), model, 200)
    assert not two.barrier_known


def test_refresh_and_moved_to():
    """After the target changed all replicas have its values; a move changes the coldest alone."""
    model, rng = lw.erdos_renyi(6, 2, 0.5), Generator().manual_seed(0)
    sampler = lw.Tempered(lw.DMALA(0.5), schedule=[0.0, 0.5, 1.0])
    state = sampler.init(model.domain.uniform(3, rng).float(), model)
    for _ in range(3):
        state, _ = sampler.step(state, model, rng)
    moved = sampler.relocate(1 - state.x, state, model)
    changed = (moved.kernel.x != state.kernel.x).any(-1).view(2, 3)
    assert torch.equal(changed, state.level == 2)
    assert torch.equal(moved.x, 1 - state.x)
    next(chain(model.parameters(), model.buffers())).mul_(2)
    fresh = sampler.refresh(state, model)
    torch.testing.assert_close(
        fresh.known[1], model.log_prob(state.kernel.x) + 6 * torch.tensor(2.0).log()
    )


def far_modes(x):
    mean = x.mean(-1)
    return 40 * torch.logaddexp(-40 * (mean - 0.1) ** 2, -40 * (mean - 0.9) ** 2)


@pytest.mark.slow
def test_sample_leaves_modes_and_tells_log_z(tmp_path):
    settings = {"sites": 20, "steps": 4000, "burn_in": 100, "chains": 8, "diagnose": False}
    plain = lw.sample(far_modes, "gwg", **settings)
    found = lw.sample(far_modes, "gwg", temper=True, **settings)
    assert plain.draws.mean(-1).std(1).max() < 0.1  # each chain stays where it began
    means = found.draws.mean((1, 2))
    assert means.std() < 0.15
    assert abs(means.mean() - 0.5) < 5 * means.std() / 8**0.5
    exact = far_modes(lw.Binary(20).enumerate().double()).logsumexp(0)
    assert plain.log_z is None
    assert errors_off(found.log_z, float(exact), 8) < 5
    torch.testing.assert_close(found.log_prob, far_modes(found.draws), rtol=1e-4, atol=1e-4)
    assert "GWG(" in repr(found)
    found.save(tmp_path / "draws.npz")
    loaded = lw.SampleResult.load(tmp_path / "draws.npz")
    assert loaded.log_z == found.log_z
    assert loaded.sampler == found.sampler
    assert loaded.ladders.steps == found.ladders.steps == 4000


def test_adaptation_is_that_of_the_kernel(tmp_path):
    """At each level, if it has a real scale; a number of sites is chosen at b = 1."""
    settings = {"temper": True, "adapt": 0.5, "steps": 20, "diagnose": False}
    with pytest.warns(lw.ConvergenceWarning, match="Tempered leaves .*; give a burn_in"):
        found = lw.sample(far_modes, "dmala", domain=lw.Binary(20), x=torch.eye(4, 20), **settings)
    assert found.adapted is None
    assert (found.sampler.kernel, found.sampler.acceptance) == (lw.DMALA(), 0.5)
    assert len(found.ladders.scales) == len(found.ladders.schedule)
    found.save(tmp_path / "draws.npz")
    loaded = lw.SampleResult.load(tmp_path / "draws.npz")
    assert np.array_equal(loaded.ladders.scales, found.ladders.scales)
    assert loaded.sampler == found.sampler
    counted = lw.sample(far_modes, "pafs", sites=20, **settings)
    assert isinstance(counted.sampler, lw.Tempered)
    assert counted.sampler.kernel == counted.adapted.sampler != lw.PAFS()
    counted.save(tmp_path / "counted.npz")
    loaded = lw.SampleResult.load(tmp_path / "counted.npz")
    assert loaded.adapted.sampler == counted.adapted.sampler


def test_the_kernel_can_be_named():
    assert lw.Tempered("gwg(flips=2)").inner == lw.GWG(2)
    with pytest.raises(ValueError, match="kernel must be one of acs, .* got 'gibs'"):
        lw.Tempered("gibs")


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: lw.Tempered(3), "kernel must be a sampler, such as DMALA"),
        (lambda: lw.Tempered(lw.DULA()), "keeps the law of its target from the first step"),
        (lambda: lw.Tempered(lw.RMALA()), "keeps the law of its target from the first step"),
        (lambda: lw.Tempered(lw.GWG(), levels=1), "levels must be 2 or more"),
        (lambda: lw.Tempered(lw.GWG(), hot=1.0), "hot must be a share of the levels"),
        (lambda: lw.Tempered(lw.GWG(), schedule=[0, 0.5]), "rise from 0 or above to 1"),
        (lambda: lw.Tempered(lw.GWG(), schedule=[0.5, 0.5, 1]), "rise from 0 or above to 1"),
        (lambda: lw.Tempered(lw.GWG(), 0), "rounds must be an integer of at least 1"),
        (lambda: lw.Tempered(lw.DMALA(), acceptance=1.5), "acceptance must be between 0 and 1"),
        (lambda: lw.Tempered(lw.GWG(), acceptance=0.5), "kernels whose scale may differ by level"),
        (lambda: lw.Tempered(lw.DMALA(inf), acceptance=0.5), "starts from a finite step_size"),
        (lambda: lw.Tempered(lw.DMALA(), scales=[0.5]), "for each level of schedule"),
        (
            lambda: lw.Tempered(lw.DMALA(), schedule=[0, 1], scales=[0.5, -1]),
            "a positive number for each level",
        ),
        (lambda: lw.Tempered(log_odds=[0.1, -inf]), "log_odds must be finite.*frequencies of 0"),
        (lambda: lw.Tempered(schedule=[0.5, 1], log_odds=[0.1]), "log_odds are those of b = 0"),
    ],
)
def test_bad_settings(make, match):
    with pytest.raises((TypeError, ValueError), match=match):
        make()


def test_a_matrix_is_not_learned_from_many_targets():
    given = {"domain": lw.Binary(4), "temper": True, "steps": 10, "diagnose": False}
    with pytest.raises(UnsupportedModelError, match="one for each level; give a matrix, or use av"):
        lw.sample(lambda x: x.sum(-1), "pavg", **given)
    lw.sample(lambda x: x.sum(-1), lw.PAVG(matrix=torch.eye(4)), **given)


def test_an_infinite_domain_needs_a_first_level_above_0():
    target = TARGETS["naturals"]
    with pytest.raises(UnsupportedModelError, match="a schedule that begins above 0"):
        lw.Tempered(lw.GWG()).init(torch.zeros(2, *target.domain.shape), target.model)
    kept = lw.sample(target.model, lw.Tempered(lw.GWG(), schedule=[0.5, 1.0]), steps=8)
    assert kept.ladders is not None
    assert kept.log_z is None


@pytest.mark.slow
def test_compiled_chains_tell_log_z_whatever_the_threads():
    model = lw.Lattice((8, 8), 0.2)
    settings = {"steps": 2000, "burn_in": 40, "thin": 2, "chains": 8, "engine": "compiled"}
    tempered = lw.Tempered("gibbs_sweep", rounds=6)
    found = lw.sample(model, tempered, diagnose=False, **settings)
    assert errors_off(found.log_z, float(model.log_z_and_mean()[0]), 8) < 5
    again = lw.sample(model, tempered, diagnose=False, threads=2, **settings)
    assert torch.equal(found.draws, again.draws)


@pytest.mark.parametrize(
    ("name", "odds", "match"),
    [("rbm", None, "tempering runs eagerly"), ("dense_ising", [0.0] * 4, "log_odds are given")],
)
def test_these_ladders_are_eager(name, odds, match):
    with pytest.raises(NoCompiledKernelError, match=match):
        find_compiled_kernel(lw.Tempered(lw.GWG(), log_odds=odds), TARGETS[name].model)


def test_a_run_notes_log_z(tmp_path):
    """Exact by transfer matrices; the interval is over eight ladders."""
    words = ["model=ising", "model.shape=[4,4]", "sampler=tempered", "sampler.kernel=gibbs_sweep"]
    words += ["budget.steps=1600", "budget.every=4", "budget.chains=8", "engine=eager"]
    assert command_line(*words, outputs=tmp_path) == 0
    (record,) = load_all(tmp_path)
    found = LogZ(**record.document["log_z"])
    model = lw.Lattice((4, 4), record.config["model"]["coupling"], record.config["model"]["bias"])
    assert errors_off(found, float(model.log_z_and_mean()[0]), 8) < 5
    assert record.document["barrier"] > 0
    assert record.arrays("ladders")["level"].shape[2] == 8


@pytest.mark.parametrize("kernel", [lw.GWG(), lw.RandomWalk(), lw.Gibbs(2, "random")], ids=str)
def test_swapping_kernels_are_tempered_on_subsets(kernel):
    """Means and log Z of states with two ones of six, against enumeration."""
    weights = torch.tensor([0.5, -0.3, 1.0, 0.0, 0.7, -1.0])

    def target(x):
        return x @ weights + 2 * x[:, 0] * x[:, 4] - x[:, 1] * x[:, 2]

    model = lw.Function(target, lw.Subset(6, 2))
    truth = lw.exact(model)
    result = lw.sample(model, lw.Tempered(kernel), chains=20, steps=500, diagnose=False)
    assert (result.draws.float().flatten(0, 1).mean(0) - truth.mean).abs().max() < 0.03
    assert abs(result.log_z.value - float(truth.log_z)) < 0.05


def test_a_kernel_that_does_not_swap_is_refused_on_subsets():
    model = lw.Function(lambda x: x.sum(-1), lw.Subset(6, 2))
    with pytest.raises(lw.UnsupportedModelError, match="DMALA needs sites that move on their"):
        lw.sample(model, lw.Tempered("dmala"), chains=4, steps=10, diagnose=False)


def test_pt_dmala_is_tempering_also_under_its_old_name():
    """In a user's Python and YAML, for one release."""
    expected = lw.Tempered(lw.DMALA(0.3), schedule=[0.5, 1.0])
    with pytest.warns(DeprecationWarning, match=r"write Tempered\(DMALA\(0.3\), schedule"):
        assert lw.PTDMALA(0.3, [1.0, 0.5]) == expected
    old = {"_target_": "latticework.samplers.pt_dmala.PTDMALA", "step_size": 0.3}
    with (
        pytest.warns(DeprecationWarning, match="burn_in has no effect"),
        pytest.warns(DeprecationWarning, match="moved to latticework.moved_samplers"),
    ):
        assert instantiate({**old, "ladder": [1.0, 0.5], "burn_in": 9}) == expected
