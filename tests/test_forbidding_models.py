"""Models with couplings and biases of -inf, which forbid states."""

import copy
import itertools
import math
import pickle

import pytest
import torch
from small_models import close
from torch import Generator

import latticework as lw

NOT = -math.inf
FORBIDDING = {  # edges, couplings, biases and the number of sites; then how the model is made
    "colouring of a cycle": ([(0, 1), (1, 2), (2, 3), (3, 0)], [NOT] * 4, [[0.0] * 3] * 4),
    "colouring by lists": (
        [(0, 1), (1, 2), (0, 2)],
        [NOT] * 3,
        [[0.3, NOT, 0.1], [0.2, -0.5, NOT], [NOT, NOT, 0.4], [NOT, 1.0, 2.0]],
    ),
    "some edges": (
        [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)],
        [NOT, 0.7, -1.2, NOT, 900.0],
        [[0.2, -0.4, 0.1], [0.5, 0.0, NOT], [0.0, 0.3, 0.0], [-0.2, 0.0, 0.0]],
    ),
    "a star": ([(0, i) for i in range(1, 6)], [NOT, 0.3, NOT, 0.5, NOT], [[0.1, 0.2, 0.0]] * 6),
    "an edge given twice": ([(0, 1), (1, 0)], [NOT, 5.0], [[0.1, 0.2, 0.0]] * 2),
    "two values": ([(0, 1), (1, 2)], [NOT, NOT], [[0.1, 0.2]] * 3),
    "biases alone": ([(0, 1)], [0.5], [[NOT, 0.2, 0.0], [0.1, NOT, NOT]]),
}
LATTICES_FORBIDDING = {
    "a lattice": lambda: lw.LatticePotts((2, 3), 3, NOT, [0.2, -0.4, 0.1], False),
    "a ring": lambda: lw.LatticePotts((5,), 3, NOT),
    "a lattice by lists": lambda: lw.LatticePotts(
        (2, 2), 3, NOT, [[NOT, 0.1, 0.2], [0.0, NOT, 0.3], [0.1, 0.0, 0.0], [0.0, 0.0, NOT]]
    ),
    "a lattice with biases of -inf": lambda: lw.LatticePotts((3,), 3, 0.6, [0.2, NOT, 0.1]),
}


def described(name):
    """The model, and its edges, couplings and biases as plain lists."""
    if name in FORBIDDING:
        edges, couplings, bias = FORBIDDING[name]
        model = lw.GraphPotts(edges, couplings, len(bias[0]), bias, len(bias))
        return model, edges, couplings, bias
    model = LATTICES_FORBIDDING[name]()
    edges = lw.Lattice(model.shape, 1.0, periodic=model.periodic).adjacency().triu().nonzero()
    coupling = 0.6 if name == "a lattice with biases of -inf" else NOT
    bias = torch.where(model.bias < -1e20, NOT, model.bias.double()).tolist()
    return model, edges.tolist(), [coupling] * len(edges), bias


forbidding = pytest.mark.parametrize("name", [*FORBIDDING, *LATTICES_FORBIDDING])


@forbidding
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_forbidden_states_are_those_of_a_plain_loop(name, dtype):
    model, edges, couplings, bias = described(name)
    values, expected = len(bias[0]), []
    states = list(itertools.product(range(values), repeat=len(bias)))
    for state in states:
        total = sum(bias[i][v] for i, v in enumerate(state))
        for (i, j), coupling in zip(edges, couplings, strict=True):
            total += coupling if state[i] == state[j] else 0.0
        expected.append(total)
    x = torch.nn.functional.one_hot(torch.tensor(states), values).to(dtype)
    truth = torch.tensor(expected, dtype=dtype)
    torch.testing.assert_close(model.to(dtype).log_prob(x), truth, rtol=1e-6, atol=1e-6)
    exact = lw.exact(model).log_z.double()
    torch.testing.assert_close(exact, truth.double().logsumexp(0), rtol=1e-5, atol=1e-5)


@forbidding
def test_local_methods_of_forbidding_models_are_those_of_the_function(name):
    model = described(name)[0].double()
    plain, every = lw.Function(model.forward, model.domain), model.domain.enumerate().double()
    x = every[model(every) > NOT][:50]
    sites = torch.randperm(model.domain.dim, generator=Generator().manual_seed(0))
    for block in (sites[:1], sites[:2], sites):
        differences = model.differences(x, (), block)
        close(differences, plain.differences(x, (), block))
        patterns, _ = model.domain.block(x, block)
        law = model.block_log_probs(x, (), block, patterns).softmax(-1)
        close(law, plain.block_log_probs(x, (), block, patterns).softmax(-1))
    site = sites[:1]
    close(
        model.site_log_probs(x, (), site).softmax(-1), plain.site_log_probs(x, (), site).softmax(-1)
    )


@forbidding
def test_tables_tell_which_states_are_possible(name):
    model = described(name)[0]
    x = model.domain.enumerate()
    codes = x.argmax(-1).numpy()
    allowed = torch.ones(len(x), dtype=torch.bool)
    for scope, table in model.support_tables():
        allowed &= torch.from_numpy(table[tuple(codes[:, scope].T)])
    assert torch.equal(allowed, model(x) > NOT)
    assert lw.GraphPotts([[0, 1]], 0.5, 3).support_tables() is None


@forbidding
def test_forbidding_models_have_no_gradient_and_keep_their_states_when_they_are_copied(name):
    model = described(name)[0]
    x = model.domain.enumerate()
    with pytest.raises(lw.models.base.NotDifferentiableError, match="-inf have no gradient"):
        model.log_prob_and_grad(x)
    kind = type(model)
    if kind is lw.GraphPotts:
        other = lw.GraphPotts(model.graph.edges, 0.5, model.domain.num_values, 0.1, len(x[0]))
        other.load_state_dict(model.state_dict())
        assert torch.equal(other(x), model(x))
        with pytest.raises(lw.models.base.NotDifferentiableError):
            other.log_prob_and_grad(x)
        plain = lw.GraphPotts(model.graph.edges, 0.5, model.domain.num_values, 0.1, len(x[0]))
        model.load_state_dict(plain.state_dict())
        assert model.log_prob_and_grad(x)[0].isfinite().all()
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(again(x), model(x))


def test_a_large_graph_of_strong_couplings_forbids_the_same():
    """The sum of its other couplings is far more than any price that a zero could have."""
    edges = [[i, i + 1] for i in range(100_000)]
    model = lw.GraphPotts(edges, [NOT, *[50.0] * (len(edges) - 1)], 3)
    x = torch.zeros(2, len(edges) + 1, 3)
    x[..., 0] = 1
    x[1, 0] = torch.tensor([0.0, 1.0, 0.0])
    assert model(x).tolist() == [NOT, 50.0 * (len(edges) - 1)]
