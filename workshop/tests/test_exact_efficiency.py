"""Exact efficiencies: against closed forms, and kernels whose equation is singular."""

import numpy as np
import pytest

import latticework as lw
from latticework.sampling.checking.targets import Target
from workshop import exact_efficiency as efficiency
from workshop.laws import steps, variants


def of(kernel, target):
    functions = np.concatenate((target.log_prob[:, None], target.z), 1)
    matrix = kernel.law(kernel.sampler, target).after[-1]
    return efficiency.measure_efficiency(matrix, target.law, functions)


def test_independent_draws_and_a_lazy_chain():
    """A step that draws anew costs 1; one that does so with probability 1/4 costs 2 / (1/4) - 1."""
    law, functions = np.array([0.2, 0.5, 0.3]), np.array([[1.0], [4.0], [-2.0]])
    independent = np.tile(law, (3, 1))
    assert efficiency.measure_efficiency(independent, law, functions).inefficiency == pytest.approx(
        1
    )
    lazy = 0.75 * np.eye(3) + 0.25 * independent
    found = efficiency.measure_efficiency(lazy, law, functions)
    assert found.inefficiency == pytest.approx(7)
    assert found.gap == pytest.approx(0.25)


def test_gibbs_on_independent_sites_is_known():
    """A random site of four is drawn anew: its own mean costs 2 * 4 - 1 steps, a sweep one."""
    target = Target(lw.Graph([[0, 1]], 0.0, [0.3, -0.2, 0.5, 0.1]))
    kernels = efficiency.kernels()
    assert of(kernels["gibbs(scan=random)"], target).inefficiency[1:] == pytest.approx(7)
    assert of(kernels["gibbs_sweep"], target).inefficiency == pytest.approx(1)


def test_closed_classes_are_infinite():
    """A kernel that never leaves half of the states, and no sampler of the table, also at ties."""
    parts = np.kron(np.eye(2), np.full((2, 2), 0.5))
    found = efficiency.measure_efficiency(parts, np.full(4, 0.25), np.arange(4.0)[:, None])
    assert found.classes == 2
    assert np.isinf(found.inefficiency).all()
    target = Target(lw.Graph([[i, (i + 1) % 4] for i in range(4)], 0.5))
    for name, kernel in efficiency.kernels_for(target).items():
        found = of(kernel, target)
        assert found.classes == 1, name
        assert (found.inefficiency > 0).all(), name


def test_variants_keep_the_target_and_are_those_kernels_where_they_should_be():
    """Exact differences are gradients on a pairwise model; Barker's flip of one site is p(y)."""
    pairwise = efficiency.efficiency_targets(4)["spin glass with a field"]
    rbm = efficiency.efficiency_targets(4)["RBM with three hidden units"]
    dmala = lw.DMALA(0.5)
    for target in (pairwise, rbm):
        exact = variants.dmala_exact_differences(dmala, target).after[0]
        barker = variants.locally_balanced_barker(lw.LocallyBalanced(), target).after[0]
        for matrix in (exact, barker):
            np.testing.assert_allclose(matrix.sum(1), 1)
            np.testing.assert_allclose(target.law @ matrix, target.law, atol=1e-12)
        same = np.allclose(exact, steps.dmala(dmala, target).after[0], atol=1e-6)
        assert same is (target is pairwise)
    two_sites = Target(lw.Graph([[0, 1]], 0.0, [0.3, 0.3]))
    ahead = variants.locally_balanced_barker(lw.LocallyBalanced(), two_sites).after[0]
    low = int((two_sites.z.sum(1) == 0).argmax())
    assert ahead[low].sum() == pytest.approx(1)
    assert ahead[low, two_sites.z.sum(1) == 1] == pytest.approx(0.5)  # the two flips are alike


@pytest.mark.slow
def test_the_page_has_the_table():
    text = efficiency.PAGE.read_text()
    assert efficiency.with_table(text, efficiency.efficiency_table(efficiency.SITES)) == text
