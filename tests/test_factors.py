"""Networks of tables: sums by hand, files, and what is refused."""

import itertools
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from plain import agree
from torch import Generator

import latticework as lw
from latticework.models.tables import Factor


def network(values: int | list[int], sites: int, scopes: list[tuple[int, ...]]) -> lw.Factors:
    rng = np.random.default_rng(5)
    sizes = [values] * sites if isinstance(values, int) else values
    tables = [(s, rng.normal(size=[sizes[i] for i in s])) for s in scopes]
    return lw.Factors(tables, sites if isinstance(values, int) else values)


SCOPES = [(2, 0), (1,), (4, 1, 0), (3,), (0, 2), (3, 2, 4, 1), ()]
MODELS = {
    "binary": network(2, 6, SCOPES),  # variable 5 is in no table
    "categories": network(3, 5, SCOPES),
    "mixed": network([3, 2, 5, 2, 3, 4], 6, SCOPES),
    "one variable": network(4, 1, [(0,)]),
}
each = pytest.mark.parametrize("name", MODELS)


def codes_of(x: torch.Tensor) -> np.ndarray:
    return (x.argmax(-1) if x.ndim == 3 else x).long().numpy()


@each
def test_the_log_probability_is_the_sum_of_the_entries(name):
    model = MODELS[name]
    x = model.domain.uniform(50, Generator().manual_seed(0))
    expected = [
        sum(log[tuple(code[list(scope)])] for scope, log in model.factors) for code in codes_of(x)
    ]
    torch.testing.assert_close(model(x).double(), torch.tensor(expected), rtol=1e-5, atol=1e-5)


@each
def test_all_methods_are_those_of_the_function(name):
    model = MODELS[name]
    x = model.domain.uniform(7, Generator().manual_seed(1))
    agree(model, lw.Function(model.forward, model.domain), x, 1e-4)


@each
def test_gains_are_the_changes(name):
    """The model is linear in each variable."""
    model = MODELS[name]
    x = model.domain.uniform(7, Generator().manual_seed(1))
    gains = model.domain.gains(x, model.log_prob_and_grad(x)[1])
    everywhere = torch.arange(model.domain.dim)
    differences = model.differences(x, (), everywhere)
    differences = differences.masked_fill(gains.isneginf(), -torch.inf)  # no such value
    torch.testing.assert_close(gains, differences, rtol=1e-4, atol=1e-5)


def test_scopes_are_blocks_of_variables_that_share_tables():
    model = MODELS["mixed"]
    windows = [[0, 2], [1, 4], [0, 1], [2, 3], [2, 4]]
    filled = [[1, 3], [0, 4], [3, 4], [0, 5]]  # from 1, 0, 4 and 5, which has no table
    assert model.scopes(2).tolist() == sorted(windows + filled)
    assert set(model.scopes(3).flatten().tolist()) == set(range(6))
    lw.sample(model, lw.Gibbs(2, "scopes"), steps=10, temper=True, diagnose=False)
    with pytest.raises(lw.UnsupportedModelError, match="a model of tables for scan=scopes"):
        lw.Gibbs(2, "scopes").init(torch.zeros(1, 3), lw.RBM(3, 2))


def star(leaves: int, values: int = 2) -> lw.Factors:
    rng = np.random.default_rng(1)
    tables = [((0, i), rng.normal(size=(values, values))) for i in range(1, leaves + 1)]
    return lw.Factors([*tables, ((0,), rng.normal(size=values))])


@pytest.mark.parametrize("values", [2, 3])
def test_a_variable_in_very_many_tables(values):
    """Memory grows with the entries of tables, and the methods are those of the sum."""
    small, large = (
        sum(t.numel() for t in (*model.parameters(), *model.buffers()))
        for model in (star(100, values), star(10_000, values))
    )
    assert large < 101 * small
    model = star(300, values)
    x = model.domain.uniform(3, Generator().manual_seed(0))
    agree(model, lw.Function(model.forward, model.domain), x, 1e-3)


def test_blocks_of_a_variable_in_very_many_tables():
    """Each leaf and the hub; a third variable is the one that the hub meets first."""
    leaves = 30_000
    scopes = star(leaves).scopes(2)
    assert scopes.tolist() == [[0, i] for i in range(1, leaves + 1)]
    assert star(leaves).scopes(3).shape == (leaves - 1, 3)


def test_variables_of_a_scope_have_different_colours():
    colours = MODELS["binary"].colours()
    for scope in SCOPES:
        assert len({int(colours[i]) for i in scope}) == len(scope)


def test_the_normaliser_of_a_bayesian_network_is_one():
    """A chain of three variables; given the last one, Bayes' rule."""
    first, step = np.array([0.3, 0.7]), np.array([[0.9, 0.1], [0.2, 0.8]])
    model = lw.Factors([((0,), np.log(first)), ((0, 1), np.log(step)), ((1, 2), np.log(step))])
    assert float(lw.exact(model).log_z) == pytest.approx(0, abs=1e-6)
    given = lw.exact(model.condition_on({2: 1})).mean
    joint = first[:, None] * step * step[:, 1]
    expected = [joint[1].sum() / joint.sum(), joint[:, 1].sum() / joint.sum()]
    torch.testing.assert_close(given, torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_tables_with_zeros():
    """An impossible value is never drawn, and gradients are refused with what to do."""
    weights = torch.tensor([[1.0, 0.0, 2.0], [1.0, 1.0, 0.0], [0.0, 3.0, 1.0]])
    table = weights.log().numpy()
    model = lw.Factors([((0, 1), table), ((1,), np.zeros(3))])
    x = model.domain.enumerate()
    np.testing.assert_array_equal(model(x).numpy(), table.ravel().astype(np.float32))
    start = x[:1].expand(50, -1, -1)
    result = lw.sample(model, "gibbs", x=start, steps=400, diagnose=False)
    one, other = result.draws.argmax(-1).flatten(0, 1).unbind(-1)
    share = (3 * one + other).bincount(minlength=9) / 20_000
    assert (share[weights.flatten() == 0] == 0).all()
    assert (share - weights.flatten() / weights.sum()).abs().max() < 0.03
    with pytest.raises(ValueError, match="tables with zeros have no gradient; use gibbs"):
        lw.sample(model, "dmala", x=start, steps=1)


def test_a_table_that_changes_counts():
    model, other = network(2, 3, [(0, 1), (1, 2)]), network(2, 3, [(0, 1), (1, 2)])
    model.flat.mul_(2)
    x = lw.Binary(2).enumerate()
    torch.testing.assert_close(model.condition_on({0: 1})(x), 2 * other.condition_on({0: 1})(x))


UAI = """BAYES
3
{values}
2
1 0
3 0 1 2
{first}
{count} {rest}
"""


def test_files_of_any_arity(tmp_path):
    rng = np.random.default_rng(3)
    for k in (2, 3):
        table, first = rng.random((k, k, k)), rng.random(k)
        table[0, 1, 1] = 0
        text = UAI.format(
            values=" ".join([str(k)] * 3),
            first=f"{k} " + " ".join(map(str, first)),
            count=k**3,
            rest=" ".join(map(str, table.ravel())),
        )
        (tmp_path / "net.uai").write_text(text)
        model = lw.read_graph(tmp_path / "net.uai")
        assert isinstance(model, lw.Factors)
        codes = codes_of(model.domain.enumerate())
        with np.errstate(divide="ignore"):
            expected = [np.log(first[a] * table[a, b, c]) for a, b, c in codes]
        found = model(model.domain.enumerate()).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("factors", "told"),
    [
        ([((0, 0), np.zeros((2, 2)))], "each once"),
        ([((0, 1), np.zeros(2))], "an axis for each variable"),
        ([((0, 1), np.zeros((2, 3))), ((1,), np.zeros(2))], "variable 1 has 3 values"),
        ([((0,), np.zeros(2)), ((2,), np.zeros(3))], r"variable 1; give sites=\[2, 3"),
        ([((-1,), np.zeros(2))], "from 0 to"),
        ([], "from 0 to -1"),
        ([((0,), np.array([0.0, np.nan]))], "finite or -inf"),
        ([((0,), np.array([0.0, np.inf]))], "finite or -inf"),
        ([((0,), np.zeros(1))], "two or more"),
    ],
)
def test_what_is_no_network_is_refused(factors, told):
    with pytest.raises(ValueError, match=told):
        lw.Factors(factors)


BIF = """network w { }
variable Rain { type discrete [ 2 ] { dry, wet }; }
variable Sprinkler { type discrete [ 3 ] { off, low, high }; }
variable Grass { type discrete [ 2 ] { dry, wet }; }
probability ( Rain ) { table 0.8, 0.2; }
probability ( Sprinkler | Rain ) { (dry) 0.5, 0.3, 0.2; (wet) 0.9, 0.1, 0.0; }
probability ( Grass | Rain, Sprinkler ) {
  (dry, off) 1.0, 0.0; (dry, low) 0.3, 0.7; (dry, high) 0.1, 0.9;
  (wet, off) 0.2, 0.8; (wet, low) 0.1, 0.9; (wet, high) 0.0, 1.0; }
"""


class Network:
    """As pgmpy gives it: a variable of one state, and tables whose axes are not in its order."""

    def check_model(self):
        return True

    def nodes(self):
        return ["b", "a", "one"]

    def get_cpds(self):
        states = {"a": ["no", "yes"], "b": ["x", "y", "z"], "one": ["only"]}
        pair = np.array([[[0.2, 0.5]], [[0.3, 0.5]], [[0.5, 0.0]]])
        for variables, values in [
            (["b", "one", "a"], pair),
            (["a"], np.array([0.4, 0.6])),
            (["one"], np.ones(1)),
        ]:
            own = {name: states[name] for name in variables}
            table = SimpleNamespace(variables=variables, values=values, state_names=own)
            yield SimpleNamespace(to_factor=lambda table=table: table)


def test_a_network_of_pgmpy_keeps_the_names_of_variables_and_values():
    model = lw.Factors.from_pgmpy(Network())
    assert model.names == ("b", "a")
    assert model.domain == lw.Mixed([3, 2])
    assert float(lw.exact(model).log_z) == pytest.approx(0, abs=1e-6)
    given = model.condition_on({"a": "no"})
    assert given.names == ("b",)
    assert given.labels == (("x", "y", "z"),)
    np.testing.assert_allclose(lw.exact(given).mean, [[0.2, 0.3, 0.5]], rtol=1e-6)
    expected = np.array([[0.08 / 0.38, 0.3 / 0.38]])
    np.testing.assert_allclose(
        lw.exact(model.condition_on({"b": "x"})).mean[:, :2], expected, rtol=1e-6
    )
    with pytest.raises(ValueError, match="'a' must be one of no, yes: 'maybe'"):
        model.condition_on({"a": "maybe"})
    squared = lw.exact(lw.Factors.from_pgmpy(Network(), beta=2.0).condition_on({"a": "no"})).mean
    np.testing.assert_allclose(squared, [np.array([4, 9, 25]) / 38], rtol=1e-6)


def test_tables_that_list_states_in_two_orders_are_refused():
    yes, no = ({"a": order} for order in (["yes", "no"], ["no", "yes"]))
    tables = [
        SimpleNamespace(variables=["a"], values=np.ones(2), state_names=states)
        for states in (yes, no)
    ]
    network = SimpleNamespace(factors=tables, check_model=lambda: True, nodes=lambda: ["a"])
    with pytest.raises(ValueError, match="the states of 'a' are .*'no'. in one table and .*'yes'"):
        lw.Factors.from_pgmpy(network)


def table_of(models, name, rows, parents=(), **more):
    size = len(rows)
    evidence = {"evidence": list(parents), "evidence_card": [2] * len(parents)} if parents else {}
    return models.TabularCPD(name, size, rows, **evidence, **more)


def test_networks_that_pgmpy_refuses_are_refused():
    pytest.importorskip("pgmpy")
    from pgmpy.factors import discrete
    from pgmpy.models import DiscreteBayesianNetwork, DiscreteMarkovNetwork

    a = table_of(discrete, "a", [[0.4], [0.6]])
    b = table_of(discrete, "b", [[0.1, 0.2], [0.9, 0.8]], ["a"])
    wrong = table_of(discrete, "b", [[0.1, 0.2], [0.9, 0.1]], ["a"])
    whole = DiscreteBayesianNetwork([("a", "b")])
    whole.add_cpds(a, b)
    assert lw.Factors.from_pgmpy(whole).names == ("a", "b")

    without = DiscreteBayesianNetwork([("a", "b")])
    without.add_cpds(b)
    with pytest.raises(ValueError, match="pgmpy refuses this .*Network: No CPD associated with a"):
        lw.Factors.from_pgmpy(without)
    sums = DiscreteBayesianNetwork([("a", "b")])
    sums.add_cpds(a, wrong)
    with pytest.raises(ValueError, match="pgmpy refuses this .*not equal to 1"):
        lw.Factors.from_pgmpy(sums)
    with pytest.raises(ValueError, match="pgmpy refuses this .*no variables"):
        lw.Factors.from_pgmpy(DiscreteBayesianNetwork())

    markov = DiscreteMarkovNetwork([("a", "b")])
    with pytest.raises(ValueError, match="no table for 'a', 'b'|pgmpy refuses"):
        lw.Factors.from_pgmpy(markov)
    markov.add_factors(discrete.DiscreteFactor(["a", "b"], [2, 2], [1, 2, 3, 4]))
    assert lw.Factors.from_pgmpy(markov).names == ("a", "b")
    markov.add_node("c")
    with pytest.raises(ValueError, match="pgmpy refuses this .*Factors for all the variables"):
        lw.Factors.from_pgmpy(markov)


@pytest.mark.parametrize("suffix", [".bif", ".BIF"])
def test_a_bif_file_without_a_table_is_refused(tmp_path, suffix):
    pytest.importorskip("pgmpy")
    file = tmp_path / f"w{suffix}"
    file.write_text(BIF)
    assert lw.read_graph(file).names == ("Rain", "Sprinkler", "Grass")
    first = BIF.index("probability")
    second = BIF.index("probability", first + 1)
    file.write_text(BIF[:first] + BIF[second:])
    with pytest.raises(ValueError, match="table|CPD"):
        lw.read_graph(file)


def test_names_and_values_that_are_not_there_are_named():
    model = lw.Factors(
        [((0, 1), [[0.1, 0.2], [0.3, 0.4]])],
        3,
        names=["rain", "wet", "cold"],
        labels=[["no", "yes"]] * 3,
    )
    with pytest.raises(ValueError, match="a name or a number from 0 to 2, got 'wett'; .*'wet'"):
        model.condition_on({"wett": "yes"})
    with pytest.raises(ValueError, match="'wet' must be one of no, yes: 'yess'"):
        model.condition_on({"wet": "yess"})
    with pytest.raises(ValueError, match="value of 0 must be a number, got 'yes'; .* no labels"):
        lw.Graph([(0, 1)], 0.5).condition_on({0: "yes"})


def test_a_bif_file_gives_the_posterior_by_hand(tmp_path):
    pytest.importorskip("pgmpy")
    (tmp_path / "w.bif").write_text(BIF)
    model = lw.read_graph(tmp_path / "w.bif")
    assert model.names == ("Rain", "Sprinkler", "Grass")
    assert model.labels == (("dry", "wet"), ("off", "low", "high"), ("dry", "wet"))
    given = lw.exact(model.condition_on({"Grass": "wet"})).mean
    wet = np.array([[0.0, 0.7 * 0.3, 0.9 * 0.2], [0.8 * 0.9, 0.9 * 0.1, 0.0]]) * [[0.8], [0.2]]
    np.testing.assert_allclose(given[0, 1], wet[1].sum() / wet.sum(), atol=1e-6)
    np.testing.assert_allclose(given[1], wet.sum(0) / wet.sum(), atol=1e-6)


def test_a_bif_file_needs_pgmpy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pgmpy.readwrite", None)
    with pytest.raises(ImportError, match=r"w.bif: .* pip install pgmpy"):
        lw.read_graph(tmp_path / "w.bif")


def test_pairs_of_spins_are_a_graph_with_the_same_law():
    rng = np.random.default_rng(2)
    pairs = list(itertools.combinations(range(4), 2))
    factors = [Factor(pair, rng.normal(size=(2, 2))) for pair in pairs]
    graph = lw.Graph(pairs, [(t[0, 0] + t[1, 1] - t[0, 1] - t[1, 0]) / 4 for _, t in factors])
    model, x = lw.Factors(factors), lw.Binary(4).enumerate()
    odd = torch.tensor([[1.0, 0, 0, 0], [1, 1, 0, 0]])
    second = model(x) - model(1 - x)  # of odd degree: the fields
    assert not torch.allclose(second, torch.zeros(()))
    even = model(x) + model(1 - x)  # of even degree: the weights, and a constant
    theirs = graph(x) + graph(1 - x)
    torch.testing.assert_close(even - even[0], theirs - theirs[0], rtol=1e-4, atol=1e-5)
    assert model(odd).shape == (2,)


def labelled(sizes, labels):
    tables = [((i, i + 1), np.zeros((a, b))) for i, (a, b) in enumerate(itertools.pairwise(sizes))]
    return lw.Factors(tables, sizes, names=["rain", "wet", "cold"], labels=labels)


def test_summary_and_verdict_name_each_value_that_there_is_by_its_label(tmp_path):
    mixed = labelled([2, 3, 2], [["no", "yes"], ["dry", "damp", "wet"], ["no", "yes"]])
    rows = ["rain, no", "rain, yes", "wet, dry", "wet, damp", "wet, wet", "cold, no", "cold, yes"]
    three = labelled([3] * 3, [["a", "b", 3]] * 3)
    two = labelled([2] * 3, [["no", "yes"]] * 3)
    expected = {
        mixed: rows,
        three: [f"{name}, {value}" for name in ("rain", "wet", "cold") for value in "ab3"],
        two: ["rain, yes", "wet, yes", "cold, yes"],
        mixed.condition_on({"cold": "no"}): rows[:5],
        mixed.condition_on({"wet": "damp"}): [*rows[:2], *rows[5:]],
        mixed.condition_on(torch.tensor([[np.nan, np.nan, 0], [np.nan, np.nan, 1]])): rows[:5],
        lw.Factors([((0, 1), np.zeros((2, 3)))]): ["0, 0", "0, 1", "1, 0", "1, 1", "1, 2"],
    }
    for number, (model, entries) in enumerate(expected.items()):
        found = lw.sample(model, "gibbs", steps=200, diagnose=False)
        table = found.summary()
        judged = set(re.findall(r"x\[.*?\]", found.verdict.text))
        assert judged
        assert judged <= set(table.index)
        assert list(table.index) == ["log_prob", *(f"x[{entry}]" for entry in entries)]
        found.save(tmp_path / f"{number}.npz")
        again = lw.SampleResult.load(tmp_path / f"{number}.npz")
        assert list(again.summary().index) == list(table.index)
        assert again.verdict.text == found.verdict.text
    found = lw.sample(mixed, "gibbs", steps=200, diagnose=False)
    frequency = float(found.draws[:, :, 1, 2].mean())
    assert found.summary(None)["mean"]["x[wet, wet]"] == pytest.approx(frequency)
