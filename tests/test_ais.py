"""Annealed importance sampling: log Z from both sides, costs of a step, exact kernels, betas."""

import pytest
import torch
from annealing_cases import log_z, make_rng, path_of, z_score
from documented import ROOT, names, table
from exactness import TABLE
from targets import TARGETS

from latticework.models.annealed import GeometricPath
from latticework.models.scaled_rbm import ScaledRBM
from latticework.samplers import find_sampler_class
from latticework.samplers.block_gibbs import BlockGibbs
from latticework.samplers.dhams import DHAMS
from latticework.samplers.edlp import EDLP
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.gwg import GWG
from latticework.samplers.hamming import HammingBall
from latticework.samplers.langevin import DMALA, DULA
from latticework.samplers.locally_balanced import LocallyBalanced
from latticework.samplers.sweep import GibbsSweep
from latticework.sampling.annealing import (
    Annealing,
    advance,
    anneal,
    estimate_log_normaliser,
    geometric,
    linear,
    sigmoid,
    start_annealing,
)
from latticework.sampling.checking.host_reads import NoHostReads

KERNELS = [
    *((kernel, GeometricPath, "dense_ising") for kernel in (Gibbs(), GWG(), DMALA(0.5))),
    *((kernel, GeometricPath, "categorical") for kernel in (Gibbs(), GWG(), DMALA(0.8))),
    (LocallyBalanced(), GeometricPath, "ordinal"),
    (HammingBall(2, 1), GeometricPath, "rbm"),
    (DHAMS(0.7, 0.8), GeometricPath, "spins"),
    (EDLP(0.6, 0.7, 0.5), GeometricPath, "spins"),
    (GibbsSweep(), GeometricPath, "lattice"),
    (BlockGibbs(), ScaledRBM, "rbm"),
    (GWG(2), ScaledRBM, "rbm"),
]


@pytest.mark.parametrize(("kernel", "kind", "name"), KERNELS, ids=str)
def test_log_z_is_met_from_both_sides(kernel, kind, name):
    """Few betas and many chains, so that a wrong weight is off by many standard errors."""
    path, rng, truth = path_of(name, kind), make_rng(), log_z(name)
    target, betas = TARGETS[name], linear(6)
    there = anneal(kernel, path, path.draw(6000, rng), betas, rng)
    found = estimate_log_normaliser(there.log_weight, rng)
    back = anneal(kernel, path, target.draw(target.law, 6000, rng), betas.flip(0), rng)
    again = estimate_log_normaliser(back.log_weight, rng)
    assert abs(z_score(path, found, truth)) < 4
    assert abs(z_score(path, again, truth, -1)) < 4
    # In expectation the truth is between the bounds, and here it is so plainly.
    base = float(path.log_z_start())
    assert base + found.bound + 4 * found.bound_error < truth
    assert base - again.bound - 4 * again.bound_error > truth
    for one in (found, again):
        assert one.bootstrap == pytest.approx(one.error, rel=0.15)


def late(before, sampler, path, betas, rng):
    """Off by one: the weight is computed after the step."""
    stage = before.stage + 1
    path.move_to(betas[stage], before.kernel.x, before.known)
    state, _ = sampler.step(sampler.refresh(before.kernel, path), path, rng)
    known = path.know(state.x)
    path.move_to(betas[stage - 1])
    weight = before.log_weight + path.log_ratio(known, betas[stage])
    return Annealing(state, known, weight, stage)


class Unguarded(DULA):
    exact = True


@pytest.mark.parametrize(
    ("move", "kernel"), [(late, GWG()), (advance, Unguarded(4.0))], ids=["late", "biased kernel"]
)
def test_what_is_wrong_does_not_meet_it(move, kernel):
    """Control of the test above, at the same budget."""
    path, rng, betas = path_of("binary"), make_rng(), linear(6)
    with torch.no_grad():
        annealing = start_annealing(kernel, path, path.draw(6000, rng), betas)
        for _ in range(6):
            annealing = move(annealing, kernel, path, betas, rng)
    found = estimate_log_normaliser(annealing.log_weight, rng)
    assert abs(z_score(path, found, log_z("binary"))) > 6


# What a step costs.


class Forgetful(GeometricPath):
    """Evaluates the target at every call, without reusing results."""

    def _known(self, x):
        return ()

    def know(self, x):
        return x.clone(), self._difference(x, self.model.log_prob(x))


@pytest.mark.parametrize("kernel", [GWG(), DMALA(0.5), DHAMS(0.7, 0.8)], ids=str)
@pytest.mark.parametrize("chains", [20, 9000])  # large states are overwritten in place
def test_cached_values_are_those_of_an_evaluation(kernel, chains):
    weights = []
    for kind in (GeometricPath, Forgetful):
        path, rng = path_of("rbm", kind).double(), make_rng()
        x = path.draw(chains, rng).double()
        weights.append(anneal(kernel, path, x, linear(10), rng).log_weight)
    torch.testing.assert_close(*weights, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [(GWG(), GeometricPath), (Gibbs(), GeometricPath), (BlockGibbs(), ScaledRBM)],
)
def test_nothing_is_read_on_the_host(kernel, kind):
    path, rng, betas = path_of("rbm", kind), make_rng(), linear(5)
    with torch.no_grad():
        annealing = start_annealing(kernel, path, path.draw(10, rng), betas)
        annealing = advance(annealing, kernel, path, betas, rng)
        with NoHostReads():
            annealing = advance(annealing, kernel, path, betas, rng)
    assert int(annealing.stage) == 2


# Exact samplers, and others.


def test_the_table_of_samplers_knows_who_is_exact():
    """The functions of the exactness tests and of docs/supported.md."""
    for row in TABLE:
        assert row.sampler.exact == (row.leaves in ("target", "settled")), row.sampler
        if row.sampler.exact:
            assert row.sampler.stationary_start == (row.leaves != "settled"), row.sampler
    rows = {
        name.strip("`"): cells for name, *cells in table(ROOT / "docs/supported.md", "`sampler=`")
    }
    assert set(rows) == set(names("sampler"))
    for name, cells in rows.items():
        kind, fields = find_sampler_class(name)
        assert cells[-1] == ("yes" if kind(**fields).exact else "no"), name


# Betas and estimates.


@pytest.mark.parametrize("schedule", [linear, sigmoid, geometric])
def test_betas_rise_from_0_to_1_and_are_what_a_model_holds(schedule):
    betas = schedule(1000)
    assert betas.dtype == torch.float64
    assert len(betas) == 1001
    assert (betas[0], betas[-1]) == (0, 1)
    assert (betas.diff() >= 0).all()
    assert torch.equal(betas, betas.float().double())


def test_an_estimate_does_not_depend_on_the_scale():
    log_weight = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    weight = log_weight.exp()
    for shift in (0, -5000, 5000):
        found = estimate_log_normaliser(log_weight + shift, make_rng())
        assert found.value - shift == pytest.approx(float(weight.mean().log()))
        assert found.error == pytest.approx(float(weight.std() / weight.mean() / 3**0.5))
        assert found.ess == pytest.approx(float(weight.sum() ** 2 / weight.square().sum()))
        assert found.bound - shift == pytest.approx(1.0)
        assert found.bound_error == pytest.approx(1 / 3**0.5)
    with pytest.raises(ValueError, match="two finite log weights"):
        estimate_log_normaliser(log_weight[:1], make_rng())
