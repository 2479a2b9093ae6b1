"""Draws that `latticework.sample` keeps: in bits and bytes, in a file, or their summary."""

import numpy as np
import pytest
import torch
from long_run_models import POTTS, RING, same_run

import latticework as lw
from latticework.sampling.codes import PlainCode
from latticework.sampling.stored_draws import LazyArray, StoredDraws

pytestmark = pytest.mark.filterwarnings("ignore::latticework.sampling.sample.ConvergenceWarning")
DOMAINS = [
    lw.Binary(11), lw.Binary(11, -1, 1), lw.Binary(5, -0.1, 0.3), lw.Subset(11, 4),
    lw.Categorical(7, 3), lw.Categorical(3, 300), lw.Mixed([2, 4, 3]), lw.Ordinal(9, 5),
    lw.Ordinal(2, 70_000), lw.Integer(4),
]  # fmt: skip


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_draws_of_every_domain_come_back_as_they_were(domain, precision):
    rng = torch.Generator().manual_seed(0)
    draws = [domain.uniform(3, rng).to(precision) for _ in range(5)]
    stored = StoredDraws(domain, draws[0])
    for block in (draws[:2], draws[2:]):
        stored.append(torch.stack(block))
    expected = torch.stack(draws, 1)
    assert torch.equal(stored.unpack(), expected)
    assert stored.unpack().dtype == precision
    entries = np.arange(expected[0, 0].numel())[::2]
    np.testing.assert_array_equal(stored.select_entries(entries), expected.flatten(2)[..., ::2])
    lazy = LazyArray(stored)
    assert lazy.shape == tuple(expected.shape)
    np.testing.assert_array_equal(lazy.reshape(3, 5, -1)[..., 1:3], expected.flatten(2)[..., 1:3])
    np.testing.assert_array_equal(lazy[0], expected[0])
    assert torch.equal(StoredDraws.pack(expected, domain).unpack(), expected)
    if not isinstance(domain, lw.Integer):
        assert stored.bytes_of(5) <= expected.nbytes / (1 if domain.dim == 2 else 3)


@pytest.mark.parametrize("wrong", [0.5, torch.nan, -3.0])
@pytest.mark.parametrize("domain", DOMAINS[:-1], ids=str)
def test_states_outside_the_domain_are_kept_as_they_are(domain, wrong, tmp_path):
    x = domain.uniform(2, torch.Generator().manual_seed(0))
    broken = x.clone()
    broken[1].view(-1)[0] = wrong
    stored = StoredDraws(domain, x)
    stored.append(x.unsqueeze(0))
    stored.append(broken.unsqueeze(0))
    expected = torch.stack((x, broken), 1)
    torch.testing.assert_close(stored.unpack(), expected, rtol=0, atol=0, equal_nan=True)
    assert type(stored.code) is PlainCode
    filed = StoredDraws(domain, x, tmp_path / "draws.npy")
    filed.append(x.unsqueeze(0))
    with pytest.raises(ValueError, match="left their domain"):
        filed.append(broken.unsqueeze(0))


def test_a_verdict_of_many_draws_is_that_of_the_draws(monkeypatch):
    """Entries are unpacked a part at a time."""
    result = lw.sample(POTTS, "gibbs", steps=400)
    monkeypatch.setattr("latticework.sampling.stored_draws.MAX_HELD_BYTES", 0)
    again = lw.sample(POTTS, "gibbs", steps=400)
    assert isinstance(again.stored.entries(), LazyArray)
    assert str(again.verdict) == str(result.verdict)
    assert again.summary().equals(result.summary())


def test_draws_in_a_file_are_those_in_memory(tmp_path):
    file = tmp_path / "draws.npy"
    kept = lw.sample(RING, "gibbs", steps=60, keep=file, diagnose=False)
    memory = lw.sample(RING, "gibbs", steps=90, diagnose=False)
    same_run(kept.continue_(30), memory)
    codes = np.load(file, mmap_mode="r")
    assert codes.shape == (90, 4, 1)
    assert codes.dtype == np.uint8
    bits = np.unpackbits(codes, axis=-1, count=6)
    np.testing.assert_array_equal(bits.swapaxes(0, 1), memory.draws)
    assert torch.equal(kept.draws, memory.draws[:, :60])
    with pytest.raises(ValueError, match="chains have gone on; continue the newest"):
        kept.continue_(30)
    with pytest.raises(FileExistsError, match="is not overwritten"):
        lw.sample(RING, "gibbs", steps=60, keep=file)
    with pytest.raises(ValueError, match="keep must be"):
        lw.sample(RING, "gibbs", keep="all")


@pytest.mark.parametrize(
    "model", [RING, POTTS, lw.Lattice([3, 4], 0.1)], ids=["ring", "potts", "lattice"]
)
def test_a_summary_has_the_means_of_the_draws_and_of_pairs(model):
    """1001 draws are 31 batches of 32 and a part of one."""
    settings = {"steps": 1001, "chains": 4, "diagnose": False}
    result = lw.sample(model, "gibbs", keep="summary", **settings)
    draws = lw.sample(model, "gibbs", **settings)
    x = draws.draws.double()
    torch.testing.assert_close(result.mean, x.mean((0, 1)), rtol=1e-6, atol=1e-6)
    tails, heads = result.edges.T
    products = x[:, :, tails] * x[:, :, heads]
    pairs = products.sum(-1) if x.ndim > 3 else products
    torch.testing.assert_close(result.pair_means, pairs.mean((0, 1)), rtol=1e-6, atol=1e-6)
    assert torch.equal(result.log_prob, draws.log_prob)
    table, truth = result.summary(None), draws.summary(None)
    rows = truth.index
    np.testing.assert_allclose(table.loc[rows, "sd"], truth["sd"], rtol=1e-5)
    ratio = table.loc[rows, "ess_bulk"] / truth["ess_bulk"]
    assert 0.5 < ratio.median() < 2  # batch means of 31 batches a chain
    assert abs(table.loc[rows, "r_hat"] - truth["r_hat"]).max() < 0.05
    assert len(table) == len(rows) + len(tails)
    with pytest.raises(ValueError, match="keeps no draws"):
        result.draws.mean()
    again = lw.sample(model, "gibbs", keep="summary", **{**settings, "steps": 700}).continue_(301)
    torch.testing.assert_close(again.mean, result.mean)


def test_a_summary_sees_a_chain_that_never_moved():
    """The state of ones has no neighbour. One chain of 200 hardly changes an R-hat."""

    def isolate_ones(x):
        return torch.where(x.sum(1) == 5, -torch.inf, 0.0)

    x = torch.zeros(200, 6)
    x[0] = 1
    settings = {"sites": 6, "x": x, "steps": 2000, "burn_in": 10, "diagnose": False}
    result = lw.sample(isolate_ones, "gibbs", keep="summary", **settings)
    assert not result.converged
    assert "1 of 200 chains never moved" in result.verdict.text
    again = lw.sample(isolate_ones, "gibbs", keep="summary", **{**settings, "steps": 1000})
    assert "1 of 200 chains never moved" in again.continue_(1000).verdict.text


def test_a_summary_sees_chains_in_two_modes():
    """Chains start in one of two modes of a strong ferromagnet and stay there."""
    model = lw.Graph([[i, j] for i in range(6) for j in range(i)], 1.0)
    x = torch.tensor([0.0, 1.0]).repeat(2).unsqueeze(1).expand(4, 6).contiguous()
    result = lw.sample(model, "gibbs", x=x, steps=2000, keep="summary")
    assert not result.converged
    assert "R-hat" in result.verdict.text
