"""Products of matrices: columns of few deviations, and equal numbers from both libraries."""

import pytest
import torch
from torch import Generator

from latticework.models import constant_columns, matmul
from latticework.models.base import EnergyModel
from latticework.models.bayes_net import BayesNet
from latticework.models.constant_columns import MIN_CONSTANT_COLUMNS, Columns, product
from latticework.models.matmul import affine
from latticework.samplers.langevin import DMALA
from latticework.sampling.checking.host_reads import NoHostReads

ROWS, CATEGORIES, HIDDEN = 97, MIN_CONSTANT_COLUMNS + 8, 6


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
    assert kept(model) >= MIN_CONSTANT_COLUMNS
    with NoHostReads():
        DMALA(0.5).step(state, model, rng)


# models.matmul: equal numbers from both libraries, and derivatives where they are asked for.


SHAPES = [(130, 96, 88), (2, 1000, 600), (60, 784, 25)]  # rows, in, out; above MIN_MULTIPLICATIONS


@pytest.fixture
def onednn(monkeypatch):
    """oneDNN on any processor that has it; the calls that it gets."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("PyTorch without oneDNN")
    monkeypatch.setattr(matmul, "mkl_is_slow", lambda: True)
    calls = []
    inner = matmul.onednn

    def counted(x, weight, bias=None):
        calls.append(x.shape)
        return inner(x, weight, bias)

    for module in (matmul, constant_columns):
        monkeypatch.setattr(module, "onednn", counted)
    return calls


def operands(rows, width, out, seed=0):
    rng = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(shape, generator=rng)  # noqa: E731
    return draw(out), draw(rows, width), draw(width, out)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("transposed", [False, True])
def test_onednn_gives_the_affine_map(onednn, shape, transposed):
    bias, x, weight = operands(*shape)
    if transposed:  # as W of an RBM is for the visible units
        weight = weight.T.contiguous().T
    expected = (x.double() @ weight.double() + bias).float()
    out = torch.full_like(expected, torch.nan)
    torch.testing.assert_close(affine(bias, x, weight), expected, rtol=1e-5, atol=2e-4)
    assert affine(bias, x, weight, out) is out
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=2e-4)
    assert len(onednn) == 2


def test_small_products_are_left_to_mkl(onednn):
    for rows, used in ((100, 0), (200, 1)):
        _, x, weight = operands(rows, 100, 80)
        for a in (x, x.unsqueeze(0)):
            found = constant_columns.product(a, weight.unsqueeze(0))
            torch.testing.assert_close(found, (x @ weight).unsqueeze(0), rtol=1e-5, atol=1e-4)
        assert len(onednn) == 2 * used


def test_a_row_does_not_depend_on_the_others(onednn):
    bias, x, weight = operands(200, 300, 100)
    torch.testing.assert_close(
        affine(bias, x[:100].clone(), weight), affine(bias, x, weight)[:100], rtol=0, atol=0
    )
    assert len(onednn) == 2


def test_derivatives_are_kept(onednn):
    bias, x, weight = operands(130, 96, 88)
    x.requires_grad_()
    affine(bias, x, weight).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(1).expand_as(x))
    assert not onednn
    with torch.no_grad():
        affine(bias, x, weight)
    assert len(onednn) == 1


@pytest.mark.parametrize(
    ("capability", "processor", "slow"),
    [
        ("AVX512", "vendor_id : AuthenticAMD", True),
        ("AVX512", "vendor_id : GenuineIntel", False),
        ("AVX2", "vendor_id : AuthenticAMD", False),
    ],
)
def test_which_processors(monkeypatch, capability, processor, slow):
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        pytest.skip("PyTorch without MKL or oneDNN")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(matmul, "_processor", lambda: processor)
    assert matmul.mkl_is_slow.__wrapped__() == slow
