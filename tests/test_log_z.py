"""SMC samplers, intervals of log Z and what they cover, and task=log_z."""

import math

import numpy as np
import pytest
import torch
from command import command_line
from scipy.stats import binom
from targets import TARGETS
from torch import Generator

import latticework as lw
from latticework.experiments.figures.log_z import ladders, normalisers
from latticework.experiments.records.record import Budget, load_all
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks import ais
from latticework.experiments.tasks import log_z as log_z_task
from latticework.models.transfer_matrix import exact_log_z, torus
from latticework.sampling import annealing
from latticework.sampling.annealing import (
    ancestors,
    anneal,
    estimate_log_normaliser,
    linear,
    pilot_betas,
)


def exact(name):
    return float(torch.tensor(TARGETS[name].log_prob).logsumexp(0))


def weights(kernel, name, betas, chains, runs, seed=3, kind=lw.GeometricPath):
    """Log weights `[runs, particles]` over the exact Z."""
    path, rng = kind(TARGETS[name].model), Generator().manual_seed(seed)
    done = anneal(kernel, path, path.draw(chains, rng), betas, rng, runs=runs)
    truth = exact(name) - float(path.log_z_start())
    return done.log_weight.view(runs or chains, -1) - truth


def z_of_means(log_weight):
    """Standard errors by which the mean weight of a run is off 1."""
    mean = log_weight.exp().mean(1)
    return float((mean.mean() - 1) / mean.std() * len(mean) ** 0.5)


@pytest.mark.parametrize(
    ("kernel", "name", "kind"),
    [
        (lw.GWG(), "binary", lw.GeometricPath),
        (lw.DMALA(0.6), "categorical", lw.GeometricPath),
        (lw.Gibbs(), "spins", lw.GeometricPath),
        (lw.DHAMS(0.7, 0.8), "spins", lw.GeometricPath),
        (lw.BlockGibbs(), "rbm", lw.ScaledRBM),
    ],
)
def test_smc_is_unbiased(kernel, name, kind, monkeypatch):
    """Runs of a few particles that are resampled at every beta."""
    monkeypatch.setattr(annealing, "RESAMPLE_ESS_SHARE", 1.0)
    assert abs(z_of_means(weights(kernel, name, linear(6), 12_000, 2000, kind=kind))) < 4


@pytest.mark.parametrize("runs", [0, 200])
@pytest.mark.parametrize("kernel", [lw.Gibbs(), lw.RandomWalk(1), lw.LocallyBalanced()])
@pytest.mark.parametrize("name", ["function", "tables"])
def test_impossible_states_have_weight_0(kernel, name, runs):
    """Also where all particles of a run are impossible. The mean weight stays unbiased."""
    models = {
        "function": lw.Function(
            lambda x: (x.sum(-1) / 2).masked_fill(x.sum(-1) == 2, -math.inf), lw.Binary(5)
        ),
        "tables": lw.Factors([((i, i + 1), [[0.0, -math.inf], [0.3, 0.5]]) for i in range(4)]),
    }
    model, rng = models[name], Generator().manual_seed(2)
    path = lw.GeometricPath(model)
    x = path.draw(800, rng)
    impossible = model.log_prob(x).isneginf()
    done = anneal(kernel, path, x, linear(6), rng, runs=runs)
    assert model.log_prob(done.x).isfinite().all()
    if not runs:
        assert torch.equal(done.log_weight.isneginf(), impossible)
    log_weight = done.log_weight.view(runs or 800, -1) - float(lw.exact(model).log_z)
    assert not log_weight.isnan().any()
    assert abs(z_of_means(log_weight)) < 4
    found = estimate_log_normaliser(done.log_weight, rng, runs)
    assert abs(found.value - float(lw.exact(model).log_z)) < 0.3
    assert found.interval[0] <= float(lw.exact(model).log_z) <= found.interval[1]


def test_a_base_without_a_possible_state_is_refused():
    model = lw.Function(lambda x: torch.where(x.sum(-1) == 0, 0.0, -math.inf), lw.Binary(40))
    path, rng = lw.GeometricPath(model), Generator().manual_seed(0)
    with pytest.raises(ValueError, match="all of 6 draws from beta = 0 are impossible"):
        anneal(lw.Gibbs(), path, path.draw(6, rng), linear(2), rng)


def test_the_pilot_passes_impossible_states():
    model = lw.Function(
        lambda x: (x.sum(-1) / 2).masked_fill(x.sum(-1) == 2, -math.inf), lw.Binary(5)
    )
    path, rng = lw.GeometricPath(model), Generator().manual_seed(0)
    betas, _ = pilot_betas(lw.Gibbs(), path, path.draw(100, rng), 5, rng)
    assert betas.isfinite().all()
    assert betas.diff().min() > 0


def test_smc_that_keeps_its_weights_is_biased(monkeypatch):
    def kept(log_weight, rng):
        return ancestors(log_weight, rng)[0], log_weight.flatten()

    monkeypatch.setattr(annealing, "RESAMPLE_ESS_SHARE", 1.0)
    monkeypatch.setattr(annealing, "ancestors", kept)
    assert abs(z_of_means(weights(lw.GWG(), "binary", linear(6), 12_000, 2000))) > 4


def test_resampling_is_systematic_and_only_where_few_particles_count():
    even, uneven = [0.0, 0.1, 0.0, -0.1], [-9.0, 3.0, 1.0, -9.0]
    rows, after = ancestors(torch.tensor([even, uneven]).double(), Generator().manual_seed(0))
    assert rows[:4].tolist() == [0, 1, 2, 3]
    assert after[:4].tolist() == pytest.approx(even)
    share = torch.tensor(uneven).softmax(0) * 4
    counts = torch.bincount(rows[4:] - 4, minlength=4)
    assert ((counts >= share.floor()) & (counts <= share.ceil())).all()
    mean = torch.tensor(uneven).double().logsumexp(0) - math.log(4)
    torch.testing.assert_close(after[4:], mean.expand(4))


def test_the_pilot_spreads_the_loss_of_particles():
    """Changes of log weights then vary alike at all betas, unlike with linear ones."""
    path, rng = lw.GeometricPath(lw.Lattice((6, 6), 0.0, 3.0)), Generator().manual_seed(0)
    kernel = lw.GibbsSweep()
    betas, steps = pilot_betas(kernel, path, path.draw(500, rng), 20, rng)
    assert (betas[0], betas[-1], len(betas)) == (0, 1, 21)
    assert betas.diff().min() > 0
    assert steps < 60

    def unevenness(betas):
        found, before = [], torch.zeros(500, dtype=torch.float64)
        for last in range(2, len(betas) + 1):
            rng = Generator().manual_seed(1)
            done = anneal(kernel, path, path.draw(500, rng), betas[:last], rng)
            found.append((done.log_weight - before).std())
            before = done.log_weight
        return max(found) / min(found)

    assert unevenness(betas) < 3 < unevenness(linear(20))


def covered(log_weight, repetitions, runs=0):
    """The share of repetitions whose interval covers, and of those with an upper end."""
    hits, plain = 0, 0
    for part in log_weight.reshape(repetitions, -1):
        found = estimate_log_normaliser(part, Generator().manual_seed(0), runs)
        low, high = found.interval
        hits, plain = hits + (low <= 0 <= high), plain + (high < math.inf)
    return hits, plain / repetitions


@pytest.mark.parametrize("steps", [2, 6, 20])
@pytest.mark.parametrize(("chains", "runs"), [(40, 0), (40, 10)])
def test_intervals_cover(steps, chains, runs):
    """Over 400 repetitions, whether all, some or none of the intervals are plain."""
    betas = linear(steps)
    found = weights(lw.GWG(), "dense_ising", betas, 400 * chains, 400 * runs, seed=7)
    hits, _ = covered(found, 400, runs)
    assert hits >= binom.ppf(1e-3, 400, 0.95)


def test_intervals_of_few_runs_cover_near_the_gate():
    """Ten runs whose log weights have a variance of 0.5: those that pass have too small ones.

    A tenth passes or so. With the estimated variance in place of its upper limit, fewer would hold.
    """
    rng = Generator().manual_seed(1)
    log_weight = 0.5**0.5 * torch.randn(2000, 10, generator=rng, dtype=torch.float64) - 0.25
    held, held_by_estimate = [], []
    for part in log_weight:
        found = estimate_log_normaliser(part, rng, 10)
        for each, kept in ((found, held), (found._replace(by_runs=False), held_by_estimate)):
            low, high = each.interval
            if high < math.inf:
                kept.append(low <= 0 <= high)
    assert 50 < len(held) == len(held_by_estimate)
    assert sum(held) >= binom.ppf(1e-3, len(held), 0.95)
    assert sum(held_by_estimate) < binom.ppf(1e-3, len(held), 0.95)


def test_an_interval_has_no_upper_end_where_few_chains_count():
    heavy = 3 * torch.randn(400 * 40, generator=Generator().manual_seed(0), dtype=torch.float64)
    hits, plain = covered(heavy - 4.5, 400)  # log-normal weights with mean 1
    assert plain < 0.05
    assert hits >= binom.ppf(1e-3, 400, 0.95)
    light = heavy / 10 - 0.045
    hits, plain = covered(light, 400)
    assert plain == 1
    assert binom.ppf(1e-3, 400, 0.95) <= hits <= binom.ppf(1 - 1e-3, 400, 0.95)


def test_normal_intervals_would_not_cover(monkeypatch):
    """Control: two standard errors, without asking how many chains count."""

    def plain(self):
        return self.value - 2 * self.error, self.value + 2 * self.error

    monkeypatch.setattr(annealing.LogNormaliser, "interval", property(plain))
    heavy = 3 * torch.randn(400 * 40, generator=Generator().manual_seed(0), dtype=torch.float64)
    assert covered(heavy - 4.5, 400)[0] < binom.ppf(1e-3, 400, 0.95)


@pytest.mark.parametrize("shape", [(3, 3), (4, 6), (7, 5)])
@pytest.mark.parametrize("coupling", [0.05, 0.22, 0.4])
def test_the_formula_of_the_torus_equals_transfer_matrices(shape, coupling):
    bias = torch.zeros(shape[0] * shape[1]).double()
    known = float(exact_log_z(shape, coupling, bias, True))
    assert float(torus(shape, coupling)) == pytest.approx(known, abs=1e-10)


def test_the_formula_of_the_torus_at_its_critical_coupling():
    """50 x 50 sites; Kaufman's value, from shared tables."""
    model = lw.critical_lattice((50, 50))
    value, mean = model.log_z_and_mean()
    assert float(value) == pytest.approx(2324.878440, abs=1e-5)
    assert (mean == 0.5).all()


WORDS = ["task=log_z", "model=sherrington_kirkpatrick", "model.dim=10", "sampler=gwg"]


@pytest.mark.parametrize(
    ("estimator", "engine"),
    [
        ("tempering", "eager"),
        pytest.param("tempering", "fused", marks=pytest.mark.slow),
        ("smc", "eager"),
        ("ais", "eager"),
    ],
)
def test_a_run_estimates_log_z(estimator, engine, tmp_path, request):
    if engine == "fused":  # compiled ladders: test_tempered.py
        request.getfixturevalue("uncompiled")
    words = ["budget.chains=20", "budget.steps=600", "budget.every=300", f"engine={engine}"]
    words += [f"task.estimator={estimator}", "task.runs=5"]
    assert command_line(*WORDS, *words, outputs=tmp_path) == 0
    (record,) = load_all(tmp_path)
    found = record.document
    assert found["log_z_low"] <= found["log_z_exact"]
    assert found["log_z_high"] is None or found["log_z_exact"] <= found["log_z_high"]
    assert abs(found["log_z"] - found["log_z_exact"]) < 1
    least = 20 * 600 * (5 if estimator == "tempering" else 1)  # evaluations; five levels at least
    assert least <= found["evaluations"] < 20 * least
    row = normalisers([record]).iloc[0]
    assert float(row["log Z"]) == pytest.approx(found["log_z"], abs=1e-3)
    assert (row["plain"] == "yes") == (found["log_z_high"] is not None)
    assert (row["at least (Markov)"] == "") == (estimator == "tempering")
    if estimator == "tempering":
        barrier, walk = ladders([record]).figure.axes
        (stairs,) = (patch for patch in barrier.patches if hasattr(patch, "get_data"))
        values, edges, _ = stairs.get_data()
        assert values @ np.diff(edges) == pytest.approx(found["barrier"])
        assert len(walk.lines) == 3  # of five replicas
    else:
        with pytest.raises(LookupError, match="no record holds ladders"):
            ladders([record])


# Values that fall along a chain of 20 sites: 21 of 2^20 states are possible.
FALLING = lw.Factors([((i, i + 1), [[0.0, -math.inf], [0.1, 0.2]]) for i in range(19)])
WITH_ZEROS = [name for name in TARGETS if TARGETS[name].model.soften() is not None]


@pytest.mark.parametrize("estimator", ["ais", "smc"])
@pytest.mark.parametrize("name", [*WITH_ZEROS, "falling"])
def test_the_tasks_soften_zeros_along_the_path(name, estimator, tmp_path):
    """As tempering does; chains from impossible states count."""
    model = FALLING if name == "falling" else TARGETS[name].model
    settings = {"run": Run(tmp_path), "budget": Budget(200, 300, 300), "path": lw.GeometricPath}
    log_z_task.log_z(
        model=model, sampler=lw.Gibbs(), data=None, estimator=estimator, runs=10, **settings
    )
    notes, truth = settings["run"].notes, float(lw.exact(model).log_z)
    assert abs(notes["log_z"] - truth) < max(5 * notes["log_z_error"], 1e-5)
    assert notes["log_z_low"] <= truth + 1e-5


def test_task_ais_softens_zeros_too(tmp_path):
    run = Run(tmp_path)
    ais.ais(
        model=FALLING, sampler=lw.GibbsSweep(), data=None, run=run, budget=Budget(200, 300, 300),
        path=lw.GeometricPath, betas=linear, back=0,
    )  # fmt: skip
    truth = float(lw.exact(FALLING).log_z)
    assert abs(run.notes["log_z"] - truth) < 5 * run.notes["log_z_error"]
    assert run.notes["ess"] > 20
    hard, rng = lw.GeometricPath(FALLING), Generator().manual_seed(0)  # control
    with pytest.raises(ValueError, match="all of 200 draws from beta = 0 are impossible"):
        anneal(lw.Gibbs(), hard, hard.draw(200, rng), linear(300), rng)


def test_the_evaluations_count_learning(tmp_path):
    """By eager and compiled ladders alike, up to the length of the learned schedule."""
    words = ["task=log_z", "model=ising", "model.shape=[4,4]", "sampler=gibbs_sweep"]
    words += ["budget.chains=6", "budget.steps=200", "budget.every=100"]
    assert command_line(*words, "engine=eager,compiled", "--multirun", outputs=tmp_path) == 0
    eager, compiled = (
        next(r.document for r in load_all(tmp_path) if r.document["engine"] == engine)
        for engine in ("eager", "compiled")
    )
    share = compiled["evaluations"] * eager["levels"] / eager["evaluations"] / compiled["levels"]
    assert 0.8 < share < 1.25


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task.estimator=smc", "task.runs=3", "budget.chains=4"], "task.runs must be 2 or more"),
        (["task.estimator=ais", "budget.chains=1"], "budget.chains must be 2 or more"),
        (["task.estimator=ais", "sampler=dula"], "needs a kernel that leaves its target"),
        (["sampler=tempered", "sampler.schedule=[0.5,1]"], "schedule must begin with 0"),
    ],
)
def test_bad_settings(words, message, tmp_path, capsys):
    assert command_line("scale=smoke", *WORDS, *words, outputs=tmp_path) == 1
    assert message in " ".join(capsys.readouterr().out.split())
