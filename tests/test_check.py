"""`latticework.check`: wrong samplers fail, right ones pass, biases are declared."""

import re

import numpy as np
import pytest
import torch
from faulty_samplers import (
    ALSO,
    DECLARED,
    NOT_BEARING,
    RIGHT,
    WALK,
    WRONG,
    check_on_targets,
    found,
    mine,
    words,
)

import latticework as lw
from latticework.models.base import Function
from latticework.models.domains import Binary, Categorical, Ordinal
from latticework.samplers import sweep
from latticework.samplers.langevin import DMALA, DULA
from latticework.sampling.checking.check_case import (
    SETTLING,
)
from latticework.sampling.checking.law import metropolis_law as law_of
from latticework.sampling.checking.law import one_site_proposal
from latticework.sampling.checking.targets import SMALL_TARGETS, Target
from workshop.laws.steps import dula


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_sampler_fails(fault):
    body, expected = WRONG[fault]
    _, failed = check_on_targets(mine(body, ("grad",) if fault == DECLARED else ()), "binary")
    assert failed >= expected
    if len(expected) == 1:
        assert failed - (ALSO if "invariance" in expected else set()) == expected


@pytest.mark.parametrize("body", NOT_BEARING.values(), ids=NOT_BEARING)
def test_an_exact_sampler_need_not_bear_nan(body):
    """Impossible states are told apart from faults of a target."""
    report, failed = check_on_targets(mine(WALK + body), "binary")
    assert found(report, "impossible states").status == "ok"
    assert found(report, "unknown states").status == "no"
    assert not failed - {"no host reads"}
    assert "NaN is a fault of the target; impossible states are -inf" in words(report)


@pytest.mark.parametrize("name", ["gibbs_sweep", "metropolis_sweep", "swendsen_wang"])
def test_samplers_of_some_models_are_checked_on_such_models(name):
    report = lw.check(name, chains=20_000)
    assert report.passed, words(report)
    assert {"lattice", "graph", "potts"} <= set(report.outcomes)


def test_a_sweep_that_keeps_the_parity_of_free_sites_is_caught(monkeypatch):
    """Metropolis' rule alone, which changes both free sites of the graph in every sweep."""
    monkeypatch.setattr(sweep, "TIE_NATS", -1.0)
    report = lw.check("metropolis_sweep", chains=20_000)
    assert {outcome.check for _, outcome in report.failures} == {"all states reached"}
    assert {name for name, _ in report.failures} == {"graph"}


@pytest.mark.parametrize(
    ("memory", "told"),
    [
        ((), "state.grad is off by 10 from that of state.x; what must follow the past"),
        (("clock",), "memory names clock, which no state has"),
    ],
)
def test_memory_is_declared(memory, told):
    """A counter of steps, which may change the law at any later time."""
    report, failed = check_on_targets(mine(WRONG[DECLARED][0], memory), "binary")
    assert "cached values" in failed
    assert told in words(report)


@pytest.mark.parametrize("name", SMALL_TARGETS)
def test_sites_of_many_values(name):
    """Six on finite domains, and at least three whose probabilities are comparable."""
    target = SMALL_TARGETS[name]()
    sites = target.z.reshape(len(target.z), target.domain.dim, -1)
    for site in sites.swapaxes(0, 1):
        values, place = np.unique(site, axis=0, return_inverse=True)
        assert len(values) == 2 or (np.bincount(place.ravel(), target.law) > 0.05).sum() >= 3
    assert not isinstance(target.domain, Categorical | Ordinal) or target.domain.num_values == 6


def test_a_right_sampler_passes():
    """Control: the sampler that the wrong ones are made from."""
    report, failed = check_on_targets(mine(RIGHT), *SMALL_TARGETS)
    assert not failed
    page = words(report)
    assert "everything holds, on binary, spins, rbm. Not supported: categorical" in page
    assert "is below 1e-06" in page
    assert re.search(r"invariance [\d.]+ to [\d.]+ %, one chain \d+ to", page)


def test_the_pair_of_states_shows_the_fault():
    """The inverted ratio moves as exp(-change): both flows of the pair are known."""
    report, _ = check_on_targets(mine(WRONG["inverted ratio"][0]), "binary", chains=200_000)
    flow, target = found(report, "invariance").flow, SMALL_TARGETS["binary"]()
    x, y = target.index(torch.tensor([flow.x, flow.y]))
    assert len(target.sites_changed(x, y)) == 1
    pi = target.law

    def moved(a, b):
        return pi[a] * min(1, pi[a] / pi[b]) / 3

    assert flow.observed == pytest.approx(moved(x, y), rel=0.05)
    assert flow.expected == pytest.approx((moved(x, y) + moved(y, x)) / 2, rel=0.05)
    assert abs(flow.z) > 10


@pytest.mark.slow
def test_a_sampler_on_every_domain():
    report, failed = check_on_targets(DMALA(0.5), *SMALL_TARGETS, chains=5000)
    assert not failed
    assert set(report.outcomes) == set(SMALL_TARGETS)


def test_a_sampler_that_declares_a_bias():
    """DULA is said to be biased: its bias is reported, and does not count as a failure.

    It is the distance of its enumerated law from the target, whose draws it starts from.
    """
    report, failed = check_on_targets(DULA(0.3), "binary")
    assert not failed
    target = SMALL_TARGETS["binary"]()
    matrix = dula(DULA(0.3), target).after[0]
    law = target.law @ np.linalg.matrix_power(matrix, SETTLING)
    bias = np.abs(law - target.law).sum() / 2
    assert bias > 0.1
    assert (measured := found(report, "invariance").bias) == pytest.approx(bias, abs=0.01)
    page = words(report)
    assert "invariance does not hold on binary" in page
    assert "no failures, on binary. It declares exact = False, so a bias does not count" in page
    assert f"with 20000 chains and seed 0: {measured:.2g} on binary." in page


def walk_law(sampler, target):
    size = len(target.z)
    return law_of(one_site_proposal(np.zeros((size, size)), target), target)


def lazier(sampler, target):
    return 0.1 * np.eye(len(target.z)) + 0.9 * walk_law(sampler, target).after[0]


def undefined(sampler, target):
    matrix = walk_law(sampler, target).after[0]
    matrix[~np.isfinite(target.log_prob)] = np.nan
    return matrix


def rare(x):  # two states are impossible
    values = x @ torch.tensor([0.5, -1.0, 0.3])
    return values.masked_fill(x[:, :2].sum(-1) == 2, -torch.inf)


def test_the_law_of_a_step_is_compared_with_a_matrix():
    assert check_on_targets(mine(RIGHT), "binary", law=walk_law)[1] == set()
    report, failed = check_on_targets(mine(RIGHT), "binary", law=lazier)
    assert failed == {"law of one step"}
    assert "expected flow" in str(report)
    for law in (walk_law, undefined):
        report, failed = check_on_targets(
            mine(RIGHT), law=law, target=Target(Function(rare, Binary(3)))
        )
        assert not failed
        assert found(report, "law of one step").status == "ok"
