"""Files of graphs and models: UAI, COO, Gset, and those of dimod."""

import json

import numpy as np
import pytest
import torch
from made_graphs import DATA, draw_by_tree, largest_z
from torch import Generator

import latticework as lw
from latticework.samplers.compiled.registry import find_compiled_kernel


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Grids_11", "Grids_13", "Grids_14"])
def test_grids_of_uai_files(name):
    """log Z; and ten steps of compiled chains that start from exact draws keep all marginals."""
    file = DATA / "uai" / f"{name}.uai"
    if not file.exists():
        pytest.skip(f"needs {name}.uai")
    graph = lw.read_graph(file)
    draws, exact = draw_by_tree(graph, 1000)
    known = {"Grids_11": 390.07716647, "Grids_13": 767.50073811, "Grids_14": 1146.14277469}
    assert exact["log_partition_function"] == pytest.approx(known[name], abs=1e-3)
    for sampler in (lw.GibbsSweep(), lw.DMALA(0.2), lw.DLMC(0.1), lw.DULA(1.0)):  # a control
        twin = find_compiled_kernel(sampler, graph)
        state, _ = twin.advance(twin.at(draws, graph), graph, Generator().manual_seed(1), 10)
        assert not torch.equal(state.x, draws)
        assert (largest_z(graph, state.x, exact) < 5) == sampler.exact


GSET = "3 2\n1 2 1\n2 3 -1\n"
COO = "# vartype={}\n0 0 0.5\n0 1 1.0\n1 2 -2.0\n"
UAI = """MARKOV
3
2 2 2
3
1 0
2 0 1
2 2 1
2
 0.3 0.7
4
 1.0 2.0 3.0 4.5
4
 0.2 0.1 0.4 0.9
"""


def test_files_by_hand(tmp_path):
    def log_probs(text, beta=2.0):
        (tmp_path / "graph.txt").write_text(text)
        graph = lw.read_graph(tmp_path / "graph.txt", beta)
        return graph(graph.domain.enumerate()).double()

    x = lw.Binary(3).enumerate().double()
    s = 2 * x - 1
    expected = {
        GSET: -2 * (s[:, 0] * s[:, 1] - s[:, 1] * s[:, 2]),
        COO.format("SPIN"): -2 * (0.5 * s[:, 0] + s[:, 0] * s[:, 1] - 2 * s[:, 1] * s[:, 2]),
        COO.format("BINARY"): -2 * (0.5 * x[:, 0] + x[:, 0] * x[:, 1] - 2 * x[:, 1] * x[:, 2]),
    }
    i = x.long()
    tables = [torch.tensor(t).double().log() for t in ([0.3, 0.7], [[1.0, 2.0], [3.0, 4.5]])]
    last = torch.tensor([[0.2, 0.1], [0.4, 0.9]]).double().log()
    product = tables[0][i[:, 0]] + tables[1][i[:, 0], i[:, 1]] + last[i[:, 2], i[:, 1]]
    expected[UAI] = 2 * product
    for text, values in expected.items():
        torch.testing.assert_close(log_probs(text), values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nothing here", "must be a Gset, COO or UAI file"),
        ("3 2\n1 2 1\n", "declares 2 edges and has 1; it must be a Gset"),
        ("3 1\n1 2 1\n2 3 1\n", "declares 1 edges and has 2; it must be a Gset"),
        ("3 1\n1 2.9 1\n", r"whole numbers from 0 on, got \[1.0, 2.9\]"),
        ("0 1 1\n-1 -1 2.5\n", r"whole numbers from 0 on, got \[-1.0, -1.0\]"),
        ("", "is empty; it must be a Gset, COO or UAI file"),
        (UAI[:-8], "not a complete UAI file: it ends early$"),
        ("MARKOV", "not a complete UAI file: it ends early$"),
        (UAI.replace("2 2 2", "2 2 3"), r"variables \[2, 1\] has 6 entries, and it declares 4"),
        (UAI.replace("2 2 1\n", "2 7 1\n"), "has a variable that it does not declare"),
        (UAI + "0.5", "1 numbers follow its 3 tables"),
        (UAI.replace("4.5", "-4.5"), r"table of the variables \[0, 1\] has invalid entries"),
        (UAI.replace("4.5", "nan"), r"table of the variables \[0, 1\] has invalid entries"),
        (COO.format("TERNARY"), "vartype=SPIN or vartype=BINARY, got TERNARY"),
        (COO.format("SPIN") + "# vartype=BINARY\n", "got BINARY and SPIN"),
    ],
)
def test_damaged_files_are_refused(tmp_path, text, told):
    (tmp_path / "file").write_text(text)
    with pytest.raises(ValueError, match=told):
        lw.read_graph(tmp_path / "file")


HEADERS = [
    "# vartype=SPIN",
    "#vartype=BINARY",
    "  # vartype: BINARY",
    "# vartype=SPIN\n# from a BINARY problem",
    "# from a SPIN problem\n# vartype=BINARY",
    "# made by BINARY tools, vartype=SPIN",
    "# vartype=SPIN\n# vartype=BINARY",
    "# vartype=TERNARY",
    "# vartype=spin",
]


@pytest.mark.parametrize("header", HEADERS)
def test_the_header_of_coo_is_read_as_by_dimod(tmp_path, header):
    coo = pytest.importorskip("dimod.serialization.coo")
    text = f"{header}\n0 0 0.5\n0 1 1.0\n1 2 -2.0\n"
    (tmp_path / "graph.coo").write_text(text)
    try:
        bqm = coo.loads(text)
    except (ValueError, KeyError, TypeError):
        with pytest.raises(ValueError, match="vartype=SPIN or vartype=BINARY"):
            lw.read_graph(tmp_path / "graph.coo")
        return
    ours, theirs = lw.read_graph(tmp_path / "graph.coo", 2.0), lw.Graph.from_bqm(bqm, 2.0)
    x = lw.Binary(3).enumerate()
    assert theirs.names is not None
    torch.testing.assert_close(ours(x), theirs(x[:, list(theirs.names)]))


@pytest.mark.parametrize("kind", ["SPIN", "BINARY"])
def test_files_of_dimod(tmp_path, kind):
    dimod = pytest.importorskip("dimod")
    bqm = dimod.BinaryQuadraticModel({"a": 0.4, "b": 0.1}, {("a", "b"): 0.9}, 0.2, kind)
    (tmp_path / "model.bqm").write_bytes(bqm.to_file().read())
    (tmp_path / "model.json").write_text(json.dumps(bqm.to_serializable()))
    x, expected = lw.Binary(2).enumerate(), lw.Graph.from_bqm(bqm, 2.0)
    for name in ("model.bqm", "model.json"):
        graph = lw.read_graph(tmp_path / name, 2.0)
        assert graph.names == expected.names
        torch.testing.assert_close(graph(x), expected(x))
        (tmp_path / f"cut_{name}").write_bytes((tmp_path / name).read_bytes()[:30])
        with pytest.raises(ValueError, match="is not a binary quadratic model that dimod wrote"):
            lw.read_graph(tmp_path / f"cut_{name}")


def test_files_that_are_not_text(tmp_path):
    np.savez(tmp_path / "graph.npz", edges=np.eye(2))
    (tmp_path / "graph.npz").write_bytes(b"\xff\xfe\x80" * 9)
    with pytest.raises(ValueError, match="is not a text file; it must be a Gset"):
        lw.read_graph(tmp_path / "graph.npz")


@pytest.mark.parametrize("text", ["2 0 1 2 0", "1\n2 0 1 2 0\n", "2\n0 1\n2 0"])
def test_evidence_of_uai(tmp_path, text):
    (tmp_path / "graph.uai.evid").write_text(text)
    assert lw.read_evidence(tmp_path / "graph.uai.evid") == {0: 1, 2: 0}
    (tmp_path / "graph.uai").write_text(UAI)
    known = lw.read_graph(tmp_path / "graph.uai").condition_on(
        lw.read_evidence(tmp_path / "graph.uai.evid")
    )
    assert known.domain.dim == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("0", None),
        ("1 3", "a pair of numbers, variable and value, for each, got 2 numbers"),
        ("2 0 1", "a pair of numbers"),
        ("1 0 1 2 0", "a pair of numbers"),
        ("a b", "is not UAI evidence: invalid literal"),
        ("2 0 1 0 0", "gives variable 0 the values 1 and 0"),
    ],
)
def test_evidence_that_does_not_hold_what_it_declares(tmp_path, text, told):
    (tmp_path / "evidence").write_text(text)
    if told is None:
        assert lw.read_evidence(tmp_path / "evidence") == {}
    else:
        with pytest.raises(ValueError, match=told):
            lw.read_evidence(tmp_path / "evidence")


def test_attributes_that_are_text_are_named():
    networkx = pytest.importorskip("networkx")
    graph = networkx.Graph()
    graph.add_edge("a", "b", weight="0.5")
    with pytest.raises(ValueError, match="'weight' of the edge 'a' - 'b' .* got the text '0.5'"):
        lw.Graph.from_networkx(graph)
    graph.add_edge("a", "b", weight=0.5)
    graph.nodes["a"]["bias"] = None
    with pytest.raises(ValueError, match="'bias' of the node 'a' must be a number, got None"):
        lw.Graph.from_networkx(graph)


def test_other_models_of_dimod_are_named():
    dimod = pytest.importorskip("dimod")
    told = "must be a dimod.BinaryQuadraticModel, got"
    with pytest.raises(ValueError, match=f"{told} ConstrainedQuadraticModel; dimod.cqm_to_bqm"):
        lw.Graph.from_bqm(dimod.ConstrainedQuadraticModel())
    with pytest.raises(ValueError, match=f"{told} DiscreteQuadraticModel; Factors"):
        lw.Graph.from_bqm(dimod.DiscreteQuadraticModel())
    with pytest.raises(ValueError, match=rf"{told} dict; .*from_qubo\(Q\)"):
        lw.Graph.from_bqm({(0, 0): -1.0, (0, 1): 2.0})
    with pytest.raises(ValueError, match=f"{told} QuadraticModel; "):
        lw.Graph.from_bqm(dimod.QuadraticModel())
