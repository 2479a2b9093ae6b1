"""`latticework.fit`: models learned from rows, as the tasks learn them; its early end, its file."""

import copy
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from fit_models import DATA, GIBBS, STARTS, STRIPES, rated_rbm, rbm, rows_of
from targets import TARGETS
from torch.optim import SGD, Adam

import latticework as lw
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.buffer_learning import Learning
from latticework.experiments.tasks.target import train
from latticework.sampling.learning import held_out
from latticework.sampling.learning.negatives import FastPersistent, Herding, Persistent
from latticework.sampling.learning.updates import DivergedError
from latticework.sampling.starts import data_mean

QUICK = {"epochs": 30, "batch": 20, "learning_rate": 0.02, "stop": None}
NETWORK = {"epochs": 40, "batch": 100, "sampler": lw.DMALA(0.4)}


def log_likelihood(model, x):
    """The mean over rows, with log Z by enumeration."""
    every = model.domain.enumerate()
    return float(model(x).double().mean() - model(every).double().logsumexp(0))


# Learning.


SLOW = pytest.param("network", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [*(name for name in STARTS if name != "network"), SLOW])
@pytest.mark.parametrize("negatives", ["pcd", "cd", "fpcd"])
def test_the_likelihood_of_every_model_rises(name, negatives):
    model, x = STARTS[name](), STRIPES.float()
    before, parameters = log_likelihood(model, x), copy.deepcopy(model.state_dict())
    settings = {**QUICK, **(NETWORK if name == "network" else {})}
    result = lw.fit(model, STRIPES, negatives, **settings)
    assert log_likelihood(result.model, x) > max(before, -8 * np.log(2)) + 0.5
    for key, tensor in model.state_dict().items():  # the given model stays as it is
        torch.testing.assert_close(tensor, parameters[key], rtol=0, atol=0, equal_nan=True)
    assert not result.model.untrained
    assert result.updates == settings["epochs"] * 300 // settings["batch"]
    assert lw.sample(result.model, "gibbs", steps=10, diagnose=False).draws.shape == (4, 10, 8)


OTHERS = ["graph_potts", "dense_potts", "network", "tables", "ragged"]


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("negatives", ["pcd", "cd", "fpcd"])
def test_models_of_other_domains_learn_their_own_law(name, negatives):
    """From parameters 0 to those of the truth, up to the noise of the rows."""
    truth = TARGETS[name].model
    x, model = rows_of(truth), copy.deepcopy(truth)
    for parameter in model.parameters():
        parameter.data.zero_()
    start = log_likelihood(model, x)
    stop = None if name == "ragged" else "pseudolikelihood"
    settings = {"epochs": 60, "batch": 50, "learning_rate": 0.05, "linear_decay": True}
    learned = lw.fit(model, x, negatives, stop=stop, sampler="gibbs", **settings).model
    gained = log_likelihood(learned, x) - start
    assert gained > 0.7 * (log_likelihood(truth, x) - start)


def test_closed_forms_hold_after_learning():
    """Couplings stay symmetric without a diagonal, which the rows of forms rely on."""
    dense = lw.fit(STARTS["dense ising"](), STRIPES, **QUICK).model
    assert dense.coupling.diag().abs().max() == 0
    assert torch.equal(dense.coupling, dense.coupling.T)
    truth = TARGETS["dense_potts"].model
    potts = lw.fit(truth, rows_of(truth), **QUICK).model
    lw.DensePotts(potts.coupling, 3, potts.bias)  # which refuses any other coupling


def test_herding_learns_the_moments_of_the_data():
    result = lw.fit(rbm(), STRIPES, "herding", optimiser=SGD, **QUICK | {"learning_rate": 0.1})
    assert result.negatives == "herding"
    assert result.model.weight.abs().max() > 0.1


def test_a_rated_rbm_gets_the_rates_of_the_data():
    model = lw.fit(rated_rbm(), STRIPES, **QUICK).model
    state = model.state_dict()
    changed = {
        key for key, value in rated_rbm().state_dict().items() if not torch.equal(value, state[key])
    }
    assert "weight" in changed
    assert len(changed) > 3  # rates too
    lw.sample(model, "rates_fpcd", steps=10, burn_in=1, diagnose=False)


# The tasks' own learning.


@pytest.mark.parametrize("decay", [False, True])
@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("pcd", Persistent(GIBBS, 20)),
        ("fpcd", FastPersistent(GIBBS, 20)),
        ("herding", Herding(20)),
    ],
)
def test_an_rbm_is_learned_as_the_task_learns_it(tmp_path, name, source, decay):
    model = rbm()
    settings = {"batch": 20, "learning_rate": 0.05, "linear_decay": decay}
    run = Run(tmp_path, seed=1, model_seed=7)
    for _ in train(model, DATA, run, source, updates=30, visible_bias="data", **settings):
        pass
    for negatives in (name, source):
        result = lw.fit(
            rbm(), DATA, negatives, epochs=3, particles=20, stop=None, seed=7, **settings
        )
        for key, tensor in model.state_dict().items():
            assert torch.equal(tensor, result.model.state_dict()[key])
    other = lw.fit(rbm(), DATA, name, epochs=3, particles=20, stop=None, seed=8, **settings)
    assert not torch.equal(other.model.weight, model.weight)  # control


@pytest.mark.parametrize("name", ["learned ising", "graph", "network"])
@pytest.mark.parametrize("buffer", [20, 50])
def test_a_network_is_learned_as_the_task_learns_it(tmp_path, monkeypatch, name, buffer):
    """With the random numbers of the other task; 20 chains are a batch, 50 a replay buffer."""
    streams = {"negatives": "training"}
    monkeypatch.setattr(
        Run,
        "rng",
        lambda run, purpose, device=None: run.shared_rng(streams.get(purpose, purpose), device),
    )
    run, model, sampler = Run(tmp_path, model_seed=3), STARTS[name](), lw.DMALA(0.3)
    model.start_from_data(DATA.mean)
    learning = Learning(
        model, sampler, DATA, run, iterations=20, steps=4, batch=20, l1=0.0,
        largest_gradient=float("inf"), largest_loss=float("inf"),
        stepper=Adam(model.parameters(), lr=0.01), schedule=None, ema=None,
        chains=data_mean(model, buffer, run.rng("start"), DATA),
    )  # fmt: skip
    for iteration in range(1, 21):
        learning.learn(iteration)
    result = lw.fit(
        STARTS[name](), DATA, sampler=sampler, steps=4, epochs=2, batch=20, particles=buffer,
        learning_rate=0.01, stop=None, seed=3,
    )  # fmt: skip
    for key, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, result.model.state_dict()[key], rtol=1e-6, atol=1e-7)


# The end.


def test_learning_ends_where_held_out_rows_are_not_explained_better():
    """Few rows are learned by heart; the result has the parameters of the best reading."""
    few, settings = STRIPES[:12], {"batch": 6, "learning_rate": 0.1, "patience": 3}
    result = lw.fit(rbm(hidden=30), few, epochs=400, held_out=STRIPES[100:], **settings)
    scores = [reading.score for reading in result.history]
    best = int(np.argmax(scores))
    assert len(scores) == best + 4 < 400
    assert result.best == result.history[best]
    assert result.stopped == f"stopped: no better score for 3 epochs after epoch {best}"
    again = lw.fit(rbm(hidden=30), few, epochs=best, held_out=STRIPES[100:], **settings)
    assert torch.equal(again.model.weight, result.model.weight)
    assert again.history == result.history[: best + 1]
    assert not again.stopped


@pytest.mark.parametrize("name", ["rbm", "graph", "network"])
@pytest.mark.parametrize("stop", ["pseudolikelihood", "ais"])
def test_scores_are_those_of_enumeration(name, stop):
    model, x = STARTS[name](), STRIPES
    result = lw.fit(model, x[:250], stop=stop, held_out=x[250:], epochs=1 + 2 * (name != "network"),
                    batch=20, learning_rate=0.02, steps=2)  # fmt: skip
    rows, learned = x[250:].float(), result.model
    if stop == "ais":
        truth, allowed = log_likelihood(learned, rows), 0.05
    else:
        flipped = (rows.unsqueeze(1) - torch.eye(8)).abs()
        change = learned(flipped.flatten(0, 1)).view(len(rows), 8) - learned(rows).unsqueeze(1)
        truth, allowed = float(-torch.log1p(change.exp()).sum(1).mean()), 1e-4
    assert result.best.score == pytest.approx(truth, abs=allowed)


def test_ais_of_many_values_is_the_likelihood():
    truth = TARGETS["graph_potts"].model
    x = rows_of(truth)
    result = lw.fit(truth, x[:300], stop="ais", held_out=x[300:], epochs=2, sampler="gibbs")
    assert result.best.score == pytest.approx(log_likelihood(result.model, x[300:]), abs=0.05)


def test_costly_models_are_scored_at_some_sites(monkeypatch):
    """All sites of the same law tell the same, so few of them scale up to the sum."""
    monkeypatch.setattr(held_out, "COSTLY_SITES_READ", 3)
    flat = lw.ResNet((2, 4), 3, 2)
    for parameter in flat.parameters():
        parameter.zero_()
    flat.untrained = False
    result = lw.fit(flat, STRIPES, epochs=1, optimiser=partial(SGD, weight_decay=0.0),
                    learning_rate=1e-9)  # fmt: skip
    assert result.history[0].score == pytest.approx(-8 * np.log(2), rel=1e-5)


STOPPED = """
import signal, torch
import latticework as lw

# A script that a shell began in the background ignores SIGINT, and so do those that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

class Sent(lw.BlockGibbs):
    count = 0
    def step(self, state, model, rng):
        Sent.count += 1
        for _ in range({signals} * (Sent.count == 7)):
            signal.raise_signal(signal.SIGINT)
        return super().step(state, model, rng)

torch.manual_seed(0)
rows = torch.randint(2, (100, 6))
result = lw.fit(lw.RBM(6, 3), rows, sampler=Sent(), epochs=10**6, batch=10)
print(result.updates, result.stopped, len(result.history), sep="|")
"""


def run_interrupted(signals):
    words = [sys.executable, "-W", "ignore", "-c", STOPPED.format(signals=signals)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=100)


def test_ctrl_c_returns_what_was_learned():
    done = run_interrupted(1)
    assert done.stdout == "7|stopped by Ctrl-C after 7 updates|2\n"
    assert done.stderr == ""


def test_a_second_ctrl_c_ends_the_program():
    done = run_interrupted(2)
    assert "KeyboardInterrupt" in done.stderr
    assert done.stdout == ""


def test_progress_is_shown_and_changes_no_number(capsys, monkeypatch):
    monkeypatch.setattr("latticework.sampling.progress.SHOWN_AFTER", 0)
    monkeypatch.setattr("latticework.sampling.progress.NOTEBOOK_EVERY", 0)
    shown = lw.fit(rbm(), STRIPES, epochs=2, progress=True)
    printed = capsys.readouterr().err
    assert "RBM" in printed
    assert "updates, held-out rows -" in printed
    hidden = lw.fit(rbm(), STRIPES, epochs=2)
    assert capsys.readouterr().err == ""
    assert torch.equal(shown.model.weight, hidden.model.weight)


def test_a_loss_that_is_not_finite_is_refused():
    with pytest.raises(DivergedError, match="take a smaller learning_rate"):
        lw.fit(rbm(), STRIPES, optimiser=SGD, learning_rate=1e38, epochs=50, stop=None)
