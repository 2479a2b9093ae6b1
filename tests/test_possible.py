"""Starts of positive probability where most states have none, and what is said where all have none.

Whether a state exists is told by enumeration of small models, and by `log_prob` of large ones.
"""

import re
from itertools import product
from random import Random

import numpy as np
import pytest
import torch
from torch import Generator

import latticework as lw
from latticework.models.factors import Factors
from latticework.sampling.possible import (
    Constraints,
    Count,
    NoStateError,
    Search,
    constraints_of,
    luby,
)
from latticework.sampling.starts import draw_possible, uniform

NOT = -np.inf
NEVER_RISES = [[0, NOT], [0, 0]]  # a 0 is followed by a 0


def rng(seed=0):
    return Generator().manual_seed(seed)


def differ(values):
    table = np.zeros((values, values))
    np.fill_diagonal(table, NOT)
    return table


def grid(side, periodic=False):
    edges = []
    for row, column in product(range(side), repeat=2):
        if periodic or column + 1 < side:
            edges.append((row * side + column, row * side + (column + 1) % side))
        if periodic or row + 1 < side:
            edges.append((row * side + column, (row + 1) % side * side + column))
    return edges


def of_chain(sites):
    return Factors([((i, i + 1), NEVER_RISES) for i in range(sites - 1)])


def one_hot_groups(groups, size):
    """Exactly one of each group is one."""
    table = np.full((2,) * size, NOT)
    for place in range(size):
        table[tuple(int(i == place) for i in range(size))] = 0
    scopes = [tuple(range(g * size, (g + 1) * size)) for g in range(groups)]
    return Factors([(scope, table) for scope in scopes])


def permutations(size):
    """Variable i is the place of i, and no two have the same one."""
    pairs = [(i, j) for i in range(size) for j in range(i)]
    return Factors([(pair, differ(size)) for pair in pairs])


def hidden_markov(steps):
    """A hidden state that moves on by 0 or 1 of four in a ring, and shows one of two signs."""
    moves, signs = np.full((4, 4), NOT), np.full((4, 2), NOT)
    for state in range(4):
        moves[state, state] = moves[state, (state + 1) % 4] = np.log(0.5)
        signs[state, state // 2] = 0
    hidden = [((t, t + 1), moves) for t in range(steps - 1)]
    shown = [((t, steps + t), signs) for t in range(steps)]
    return Factors(hidden + shown, [4] * steps + [2] * steps)


def adder(digits):
    """Bits a and b and their sum s with carries c, each a deterministic table."""
    full = np.full((2,) * 5, NOT)  # a, b, carry in, sum, carry out
    for a, b, c in product((0, 1), repeat=3):
        full[a, b, c, (a + b + c) % 2, (a + b + c) // 2] = 0
    a, b, s, c = (range(k * digits, (k + 1) * digits) for k in range(4))
    last = 4 * digits
    carries = [*c, last]
    tables = [((carries[0],), [0, NOT])]
    for i in range(digits):
        tables.append(((a[i], b[i], carries[i], s[i], carries[i + 1]), full))
    return Factors(tables, last + 1)


def network():
    """Rain and sprinkler make wet, and only they do."""
    wet = np.array([[[0, NOT], [NOT, 0]], [[NOT, 0], [NOT, 0]]])
    return Factors(
        [((0,), np.log([0.7, 0.3])), ((1,), np.log([0.6, 0.4])), ((0, 1, 2), wet)],
        4,
        names=["rain", "sprinkler", "wet", "cold"],
        labels=[["no", "yes"]] * 4,
    )


def lists_of_three(sites):
    """Biases that forbid value i mod 4 of site i."""
    bias = torch.zeros(sites, 4)
    bias[torch.arange(sites), torch.arange(sites) % 4] = NOT
    return bias


MODELS = {
    "chain": of_chain(20),
    "long chain": of_chain(500),
    "three colours of a grid": Factors([(edge, differ(3)) for edge in grid(12)]),
    "two colours of a grid": Factors([(edge, differ(2)) for edge in grid(8)]),
    "three colours of a torus": Factors([(edge, differ(3)) for edge in grid(6, True)]),
    "Potts model of a grid": lw.GraphPotts(grid(12), NOT, 3),
    "Potts model of a torus": lw.LatticePotts((6, 6), 3, NOT),
    "Potts model, its corner known": lw.GraphPotts(grid(12), NOT, 3).condition_on({0: 2, 143: 1}),
    "Potts model of lists": lw.GraphPotts(grid(8), NOT, 4, lists_of_three(64)),
    "independent set": Factors([(edge, [[0, 0], [0, NOT]]) for edge in grid(10)]),
    "independent set of a size": Factors(
        [(edge, [[0, 0], [0, NOT]]) for edge in grid(6)]
    ).with_ones(14),
    "one-hot groups": one_hot_groups(12, 6),
    "permutation": permutations(9),
    "hidden Markov model": hidden_markov(40),
    "its hidden states": hidden_markov(8).condition_on(
        dict(enumerate([0, 0, 1, 1, 1, 0, 0, 1], start=8))
    ),
    "adder": adder(10),
    "adder backwards": adder(10).condition_on({20 + i: i % 2 for i in range(10)}),
    "sprinkler": network().condition_on({"wet": "yes"}),
    "chain of a size, ends known": of_chain(24).with_ones(7).condition_on({0: 1.0, 23: 0.0}),
}


@pytest.mark.parametrize("name", MODELS)
def test_starts_have_positive_probability(name):
    model = MODELS[name]
    x = draw_possible(model, 6, rng())
    model.domain.check(x)
    assert model.log_prob(x).isfinite().all()
    assert torch.equal(x, draw_possible(model, 6, rng()))
    if "ends known" not in name:  # which has one state
        assert len(x.unique(dim=0)) > 1


@pytest.mark.parametrize("name", MODELS)
def test_chains_start_by_themselves(name):
    model = MODELS[name]
    kernel = "gibbs" if not isinstance(model.domain, lw.Subset) else "gibbs(sites=2,scan=random)"
    found = lw.sample(model, kernel, steps=20, diagnose=False)
    assert found.log_prob.isfinite().all()
    if not isinstance(model.domain, lw.Subset):
        assert uniform(model, 3, rng(), None).shape == (3, *model.domain.shape)
        assert model.log_prob(uniform(model, 3, rng(), None)).isfinite().all()


def test_the_starts_of_many_chains_are_diverse():
    """Chain i of the 21 states of a chain of 20 sites is in each of them at some time."""
    x = draw_possible(of_chain(20), 400, rng())
    assert len(x.unique(dim=0)) > 10
    colours = draw_possible(Factors([(edge, differ(3)) for edge in grid(12)]), 200, rng())
    mean = colours.mean(0)
    assert ((mean - 1 / 3).abs() < 5 * np.sqrt(2 / 9 / 200)).all()


def test_chains_with_evidence_of_their_own_start():
    model = hidden_markov(8)
    known = torch.full((3, 16), torch.nan)
    known[:, 8:] = torch.tensor([[0, 0, 1, 1, 1, 0, 0, 1], [0] * 8, [1, 1, 0, 0, 1, 1, 0, 0]])
    conditioned = model.condition_on(known)
    x = draw_possible(conditioned, 3, rng())
    assert conditioned.log_prob(x).isfinite().all()
    found = lw.sample(conditioned, "gibbs", steps=5, diagnose=False)
    assert found.log_prob.isfinite().all()
    known[1, 8:] = torch.tensor([0, 1, 0, 1, 0, 1, 0, 1])  # a hidden state stays two steps at least
    with pytest.raises(NoStateError, match="given the known values of chain 1"):
        draw_possible(model.condition_on(known), 3, rng())


# The search, against enumeration.


def small_problem(seed):
    """Random tables of up to three of six variables of two to four values, some of them known."""
    random = np.random.default_rng(seed)
    sizes = tuple(random.integers(2, 5, 6).tolist())
    tables = []
    for _ in range(int(random.integers(3, 9))):
        scope = tuple(random.permutation(6)[: random.integers(1, 4)].tolist())
        tables.append((scope, random.random([sizes[i] for i in scope]) < 0.45))
    known = {0: int(random.integers(sizes[0]))} if seed % 2 else {}
    total = Count((1, 2, 3, 4), int(random.integers(0, 5))) if seed % 3 == 0 else None
    return Constraints(sizes, tables, tuple(range(6)), known, total)


def fulfils(values, problem):
    tables = all(allowed[tuple(values[i] for i in scope)] for scope, allowed in problem.tables)
    known = all(values[i] == value for i, value in problem.known.items())
    total = problem.total
    counted = total is None or sum(values[i] == 1 for i in total.variables) == total.ones
    return tables and known and counted


def test_the_search_finds_a_state_where_there_is_one_and_proves_that_there_is_none():
    outcomes = []
    for seed in range(300):
        problem = small_problem(seed)
        states = [s for s in product(*map(range, problem.sizes)) if fulfils(s, problem)]
        search = Search(problem, Random(seed))
        seen = {tuple(search.find_state() or ()) for _ in range(10)}
        assert seen <= set(states) if states else seen == {()}
        outcomes.append(len(states))
    assert 50 < sum(map(bool, outcomes)) < 250


def test_all_states_are_found():
    search = Search(constraints_of(of_chain(7), 0), Random(0))
    assert len({tuple(search.find_state()) for _ in range(300)}) == 8


def test_the_restarts_are_in_lubys_order():
    assert [luby(i) for i in range(1, 16)] == [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]


def test_a_search_ends(monkeypatch):
    """Eight pigeons in seven holes: no set of values shows it, and the proof is long."""
    pigeons = Factors([((i, j), differ(7)) for i in range(8) for j in range(i)])
    monkeypatch.setattr(lw.sampling.possible, "MAX_FAILURES", 200)
    with pytest.raises(ValueError, match=r"no state was found in \d+ failures.*x=states"):
        draw_possible(pigeons, 2, rng())
    monkeypatch.undo()
    monkeypatch.setattr(lw.sampling.possible, "FAILURES_OF_A_RESTART", 10_000)
    with pytest.raises(NoStateError, match="no state of this Factors has positive probability"):
        draw_possible(pigeons, 2, rng())


# Evidence that leaves nothing.


@pytest.mark.parametrize(
    ("model", "known", "told"),
    [
        (of_chain(20), {3: 0, 4: 1}, "sites 3 and 4 .* 0 and 1"),
        (network(), {"rain": "no", "sprinkler": "no", "wet": "yes"}, "'rain' and 'sprinkler' and"),
        (hidden_markov(8), {0: 3, 1: 1}, "sites 0 and 1"),
    ],
)
def test_values_that_a_table_excludes_are_refused_when_they_are_given(model, known, told):
    with pytest.raises(ValueError, match=f"known values of {told}.*probability 0"):
        model.condition_on(known)


@pytest.mark.parametrize(
    ("model", "known"),
    [
        (of_chain(20), {3: 0, 10: 1}),
        (hidden_markov(8), dict(enumerate([0, 1, 0, 1, 0, 1, 0, 1], start=8))),
        (permutations(4), {0: 1, 1: 2, 2: 2}),
        (one_hot_groups(3, 4), {0: 1, 1: 1}),
        (lw.GraphPotts([[0, 1], [1, 2]], NOT, 3), {0: 1, 1: 1}),
        (lw.GraphPotts([[0, 1], [1, 2], [0, 2], [1, 3], [2, 3]], NOT, 3), {0: 1, 3: 2}),
        (lw.LatticePotts((3,), 3, NOT), {0: 1, 2: 1}),
    ],
)
def test_impossible_evidence_is_refused_as_such(model, known):
    with pytest.raises(ValueError, match="known values|evidence") as caught:
        lw.sample(model.condition_on(known), "gibbs", steps=2)
    assert "impossible" in str(caught.value)
    with pytest.raises(ValueError, match="impossible"):
        lw.exact(model.condition_on(known))


# Functions, which tell nothing but their values.


def satisfied(sites, clauses, seed):
    """Log of the product over clauses, each of three literals, of 1 - the product of their noes."""
    random = np.random.default_rng(seed)
    scopes = np.stack([random.permutation(sites)[:3] for _ in range(clauses)])
    truth = random.integers(0, 2, sites)  # a state that fulfils each clause
    signs = random.integers(0, 2, scopes.shape)
    for scope, sign in zip(scopes, signs, strict=True):
        if (truth[scope] != sign).all():
            sign[0] = truth[scope[0]]
    scopes, signs = torch.from_numpy(scopes), torch.from_numpy(signs).float()

    def log_prob(x):
        differs = (x[:, scopes] - signs).abs()
        return torch.log1p(-differs.prod(-1)).sum(-1)

    return log_prob


def of_spins(log_prob):
    return lambda s: log_prob((s + 1) / 2)


def three_on(x):
    return (x.sum(-1) * 0).masked_fill(x.sum(-1) != 3, -torch.inf)


def free_of_neighbours(x):
    pairs = torch.tensor(grid(6))
    both = (x[:, pairs[:, 0]] * x[:, pairs[:, 1]]).sum(-1)
    return torch.where(both > 0, -torch.inf, 0.0)


def mostly_second(x):
    """At most two sites have another value than the second."""
    return torch.where(x[:, :, 1].sum(-1) > x.shape[1] - 3, 0.0, -torch.inf)


FUNCTIONS = {
    "three of 200": (three_on, lw.Binary(200)),
    "an independent set": (free_of_neighbours, lw.Binary(36)),
    "clauses": (satisfied(60, 200, 0), lw.Binary(60)),
    "clauses of spins": (of_spins(satisfied(60, 200, 1)), lw.Binary(60, -1, 1)),
    "one-hot": (mostly_second, lw.Categorical(30, 4)),
    "sizes": (mostly_second, lw.Mixed([2, 3, 4] * 8)),
    "numbers": (lambda x: torch.where((x == 2).sum(-1) > 27, 0.0, -torch.inf), lw.Ordinal(30, 5)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_searched(name):
    function, domain = FUNCTIONS[name]
    model = lw.Function(function, domain)
    x = draw_possible(model, 4, rng())
    domain.check(x)
    assert model.log_prob(x).isfinite().all()
    assert len(x.unique(dim=0)) > 1
    uniform_states = domain.uniform(1000, rng())
    assert not model.log_prob(uniform_states).isfinite().any()  # the search was needed


def test_a_function_without_a_hint_names_what_to_give():
    secret = torch.randint(2, (60,), generator=rng(7)).float()

    def target(x):
        return torch.where((x == secret).all(-1), 0.0, -torch.inf)

    told = r"-inf at the start of 4 of 4 chains.*x=states.*Subset"
    with pytest.raises(ValueError, match=re.compile(told, re.DOTALL)):
        lw.sample(target, "gibbs", sites=60)


def test_states_that_uniform_draws_find_are_as_before():
    """Their random numbers do not change, and the search draws none."""
    model = of_chain(4)
    first = rng()
    x = draw_possible(model, 5, first)
    second = rng()
    y = model.domain.uniform(5, second)
    while (bad := model.log_prob(y) == -torch.inf).any():
        y[bad] = model.domain.uniform(int(bad.sum()), second)
    assert torch.equal(x, y)
    assert torch.equal(first.get_state(), second.get_state())
