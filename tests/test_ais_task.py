"""The task of annealed importance sampling: likelihoods, engines, kills, what is printed."""

import json
import math

import pytest
import torch
from annealing_cases import DATA, make_rng, path_of, rbm
from fakes import fake

from latticework.experiments.records.likelihood import (
    MAX_EXCESS_NATS,
    caveat_text,
    is_value_reliable,
    likelihood_bounds,
    likelihood_or_ends,
    log_z_error,
    log_z_or_ends,
    rows_differ_from_model,
)
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.ais import _load_best_state, ais, headline
from latticework.models.annealed import GeometricPath
from latticework.models.rbm import RBM
from latticework.models.scaled_rbm import ScaledRBM
from latticework.samplers.block_gibbs import BlockGibbs
from latticework.samplers.gwg import GWG
from latticework.samplers.langevin import DMALA, DULA
from latticework.samplers.relaxed import RMALA
from latticework.sampling.adaptation import AcceptanceControl
from latticework.sampling.annealing import (
    anneal,
    estimate_log_normaliser,
    linear,
    require_exact,
)
from latticework.sampling.engine import NotCompiledError
from latticework.sampling.exact import exact
from latticework.sampling.learning.held_out import log_odds


def task(run, *, steps=60, every=20, chains=200, **settings):
    defaults = {
        "model": rbm(), "sampler": BlockGibbs(), "data": DATA, "path": ScaledRBM,
        "back": 50, "burn_in": 20,
    }  # fmt: skip
    ais(run=run, budget=Budget(chains, steps, every), betas=linear, **{**defaults, **settings})


@pytest.mark.parametrize(("sampler", "path"), [(BlockGibbs(), ScaledRBM), (GWG(), GeometricPath)])
def test_the_task_finds_the_exact_log_likelihoods(tmp_path, sampler, path):
    run, model = Run(tmp_path), rbm()
    task(run, model=model, sampler=sampler, path=path, steps=400, validation_points=20)
    found, truth = run.notes, float(exact(model).log_z)
    assert found["log_z_exact"] == pytest.approx(truth)
    assert abs(found["log_z"] - truth) < 4 * found["log_z_error"]
    assert found["log_z_lower"] - 4 * found["log_z_lower_error"] < truth
    assert found["log_z_upper"] + 4 * found["log_z_upper_error"] > truth
    test = found["log_likelihood"]["test"]
    values = model(DATA.test.float()).double() - found["log_z"]
    assert test["mean"] == pytest.approx(float(values.mean()))
    assert test["rows_error"] == pytest.approx(float(values.std()) / 60**0.5)
    assert (test["rows"], found["log_likelihood"]["valid"]["rows"]) == (60, 20)

    record = Record(tmp_path, {})
    assert list(record.metrics["step"]) == [*range(20, 401, 20), *range(20, 421, 20)]
    assert record.metrics["beta"].iloc[19] == 1
    assert record.metrics["log_ratio"].iloc[20] == 0  # the chains back have only burned in
    weight = torch.tensor(record.arrays("log_weight")["forward"])
    base = float(path(model, log_odds(DATA)).log_z_start())
    estimated = estimate_log_normaliser(weight, make_rng()).value
    assert estimated == pytest.approx(found["log_z"] - base)
    assert found["log_z_lower"] == pytest.approx(base + float(weight.mean()))
    back = torch.tensor(record.arrays("log_weight_back")["back"])
    estimated = estimate_log_normaliser(back, make_rng()).value
    assert estimated == pytest.approx(base - found["log_z_back"])
    assert found["log_z_upper"] == pytest.approx(base - float(back.mean()))
    assert found["log_z_upper"] > found["log_z_back"] + 1e-4  # control: they differ
    assert record.arrays("last")["x"].shape == (200, 12)
    json.dumps(found)


def test_without_data_there_is_log_z_alone(tmp_path):
    run = Run(tmp_path)
    task(run, data=None, steps=400)
    assert abs(run.notes["log_z"] - run.notes["log_z_exact"]) < 4 * run.notes["log_z_error"]
    assert "log_likelihood" not in run.notes
    assert "log_z_back" not in run.notes
    with pytest.raises(ValueError, match="steps must be a multiple of every"):
        task(Run(tmp_path), steps=50)


FUSED = [
    pytest.param(0, "interpreted", id="ais"),
    pytest.param(3, "compiled", id="smc", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("runs", "blocks"), FUSED)
def test_fused_steps_go_the_way_of_eager_ones(runs, blocks, plain_tape, request):
    """They read the same numbers of the generator, and leave nothing in the path."""
    if blocks == "interpreted":
        request.getfixturevalue("uncompiled")
    path = path_of("binary")
    betas, weights = linear(12), []
    for engine in ("eager", "fused", "eager"):
        rng = make_rng()
        x = path.draw(900, rng)
        done = anneal(DMALA(0.5), path, x, betas, rng, 2, runs, engine)
        weights.append(done.log_weight)
    torch.testing.assert_close(weights[0], weights[1], atol=1e-4, rtol=1e-4)
    assert torch.equal(weights[0], weights[2])
    assert weights[0].std() > 0.01


@pytest.mark.slow
def test_the_task_fuses_the_steps_of_a_path(tmp_path, uncompiled):
    run = Run(tmp_path, engine="fused")
    task(run, data=None, sampler=DMALA(0.5), path=GeometricPath, steps=400)
    assert run.notes["engine"] == "fused"
    assert abs(run.notes["log_z"] - run.notes["log_z_exact"]) < 4 * run.notes["log_z_error"]


def test_an_adaptation_is_not_fused(tmp_path):
    with pytest.raises(NotCompiledError, match="each block of betas"):
        task(Run(tmp_path, engine="fused"), sampler=DMALA(0.5), adapt=AcceptanceControl())


def test_a_single_chain_is_refused_before_any_has_run(tmp_path):
    with pytest.raises(ValueError, match="back must be 2 or more for a standard error, got 1"):
        task(Run(tmp_path), back=1)
    with pytest.raises(ValueError, match=r"budget\.chains must be 2 or more"):
        task(Run(tmp_path), chains=1, back=0)
    assert not (tmp_path / "metrics.csv").exists()


class Killed(Run):
    """Dies after so many rows."""

    left = math.inf

    def log(self, step, **values):
        super().log(step, **values)
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("left", [0, 5])  # in the pilot or at once; on the way back
def test_a_run_that_was_killed_ends_with_the_same_numbers(tmp_path, left):
    whole = Run(tmp_path / "whole")
    first, second = (Killed(tmp_path / "parts", checkpoint=0.0) for _ in range(2))
    for run in (whole, first):
        run.path.mkdir()
    settings = {"sampler": DMALA(0.2), "path": GeometricPath}
    settings["adapt"] = AcceptanceControl(rounds=3, steps=2)
    task(whole, **settings)
    first.left = left
    with pytest.raises(KeyboardInterrupt):
        task(first, **settings)
    second.load_checkpoints({})
    task(second, **settings)
    assert second.notes == whole.notes
    files = [(run.path / "metrics.csv").read_text() for run in (whole, second)]
    assert files[0] == files[1]


def test_a_biased_kernel_is_refused(tmp_path):
    require_exact(GWG())
    path, rng = path_of("rbm"), make_rng()
    with pytest.raises(ValueError, match=r"leaves its target invariant, and DULA\(step_size=0.1"):
        anneal(DULA(0.1), path, path.draw(5, rng), linear(3), rng)
    with pytest.raises(ValueError, match="leaves its target invariant"):
        task(Run(tmp_path), sampler=DULA(0.1))
    with pytest.raises(ValueError, match="cannot use RMALA.*still need a burn-in"):
        require_exact(RMALA(0.3, 0.5))


# A step for each block of betas.


def test_a_step_for_each_block_of_betas_keeps_log_z_and_brings_its_ends_together(tmp_path):
    """Against a step that is far too small: the same betas, and log Z within four errors."""
    kernel, model, gaps = DMALA(0.1), rbm(), []
    truth = float(exact(model).log_z)
    for place, rule in enumerate((None, AcceptanceControl(rounds=20, steps=5))):
        run = Run(tmp_path / str(place))
        run.path.mkdir()
        settings = {"model": model, "sampler": kernel, "path": GeometricPath, "adapt": rule}
        task(run, **settings, back=200, steps=40, every=10, burn_in=10)
        found = run.notes
        assert abs(found["log_z"] - truth) < 4 * found["log_z_error"]
        assert found["log_z_lower"] < truth
        gaps.append(truth - found["log_z_lower"])
    assert gaps[1] < 0.6 * gaps[0]
    steps = found["frozen"]["step_size"]
    assert len(steps) == 4
    assert min(steps) > 0.1
    assert len(set(steps)) == 4
    with pytest.raises(ValueError, match="no scale that its acceptance could choose"):
        task(Run(tmp_path), adapt=AcceptanceControl())  # block Gibbs


# Printed numbers.


def estimated(forward, back, truth=100.0, **more):
    """A record of log weights `[chains]` in both directions, relative to `truth`."""
    there, again = (estimate_log_normaliser(one, make_rng()) for one in (forward, back))
    return fake(
        config={"task": {"chains": len(forward), "steps": 9, "back": len(back)}},
        log_z=truth + there.value,
        log_z_error=there.error,
        log_z_lower=truth + there.bound,
        log_z_lower_error=there.bound_error,
        log_z_back=truth - again.value,
        log_z_upper=truth - again.bound,
        log_z_upper_error=again.bound_error,
        ess=there.ess,
        log_likelihood={"test": {"mean": -200.0}, "valid": {"mean": -210.0}},
        **more,
    )


def normal(variance, chains, rng, mean=None):
    """Log weights whose mean weight is 1 in expectation: normal ones."""
    mean = -variance / 2 if mean is None else mean
    noise = torch.randn(chains, generator=rng, dtype=torch.float64)
    return mean + variance**0.5 * noise


def test_a_value_needs_half_the_chains_and_close_ends():
    rng = make_rng()
    narrow, wide = (lambda: normal(0.2, 50, rng)), (lambda: normal(3.0, 50, rng))
    good = estimated(narrow(), narrow(), log_z_exact=None)
    assert is_value_reliable(good)
    assert likelihood_or_ends([good]) == (-200.0, log_z_error(good), None)
    assert headline(good)[0].error == log_z_error(good)
    for record in (estimated(wide(), narrow()), estimated(narrow(), wide(), log_z_exact=None)):
        found = record.document
        assert not is_value_reliable(record)
        assert caveat_text(record) == "no value"
        least, most = likelihood_or_ends([record]).split(" to ")
        unnormalised = found["log_z"] - 200.0
        assert float(least.split()[0]) == pytest.approx(unnormalised - found["log_z_upper"], 0.01)
        assert float(most.split()[0]) == pytest.approx(unnormalised - found["log_z_lower"], 0.01)
        assert float(least.split()[2]) == pytest.approx(found["log_z_upper_error"], abs=0.1)
    assert isinstance(headline(record)[0].value, str)
    for effective, known in ((24.0, False), (26.0, True)):  # of 50 chains
        good.document["ess"] = effective
        assert is_value_reliable(good) is known


def test_rows_that_are_no_draws_give_no_bound():
    """Then the estimate towards the model may be far above that from the rows."""
    rng = make_rng()
    wide = normal(9.0, 50, rng)
    record = estimated(wide, normal(9.0, 50, rng, mean=MAX_EXCESS_NATS + 4))
    assert rows_differ_from_model(record)
    assert likelihood_or_ends([record]).startswith("at most -")
    assert log_z_or_ends(record).startswith("at least ")
    assert likelihood_bounds(record)[0] == -math.inf
    assert not rows_differ_from_model(estimated(wide, normal(9.0, 50, rng)))  # control
    assert rows_differ_from_model(
        estimated(normal(0.2, 50, rng), normal(0.2, 50, rng) + 2)
    )  # inverted


def test_a_state_with_an_impossible_likelihood_is_not_chosen(tmp_path, caplog):
    """Short runs overestimate the likelihood of a model that diverged, sometimes beyond 0."""
    trials = {"a": -5.0, "b": -2.0, "c": 1437.0, "d": math.nan}
    model = RBM(2, 1)
    states = {
        name: {k: v + i for k, v in model.state_dict().items()} for i, name in enumerate(trials)
    }

    def chosen(*names):
        folder, scores = tmp_path / "".join(names), iter(names)
        folder.mkdir()
        run = Run(folder)
        _load_best_state(model, {n: states[n] for n in names}, run, lambda: trials[next(scores)])
        return run.notes["chosen"]

    assert chosen(*"abcd") == "b"
    assert torch.equal(model.hidden_bias, states["b"]["hidden_bias"])
    assert "the state c is not considered" in caplog.text
    assert chosen("c") == "c"
