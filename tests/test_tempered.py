"""Tempering: the joint law of the replicas, the schedule, log Z, round trips, both engines."""

import copy
from dataclasses import replace
from functools import partial
from itertools import chain
from math import inf

import numpy as np
import pytest
import torch
from command import command_line
from exactness import p_value
from hydra.utils import instantiate
from plain import agree
from scipy.stats import binom
from scipy.stats import t as student
from targets import TARGETS
from torch import Generator

import latticework as lw
from latticework.experiments.records.record import load_all
from latticework.models.paths import path_of
from latticework.samplers.base import UnsupportedModelError, acceptance
from latticework.samplers.compiled.compiled_sampler import NoCompiledKernelError
from latticework.samplers.compiled.registry import find_compiled_kernel
from latticework.samplers.fused import Fused
from latticework.samplers.ladder import (
    LEARNING_LADDERS,
    MAX_LEVELS,
    LadderState,
    even_schedule,
    learn_ladder,
)
from latticework.samplers.scale import with_scales
from latticework.sampling import ladder_estimates
from latticework.sampling.ladder_estimates import Ladders, LogZ, bennett, estimate, levels_of
from latticework.sampling.verdict import Convergence
from workshop.interval_coverage import coverage

pytestmark = pytest.mark.usefixtures("no_grad")


@pytest.fixture
def no_grad():
    with torch.no_grad():
        yield


def law_at(b, sampler, target):
    """The law at b: of pi^b p0^(1 - b), or of the RBM with b times the parameters."""
    odds = torch.tensor(sampler.log_odds or [0.0], dtype=torch.float64)
    bits = target.states.double() > 0  # of a binary domain, which alone can have log-odds
    start = (bits * odds).flatten(1).sum(1).numpy()
    values = b * target.log_prob + (1 - b) * start
    if isinstance(target.model, lw.RBM):
        scaled = copy.deepcopy(target.model).double()
        for parameter in scaled.parameters():
            parameter.mul_(b)
        scaled.visible_bias.add_((1 - b) * odds)
        values = scaled.log_prob(target.states.double()).numpy()
    return np.exp(values - np.logaddexp.reduce(values))


def joint_p(sampler, name, steps=3, chains=20_000, engine=None):
    """P-value of the joint counts of all replicas, after steps from their joint law.

    `engine` makes the kernel that moves them.
    """
    target, rng = TARGETS[name], Generator().manual_seed(4)
    b = sampler.schedule[int(sampler.has_base) :]
    laws = [law_at(each, sampler, target) for each in b]
    replicas = torch.stack([target.draw(law, chains, rng) for law in laws])
    state = sampler._at(replicas, replicas[-1], torch.tensor(sampler.schedule), target.model)
    kernel = engine(sampler) if engine else sampler
    state = kernel.wrap_state(state) if engine else state
    for _ in range(steps):
        state, _ = kernel.step(state, target.model, rng)
    state = kernel.unwrap_state(state)
    by_level = state.kernel.x.unflatten(0, (len(b), -1))[state.level.argsort(0), range(chains)]
    assert torch.equal(by_level[-1], state.x)
    size, law, index = len(target.z), laws[0], 0
    for each in laws[1:]:
        law = np.outer(law, each).ravel()
    for each in by_level:
        index = index * size + torch.as_tensor(target.index(each))
    return p_value(torch.bincount(index, minlength=len(law)).numpy(), law)


KERNELS = [
    (lw.DMALA(0.5), "binary"),
    (lw.DMALA(0.5), "categorical"),
    (lw.GWG(), "ordinal"),
    (lw.GWG(), "binary"),
    (lw.GWG(2), "rbm"),
    (lw.DMALA(0.5), "rbm"),
    (lw.Gibbs(), "rbm"),
    (lw.Gibbs(2), "rbm"),
    (lw.BlockGibbs(), "rbm"),
    (lw.LocallyBalanced(), "rbm"),
    (lw.Gibbs(), "binary"),
    (lw.Gibbs(2), "ordinal"),
    (lw.GibbsSweep(), "lattice"),
    (lw.GibbsSweep(), "lattice_potts"),
    (lw.MetropolisSweep(), "lattice_potts"),
    (lw.LocallyBalanced(), "spins"),
    (lw.RandomWalk(2), "categorical"),
    (lw.PAFS(2), "binary"),
    (lw.DLMC(0.5), "ordinal"),
    (lw.ACS(2.0, 0.2, 4), "binary"),
    (lw.AVG(0.8), "spins"),
    (lw.DHAMS(0.7, 0.8, 0.3), "spins"),
    (lw.EDLP(0.6, 0.7, 0.5), "spins"),
    (lw.HammingBall(3, 1, "systematic"), "binary"),
    (lw.SwendsenWang(), "lattice"),
    (lw.SwendsenWang(), "lattice_potts"),
    (lw.SwendsenWang(), "ferromagnet"),
]


SCALES = [0.4, 1.5, 0.2]  # of levels
RECORDED = [  # what a kernel asks of a path: each method, by both kinds of paths
    (lw.DMALA(0.5), "binary", None),
    (lw.DMALA(0.5), "rbm", SCALES),
    (lw.GWG(2), "rbm", None),
    (lw.Gibbs(), "binary", None),
    (lw.Gibbs(2), "rbm", None),
    (lw.BlockGibbs(), "rbm", None),
    (lw.LocallyBalanced(), "spins", None),
    (lw.GibbsSweep(), "lattice_potts", None),
    (lw.ACS(2.0, 0.2, 4), "binary", None),
    (lw.AVG(0.8), "categorical", SCALES),
    (lw.DHAMS(0.7, 0.8, 0.3), "spins", SCALES),
]


@pytest.mark.parametrize(("kernel", "name"), KERNELS)
def test_replicas_keep_the_product_of_the_laws_of_their_levels(kernel, name):
    assert joint_p(lw.Tempered(kernel, schedule=[0.0, 0.3, 1.0]), name) > 1e-4


@pytest.mark.parametrize(("kernel", "name"), KERNELS[::4])
def test_a_schedule_may_begin_above_0(kernel, name):
    assert joint_p(lw.Tempered(kernel, schedule=[0.4, 1.0]), name) > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "name", "scales"), RECORDED)
def test_recorded_steps_keep_the_joint_law(kernel, name, scales, uncompiled):
    """Those of the fused engine, which PyTorch interprets here."""
    sampler = lw.Tempered(kernel, schedule=[0.0, 0.3, 1.0], scales=scales)
    assert joint_p(sampler, name, engine=Fused) > 1e-4


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


SCALED = [
    (lw.DMALA(0.5), "binary"),
    (lw.DMALA(0.5), "categorical"),
    (lw.DMALA(0.5, [0.5, 2.0]), "ordinal"),
    (lw.DMALA(0.5), "rbm"),
    (lw.DLMC(0.5), "ordinal"),
    (lw.DLMCf(0.5, "barker"), "binary"),
    (lw.AVG(0.8), "categorical"),
    (lw.DHAMS(0.7, 0.8, 0.3), "spins"),
    (lw.EDLP(0.6, 0.7, 0.5), "spins"),
]


@pytest.mark.parametrize(("kernel", "name"), SCALED)
def test_levels_with_scales_of_their_own_keep_the_joint_law(kernel, name):
    sampler = lw.Tempered(kernel, schedule=[0.0, 0.3, 1.0], scales=SCALES)
    assert joint_p(sampler, name) > 1e-4


@pytest.mark.parametrize("kernel", [lw.DMALA(0.5), lw.DLMC(0.5), lw.AVG(0.8), lw.EDLP(0.6)])
def test_a_scale_for_each_chain_is_the_scale_of_that_chain(kernel):
    """Chains with a scale each move as chains that all have it, bit by bit up to rounding."""
    model, scales = TARGETS["ordinal"].model, torch.tensor([0.2, 0.9])
    x = model.domain.uniform(2, Generator().manual_seed(1)).float()
    each = with_scales(kernel, scales)
    state, info = each.step(each.at(x, model), model, Generator().manual_seed(2))
    for row, scale in enumerate(scales.tolist()):
        one = replace(kernel, **{kernel.scale: scale})
        alone, its = one.step(one.at(x, model), model, Generator().manual_seed(2))
        assert torch.equal(state.x[row], alone.x[row])
        torch.testing.assert_close(info.accept_prob[row], its.accept_prob[row])


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_acceptance_of_each_level_is_that_aimed_at(compiled):
    """Where a scale can reach it. One scale for all accepts more at low b."""
    model = lw.erdos_renyi(16, 4, 0.2)
    kernel = partial(find_compiled_kernel, model=model) if compiled else lambda sampler: sampler
    shares = {}
    for goal in (None, 0.6):
        sampler = lw.Tempered(lw.DMALA(0.4), acceptance=goal, levels=5)
        sampler = replace(sampler, **kernel(sampler).learn_fields(torch.zeros(1, 16), model))
        assert sampler.learning_steps == 0
        sampler = kernel(sampler)
        state, total = sampler.init(torch.zeros(32, 16), model), 0
        rng, scales = Generator().manual_seed(0), state.scales.clone()
        for number in range(150):
            level = state.level
            state, info = sampler.step_replicas(state, model, rng)
            if number >= 50:
                by_level = info.accept_prob.view_as(level).gather(0, level.argsort(0))
                total = total + by_level.mean(1) / 100
        shares[goal] = total
        assert torch.equal(state.scales, scales)  # frozen
    assert (shares[0.6] - 0.6).abs().max() < 0.06
    assert shares[None].max() - shares[None].min() > 0.12
    assert scales[1] > 2 * scales[-1]


def test_scales_are_learned_on_a_fixed_schedule():
    target = TARGETS["naturals"]
    given = [0.5, 1.0]
    sampler = lw.Tempered(lw.DMALA(0.4), schedule=given, acceptance=0.7, rounds=3)
    x = torch.zeros(2, *target.domain.shape)
    fields = sampler.learn_fields(x, target.model)
    assert fields["schedule"].tolist() == given
    assert (fields["scales"] != 0.4).all()
    assert len(replace(sampler, **fields).init(x, target.model).scales) == 2


@pytest.mark.parametrize(
    ("kernel", "name"), [(lw.DMALA(0.5), "binary"), (lw.Gibbs(), "spins"), (lw.BlockGibbs(), "rbm")]
)
def test_log_odds_are_those_of_b_0(kernel, name):
    sites = TARGETS[name].domain.dim
    odds = [0.8 * (-1) ** i for i in range(sites)]
    assert joint_p(lw.Tempered(kernel, schedule=[0.0, 0.3, 1.0], log_odds=odds), name) > 1e-4


def test_a_base_near_the_target_needs_fewer_levels():
    """Sites are nearly independent, with means far from 1/2. Log Z is exact from both laws."""
    model = lw.Lattice((4, 4), 0.05, -3.0)
    exact, mean = model.log_z_and_mean()
    x, barriers = torch.zeros(1, 16), []
    for odds in (None, mean.logit()):
        sampler = lw.Tempered(lw.GibbsSweep(), 6, log_odds=odds)
        found = recorded(replace(sampler, **sampler.learn_fields(x, model)), model, 1600)
        assert errors_off(found.log_z, float(exact), 8) < 5
        barriers.append(found.barrier)
    assert barriers[1] < barriers[0] / 3


def test_a_learned_base_is_that_of_the_site_means():
    """It makes the round trips faster. Sites of several values stay uniform."""
    model = lw.Lattice((14, 10), 0.05, -1.2)
    exact, mean = model.log_z_and_mean()
    x = torch.zeros(1, 140)
    sampler = lw.Tempered(lw.GibbsSweep(), 6, learn_base=True)
    fields = sampler.learn_fields(x, model)
    assert (fields["log_odds"] - mean.logit()).abs().max() < 1.5
    found = recorded(replace(sampler, **fields), model, 400)
    assert errors_off(found.log_z, float(exact), 8) < 5
    uniform = replace(sampler, learn_base=None).learn_fields(x, model)
    assert "log_odds" not in uniform
    assert found.barrier < recorded(replace(sampler, **uniform), model, 400).barrier / 2
    potts = TARGETS["lattice_potts"]
    assert "log_odds" not in sampler.learn_fields(potts.states[:1].float(), potts.model)


@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_no_base_is_learned_where_round_trips_are_frequent(beta):
    """That of the site means would make the smaller of two modes rare at b = 0, and lose it."""
    edges = [(i, j) for i in range(10) for j in range(i)]
    signs = torch.where(torch.arange(10) % 3 == 0, -1.0, 1.0)
    weights = torch.tensor([0.3 * beta * signs[i] * signs[j] for i, j in edges])
    graph = lw.Graph(edges, weights, 0.1 * beta * signs)
    _, mean = lw.exact(graph)
    settings = {"chains": 20, "steps": 1500, "burn_in": 300, "diagnose": False}
    result = lw.sample(graph, "gibbs_sweep", temper=True, **settings)
    assert "uniform sites" in repr(result.ladders)
    assert result.converged
    assert (result.draws.double().mean((0, 1)) - mean).abs().max() < 0.05


def test_the_report_says_which_base():
    model = lw.Lattice((14, 10), 0.05, -1.5)
    settings = {"temper": True, "steps": 20, "diagnose": False}
    found = lw.sample(model, "gibbs_sweep", **settings).ladders
    assert len(found.log_odds) == 140
    assert "independent sites, high with probability" in repr(found)
    compiled = lw.sample(model, "gibbs_sweep", engine="compiled", **settings).ladders
    assert "uniform sites" in repr(compiled)


@pytest.mark.parametrize("wrong", [lambda r: acceptance(r / 2), lambda r: acceptance(-r)])
def test_other_swaps_keep_another_law(wrong, monkeypatch):
    monkeypatch.setattr("latticework.samplers.tempered.acceptance", wrong)
    assert joint_p(lw.Tempered(lw.DMALA(0.5), schedule=[0.0, 0.3, 1.0]), "binary") < 1e-4


def test_steps_between_swaps_keep_the_law():
    sampler = lw.Tempered(lw.GWG(), schedule=[0.0, 0.5, 1.0], steps=3)
    assert joint_p(sampler, "ordinal", steps=2) > 1e-4


def test_swaps_alternate_and_levels_change_not_states():
    """Four replicas at almost one temperature always swap: (0 1) (2 3), then (1 2)."""
    model, rng = TARGETS["rbm"].model, Generator().manual_seed(0)
    sampler = lw.Tempered(lw.DMALA(1e-4), schedule=[1 - 3e-6, 1 - 2e-6, 1 - 1e-6, 1.0])
    x = model.domain.enumerate()[:12].float().view(4, 3, -1)
    state = sampler._at(x, x[-1], torch.tensor(sampler.schedule), model)
    levels = []
    for _ in range(4):
        state, _ = sampler.step(state, model, rng)
        levels.append(state.level[:, 0].tolist())
        assert torch.equal(state.kernel.x.view(4, 3, -1), x)
        assert torch.equal(state.x, x[state.level.argmax(0), range(3)])
    assert levels == [[1, 0, 3, 2], [2, 0, 3, 1], [3, 1, 2, 0], [3, 2, 1, 0]]


def test_the_schedule_equalises_rejections():
    """The number of levels follows from the barrier, and a fixed one is kept."""
    model = lw.erdos_renyi(16, 4, 0.35)
    x = torch.zeros(1, 16)
    for levels in (None, 6):
        fields = lw.Tempered(lw.DMALA(0.3), levels=levels).learn_fields(x, model)
        sampler = lw.Tempered(lw.DMALA(0.3), **fields)
        assert sampler.learn_fields(x, model) == {}
        found = recorded(sampler, model, 400)
        assert found.rejections.max() - found.rejections.min() < 0.12
        assert (found.schedule[0], found.schedule[-1]) == (0, 1)
        wanted = levels or np.ceil(2 * found.barrier) + 1
        assert abs(len(found.schedule) - wanted) <= 1
    assert even_schedule(torch.tensor([0.0, 0.5, 1.0]), torch.tensor([0.3, 0.1]), 3)[
        1
    ] == pytest.approx(1 / 3)


def recorded(sampler, model, steps, chains=8, seed=0):
    rng, states = Generator().manual_seed(seed), []
    state = sampler.init(model.domain.uniform(chains, rng).float(), model)
    for _ in range(steps // 10):
        state, _ = sampler.step(state, model, rng)
    trips = state.trips
    for _ in range(steps):
        state, _ = sampler.step(state, model, rng)
        states.append(levels_of(state))
    return Ladders.from_draws(state, states, state.trips - trips, steps)


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
    found = recorded(lw.Tempered(kernel, 6), target.model, 1000).log_z
    exact = np.logaddexp.reduce(target.log_prob)
    for value in (found.value, found.forward, found.backward):
        assert errors_off(found._replace(value=value), exact, 8) < 5
    assert not found.doubt


def test_ladders_learn_where_most_states_are_impossible(tmp_path):
    """Replicas that began where f is 0 would stay there, and all swaps be rejected."""

    def target(x):
        return (x @ torch.linspace(-1, 1, 10)).masked_fill(x.sum(-1) > 3, -torch.inf)

    class Own(lw.RandomWalk):
        """Without a name: a file keeps its text."""

    settings = {"sites": 10, "chains": 8, "steps": 400, "burn_in": 40, "temper": True}
    found = lw.sample(target, Own(1), diagnose=False, **settings)
    assert len(found.ladders.schedule) < 12
    found.save(tmp_path / "own.npz")
    loaded = lw.SampleResult.load(tmp_path / "own.npz")
    assert loaded.log_z == found.log_z
    assert "Own(length=1)" in loaded.sampler


def test_log_z_where_states_are_impossible():
    """The base draws some, and the levels above never do."""

    def target(x):
        return torch.where(x.sum(-1) == 3, -torch.inf, x.sum(-1) / 2)

    model = lw.Function(target, lw.Binary(6))
    settings = {"chains": 8, "steps": 1000, "burn_in": 10, "temper": True, "diagnose": False}
    found = lw.sample(model, "gibbs", **settings).log_z
    exact = float(lw.exact(model).log_z)
    for value in (found.value, found.forward, found.backward):
        assert errors_off(found._replace(value=value), exact, 8) < 5


ORDERED = np.array([[0.0, -inf], [0.0, 0.0]])  # a chain of them has as many states as sites + 1
APART_3 = np.where(np.eye(3) > 0, -inf, 0.0)
ZEROS = {
    "binary": lw.Factors([((i, i + 1), ORDERED + 0.3) for i in range(3)]),
    "categorical": lw.Factors([((i, i + 1), APART_3 - 0.2 * i) for i in range(2)]),
    "mixed": lw.Factors([((0, 1), np.array([[0.1, -inf, 0.4], [-inf, 0.2, 0.3]]))]),
}
LISTS = [[0.2, -inf, 0.1], [0.0, 0.4, -0.3], [0.5, -inf, -inf]]
POTTS = {  # with the tables that it is
    "potts graph": (
        lw.GraphPotts([[0, 1], [1, 2]], [-inf, 0.7], 3, LISTS),
        [((0, 1), APART_3), ((1, 2), 0.7 * np.eye(3))],
    ),
    "potts lattice": (
        lw.LatticePotts((3,), 3, -inf, LISTS, periodic=False),
        [((0, 1), APART_3), ((1, 2), APART_3)],
    ),
}
TABLES = {name: model.factors for name, model in ZEROS.items()}
for potts, (made, tables) in POTTS.items():
    ZEROS[potts] = made
    TABLES[potts] = [*tables, *(((i,), np.array(LISTS[i])) for i in range(3))]


@pytest.mark.parametrize("name", ZEROS)
def test_a_softened_path_prices_zeros_and_ends_at_the_target(name):
    """Its values, local methods and log-ratios, with one b a row."""
    model = ZEROS[name]
    x = model.domain.enumerate().float()
    path, base = path_of(model), -np.log(len(x))
    rest = lw.Factors([(s, np.where(np.isfinite(log), log, 0)) for s, log in TABLES[name]])
    zeros = lw.Factors([(s, np.isinf(log) * 1.0) for s, log in TABLES[name]])
    k, g = zeros.log_prob(x), rest.log_prob(x)
    path.move_to(torch.zeros(()))
    known = path.know(x)
    torch.testing.assert_close(path.target_log_prob(x, known), model.log_prob(x))
    for b in (0.0, 0.3, 0.8, 1.0):
        path.move_to(torch.full((len(x),), b))
        expected = (1 - b) * base + b * g - (1e5 if b == 1 else b / (1 - b)) * k
        torch.testing.assert_close(path(x), expected, rtol=1e-4, atol=1e-4)
        path.move_to(torch.tensor(b))
        if b < 1:  # where rounding errors are not those of 1e5
            agree(path, lw.Function(path.forward, model.domain), x, 1e-3, gradient=False)
    path.move_to(torch.full((len(x),), 0.3))
    ratio = path.log_ratio(known, torch.tensor(1.0))
    assert torch.equal(ratio.isneginf(), k > 0)


@pytest.mark.parametrize("sites", [4, 10, 24])
def test_ladders_count_the_states_of_tables_with_zeros(sites, recwarn):
    """At 24 sites one uniform state of 671,089 is possible."""
    model = lw.Factors([((i, i + 1), ORDERED) for i in range(sites - 1)])
    sampler = lw.Tempered(lw.GibbsSweep(), 7)
    x = torch.zeros(8, sites)
    sampler = replace(sampler, **sampler.learn_fields(x, model))
    assert len(sampler.schedule) <= 20
    rng, states = Generator().manual_seed(0), []
    state = sampler.init(x, model)
    for _ in range(500):
        state, _ = sampler.step(state, model, rng)
        states.append(levels_of(state))
        assert model.log_prob(state.x).isfinite().all()
    found = Ladders.from_draws(state, states, state.trips, 500)
    assert abs(found.log_z.value - np.log(sites + 1)) < 0.5
    assert not [each for each in recwarn if each.category is RuntimeWarning]


GRID = [(i, i + 1) for i in range(36) if i % 6 < 5] + [(i, i + 6) for i in range(30)]
CHEQUERED = torch.eye(3)[[(i // 6 + i) % 2 for i in range(36)]].repeat(8, 1, 1)


def tables_on_grid(table):
    return lw.Factors([(edge, table) for edge in GRID])


@pytest.mark.parametrize(
    ("kernel", "model"),
    [
        ("gibbs_sweep", lw.GraphPotts([[0, 1], [1, 2], [2, 3], [3, 0]], -inf, 3)),
        ("metropolis_sweep", lw.LatticePotts((4,), 3, -inf)),
        ("gibbs", lw.GraphPotts([[0, 1], [1, 2]], [-inf, 0.7], 3, LISTS)),
        ("gibbs_sweep", lw.GraphPotts([[0, 1], [1, 2], [2, 3]], -inf, 3).condition_on({0: 1})),
        ("swendsen_wang", lw.LatticePotts((3,), 3, 0.7, LISTS)),
    ],
)
def test_ladders_count_the_states_of_potts_models(kernel, model):
    settings = {"chains": 8, "steps": 1000, "burn_in": 50, "temper": True, "diagnose": False}
    found = lw.sample(model, kernel, **settings)
    exact = float(lw.exact(model).log_z)
    assert errors_off(estimate(found.ladders.up, found.ladders.down), exact, 8) < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "states", "start"),
    [
        (tables_on_grid(np.array([[0.0, 0.0], [0.0, -inf]])), 5_598_861, torch.zeros(8, 36)),
        (tables_on_grid(APART_3), 101_596_896, CHEQUERED),
        (lw.GraphPotts(GRID, -inf, 3), 101_596_896, CHEQUERED),
        (lw.LatticePotts((6, 6), 3, -inf, periodic=False), 101_596_896, CHEQUERED),
    ],
)
def test_ladders_count_independent_sets_and_colourings(model, states, start):
    settings = {"x": start, "steps": 1000, "burn_in": 200, "temper": True, "diagnose": False}
    found = lw.sample(model, "gibbs_sweep", **settings)
    assert len(found.ladders.schedule) < 30
    assert errors_off(estimate(found.ladders.up, found.ladders.down), np.log(states), 8) < 5


@pytest.mark.parametrize("sites", [12, 20, 40])
def test_impossible_states_are_no_reason_for_more_levels(sites, recwarn):
    """A function of zeros alone, whose draws from b = 0 are mostly or all impossible."""
    model = lw.Function(
        lambda x: torch.where((x[:, 1:] * x[:, :-1]).sum(-1) > 0, -torch.inf, 0.0),
        lw.Binary(sites),
    )
    settings = {"x": torch.zeros(8, sites), "steps": 20, "burn_in": 4, "temper": True}
    found = lw.sample(model, "gibbs", diagnose=False, **settings)
    assert len(found.ladders.schedule) == 6
    assert found.log_z.high == inf
    assert not [each for each in recwarn if each.category is RuntimeWarning]


def test_the_number_of_learned_levels_is_bounded(monkeypatch):
    monkeypatch.setattr("latticework.samplers.ladder.MAX_LEVELS", 8)
    assert MAX_LEVELS > 100
    model = lw.Lattice((30,), 0.0, 3.0)
    found = learn_ladder(lw.Tempered(lw.GibbsSweep(), 4), model, torch.zeros(1, 30)).state
    assert found.level.shape == (7, LEARNING_LADDERS)


def errors_off(found, exact, ladders):
    """How many standard errors the estimate is from the truth. These are below 0.15 nats."""
    error = (found.high - found.low) / 2 / student.ppf(0.975, ladders - 1)
    assert error < 0.15
    return abs(found.value - exact) / error


def works_of_exact_draws(rng, draws, ladders, b=(0.0, 0.2, 0.5, 1.0)):
    """`up` and `down` of independent draws from every level of "binary", and its log Z."""
    log_prob = TARGETS["binary"].log_prob
    value = log_prob + np.log(len(log_prob))  # log f - log p0
    steps, drawn = np.diff(b), []
    for each in b:
        law = np.exp(each * value - np.logaddexp.reduce(each * value))
        drawn.append(value[rng.choice(len(law), (draws, ladders), p=law)])
    levels = np.stack(drawn, 1)
    up, down = steps[:, None] * levels[:, :-1], -steps[:, None] * levels[:, 1:]
    return up, down, np.logaddexp.reduce(log_prob)


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
    found = coverage(model, lw.GibbsSweep(), "tempering", "eager", steps, repetitions=100)
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
    found = coverage(lw.erdos_renyi(16, 4, 0.35), lw.GWG(), "tempering", "eager", 20, 100)
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
    found = recorded(sampler, model, 1500)
    assert found.trips.mean() == pytest.approx(found.predicted_trips, rel=0.15)
    assert found.barrier_known
    two = recorded(lw.Tempered(lw.GibbsSweep(), schedule=[0.0, 1.0]), model, 200)
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


# Compiled kernels.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (lw.GibbsSweep(), "lattice"),
        (lw.MetropolisSweep(), "ferromagnet"),
        (lw.GWG(), "dense_ising"),
        (lw.Gibbs(), "lattice_potts"),
        (lw.MetropolisSweep(), "lattice_potts"),
        (lw.DMALA(0.5), "lattice"),
        (lw.DMALA(0.5), "dense_ising"),
        (lw.SwendsenWang(), "lattice"),
        (lw.SwendsenWang(), "ferromagnet"),
    ],
)
@pytest.mark.parametrize(("steps", "hot"), [(1, 0.0), (3, 0.5)])
def test_compiled_kernels_keep_the_joint_law(kernel, name, steps, hot):
    scales = SCALES if kernel.scale else None
    sampler = lw.Tempered(kernel, schedule=[0.0, 0.4, 1.0], steps=steps, hot=hot, scales=scales)
    assert joint_p(find_compiled_kernel(sampler, TARGETS[name].model), name) > 1e-4


def test_hot_levels_make_one_step():
    """Without a field, a Metropolis sweep flips a site with probability 7/8, two with 7/32."""
    model, schedule = lw.Lattice((6,), 0.0), [0.25, 0.5, 0.75, 1.0]
    sampler = lw.Tempered(lw.MetropolisSweep(), schedule=schedule, steps=2, hot=0.5)
    x = torch.zeros(1000, 6)
    twin = find_compiled_kernel(sampler, model)
    state, _ = twin.step(twin.init(x, model), model, Generator())
    means = state.kernel.x.view(4, 1000, 6).mean((1, 2))
    expected = torch.tensor([7 / 8, 7 / 8, 7 / 32, 7 / 32])
    error = (expected * (1 - expected) / 6000).sqrt()
    assert ((means - expected).abs() < 6 * error).all()


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
