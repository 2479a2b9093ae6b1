"""Diagnostics of draws, against ArviZ and by hand, and the verdict in a line."""

import re

import arviz
import numpy as np
import pytest

import latticework as lw
from latticework.sampling import diagnostics
from latticework.sampling.diagnostics import convergence, largest_r_hat, quantities, round_noise
from latticework.sampling.verdict import verdict


def test_a_stuck_coordinate_is_counted_and_has_no_ess():
    """Also if chains are stuck at different values; a coordinate that moves in one chain counts."""
    trace = np.random.default_rng(0).integers(0, 2, (200, 4, 4))
    trace[:, :, 1] = 1
    trace[:, :, 2] = [0, 1, 0, 1]
    trace[:, 1:, 3] = 0
    found = convergence(trace)
    assert np.isnan(found["ess"]).tolist() == [False, True, True, False]
    assert np.isnan(found["r_hat"]).tolist() == [False, True, True, False]
    assert found["constant"] == 2


def least_error(x):
    """The floor under the error of a value that chains enter one to four times, `x` [chains, n]."""
    low, high = x.min(), x.max()
    if not np.isin(x, (low, high)).all():
        return 0
    rarer = x == (high if (x == high).mean() <= 0.5 else low)
    visits = 0
    for chain in rarer:
        visits += "".join("01"[int(inside)] for inside in [False, *chain]).count("01")
    if not 1 <= visits <= 4:
        return 0
    return rarer.mean() * (high - low) * np.sqrt(2 * (visits + 1)) / visits


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # ArviZ divides by zero in short chains
@pytest.mark.parametrize(("chains", "length"), [(4, 200), (1, 30), (3, 7), (2, 5), (3, 4)])
def test_all_quantities_at_once_have_arvizs_numbers(chains, length):
    """Real, binary and whole numbers, from anticorrelated to sticky ones."""
    rng = np.random.default_rng(0)
    draws, keep = rng.normal(size=(chains, length, 9)), np.tile([-0.7, 0.3, 0.95], 3)
    for step in range(1, length):
        draws[:, step] = keep * draws[:, step - 1] + np.sqrt(1 - keep**2) * draws[:, step]
    draws[..., 3:6] = draws[..., 3:6] > 0.3
    draws[..., 6:] = np.round(2 * draws[..., 6:])
    found, split = quantities(draws), convergence(draws.transpose(1, 0, 2))
    alive = np.nonzero(~(found["constant"] | found["stuck"]))[0]
    assert len(alive) > 6
    for one in alive:
        x = draws[..., one]
        theirs = {
            "mcse_mean": max(np.ravel(arviz.mcse(x, method="mean"))[0], least_error(x)),
            "ess_bulk": arviz.ess(x, method="bulk"),
            "ess_tail": arviz.ess(x, method="tail", prob=(0.05, 0.95)),
        }
        assert split["ess"][one] == pytest.approx(np.ravel(arviz.ess(x, method="mean"))[0])
        if chains > 1:
            theirs["r_hat"] = arviz.rhat(x, method="rank")
            assert split["r_hat"][one] == pytest.approx(np.ravel(arviz.rhat(x, method="split"))[0])
        for name, value in theirs.items():
            assert found[name][one] == pytest.approx(np.ravel(value)[0]), (name, one)


@pytest.mark.parametrize("offset", [0, 3e7, -1e8, 1e12])
def test_a_large_mean_does_not_hide_the_error(offset):
    """ArviZ's variance is one-pass: its error is .024 at 3e7 and NaN at 1e8."""
    draws = np.random.default_rng(0).normal(size=(4, 1000, 1)) + offset
    assert quantities(draws)["mcse_mean"] == pytest.approx(1 / np.sqrt(4000), rel=0.1)
    mean_error = convergence(draws.transpose(1, 0, 2))["mean_error"]
    assert mean_error == pytest.approx(1 / np.sqrt(4000), rel=0.1)


def test_quantities_in_parts_have_the_numbers_of_all_at_once(monkeypatch):
    draws = np.random.default_rng(0).integers(0, 3, (3, 50, 7))
    whole = quantities(draws)
    monkeypatch.setattr(diagnostics, "NUMBERS_AT_ONCE", 3 * 50 * 2)
    for name, values in quantities(draws).items():
        np.testing.assert_array_equal(values, whole[name])


# The verdict in a line.


def independent(chains=4, length=300, sites=5):
    """Independent draws and their made-up log-probability."""
    draws = np.random.default_rng(1).integers(0, 2, (chains, length, sites)).astype(np.float32)
    return draws.sum(-1), draws


def test_the_worst_of_many_sites_is_named():
    """Also of more sites than are read, and of one-hot sites; a constant one is left out."""
    log_prob, draws = independent()
    draws[:2, :, 3] = 0
    draws[..., 1] = 1
    text = verdict(log_prob, draws).text
    assert re.match(r"does not mix: R-hat [\d.]+ at x\[3\], 1 of 5 sites never changed in a", text)
    assert text.endswith("1 of 5 sites constant")
    hot = np.stack((draws, 1 - draws), -1)
    assert "at x[3, 0], 1 of 5 sites never" in verdict(log_prob, hot).text
    wide = np.ones((4, 300, 4000), np.float32)
    wide[..., ::2] = independent(sites=2000)[1]
    wide[:2, :, 1234] = 0
    text = verdict(log_prob, wide).text
    assert re.match(r"does not mix: R-hat [\d.]+ at x\[1234\], 1 of 4000 sites never", text)
    assert text.endswith("2000 of 4000 sites constant")


@pytest.mark.parametrize("chains", [2, 4, 8, 32, 256])
def test_r_hat_of_many_chains_is_compared_with_what_an_ess_of_400_shows(chains):
    """Chains of one law with an ESS of about 4400 pass, and with one of about 120 they fail."""
    assert largest_r_hat(chains) == min(1 + 1.25 * chains / 400, 2)
    rng, each = np.random.default_rng(chains), 2**13 // chains

    def judged(keep):
        """First-order autoregression: the ESS of n draws is n (1 - keep) / (1 + keep)."""
        draws = rng.normal(size=(chains, each, 3))
        for step in range(1, each):
            fresh = np.sqrt(1 - keep**2) * draws[:, step]
            draws[:, step] = keep * draws[:, step - 1] + fresh
        return verdict(draws.sum(-1), draws)

    assert judged(0.3).converged
    refused = judged(0.97)
    assert (refused.converged, refused.judged) == (False, True)
    assert re.match(r"(not converged|does not mix): (R-hat|ESS)", refused.text)


def test_the_limit_of_r_hat_is_named_with_the_chains():
    log_prob, draws = independent(chains=8)
    draws[:4, :, 2] = np.random.default_rng(2).random((4, 300)) < 0.25
    text = verdict(log_prob, draws).text
    assert re.match(r"not converged: R-hat 1.0[2-9]\d* at x\[2\], above 1.025 for 8 ch", text)


@pytest.mark.parametrize("chains", [2, 4, 20, 200])
def test_a_chain_that_never_moved_among_others_is_never_converged(chains):
    """However many they are. Its own sites are not what never changed."""
    log_prob, draws = independent(chains=chains, length=2000)
    assert verdict(log_prob, draws).converged
    draws[-1] = draws[-1, :1]
    log_prob[-1] = log_prob[-1, :1]
    found = verdict(log_prob, draws)
    assert (found.converged, found.judged) == (False, True)
    assert found.text.startswith(f"does not mix: 1 of {chains} chains never moved, R-hat ")
    assert "sites never changed" not in found.text
    assert "try a sampler that changes several sites at once" in found.text
    draws[0, :, 3] = 1 - draws[-1, 0, 3]  # and one site of a chain that moves
    assert "1 of 5 sites never changed in a chain" in verdict(log_prob, draws).text


def flipping(share: float) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities, and draws whose sites flip in a share of the steps."""
    rng = np.random.default_rng(0)
    flips = rng.random((8, 500, 4)) < share
    draws = (rng.integers(0, 2, (8, 1, 4)) + flips.cumsum(1)) % 2
    return rng.normal(size=(8, 500)), draws


def test_draws_that_alternate_are_told():
    """Each site flips at nearly every step: their means look better than they are."""
    judgement = verdict(*flipping(0.97))
    assert not judgement.converged
    size = re.search(r"antithetic, ESS (\d+) of 4000 draws at x", judgement.text)
    assert int(size[1]) > 8000


def test_pairs_tell_chains_apart_whose_sites_alternate():
    """Each site flips at every step: the parity of two sites stays what it was in each chain."""
    judgement = verdict(*flipping(1.0))
    assert not judgement.converged
    assert re.match(r"does not mix: R-hat [\d.]+ at x\[\d\] x\[\d\]", judgement.text)


def test_an_ess_is_told_up_to_the_number_of_draws():
    """Draws that alternate a little."""
    draws = np.random.default_rng(1).normal(size=(4, 500, 1))
    for step in range(1, 500):
        draws[:, step] = -0.2 * draws[:, step - 1] + np.sqrt(0.96) * draws[:, step]
    assert quantities(draws)["ess_bulk"] > 2000
    found = verdict(draws[..., 0], draws)
    assert found.converged
    assert int(re.search(r"ESS (\d+) at", found.text)[1]) <= 2000


def test_errors_of_values_that_are_seldom_visited_cover():
    """Chains enter the rarer value one to four times and stay: the plain errors cover half."""
    rng, hits, plain = np.random.default_rng(0), [], []
    enter, leave = 0.00125, 0.2
    truth = enter / (enter + leave)
    for _ in range(120):
        chance, draws = rng.random((4, 500)), np.zeros((4, 500, 1))
        draws[:, 0, 0] = chance[:, 0] < truth
        for step in range(1, 500):
            before = draws[:, step - 1, 0] == 1
            draws[:, step, 0] = np.where(before, chance[:, step] > leave, chance[:, step] < enter)
        visits = int((np.diff(draws[..., 0], axis=1) > 0).sum() + draws[:, 0, 0].sum())
        if not 1 <= visits <= 4:
            continue
        error = abs(draws.mean() - truth)
        spread = draws.std(ddof=1) / np.sqrt(diagnostics._ess(diagnostics._split(draws)))
        for value in (draws, 1 - draws, 5 - 3 * draws):  # whichever value is rarer, on any scale
            scale = float(np.ptp(value))
            hits.append(scale * error <= 1.96 * quantities(value)["mcse_mean"][0])
        plain.append(error <= 1.96 * spread[0])
    assert len(plain) > 60
    assert np.mean(plain) < 0.8
    assert np.mean(hits) > 0.85


def test_a_caveat_is_part_of_every_verdict():
    """Nothing converges with one: draws that agree, others, and too few."""
    log_prob, draws = independent()
    apart = draws.copy()
    apart[:2, :, 3] = 0
    for given, judged in ((draws, False), (apart, True), (draws[:, :9], False)):
        found = verdict(log_prob[:, : given.shape[1]], given, caveat="they began alike")
        assert (found.converged, found.judged) == (False, judged)
        assert found.text.endswith("they began alike")
    assert verdict(log_prob, draws).converged


@pytest.mark.parametrize("engine", ["eager", "compiled"])
@pytest.mark.parametrize("sampler", ["gibbs", "gwg", "dmala"])
def test_rounding_noise_makes_no_levels_of_the_log_probability(sampler, engine):
    """With equal couplings few values exist, but sums along a chain differ in their last bits."""
    edges = [(i, j) for i in range(10) for j in range(i) if (i + 2 * j) % 3]
    graph = lw.Graph(edges, 0.15)
    result = lw.sample(graph, sampler, chains=4, steps=200, engine=engine, diagnose=False)
    exact = graph.double().log_prob(result.draws.flatten(0, 1).double())
    levels = np.unique(np.round(exact.numpy(), 6))
    rounded = round_noise(result.log_prob.numpy())
    assert len(np.unique(rounded)) == len(levels)
    assert np.abs(rounded.ravel() - exact.numpy()).max() < 1e-4


def test_noise_that_differs_from_chain_to_chain_does_not_change_the_verdict():
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 4, (8, 400)).astype(np.float32) * 3 - 20
    noise = np.arange(8, dtype=np.float32)[:, None] * 2e-6
    draws = rng.integers(0, 2, (8, 400, 3)).astype(np.float32)
    assert (levels + noise != levels).any()
    assert verdict(levels + noise, draws) == verdict(levels, draws)
    assert verdict(levels, draws).converged
