"""models.matmul: equal numbers from both libraries, and derivatives where they are asked for."""

import pytest
import torch

from latticework.models import constant_columns, matmul
from latticework.models.matmul import affine

SHAPES = [(130, 96, 88), (2, 1000, 600), (60, 784, 25)]  # rows, in, out; above LEAST


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


def case(rows, width, out, seed=0):
    rng = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(shape, generator=rng)  # noqa: E731
    return draw(out), draw(rows, width), draw(width, out)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("transposed", [False, True])
def test_onednn_gives_the_affine_map(onednn, shape, transposed):
    bias, x, weight = case(*shape)
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
        _, x, weight = case(rows, 100, 80)
        for a in (x, x.unsqueeze(0)):
            found = constant_columns.product(a, weight.unsqueeze(0))
            torch.testing.assert_close(found, (x @ weight).unsqueeze(0), rtol=1e-5, atol=1e-4)
        assert len(onednn) == 2 * used


def test_a_row_does_not_depend_on_the_others(onednn):
    bias, x, weight = case(200, 300, 100)
    torch.testing.assert_close(
        affine(bias, x[:100].clone(), weight), affine(bias, x, weight)[:100], rtol=0, atol=0
    )
    assert len(onednn) == 2


def test_derivatives_are_kept(onednn):
    bias, x, weight = case(130, 96, 88)
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
