"""Columns of few deviations: the products are those of the whole matrix."""

import pytest
import torch
from torch import Generator

from latticework.models.base import EnergyModel
from latticework.models.bayes_net import BayesNet
from latticework.models.constant_columns import LEAST, Columns, product
from latticework.samplers.langevin import DMALA
from latticework.sampling.checking.host_reads import NoHostReads

ROWS, CATEGORIES, HIDDEN = 97, LEAST + 8, 6


def table(dtype=torch.float64):
    """Two normal columns around standardised categories, `[rows, categories + 2]`."""
    rng = Generator().manual_seed(1)
    drawn = torch.randint(CATEGORIES, (ROWS,), generator=rng)
    hot = torch.nn.functional.one_hot(drawn, CATEGORIES).to(dtype)
    normal = torch.randn(ROWS, 2, generator=rng, dtype=dtype)
    full = torch.cat([normal[:, :1], hot, normal[:, 1:]], 1)
    return (full - full.mean(0)) / full.std(0).clamp(min=0.01)


def net(chunk=20 * HIDDEN, dtype=torch.float64):
    targets = torch.rand(ROWS, generator=Generator().manual_seed(2), dtype=dtype)
    return BayesNet(table(dtype), targets, HIDDEN, 30.0, chunk)


def states(model, chains=3):
    return model.domain.uniform(chains, Generator().manual_seed(3)).to(model.targets.dtype)


def close(ours, theirs, tolerance=1e-11):
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def kept(model):
    """How many columns are kept as deviations."""
    few = model._columns().few
    return 0 if few is None else len(few)


@pytest.mark.parametrize("height", [1, 7, ROWS])
def test_products_are_those_of_the_matrix(height):
    rng = Generator().manual_seed(4)
    inputs = torch.cat([table(), torch.ones(ROWS, 1, dtype=torch.float64)], 1)
    parts = [slice(row, min(row + height, ROWS)) for row in range(0, ROWS, height)]
    columns = Columns(inputs, parts, split=True)
    assert columns.inputs.shape[1] == 3  # the normal ones and the ones
    full = torch.randn(1, inputs.shape[1], 5, generator=rng, dtype=torch.float64)
    g = torch.randn(1, 1, ROWS, generator=rng, dtype=torch.float64)
    values = torch.randn(1, ROWS, 5, generator=rng, dtype=torch.float64)
    whole, few = columns.weights(full)
    sums = torch.zeros_like(whole), torch.zeros_like(few)
    for part in parts:
        close(columns.times(part, whole, few), inputs[part] @ full)
        columns.add_back(part, g[:, :, part], values[:, part], *sums)
    close(columns.full(*sums), (inputs.T * g) @ values)


@pytest.mark.parametrize("chunk", [1, 20 * HIDDEN, ROWS * HIDDEN])
def test_the_networks_gradient_is_autograds(chunk):
    model = net(chunk)
    x = states(model)
    log_prob, grad = model.log_prob_and_grad(x)
    assert kept(model) == CATEGORIES
    expected, autograd = EnergyModel.log_prob_and_grad(net(None), x)
    close(log_prob, expected)
    close(grad, autograd)


def test_another_precision_makes_them_anew():
    single, x = net(dtype=torch.float32), states(net())
    before = single.log_prob_and_grad(x.float())[1]
    double = single.double()
    after = double.log_prob_and_grad(x)[1]
    assert kept(double) == CATEGORIES
    assert after.dtype == torch.float64
    close(before, after.float(), 1e-5)


def test_the_product_of_few_chains_is_the_plain_one():
    rng = Generator().manual_seed(6)
    a, b = torch.randn(9, 4, generator=rng), torch.randn(3, 4, 5, generator=rng)
    close(product(a, b), a @ b, 1e-5)
    for chains in (1, 2):
        close(product(a, b[:chains]), a @ b[:chains], 1e-5)


def test_a_step_reads_nothing_on_the_host():
    model, rng = net(), Generator().manual_seed(5)
    state = DMALA(0.5).init(states(model, 1), model)
    assert kept(model) >= LEAST
    with NoHostReads():
        DMALA(0.5).step(state, model, rng)
