"""Annealed importance sampling against exact normalisers, and the paths that it goes."""

import copy
import json
import math

import pytest
import torch
from documented import ROOT, names, table
from exactness import TABLE
from fakes import fake
from plain import agree
from targets import TARGETS, scattered
from torch import Generator

from latticework.data.base import Dataset
from latticework.experiments.records.likelihood import (
    MAX_EXCESS_NATS,
    bounds,
    caveat_text,
    is_value_reliable,
    likelihood_or_ends,
    log_z_error,
    log_z_or_ends,
    rows_differ_from_model,
)
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.ais import _load_best_state, ais, headline
from latticework.experiments.tasks.measures.annealer import log_odds
from latticework.models.annealed import GeometricPath
from latticework.models.base import Function
from latticework.models.domains import Integer
from latticework.models.rbm import RBM
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
from latticework.samplers.relaxed import RMALA
from latticework.samplers.sweep import GibbsSweep
from latticework.sampling.adaptation import AcceptanceControl
from latticework.sampling.annealing import (
    Annealing,
    advance,
    anneal,
    estimate_log_normaliser,
    geometric,
    linear,
    require_exact,
    sigmoid,
    start,
)
from latticework.sampling.checking.host_reads import NoHostReads
from latticework.sampling.engine import NotCompiledError
from latticework.sampling.exact import exact

BINARY = ("binary", "spins", "dense_ising", "lattice", "ring", "rbm")
OTHER = ("categorical", "lattice_potts", "ordinal")


def seeded(seed=11):  # not 0, whose numbers R-MALA lifts its starts by
    return Generator().manual_seed(seed)


def path_of(name, kind=GeometricPath):
    """A path to the target, from non-uniform independent sites if the path supports it."""
    model = copy.deepcopy(TARGETS[name].model)
    odds = torch.linspace(-1.5, 0.5, model.domain.dim) if name in BINARY else None
    return kind(model, odds)


def z_score(path, found, truth, sign=1):
    return (float(path.log_z_start()) + sign * found.value - truth) / found.error


def log_z(name):
    return float(TARGETS[name].log_prob.max()) + math.log(
        float(torch.tensor(TARGETS[name].log_prob - TARGETS[name].log_prob.max()).exp().sum())
    )


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
    path, rng, truth = path_of(name, kind), seeded(), log_z(name)
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
    path, rng, betas = path_of("binary"), seeded(), linear(6)
    with torch.no_grad():
        annealing = start(kernel, path, path.draw(6000, rng), betas)
        for _ in range(6):
            annealing = move(annealing, kernel, path, betas, rng)
    found = estimate_log_normaliser(annealing.log_weight, rng)
    assert abs(z_score(path, found, log_z("binary"))) > 6


# Paths.


def mixed(path, beta):
    """The target at `beta` written down anew, in float64, as a plain function of x."""
    model = copy.deepcopy(path.model).double()
    field, constant = path.field.double(), path.constant.double()
    return Function(
        lambda x: beta * model(x) + (1 - beta) * (x.flatten(1) @ field.flatten() + constant),
        path.domain,
    )


@pytest.mark.parametrize("name", [*BINARY, *OTHER])
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_a_geometric_path_is_a_mixture_in_every_method(name, beta):
    path, states = path_of(name).double(), TARGETS[name].states.double()
    plain = mixed(path, beta)
    path.move_to(torch.tensor(beta))
    if beta == 0:
        assert float(plain(states).logsumexp(0)) == pytest.approx(0, abs=1e-6)
        assert float(path.log_z_start()) == 0
    agree(path, plain, states)


def test_the_path_of_an_rbm_is_an_rbm_at_every_beta():
    path, states = path_of("rbm", ScaledRBM).double(), TARGETS["rbm"].states.double()
    known = path.know(states)
    path.move_to(torch.tensor(0.0))
    assert float(path(states).logsumexp(0)) == pytest.approx(float(path.log_z_start()), abs=1e-6)
    first = path(states)
    ratio = path.log_ratio(known, torch.tensor(0.7))
    path.move_to(torch.tensor(0.7))
    torch.testing.assert_close(path(states) - first, ratio, rtol=1e-6, atol=1e-6)
    path.move_to(torch.tensor(1.0))
    torch.testing.assert_close(path(states), path.model(states))
    torch.testing.assert_close(path.gradient(states), path.model.gradient(states))
    x = states.clone()
    inputs = path.hidden_inputs(x)
    path.move_to(torch.tensor(0.7), x, path.know(x))
    torch.testing.assert_close(path.hidden_inputs(x), 0.7 * inputs)


@pytest.mark.parametrize("kind", [GeometricPath, ScaledRBM])
@pytest.mark.parametrize("odds", [None, torch.tensor([-2.0, 0.0, 0.5, 1.0])])
def test_draws_have_the_frequencies_of_the_base(kind, odds):
    path = kind(TARGETS["rbm"].model, odds)
    mean = path.draw(40_000, seeded()).mean(0)
    truth = (torch.zeros(4) if odds is None else odds).sigmoid()
    assert ((mean - truth) / (truth * (1 - truth) / 40_000).sqrt()).abs().max() < 4


@pytest.mark.parametrize(
    ("kind", "model", "odds", "message"),
    [
        (GeometricPath, TARGETS["rbm"].model, torch.zeros(3), "log_odds need a binary domain"),
        (GeometricPath, TARGETS["ordinal"].model, torch.zeros(2), "log_odds need a binary domain"),
        (ScaledRBM, TARGETS["dense_ising"].model, None, "anneals an RBM, got DenseIsing"),
        (GeometricPath, Function(lambda x: x.sum(-1), Integer(2)), None, "infinitely many"),
    ],
)
def test_a_path_says_what_it_cannot_do(kind, model, odds, message):
    with pytest.raises(ValueError, match=message):
        kind(model, odds)


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
        path, rng = path_of("rbm", kind).double(), seeded()
        x = path.draw(chains, rng).double()
        weights.append(anneal(kernel, path, x, linear(10), rng).log_weight)
    torch.testing.assert_close(*weights, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [(GWG(), GeometricPath), (Gibbs(), GeometricPath), (BlockGibbs(), ScaledRBM)],
)
def test_nothing_is_read_on_the_host(kernel, kind):
    path, rng, betas = path_of("rbm", kind), seeded(), linear(5)
    with torch.no_grad():
        annealing = start(kernel, path, path.draw(10, rng), betas)
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


def test_a_biased_kernel_is_refused(tmp_path):
    require_exact(GWG())
    path, rng = path_of("rbm"), seeded()
    with pytest.raises(ValueError, match=r"leaves its target invariant, and DULA\(step_size=0.1"):
        anneal(DULA(0.1), path, path.draw(5, rng), linear(3), rng)
    with pytest.raises(ValueError, match="leaves its target invariant"):
        task(Run(tmp_path), sampler=DULA(0.1))
    with pytest.raises(ValueError, match="cannot use RMALA.*still need a burn-in"):
        require_exact(RMALA(0.3, 0.5))


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
        found = estimate_log_normaliser(log_weight + shift, seeded())
        assert found.value - shift == pytest.approx(float(weight.mean().log()))
        assert found.error == pytest.approx(float(weight.std() / weight.mean() / 3**0.5))
        assert found.ess == pytest.approx(float(weight.sum() ** 2 / weight.square().sum()))
        assert found.bound - shift == pytest.approx(1.0)
        assert found.bound_error == pytest.approx(1 / 3**0.5)
    with pytest.raises(ValueError, match="two finite log weights"):
        estimate_log_normaliser(log_weight[:1], seeded())


# The task.


def rows(count, seed):
    """Draws of 12 sites of which neighbours are alike."""
    rng = seeded(seed)
    kind = torch.rand(count, 4, 1, generator=rng) < 0.4
    return (kind ^ (torch.rand(count, 4, 3, generator=rng) < 0.15)).flatten(1).byte()


DATA = Dataset(rows(400, 0), rows(50, 1), rows(60, 2), (4, 3), "blocks")


def rbm():
    model = scattered(RBM(12, 5), 3, 0.7)
    model.untrained = False  # these weights are the target
    return model


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
    estimated = estimate_log_normaliser(weight, seeded()).value
    assert estimated == pytest.approx(found["log_z"] - base)
    assert found["log_z_lower"] == pytest.approx(base + float(weight.mean()))
    back = torch.tensor(record.arrays("log_weight_back")["back"])
    estimated = estimate_log_normaliser(back, seeded()).value
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
        rng = seeded()
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


# What is printed.


def estimated(forward, back, truth=100.0, **more):
    """A record of log weights `[chains]` in both directions, relative to `truth`."""
    there, again = (estimate_log_normaliser(one, seeded()) for one in (forward, back))
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
    rng = seeded()
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
    rng = seeded()
    wide = normal(9.0, 50, rng)
    record = estimated(wide, normal(9.0, 50, rng, mean=MAX_EXCESS_NATS + 4))
    assert rows_differ_from_model(record)
    assert likelihood_or_ends([record]).startswith("at most -")
    assert log_z_or_ends(record).startswith("at least ")
    assert bounds(record)[0] == -math.inf
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
