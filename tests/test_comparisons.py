"""A result against a reference target, and two results against each other."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import latticework as lw
from latticework.sampling.comparisons import chains_off_reference

SK = lw.reference("sk_20")


def as_result(ref, draws=None, chains=4, seed=0, **fields):
    """The draws of a reference as a result of independent chains."""
    made = lw.sample(ref.model, "locally_balanced", chains=chains, steps=1, diagnose=False)
    draws = ref.draws if draws is None else draws
    order = torch.randperm(len(draws), generator=torch.Generator().manual_seed(seed))
    draws = draws[order].unflatten(0, (chains, -1))
    log_prob = ref.model.log_prob(draws.flatten(0, 1)).view(draws.shape[:2])
    return replace(made, draws=draws, log_prob=log_prob, **fields)


@pytest.mark.parametrize("name", ["sk_20", "asia", "knapsack_8x4", "poisson_ring_10", "potts3_8"])
def test_independent_draws_are_right_and_others_wrong(name):
    ref = lw.reference(name)
    right = as_result(ref).verdict(reference=ref)
    assert right.converged, right.text
    assert right.text.startswith("right: of ")
    mean = float(ref.log_prob.mean())
    low = as_result(ref, ref.draws[ref.log_prob <= mean][:400]).verdict(reference=ref)
    assert not low.converged
    assert low.text.startswith("wrong: the mean of")


def test_the_error_in_sds_counts_where_chains_agree_too_well():
    flat = SK.draws.clone()[:400]
    flat[:, 3] = 1 - SK.mean[3].round()  # never another value, so no MCSE
    text = as_result(SK, flat).verdict(reference=SK).text
    assert text.startswith("wrong: the mean of")


def test_a_verdict_is_asked_for_one_thing():
    result = as_result(SK)
    for given in ({}, {"of": lambda x: x[:, 0], "reference": SK}):
        with pytest.raises(ValueError, match="give either of= or reference="):
            result.verdict(**given)
    with pytest.raises(ValueError, match="asia has the domain"):
        result.verdict(reference=lw.reference("asia"))


def test_results_of_one_law_agree_and_a_missed_mode_does_not():
    ref = lw.reference("two_modes_20")
    one, other = (as_result(ref, draws, seed=3) for draws in (ref.draws[:1000], ref.draws[1000:]))
    assert one.agrees(other)
    assert "differs most" in str(one.agrees(other))
    half = ref.draws[ref.draws.sum(1) < 10][:1000]
    missed = as_result(ref, half)
    assert missed.converged  # no rule sees it
    for agreement in (missed.agrees(one), one.agrees(missed)):
        assert not agreement
        assert str(agreement).startswith("disagree: the mean of")
    with pytest.raises(ValueError, match="results of one target are compared, got domains"):
        one.agrees(as_result(lw.reference("asia")))


def test_constant_and_stuck_entries_are_compared():
    one = as_result(SK, SK.draws[:400])
    constant = SK.draws[:400].clone()
    constant[:, 5] = 1
    assert one.agrees(one)
    first = as_result(SK, constant)
    assert first.agrees(first)
    assert not first.agrees(
        as_result(SK, torch.cat((constant[:, :5], 1 - constant[:, 5:6], constant[:, 6:]), 1))
    )


def test_chains_against_the_truth():
    means = np.random.default_rng(0).normal(size=(32, 50))
    names = [f"q{n}" for n in range(50)]
    error, off = chains_off_reference(means, np.zeros(50), names)
    assert off == ""
    assert error < 5
    truth = np.zeros(50)
    truth[7] = 3
    error, off = chains_off_reference(means, truth, names)
    assert off.startswith("its mean of q7 is")
    assert error > 5


def test_draws_are_compared_with_those_of_the_reference():
    report = lw.check_draws(SK.draws[:1000], SK.model, reference=SK)
    assert "certified draws of sk_20" in str(report)
    with pytest.raises(ValueError, match="the reference asia has the domain"):
        lw.check_draws(SK.draws, SK.model, reference=lw.reference("asia"))
    large = lw.reference("sk_200")
    drawn = large.model.domain.uniform(10, torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="sk_200 has no draws"):
        lw.check_draws(drawn, large.model, reference=large)


def test_a_race_by_the_truth_ranks_what_is_right():
    ref = lw.reference("select_10")
    given = {"budget": "600evaluations", "seeds": 3, "chains": 4, "reference": ref}
    table = lw.race(ref.model, [lw.Gibbs(), lw.RandomWalk()], **given)
    assert (table["largest_error"] >= 0).all()
    with pytest.raises(ValueError, match="the reference sk_20 has the domain"):
        lw.race(ref.model, [lw.Gibbs()], **{**given, "reference": SK})
