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
    reads = sampler.sample(problem, num_reads=20_000, chains=2000, burn_in=300, thin=5, seed=0)
    by_chain = reads.record.energy.reshape(2000, -1).mean(1)
    assert abs(by_chain.mean() - mean) < 5 * by_chain.std() / 2000**0.5
    assert abs(reads.record.energy.mean() - every.record.energy.mean()) > 0.2  # control
    assert set(reads.info) == {"acceptance", "seconds", "converged", "verdict", "seed"}


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


@pytest.mark.parametrize("count", [1, 19, 20, 30, 47])
@pytest.mark.parametrize("seed", [None, 3])
def test_any_number_of_reads(bqm, count, seed):
    reads = lw.DimodSampler(engine="eager").sample(bqm, num_reads=count, seed=seed, thin=2)
    assert len(reads) == count
    testing.assert_response_energies(reads, bqm)


def test_reads_that_do_not_fill_all_chains_are_the_first_of_those_that_do(bqm):
    sampler = lw.DimodSampler(engine="eager")
    few, all_ = (sampler.sample(bqm, num_reads=count, chains=4, seed=3) for count in (10, 12))
    kept = [0, 1, 2, 3, 4, 5, 6, 7, 9, 10]  # three of two chains, two of the others
    assert np.array_equal(few.record.sample, all_.record.sample[kept])


def test_reads_are_new_without_a_seed_and_the_same_with_one(bqm):
    sampler = lw.DimodSampler(engine="eager")
    first, second = (sampler.sample(bqm, num_reads=200) for _ in range(2))
    assert not np.array_equal(first.record.sample, second.record.sample)
    again = sampler.sample(bqm, num_reads=200, seed=second.info["seed"])
    assert np.array_equal(again.record.sample, second.record.sample)


def test_numbers_that_are_not_counts_are_refused(bqm):
    for words in ({"chains": 0}, {"num_reads": 0}, {"num_reads": 2.5}):
        with pytest.raises(ValueError, match="must be an integer of at least 1"):
            lw.DimodSampler().sample(bqm, **words)
