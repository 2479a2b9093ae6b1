"""`Moves`: permutations, trees and networks under moves of the user's."""

import itertools
import math

import pytest
import torch
from torch import Generator

import latticework as lw
from latticework.samplers import NAMES, make_sampler
from latticework.samplers.base import UnsupportedModelError
from latticework.sampling.targets import why_unsupported

pytestmark = [
    pytest.mark.filterwarnings("ignore::latticework.sampling.sample.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore::latticework.sampling.adaptation.AdaptationWarning"),
]

# Permutations of five, under swaps of two places.
PERMUTATIONS = torch.tensor(list(itertools.permutations(range(5))))
FIRST, SECOND = torch.triu_indices(5, 5, 1)


def swap(x, generator):
    pair = torch.rand(x.shape, generator=generator).argsort(-1)[:, :2]
    return x.scatter(1, pair, x.gather(1, pair.flip(1)))


def mallows(x):
    """Kendall's distance from the order 0, 1, .., 4, times -0.7."""
    return -0.7 * (x[:, FIRST] > x[:, SECOND]).sum(-1).float()


# Labelled trees of five vertices as parents of 1 .. 4 (0 is the root), under new parents.
def is_tree(parents):
    at = parents.clone()  # [n, 4]: walk up four times; every vertex must reach 0
    whole = torch.nn.functional.pad(parents, (1, 0))
    for _ in range(4):
        at = whole.gather(1, at)
    return (at == 0).all(-1)


EVERY_PARENT = torch.cartesian_prod(*[torch.arange(5)] * 4)
TREES = EVERY_PARENT[is_tree(EVERY_PARENT)]


def reattach(x, generator):
    """A uniform vertex gets a uniform parent; what is no tree then stays."""
    vertex = torch.randint(4, (len(x), 1), generator=generator)
    y = x.scatter(1, vertex, torch.randint(5, (len(x), 1), generator=generator))
    return torch.where(is_tree(y).unsqueeze(1), y, x)


def leaves(x):
    """Trees with many leaves are likely."""
    degree = (x.unsqueeze(-1) == torch.arange(5)).sum(1)
    return 0.6 * (degree == 0).sum(-1).float()


# Directed acyclic graphs of three vertices as adjacency matrices, under edges that come and go.
# A missing edge is added with probability 3/4, a present one removed with probability 1/4.
def is_acyclic(x):
    power, trace = x, torch.zeros(len(x), dtype=x.dtype)
    for _ in range(3):
        trace, power = trace + power.diagonal(dim1=1, dim2=2).sum(-1), power @ x
    return trace == 0


EVERY_MATRIX = torch.cartesian_prod(*[torch.arange(2)] * 9).view(-1, 3, 3)
DAGS = EVERY_MATRIX[is_acyclic(EVERY_MATRIX)]
PLACES = torch.tensor([1, 2, 3, 5, 6, 7])  # of a flat matrix, without its diagonal


def toggle(x, generator):
    place = PLACES[torch.randint(6, (len(x), 1), generator=generator)]
    flat = x.flatten(1)
    before = flat.gather(1, place)
    chance = torch.where(before == 0, 0.75, 0.25)
    toggled = (torch.rand(len(x), 1, generator=generator) < chance).long()
    y = flat.scatter(1, place, (before + toggled) % 2).view_as(x)
    return torch.where(is_acyclic(y).view(-1, 1, 1), y, x)


def toggle_ratio(x, y):
    """log q(x given y) - log q(y given x): an added edge is removed three times more rarely."""
    return (x.sum((1, 2)) - y.sum((1, 2))) * math.log(3.0)


def few_edges(x):
    return -0.5 * x.sum((1, 2)) + 0.8 * x[:, 0, 1]


KINDS = {
    "permutations": (mallows, lw.Moves(swap, states=PERMUTATIONS)),
    "trees": (leaves, lw.Moves(reattach, states=TREES)),
    "networks": (few_edges, lw.Moves(toggle, toggle_ratio, states=DAGS)),
}
STARTS = {
    "permutations": (mallows, lw.Moves(swap, start=PERMUTATIONS[:1], count=120)),
    "trees": (leaves, lw.Moves(reattach, start=torch.zeros(1, 4), count=125)),
    "networks": (few_edges, lw.Moves(toggle, toggle_ratio, start=torch.zeros(1, 3, 3), count=25)),
}


def test_the_spaces_have_the_known_sizes():
    assert [len(domain.states) for _, domain in KINDS.values()] == [120, 125, 25]


@pytest.mark.parametrize("sampler", ["random_walk", "random_walk(length=2)"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_random_walk_is_exact(kind, sampler):
    target, domain = KINDS[kind]
    report = lw.check(sampler, target, domain=domain, chains=8000)
    assert report.passed, str(report)
    status = {outcome.check: outcome.status for outcome in report.outcomes[target.__name__]}
    assert status["invariance"] == status["detailed balance"] == "ok"
    assert status["all states reached"] == status["no host reads"] == "ok"


@pytest.mark.parametrize("kind", KINDS)
def test_tempering_is_exact(kind):
    target, domain = KINDS[kind]
    sampler = lw.Tempered(lw.RandomWalk(), schedule=[0.0, 0.5, 1.0])
    assert lw.check(sampler, target, domain=domain, chains=20000).passed


@pytest.mark.parametrize("ratio", [None, lambda x, y: -toggle_ratio(x, y)])
def test_a_wrong_ratio_is_found(ratio):
    domain = lw.Moves(toggle, ratio, states=DAGS)
    report = lw.check("random_walk", few_edges, domain=domain, chains=8000)
    assert "invariance" in {outcome.check for _, outcome in report.failures}


def test_moves_that_do_not_connect_all_states_are_found():
    def rotate(x, generator):
        return x.roll(1, -1)

    domain = lw.Moves(rotate, states=PERMUTATIONS)
    failures = lw.check("random_walk", mallows, domain=domain, chains=8000).failures
    assert "all states reached" in {outcome.check for _, outcome in failures}


@pytest.mark.parametrize("kind", KINDS)
def test_ladders_tell_log_z_where_the_states_are_counted(kind):
    """Level 0 is a replica where states are not listed; their number is then the user's."""
    target, listed = KINDS[kind]
    exact = float(lw.exact(lw.Function(target, listed)).log_z)
    for domain in (listed, STARTS[kind][1]):
        settings = {"domain": domain, "chains": 8, "steps": 300, "diagnose": False}
        result = lw.sample(target, "random_walk", temper=True, **settings)
        assert result.ladders.schedule[0] == 0
        assert result.ladders.trips.min() > 10
        assert result.log_z.value == pytest.approx(exact, abs=0.25)
        assert result.draws.shape == (8, 300, *domain.shape)


def test_without_a_count_there_is_no_log_z():
    domain = lw.Moves(swap, start=PERMUTATIONS[:1])
    result = lw.sample(mallows, "random_walk", domain=domain, steps=20, temper=True, diagnose=False)
    assert result.log_z is None
    assert result.ladders.trips.sum() > 0
    with pytest.raises(ValueError, match="number of states .* is not known"):
        domain.count()


def test_functions_get_whole_numbers_and_draws_are_floats():
    seen = []

    def target(x):
        seen.append(x.dtype)
        return mallows(x)

    def start(chains, generator):
        return torch.rand(chains, 5, generator=generator).argsort(-1)

    settings = {"domain": lw.Moves(swap, start=start), "diagnose": False}
    result = lw.sample(target, steps=50, budget="200evaluations", **settings)
    assert set(seen) == {torch.int64}
    assert result.sampler.scale == "length"  # the only one that `auto` can try
    assert result.draws.dtype == torch.float32
    assert (result.draws.sort(-1).values == torch.arange(5)).all()
    assert len(result.summary()) == 6
    given = {"start": "annealed", "adapt": "acceptance", **settings}
    annealed = lw.sample(target, "random_walk", steps=10, **given)
    assert annealed.adapted.fields["length"] >= 1


def test_other_samplers_refuse():
    target, domain = KINDS["permutations"]
    model = lw.Function(target, domain)
    for name in NAMES:
        sampler = make_sampler(name)
        if sampler.makes_moves:
            assert isinstance(sampler.inner, lw.RandomWalk)
            continue
        assert why_unsupported(sampler, model), name
    with pytest.raises(UnsupportedModelError, match="use random_walk, with temper=True"):
        lw.sample(model, "gibbs", steps=10)
    with pytest.raises(ValueError, match="write a propose that keeps them"):
        model.condition_on({0: 1})
    with pytest.raises(ValueError, match="two values a site"):
        model.with_ones(1)


def wrong_shape(x, generator):
    return x[:, :2]


def no_numbers(x, generator):
    return None


def out_of_the_list(x, generator):
    return 0 * x


def halves(x, generator):
    return x / 2


def in_place(x, generator):
    x[:, 0] = x[:, 1]
    return x


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: lw.Moves(swap), "give start=.* or states="),
        (lambda: lw.Moves("swap", states=PERMUTATIONS), "must be functions"),
        (lambda: lw.Moves(swap, states=PERMUTATIONS / 2), "whole numbers"),
        (lambda: lw.Moves(swap, states=PERMUTATIONS[[0, 0]]), "each state once"),
        (lambda: lw.Moves(swap, start=torch.arange(5)), "a row for each state"),
        (lambda: lw.Moves(swap, start=lambda n, rng: PERMUTATIONS[:3]), "gave 3 states for 1"),
        (lambda: lw.Moves(wrong_shape, states=PERMUTATIONS), r"propose must give states \[4, 5\]"),
        (lambda: lw.Moves(no_numbers, states=PERMUTATIONS), "gave NoneType"),
        (lambda: lw.Moves(halves, states=PERMUTATIONS), "whole numbers"),
        (lambda: lw.Moves(out_of_the_list, states=PERMUTATIONS), "none of the 120 states"),
        (lambda: lw.Moves(in_place, states=PERMUTATIONS), "writes into x"),
        (lambda: lw.Moves(swap, lambda x, y: 0.0, states=PERMUTATIONS), "log_ratio must give"),
    ],
)
def test_what_is_wrong_is_said_at_the_start(make, match):
    with pytest.raises(ValueError, match=match):
        lw.sample(mallows, "random_walk", domain=make(), steps=10)


def test_a_start_is_a_state():
    domain = KINDS["trees"][1]
    cycle = torch.tensor([[2.0, 1, 0, 0]] * 4)
    with pytest.raises(ValueError, match=r"\[2, 1, 0, 0\] is none of the 125 states"):
        lw.sample(leaves, "random_walk", domain=domain, x=cycle, steps=10)
    states = domain.uniform(4, Generator().manual_seed(0))
    assert torch.equal(domain.list_states(torch.arange(125)), TREES.float())
    domain.check(states)
