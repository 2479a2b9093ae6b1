"""Our samplers as a `dimod.Sampler`: dimod's own assertions, and the law of the reads."""

import numpy as np
import pytest

import latticework as lw

dimod = pytest.importorskip("dimod")
testing = pytest.importorskip("dimod.testing")


@pytest.fixture
def bqm():
    linear = {"a": 0.4, "b": 0.0, "c": -0.3}
    quadratic = {("a", "b"): 0.9, ("b", "c"): -0.7, ("a", "c"): 0.5}
    return dimod.BinaryQuadraticModel(linear, quadratic, 0.2, "SPIN")


@pytest.mark.filterwarnings("ignore::dimod.exceptions.SamplerUnknownArgWarning")
def test_dimod_accepts_it(bqm):
    sampler = lw.DimodSampler(engine="eager")
    testing.assert_sampler_api(sampler)
    for problem in (bqm, bqm.change_vartype("BINARY", inplace=False)):
        reads = sampler.sample(problem, num_reads=40, unknown=1)
        testing.assert_response_energies(reads, problem)
        assert reads.vartype is problem.vartype
        assert len(reads) == 40
    empty = dimod.BinaryQuadraticModel("SPIN")
    testing.assert_response_energies(sampler.sample(empty, num_reads=20), empty)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["SPIN", "BINARY"])
@pytest.mark.parametrize("name", ["gibbs_sweep", "gwg"])
def test_reads_have_the_law_of_the_temperature(bqm, kind, name):
    beta, problem = 1.3, bqm.change_vartype(kind, inplace=False)
    every = dimod.ExactSolver().sample(problem)
    share = np.exp(-beta * (every.record.energy - every.record.energy.min()))
    mean = share @ every.record.energy / share.sum()
    sampler = lw.DimodSampler(name, beta=beta)
    reads = sampler.sample(problem, num_reads=20_000, chains=2000, burn_in=60, thin=5)
    by_chain = reads.record.energy.reshape(2000, -1).mean(1)
    assert abs(by_chain.mean() - mean) < 5 * by_chain.std() / 2000**0.5
    assert abs(reads.record.energy.mean() - every.record.energy.mean()) > 0.2  # control
    assert set(reads.info) == {"acceptance", "seconds", "converged", "verdict"}


def test_qubos_and_ising_problems():
    sampler = lw.DimodSampler(beta=8.0, engine="eager")
    best = sampler.sample_qubo({(0, 0): -1.0, (0, 1): 3.0, (1, 1): -2.0}, num_reads=100).first
    assert best.sample == {0: 0, 1: 1}
    assert best.energy == -2
    best = sampler.sample_ising({"a": -1.0}, {("a", "b"): 1.0}, num_reads=100).first
    assert best.sample == {"a": 1, "b": -1}


def test_reads_belong_to_their_variables():
    """Whatever the order in which variables were added, which is not that of the arrays."""
    sampler = lw.DimodSampler(beta=4.0, engine="eager")
    for first, second in ((1, 0), ("b", "a")):
        qubo = {(first, first): -3.0, (second, second): 3.0}
        reads = sampler.sample_qubo(qubo, num_reads=100, burn_in=10)
        assert reads.record.energy.mean() == pytest.approx(-3)
        assert reads.first.sample == {first: 1, second: 0}


def test_reads_that_chains_cannot_share_are_refused(bqm):
    with pytest.raises(ValueError, match="chains must be an integer of at least 1"):
        lw.DimodSampler().sample(bqm, chains=0)
    with pytest.raises(ValueError, match="multiple of the 20 chains, got 30"):
        lw.DimodSampler().sample(bqm, num_reads=30)
