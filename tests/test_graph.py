"""Models on graphs: energies, colours, the compiled sweep, other libraries' graphs."""

import itertools

import numpy as np
import pytest
import torch
from made_graphs import matrix_of, random_graph, some_states
from scipy.sparse import coo_array
from torch import Generator

import latticework as lw
from latticework.samplers.compiled.philox import philox, step_keys
from latticework.samplers.compiled.registry import find_compiled_kernel
from latticework.samplers.compiled.sweeps.sweep_graph import CHUNK_SITES
from latticework.samplers.sweep import TIE_NATS, TIE_SHARE


@pytest.mark.parametrize("edges", [0, 5, 30, 200])
def test_a_graph_is_the_dense_model_of_its_edges(edges):
    graph = random_graph(20, edges)
    dense = lw.DenseIsing(matrix_of(graph) / 2, graph.bias)
    x = some_states(graph)
    torch.testing.assert_close(graph(x), dense(x))
    for one, other in zip(graph.log_prob_and_grad(x), dense.log_prob_and_grad(x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_the_energy_by_hand():
    """Three spins; the pair (0, 1) is given twice, once in each direction."""
    graph = lw.Graph([[0, 1], [1, 0], [1, 2]], [0.5, 0.25, -1.0], [0.1, 0.0, -0.2], offset=3.0)
    x = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    torch.testing.assert_close(graph(x), torch.tensor([0.75 + 1 + 0.3 + 3, -0.75 - 1 - 0.3 + 3]))
    assert graph.edges.tolist() == [[0, 1], [1, 2]]


def test_potts_on_edges_is_the_model_of_a_lattice_and_of_spins():
    lattice = lw.LatticePotts((3, 4), 3, 0.7, [0.2, -0.4, 0.1])
    edges = lw.Lattice((3, 4), 1.0).adjacency().triu().nonzero()
    potts, x = lw.GraphPotts(edges, 0.7, 3, lattice.bias), some_states(lattice)
    torch.testing.assert_close(potts(x), lattice(x))
    graph = random_graph(12, 30)
    bias = torch.stack((-graph.bias, graph.bias), 1)
    spins, x = lw.GraphPotts(graph.edges, 2 * graph.weights, 2, bias), some_states(graph)
    constant = graph.weights.sum()  # w [s_i = s_j] is (w + w s_i s_j) / 2
    torch.testing.assert_close(spins(torch.stack((1 - x, x), -1)), graph(x) + constant)
    with pytest.raises(ValueError, match="joins site 1 to itself"):
        lw.GraphPotts([[1, 1]], 1.0, 3)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.int32])
def test_edges_of_any_whole_type(kind):
    """A product of two sites does not fit the type, nor one of all sites."""
    sites = {torch.uint8: 200, torch.int16: 300, torch.int32: 50_000}[kind]
    edges = torch.tensor([[sites - 3, sites - 1], [3, sites - 2], [0, sites - 1]])
    given, graph = (lw.Graph(e, [0.5, 1.0, -2.0]) for e in (edges.to(kind), edges))
    x = graph.domain.uniform(3, torch.Generator().manual_seed(0))
    torch.testing.assert_close(given.gradient(x), graph.gradient(x))
    for name, value in graph.named_buffers():
        torch.testing.assert_close(getattr(given, name), value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (([[0, 1], [2, 2]], 1.0), "edge 1 joins site 2 to itself"),
        (([[0, 3]], 1.0, [0.0, 0.0]), "from 0 to 1, got 0 to 3"),
        (([[-1, 1]], 1.0), "got -1 to 1"),
        (([[0.0, 1.0]], 1.0), "pairs of whole numbers"),
        (([0, 1], 1.0), "pairs of whole numbers"),
        (([[0, 1]], [1.0, 2.0]), "one for each of the 1 edges"),
        (([[0, 1]], 1.0, [0.0, 0.0], 3), "bias must be one number or 3"),
        (([[0, 1]], float("nan")), "weights must be finite"),
        (([[0, 1]], 1.0, 0.0, 2, 0.0, "aa"), "2 different ones, got 1"),
        (([], []), "dim >= 1"),
    ],
)
def test_what_is_no_graph_is_refused(given, told):
    with pytest.raises(ValueError, match=told):
        lw.Graph(*given)


def test_a_form_follows_the_weights():
    graph, other = random_graph(9, 20), random_graph(9, 20)
    assert graph.form() is graph.form()
    other.weights.mul_(2)
    graph.load_state_dict(other.state_dict())
    np.testing.assert_array_equal(graph.form().slope, other.form().slope)
    np.testing.assert_array_equal(graph.form().offset, other.form().offset)


def grid(side: int) -> torch.Tensor:
    sites = torch.arange(side * side).view(side, side)
    along = torch.stack((sites[:, :-1], sites[:, 1:]), -1).view(-1, 2)
    return torch.cat((along, torch.stack((sites[:-1], sites[1:]), -1).view(-1, 2)))


@pytest.mark.parametrize(
    ("graph", "most"),
    [
        (lw.Graph(grid(7)[torch.randperm(84, generator=Generator().manual_seed(0))], 1.0), 2),
        (lw.Graph([[0, 1], [2, 3], [3, 4]], 1.0, sites=7), 2),  # parts, and isolated sites
        (lw.Graph(list(itertools.combinations(range(6), 2)), 1.0), 6),
        (lw.regular_graph(200, 3, 1.0), 4),
    ],
)
def test_neighbours_have_different_colours(graph, most):
    colours = graph.colours()
    assert (colours[graph.edges[:, 0]] != colours[graph.edges[:, 1]]).all()
    assert sorted(set(colours.tolist())) == list(range(int(colours.max()) + 1))
    assert int(colours.max()) + 1 <= most


def test_random_graphs_have_the_degree():
    graph = lw.regular_graph(300, 4, 0.7)
    degree = graph.edges.flatten().bincount(minlength=300)
    assert degree.max() == 4
    assert degree.float().mean() > 3.9
    assert set(graph.weights.abs().unique().tolist()) <= {0.0, *torch.tensor([0.7, 1.4]).tolist()}
    with pytest.raises(ValueError, match="must be even"):
        lw.regular_graph(5, 3, 1.0)


def test_a_hub_of_ten_thousand_edges():
    """The hub's field is a sum of 10^4 terms, and the sites around it are read one by one."""
    hub = lw.Graph([[0, i] for i in range(1, 10_001)], 1e-3)
    x = some_states(hub, 3)
    odds = hub.log_odds(x, (), torch.tensor([0, 7]))
    expected = torch.stack((2e-3 * (2 * x[:, 1:] - 1).sum(1), 2e-3 * (2 * x[:, 0] - 1)), 1)
    torch.testing.assert_close(odds, expected, rtol=1e-4, atol=1e-5)
    assert hub.colours().bincount().tolist() == [1, 10_000] or hub.colours()[0] == 1


@pytest.mark.slow
def test_many_sites():
    """Memory grows with the edges: a step needs no array beyond some numbers an edge."""
    graph = lw.regular_graph(200_000, 3, 0.3)
    result = lw.sample(graph, "gibbs_sweep", chains=1, steps=1, engine="compiled", diagnose=False)
    assert result.draws.shape == (1, 1, 200_000)
    tensors = [*graph.buffers(), *graph.parameters()]
    held = sum(tensor.nbytes for tensor in tensors) + sum(part.nbytes for part in graph.form())
    assert held < 33e6  # docs/library.md: 165 MB for a million sites


# The compiled sweep.


def plain_sweep(
    graph: lw.Graph, x: np.ndarray, key: int, chain: int, metropolis: bool = False
) -> np.ndarray:
    """One sweep of one chain, with the words of the kernel."""
    form, x, chunk = graph.form(), x.copy(), 0
    bias, weights = graph.bias.double().numpy(), graph.weights.double().numpy()
    one, other = graph.edges.numpy().T
    rows = coo_array((weights, (one, other)), (len(bias), len(bias))).tocsr()
    rows += rows.T
    for start, stop in itertools.pairwise(form.classes):
        for begin in range(start, stop, CHUNK_SITES):
            block = form.order[begin : min(begin + CHUNK_SITES, stop)]
            for place, site in enumerate(block):
                four = philox(chunk * CHUNK_SITES // 4 + place // 4, chain, 0, np.uint64(key))
                row = slice(*rows.indptr[site : site + 2])
                odds = 2 * (bias[site] + rows.data[row] @ (2 * x[rows.indices[row]] - 1))
                level, other = (four[place % 4] + 0.5) / 2**32, 1 - x[site]
                rarer = level < 1 / (1 + np.exp(abs(odds)))
                gain = odds * (other - x[site])
                share = TIE_SHARE if abs(gain) <= TIE_NATS else 1
                tried = other if level < share * min(1, np.exp(gain)) else x[site]
                x[site] = tried if metropolis else rarer != (odds > 0)
            chunk += 1
    return x


GRAPHS = {
    "sparse": random_graph(150, 200),
    "full": random_graph(20, 150),
    "equal weights": lw.Graph(lw.regular_graph(150, 7, 1.0).edges, 0.3, 0.1, 150),
    "weights of both signs": lw.regular_graph(50, 10, 0.25),
    "ties": lw.Graph(lw.regular_graph(150, 4, 1.0).edges, 0.3, 0.0, 153),
    "parts, isolated sites, zeros": lw.Graph([[0, 1], [1, 2], [4, 5]], [0.7, 0.0, -0.4], 0.2, 9),
}
IN_BITS = {"equal weights", "ties"}  # with eight chains or more, whose numbers are others
CELLS = [(name, n) for name in GRAPHS for n in (1, 5, 35) if n < 8 or name not in IN_BITS]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "chains"), CELLS)
@pytest.mark.parametrize("sampler", [lw.GibbsSweep(), lw.MetropolisSweep()], ids=str)
def test_sweeps_are_those_of_a_plain_loop(sampler, name, chains):
    """Several chunks of a class, rows of more than four neighbours, one chain and two tiles."""
    graph = GRAPHS[name]
    x = some_states(graph, chains)
    twin, keys = find_compiled_kernel(sampler, graph), step_keys(3, Generator().manual_seed(3))
    metropolis = isinstance(sampler, lw.MetropolisSweep)
    state, _ = twin.advance(twin.init(x, graph), graph, Generator().manual_seed(3), 3)
    for chain in range(0, chains, 4):
        expected = x[chain].double().numpy()
        for key in keys:
            expected = plain_sweep(graph, expected, key, chain, metropolis)
        np.testing.assert_array_equal(state.x[chain].numpy(), expected)


@pytest.mark.slow
@pytest.mark.parametrize("chains", [1, 2])
def test_sweeps_around_a_hub(chains):
    graph = lw.Graph([[0, i] for i in range(1, 10_001)], 0.01)
    x = some_states(graph, chains)
    twin, (key,) = (
        find_compiled_kernel(lw.GibbsSweep(), graph),
        step_keys(1, Generator().manual_seed(3)),
    )
    state, _ = twin.advance(twin.init(x, graph), graph, Generator().manual_seed(3), 1)
    expected = plain_sweep(graph, x[0].double().numpy(), key, 0)
    np.testing.assert_array_equal(state.x[0].numpy(), expected)


@pytest.mark.slow
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_a_chain_alone_remembers_the_fields_of_its_state(graph):
    """After flips of many steps, and after a renewal."""
    twin, rng = find_compiled_kernel(lw.GibbsSweep(), graph), Generator().manual_seed(4)
    state = twin.at(some_states(graph, 1), graph)
    for steps in (1, 50, 500):
        state, _ = twin.advance(state, graph, rng, steps)
        torch.testing.assert_close(
            state.fields.float(), graph.gradient(state.x), rtol=1e-4, atol=1e-4
        )


def test_clusters_of_a_frustrated_graph_are_refused():
    graph = lw.Graph([[0, 1], [1, 2]], [0.5, -0.5])
    with pytest.raises(lw.UnsupportedModelError, match="1 negative weights; gibbs_sweep serves it"):
        lw.sample(graph, "swendsen_wang", steps=1)


# From and to others.


def test_clusters_without_edges():
    found = lw.sample(lw.Graph([], 0.0, [0.5, -0.2]), "swendsen_wang", steps=2000, diagnose=False)
    np.testing.assert_allclose(found.draws.mean((0, 1)), [0.73, 0.40], atol=0.03)


def test_sparse_and_dense_matrices():
    sparse = pytest.importorskip("scipy.sparse")
    graph = random_graph(12, 20)
    weights = matrix_of(graph).numpy()
    for matrix in (weights, sparse.csr_array(weights), sparse.coo_matrix(weights)):
        found = lw.Graph.from_scipy(matrix, graph.bias)
        torch.testing.assert_close(found(some_states(graph)), graph(some_states(graph)))
    weights[0, 1] += 1
    with pytest.raises(ValueError, match="symmetric"):
        lw.Graph.from_scipy(weights)


def test_networkx():
    networkx = pytest.importorskip("networkx")
    source = networkx.Graph()
    source.add_node("c", bias=0.7)
    source.add_edge("a", "b", weight=-0.5)
    source.add_edge("a", "c")
    graph = lw.Graph.from_networkx(source)
    assert graph.names == ("c", "a", "b")
    torch.testing.assert_close(graph(torch.tensor([[1.0, 1.0, 0.0]])), torch.tensor([2.2]))


def test_draws_have_the_names_of_the_graph():
    graph = lw.Graph([[0, 1], [1, 2]], 0.5, names=["rain", 7, "wet"])
    for model, names in (
        (graph, ["rain", "7", "wet"]),
        (graph.condition_on({7: 1}), ["rain", "wet"]),
    ):
        result = lw.sample(model, "gibbs", steps=20, diagnose=False)
        assert list(result.summary().index[1:]) == [f"x[{name}]" for name in names]
    result = lw.sample(graph, "gibbs", steps=20, diagnose=False, names=list("abc"))
    assert list(result.summary().index[1:]) == ["x[a]", "x[b]", "x[c]"]


def test_bqms_there_and_back():
    """BQMs of spins and of {0, 1}: log pi = -beta E for every state, and the same BQM again."""
    dimod = pytest.importorskip("dimod")
    quadratic = {("a", "b"): 0.5, ("b", "c"): -1.5}
    for kind in ("SPIN", "BINARY"):
        bqm = dimod.BinaryQuadraticModel({"a": 1.0, "b": 0.0, "c": -0.3}, quadratic, 0.7, kind)
        graph = lw.Graph.from_bqm(bqm, beta=2.0)
        states = graph.domain.enumerate()
        spins = states.numpy() if kind == "BINARY" else 2 * states.numpy() - 1
        energies = torch.from_numpy(bqm.energies((spins, graph.names)))
        torch.testing.assert_close(graph(states).double(), -2 * energies, rtol=1e-5, atol=1e-5)
        back = graph.to_bqm(beta=2.0).change_vartype(kind, inplace=False)
        assert dimod.BinaryQuadraticModel.is_almost_equal(back, bqm, places=5)
