"""The benchmark: its cells, ranks and guard on made-up records, and its task on small targets."""

import math
import weakref

import numpy as np
import pytest
import torch
from command import command_line
from fakes import fake, measured

import latticework as lw
from latticework.experiments.figures.benchmark_cells import Cell
from latticework.experiments.records.record import load_all
from latticework.experiments.runs.errors import ConfigurationError
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks import benchmark, truths
from latticework.experiments.tasks.measures import chain_numbers
from latticework.sampling.diagnostics import largest_r_hat
from latticework.sampling.tuning.setup import SampledRun, TuningSetup, quality
from latticework.sampling.tuning.space import fields_as_numbers, from_numbers, with_fields

# Truth.


def test_means_by_symmetry_are_exact(tmp_path):
    run = Run(tmp_path)
    for model in (lw.Lattice((2, 3), 0.3), lw.LatticePotts((2, 2), 3, 0.7)):
        found = truths.symmetric(model, run).mean
        torch.testing.assert_close(found.double(), lw.exact(model).mean)
    for model in (lw.Lattice((50, 50), 0.3, 0.01), lw.LatticePotts((2, 2), 3, 0.7, [0, 0, 0.01])):
        with pytest.raises(ConfigurationError, match="exchanging them changes its log-prob"):
            truths.symmetric(model, run)


def test_means_of_long_chains_are_shared_and_near_the_truth(tmp_path):
    model, run = lw.Lattice((2, 3), 0.2, 0.3), Run(tmp_path)
    words = {"sampler": lw.GibbsSweep(), "chains": 100, "steps": 200}
    first = truths.averaged(model, run, **words).mean
    assert (first - lw.exact(model).mean).abs().max() < 4.5 * 0.5 / math.sqrt(100 * 100 / 10)
    assert len(run.notes["artifacts"]) == 1
    again = truths.averaged(model, Run(tmp_path, seed=5), **words).mean
    assert torch.equal(first, again)


def test_ground_truth_keeps_no_old_states(tmp_path, monkeypatch):
    """At the paper's scale, all states of the chains of Figure 4 are 36 GB."""
    past, alive = [], []

    def watched(*words, **settings):
        for reading in lw.run_chain(*words, **settings):
            past.append(weakref.ref(reading.state.x))
            yield reading
            alive.append(sum(state() is not None for state in past))

    monkeypatch.setattr(truths, "run_chain", watched)
    words = {"sampler": lw.GibbsSweep(), "samples": 6, "floor": 2, "steps": 20}
    found = truths.sampled(lw.Lattice((2, 3), 0.2), Run(tmp_path), **words)
    assert (len(found.samples), len(found.floor)) == (6, 2)
    assert len(alive) == 21
    assert max(alive) <= 2


def test_means_of_long_chains_count_each_state_once(tmp_path):
    """The mean of a law with a single state is that state, exactly."""
    model = lw.Lattice((2, 3), 0.0, 50.0)
    for steps in (4, 5):
        found = truths.averaged(
            model, Run(tmp_path), sampler=lw.GibbsSweep(), chains=3, steps=steps
        )
        assert torch.equal(found.mean, torch.ones(6))


# The task.


def test_errors_are_those_of_the_running_mean():
    result = lw.sample(lambda x: x.sum(-1), "gibbs", sites=3, steps=40, thin=2, chains=4)
    stint, mean = SampledRun(result, burn_in=10, thin=2, steps=50), torch.full((3,), 0.7)
    found = benchmark.error_readings(stint, mean, 5)
    assert [step for step, _ in found] == [10 + 2 * n for n in (1, 2, 4, 9, 20)]
    gap = result.draws[:, :9].mean((0, 1)) - 0.7
    assert found[3][1]["log_rmse"] == pytest.approx(float(gap.square().mean().sqrt().log()))
    assert benchmark.error_readings(stint, None, 5)[0] == (12, {})


def test_fields_survive_their_storage_as_numbers():
    space = {"flips": {"low": 1, "high": 9}, "balance": {"choices": ["sqrt", "barker"]}}
    fields = {"flips": 4, "balance": "barker"}
    assert from_numbers(fields_as_numbers(fields, space), lw.GWG(), space) == fields


def test_thinning_hides_no_effective_samples():
    """DLMC for a long time draws independent sites afresh, so every step is an effective sample."""
    course = TuningSetup(lw.Lattice((3, 3), 0.0, 0.3), chains=4, max_draws=100)
    stint, found = course.measure_run(lw.DLMC(time=50.0), 2000, seed=0)
    thinned = quality(stint.result)
    assert stint.thin == 16
    assert thinned.ess_median < 1.5 * 4 * 100
    assert found.ess_median == pytest.approx(4 * 1600, rel=0.25)
    assert found.ess_energy == pytest.approx(4 * 1600, rel=0.5)
    assert found.r_hat == thinned.r_hat
    slow = course.measure_run(lw.DMALA(step_size=0.05), 2000, seed=0)
    assert slow[1] == quality(slow[0].result)  # the draws are dense enough


def test_no_two_runs_share_their_random_numbers(monkeypatch):
    """Neither the runs of consecutive seeds nor the shorter runs with finer thinning."""
    taken, drawn = [], TuningSetup.sample_run

    def noted(self, sampler, steps, seed, x=None):
        taken.append(seed)
        return drawn(self, sampler, steps, seed, x)

    monkeypatch.setattr(TuningSetup, "sample_run", noted)
    course = TuningSetup(lw.Lattice((3, 3), 0.0, 0.3), chains=4, max_draws=100)
    for seed in range(3):
        course.measure_run(lw.DLMC(time=50.0), 2000, seed)
    assert len(taken) == len(set(taken)) > 3


WORDS = ("experiment=benchmark", "scale=smoke", "target=sk_16", "task.chains=4")


@pytest.mark.slow
def test_a_sampler_is_tuned_once_for_all_seeds(tmp_path):
    few = ("task.tuning=[300evaluations]", "task.measuring=[90evaluations]")
    assert command_line(*WORDS, *few, "sampler=dmala", "seed=0,1", outputs=tmp_path) == 0
    one, two = load_all(tmp_path / "benchmark" / "smoke")
    assert one.document["tuned"] == two.document["tuned"]
    assert one.document["artifacts"] == two.document["artifacts"]
    assert len(list((tmp_path / "artifacts").glob("tuned-*"))) == 1
    assert one.document["engine"] == "compiled"
    assert one.document["steps"] == two.document["steps"] == 90
    assert list(one.metrics["log_rmse"]) != list(two.metrics["log_rmse"])
    assert one.metrics["evaluations"].iloc[-1] == 90


@pytest.mark.slow
def test_a_course_runs_by_the_fused_engine(uncompiled):
    course = TuningSetup(lw.Lattice((2, 2), 0.2), 4, "fused")
    tempered = lw.Tempered("gwg", levels=3, rounds=2)
    fields, spent = course.learn_fields(tempered)
    assert spent["evaluations"] > 0
    ready = with_fields(tempered, fields)
    assert course.cost(ready, "seconds") > 0
    stint, found = course.measure_run(ready, 400, 0)
    assert stint.result.draws.shape[0] == 4
    assert found.r_hat < 1.5


def test_what_a_sampler_learns_first_is_learned_once_for_all_seeds(tmp_path, monkeypatch):
    learned, learnt = [], lw.PAVG.learn_fields
    monkeypatch.setattr(lw.PAVG, "learn_fields", lambda *words: learned.append(1) or learnt(*words))
    course, space = (
        TuningSetup(lw.Lattice((2, 2), 0.2), 4),
        {"step_size": {"low": 0.5, "high": 2.0}},
    )
    found = [
        benchmark.shared_fields(
            Run(tmp_path / str(seed), seed=seed, outputs=tmp_path), course, "pavg", lw.PAVG(1.0),
            space, ["100evaluations"], 2,
        )
        for seed in (0, 1)
    ]  # fmt: skip
    (fields, one), (others, other) = found
    assert len(learned) == 1
    assert fields == others
    assert one["matrix"].shape == (4, 4)
    assert torch.equal(one["matrix"], other["matrix"])


def test_a_single_chain_is_refused(tmp_path):
    """Its R-hat is not defined, and would be shown as that of chains that disagree."""
    counts = {"chains": 1, "trials": 1, "points": 1, "tuning": [], "measuring": []}
    parts = {"model": lw.Lattice((2, 2), 0.1), "sampler": lw.GibbsSweep(), "data": None}
    with pytest.raises(ValueError, match="chains must be 2 or more, as R-hat compares them, got 1"):
        benchmark.benchmark(**parts, run=Run(tmp_path), name="x", **counts)


# R-hat has one limit everywhere.


@pytest.mark.parametrize("chains", [2, 4, 8, 40, 256])
def test_the_limit_of_r_hat_is_that_of_the_verdict(chains):
    """In the headline of a run, in the cells of tables and claims, and in a trace's counts."""
    limit = largest_r_hat(chains)
    values = (1.0, limit - 1e-3, limit + 1e-3, 2.0)
    for value, agree in zip(values, (True, True, False, False), strict=True):
        record = measured("dmala", "sk_16", r_hat=value)
        record.document["config"]["task"]["chains"] = chains
        names = [number.name for number in benchmark.headline(record)]
        assert ("chains disagree, R-hat" not in names) == agree
        assert Cell("sk_16", "dmala", [record]).has_mixed == agree
    found = {"ess": np.full(4, 500.0), "r_hat": np.array(values), "constant": 0}
    traced = fake(stored={"convergence": {**found, "draws": 100, "chains": chains}})
    counts = {number.name: number.value for number in chain_numbers.traced_numbers(traced)}
    assert counts["sites_converged"] == 2


def test_one_run_whose_chains_disagree_leaves_a_cell_without_numbers():
    good, bad = (measured("dmala", "sk_16", seed, r_hat=value) for seed, value in enumerate((1, 3)))
    assert Cell("sk_16", "dmala", [good]).has_mixed
    assert not Cell("sk_16", "dmala", [good, bad]).has_mixed
