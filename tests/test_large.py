"""Where a tensor's size chooses the method, the methods agree."""

import pytest
import torch
from scipy.stats import chisquare, kstest
from torch import Generator
from torch.nn.functional import softplus

import latticework as lw
from latticework.models.distributions import (
    FUSING_ENTRIES,
    TWO_STAGES_FROM,
    draw_categorical,
    softplus_sum,
    uniform_like,
)
from latticework.samplers.base import select_rows
from latticework.samplers.one_site import FlipState


def rng(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


@pytest.mark.parametrize("n", [1, 2, 31, 33, 500, 784])
def test_softplus_sum(n):
    z = torch.randn(FUSING_ENTRIES // n + 1, n, generator=rng()) * 20
    z[0], z[1], z[2] = 1e4, -1e4, torch.inf
    assert z.numel() >= FUSING_ENTRIES
    given, expected = z.clone(), softplus(z.double()).sum(-1)
    torch.testing.assert_close(softplus_sum(z).double(), expected, rtol=2e-6, atol=2e-6)
    assert torch.equal(z, given)
    z[3, 0] = torch.nan
    assert softplus_sum(z)[3].isnan()


@pytest.mark.parametrize("shape", [(FUSING_ENTRIES,), (3, FUSING_ENTRIES // 2 + 1)])
def test_uniform_like(shape):
    u = uniform_like(torch.empty(shape), rng())
    assert u.shape == shape
    assert u.dtype == torch.float32
    assert ((u >= 0) & (u < 1)).all()
    u = u.flatten().double()
    assert kstest(u.numpy(), "uniform").pvalue > 1e-4
    neighbours = torch.corrcoef(torch.stack((u[:-1], u[1:])))[0, 1]  # halves of one integer
    assert abs(neighbours) * len(u) ** 0.5 < 5
    assert len(u.unique()) > 0.98 * len(u)


def test_small_uniform_numbers_are_as_fine_as_others():
    """Numbers with 24 random bits have 2^12 values below 2^-12."""
    u = torch.cat([uniform_like(torch.empty(2**20), rng(seed)) for seed in range(16)])
    small = u[u < 2**-12]
    assert abs(len(small) - 2**12) < 5 * 2**6
    assert kstest(small.double().numpy() * 2**12, "uniform").pvalue > 1e-4
    assert len(small.unique()) > 0.99 * len(small)
    coarse = (u * 2**24).floor()[u < 2**-12]
    assert len(coarse.unique()) < 0.8 * len(small)  # control


@pytest.mark.parametrize("half", [0x7FFFFFFF, -(2**31)], ids=["largest", "smallest"])
def test_uniform_numbers_of_extreme_bits_are_below_1(monkeypatch, half):
    """Both halves of every random integer are `half`, as a signed number."""
    bits = (half << 32) | (half & 0xFFFFFFFF)
    monkeypatch.setattr(torch.Tensor, "random_", lambda self, *_, **__: self.fill_(bits))
    u = uniform_like(torch.empty(FUSING_ENTRIES), rng())
    assert len(u.unique()) == 1
    assert 0.9 < u[0] < 1


@pytest.mark.parametrize("n", [TWO_STAGES_FROM - 1, TWO_STAGES_FROM, 529, 700])
def test_draw_categorical(n):
    weights = torch.rand(n, generator=rng()).square()
    weights[::3] = 0
    weights[100:160] = 0  # whole blocks
    draws = draw_categorical(weights.expand(50, n), rng(1), 4000).flatten()
    count = draws.bincount(minlength=n)
    assert len(count) == n
    assert (count[weights == 0] == 0).all()
    drawn, law = count[weights > 1e-3].double(), weights[weights > 1e-3].double()

    def p_value(expected):
        return chisquare(drawn, expected / expected.sum() * drawn.sum()).pvalue

    assert p_value(law) > 1e-4
    assert p_value(law.roll(1)) < 1e-4  # control


@pytest.mark.parametrize("width", [3, FUSING_ENTRIES])
def test_select_rows(width):
    new, old = torch.randn(2, 3, width, generator=rng())
    new[1, 0], old[0, 0], new[0, 1], old[1, 1] = torch.nan, torch.nan, torch.inf, -0.0
    expected = torch.stack((new[0], old[1], new[2]))
    state = FlipState(new, new[:, 0].clone(), new.double())
    chosen = torch.tensor([True, False, True])
    found = select_rows(chosen, state, FlipState(old, old[:, 0], old.double()))
    exact = {"rtol": 0, "atol": 0, "equal_nan": True}
    torch.testing.assert_close(found.x, expected, **exact)
    torch.testing.assert_close(found.weights, expected[:, 0], **exact)
    torch.testing.assert_close(found.sums, expected.double(), **exact)


def test_flips_on_a_lattice_beyond_dense():
    """A thousand steps leave the weights and their sums as they are computed afresh."""
    model = lw.Lattice((15, 13), 0.2, 0.1, periodic=False)
    generator = rng()
    state = lw.GWG().init(model.domain.uniform(8, generator), model)
    assert isinstance(state, FlipState)
    assert state.sums.shape[1] > 1
    for _ in range(1000):
        state, _ = lw.GWG().step(state, model, generator)
    model.domain.check(state.x)
    fresh = lw.GWG().init(state.x, model)
    torch.testing.assert_close(state.weights, fresh.weights)
    torch.testing.assert_close(state.sums, fresh.sums)
    logits = model.differences(state.x, (), torch.arange(model.domain.dim)) / 2
    torch.testing.assert_close(state.logits, logits)
