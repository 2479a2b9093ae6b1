"""A_lambda keeps the law and lowers the second eigenvalue."""

import numpy as np
import pytest
from targets import TARGETS

from latticework.experiments.records.record import Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.unlearning import (
    distances,
    eigenvalues,
    largest,
    random_scan_gibbs,
    staying_less,
    unlearning,
)

NAMES = ["binary", "spins", "lattice", "rbm"]


def chain_of(name):
    target = TARGETS[name]
    return random_scan_gibbs(target.domain, target.states.numpy(), target.law), target.law


@pytest.mark.parametrize("name", NAMES)
def test_the_law_stays_and_the_second_eigenvalue_falls(name):
    chain, law = chain_of(name)
    grid = np.linspace(0, largest(chain), 6)
    assert grid[-1] > 0.01
    seconds = []
    for amount in grid:
        less = staying_less(chain, amount)
        assert (less >= -1e-15).all()
        np.testing.assert_allclose(less.sum(-1), 1, rtol=1e-12)
        np.testing.assert_allclose(law @ less, law, atol=1e-14)
        values = eigenvalues(less, law)
        np.testing.assert_allclose(values, np.sort(np.linalg.eigvals(less).real), atol=1e-8)
        expected = (eigenvalues(chain, law) - amount) / (1 - amount)
        np.testing.assert_allclose(values, expected, atol=1e-12)
        seconds.append(values[-2])
    assert (np.diff(seconds) < 0).all()
    start = np.eye(len(law))[law.argmin()]
    slow, fast = (distances(staying_less(chain, a), start, law, 30) for a in (0.0, grid[-1]))
    assert fast[-1] < slow[-1]


def test_more_than_a_chain_stays_cannot_be_taken():
    chain, _ = chain_of("binary")
    with pytest.raises(ValueError, match="lambda must be in"):
        staying_less(chain, largest(chain) + 1e-6)


def test_the_task_records_it(tmp_path):
    model = TARGETS["lattice"].model
    unlearning(model=model, sampler=None, data=None, run=Run(tmp_path), lambdas=4, steps=10)
    metrics = Record(tmp_path, {}).metrics
    assert (metrics["law_error"] < 1e-12).all()
    assert metrics["second_eigenvalue"].is_monotonic_decreasing
    mixing = Record(tmp_path, {}).arrays("mixing")
    assert mixing["staying_less"][-1] < mixing["chain"][-1]
    assert mixing["chain"][-1] == pytest.approx(metrics["distance"].iloc[0], abs=1e-12)
    categorical = TARGETS["categorical"]
    with pytest.raises(ValueError, match="binary models"):
        random_scan_gibbs(categorical.domain, categorical.z, categorical.law)
