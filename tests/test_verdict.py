"""The rules of the verdict on draws, each alone, on arrays that break no other."""

import numpy as np
import pandas as pd
import pytest

from latticework.experiments.records import verdict_rules
from latticework.experiments.tasks.measures import run_statistics
from latticework.sampling import diagnostics, pair_products
from latticework.sampling.verdict import verdict

ONE_HOT = (5, 3)
SHAPES = [(6,), (40,), ONE_HOT]


def independent(shape=(6,), chains=4, length=400, seed=0):
    """Log-probabilities and independent draws of sites of two values, or one-hot."""
    rng = np.random.default_rng(seed)
    log_prob = rng.normal(size=(chains, length)).astype(np.float32)
    if len(shape) == 1:
        return log_prob, rng.integers(0, 2, (chains, length, *shape)).astype(np.float32)
    values = rng.integers(0, shape[1], (chains, length, shape[0], 1))
    return log_prob, (values == np.arange(shape[1])).astype(np.float32)


@pytest.mark.parametrize("chains", [2, 4, 31, 32, 256])
@pytest.mark.parametrize("shape", SHAPES)
def test_independent_draws_converge_with_few_chains_and_many(shape, chains):
    log_prob, draws = independent(shape, chains, 6000 // chains)
    judged = verdict(log_prob, draws)
    assert judged.converged, judged.text


def test_a_pair_that_differs_between_chains_is_seen_where_every_site_agrees():
    log_prob, draws = independent()
    draws[:2, :, 1] = draws[:2, :, 0]  # equal in two chains, opposite in the others
    draws[2:, :, 1] = 1 - draws[2:, :, 0]
    judged = verdict(log_prob, draws)
    assert judged.text.startswith("does not mix: R-hat inf at x[0] x[1]") or (
        judged.text.startswith("does not mix: R-hat") and judged.text.endswith("at x[0] x[1]")
    )
    named = verdict(log_prob, draws, site_names=["a", "b", "c", "d", "e", "f"])
    assert named.text.endswith("at x[a] x[b]")
    of = (draws[..., :1].astype(float), ["first"])
    assert verdict(log_prob, draws, of=of).converged  # which asks for no pairs


def test_a_pair_of_one_hot_sites_is_whether_they_are_equal():
    log_prob, draws = independent(ONE_HOT)
    draws[0, :, 1] = draws[0, :, 0]
    text = verdict(log_prob, draws).text
    assert text.startswith("does not mix: R-hat")
    assert text.endswith("at [x[0] = x[1]]")


def drifting(chains, length=50):
    """A site whose probability grows, the same in every chain: R-hat and ESS stay good."""
    log_prob, draws = independent(chains=chains, length=length)
    rng = np.random.default_rng(1)
    later = np.linspace(0.45, 0.55, length) > rng.random((chains, length))
    draws[..., 3] = later
    return log_prob, draws


def test_a_drift_is_seen_with_many_chains():
    judged = verdict(*drifting(256))
    assert judged.text.startswith("not converged: the mean of x[3] drifts from the first to the")
    assert verdict(*drifting(31)).converged  # control: few chains cannot tell


def test_chains_that_all_change_by_the_same_number_drift():
    draws = np.zeros((3, 8, 2))
    draws[:, 4:, 0] = 1
    assert diagnostics.drift_p_values(draws).tolist() == [0, 1]


def test_p_values_of_a_drift_are_uniform_without_one():
    draws = np.random.default_rng(0).normal(size=(32, 20, 2000))
    p = diagnostics.drift_p_values(draws)
    assert abs((p < 0.1).mean() - 0.1) < 4 * (0.09 / 2000) ** 0.5


def test_other_rules_still_hold():
    log_prob, draws = independent()
    stuck, still = draws.copy(), log_prob.copy()
    stuck[0], still[0] = stuck[0, :1], still[0, 0]
    assert verdict(still, stuck).text.startswith("does not mix: 1 of 4 chains never moved")
    alternating = draws.copy()
    alternating[:, 1::2, 2] = 1 - alternating[:, ::2, 2]
    assert verdict(log_prob, alternating).text.startswith("not converged: antithetic, ESS")
    slow = np.repeat(draws[:, ::10], 10, axis=1)
    assert not verdict(np.repeat(log_prob[:, ::10], 10, axis=1), slow).converged
    flat = verdict(np.zeros_like(log_prob), draws)
    assert flat.converged, flat.text
    constant = draws.copy()
    constant[..., 4] = 1
    assert verdict(log_prob, constant).text.endswith("1 of 6 sites constant")


def test_pairs_are_different_sites_and_always_the_same():
    for sites in (1, 2, 8, 9, 30, 784):
        pairs = pair_products.select_pairs(sites)
        every = sites * (sites - 1) // 2
        assert len(pairs) == min(every, pair_products.MAX_PAIRS)
        assert (pairs[:, 0] < pairs[:, 1]).all()
        assert len(np.unique(pairs, axis=0)) == len(pairs)
        assert (pairs == pair_products.select_pairs(sites)).all()
        assert (pairs[:, 1] == pairs[:, 0] + 1).sum() >= min(len(pairs), sites - 1, 16)


def test_entries_of_the_rarer_value_are_counted():
    draws = np.zeros((2, 6, 4))
    draws[0, [1, 2, 5], 0] = 1  # enters twice
    draws[1, 0, 0] = 1  # and once more, at the start
    draws[:, :, 1] = 1 - draws[:, :, 0]  # the rarer value is 0
    draws[:, :3, 2] = [2, 5, 7]  # more values
    assert np.array_equal(
        diagnostics.count_rare_entries(draws), [3, 3, np.nan, np.nan], equal_nan=True
    )


def test_rare_values_are_left_out_and_named():
    """A value of a hundredth of the draws that is entered nine times has no error of its mean."""
    log_prob, draws = independent(length=1000)
    draws[..., [2, 4]] = 0
    draws[0, 10:100:10, 2] = 1  # nine times
    draws[1, 10:19, 4] = 1  # once, nine draws in one chain: R-hat would be large
    judged = verdict(log_prob, draws)
    assert judged.converged
    end = "x[2] and 1 more have a value entered fewer than 10 times, too rare to be judged"
    assert judged.text.endswith(end)
    draws[2, 10:110:10, 2] = 1  # ten more
    assert "x[4] has a value entered fewer than 10 times" in verdict(log_prob, draws).text
    draws[1, 10:60, 4] = 1  # once, and more than a hundredth of the draws: slow, not rare
    assert not verdict(log_prob, draws).converged


def test_entries_of_many_values_that_are_all_rare_are_not_judged():
    rng = np.random.default_rng(0)
    draws = np.eye(900, dtype=np.float32)[rng.integers(0, 900, (4, 500, 1))]
    text = "not judged: every entry has a value entered fewer than 10 times"
    assert verdict(np.zeros((4, 500)), draws).text == text
    assert verdict(rng.normal(size=(4, 500)), draws).converged  # by the log-probability alone


@pytest.mark.parametrize("kind", ["good", "rare", "drift", "pairs", "stuck", "slow", "alternating"])
@pytest.mark.parametrize("chains", [4, 32, 100])
def test_the_rule_in_use_is_that_of_the_calibration(kind, chains):
    """The rows of task=calibration tell what the verdict tells."""
    log_prob, draws = independent(chains=chains, length=2000 // chains, seed=3)
    half = draws.shape[1] // 2
    if kind == "drift":
        draws[:, :half, 3] *= draws[:, :half, 4]
    if kind == "pairs":
        draws[: chains // 2, :, 1] = draws[: chains // 2, :, 0]
    if kind == "rare":
        draws[..., 2] = 0
        draws[0, 3:9, 2] = 1
    if kind == "stuck":
        draws[0], log_prob[0] = draws[0, :1], log_prob[0, 0]
    if kind == "slow":
        draws = np.repeat(draws[:, ::10], 10, axis=1)[:, : draws.shape[1]]
    if kind == "alternating":
        draws[:, 1 : 2 * half : 2, 2] = 1 - draws[:, 0 : 2 * half : 2, 2]
    pairs = pair_products.multiply_pairs(draws, pair_products.select_pairs(6))
    values = [diagnostics.round_noise(log_prob)[..., None], draws, pairs]
    kinds = np.repeat([0, 1, 2], [block.shape[-1] for block in values])
    row = run_statistics.describe_run(np.concatenate(values, -1), kinds, draws, log_prob)
    rows = pd.DataFrame([row])
    converged = verdict_rules.RULES[verdict_rules.IN_USE].accepts(rows).item()
    assert verdict(log_prob, draws).converged == converged
