"""Long runs of `latticework.sample`: blocks, Ctrl-C, until and budget, `continue_`."""

import pickle
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from long_run_models import POTTS, RING, same_run

import latticework as lw
from latticework.samplers import NAMES
from latticework.samplers.compiled.lattice_values import evaluate_lattice
from latticework.sampling import progress, sampling_run
from latticework.sampling.targets import why_unsupported

pytestmark = pytest.mark.filterwarnings("ignore::latticework.sampling.sample.ConvergenceWarning")
RBM = lw.RBM(visible=12, hidden=3)
PATH = lw.Graph([[i, i + 1] for i in range(11)], 0.2)


def names_for(model):
    return [
        name for name in NAMES if not why_unsupported(lw.sampling.naming.parse_sampler(name), model)
    ]


# Blocks and `continue_`.


@pytest.mark.parametrize("model", [PATH, RBM, POTTS], ids=["graph", "rbm", "potts"])
def test_chains_of_every_sampler_go_on_where_they_are(model):
    """The first result keeps its draws, and goes on twice in the same way."""
    names = names_for(model)
    assert len(names) > 10
    for name in names:
        settings = {"chains": 3, "burn_in": 2, "thin": 2, "diagnose": False}
        long = lw.sample(model, name, steps=24, **settings)
        short = lw.sample(model, name, steps=10, **settings)
        first = short.draws.clone()
        for _ in range(2):
            same_run(short.continue_(8).continue_(6), long)
        assert torch.equal(short.draws, first), name


@pytest.mark.parametrize("engine", ["compiled", "fused"])
@pytest.mark.parametrize("temper", [False, True])
def test_chains_of_every_engine_go_on_where_they_are(engine, temper, request):
    model = lw.DenseIsing(torch.full((6, 6), 0.1).fill_diagonal_(0))
    if engine == "fused":
        request.getfixturevalue("uncompiled")
    settings = {"engine": engine, "temper": temper, "thin": 3, "burn_in": 5, "diagnose": False}
    steps = 60 if temper else 3 * 540  # more than a block of draws
    long = lw.sample(model, "dmala", steps=steps, **settings)
    same_run(lw.sample(model, "dmala", steps=21, **settings).continue_(steps - 21), long)


@pytest.mark.parametrize("thin", [1, 3, 12])
@pytest.mark.parametrize(
    "model", [lw.Lattice((5, 7), 0.2, 0.1), RING, POTTS], ids=["lattice", "graph", "potts"]
)
def test_a_call_of_a_kernel_that_makes_many_draws_changes_no_number(model, thin):
    """A budget of evaluations is looked at after every draw, so calls make one draw each."""
    settings = {"engine": "compiled", "thin": thin, "burn_in": 4 * thin, "diagnose": False}
    together = lw.sample(model, "gibbs", steps=700 * thin, chains=3, **settings)
    singly = lw.sample(model, "gibbs", steps=700 * thin, chains=3, budget="1e9e", **settings)
    assert torch.equal(together.draws, singly.draws)
    assert torch.equal(together.log_prob, singly.log_prob)
    torch.testing.assert_close(together.acceptance, singly.acceptance)
    assert together.evaluations == pytest.approx(singly.evaluations)
    states = together.draws.movedim(0, 1).flatten(0, 1)
    assert torch.equal(together.log_prob.T.flatten(), model.log_prob(states))


@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize(
    "shape", [(1,), (2,), (13,), (2, 3), (8, 9), (3, 4, 5), (2, 3, 2, 3)], ids=str
)
def test_kernels_evaluate_states_of_lattices_to_the_bit(shape, periodic):
    bias = torch.linspace(-1.1, 1.3, int(np.prod(shape))).tolist()
    model = lw.Lattice(shape, 0.1234567, bias, periodic)
    states = model.domain.uniform(40, torch.Generator().manual_seed(0))
    assert torch.equal(
        evaluate_lattice(model.form(), states.to(torch.int8)), model.log_prob(states)
    )


def test_what_cannot_go_on_says_why(tmp_path):
    result = lw.sample(RING, "gibbs", steps=20, thin=2, diagnose=False)
    result.save(tmp_path / "saved.npz")
    for other in (lw.SampleResult.load(tmp_path / "saved.npz"), pickle.loads(pickle.dumps(result))):
        assert torch.equal(other.draws, result.draws)
        with pytest.raises(ValueError, match="chains are in this process"):
            other.continue_(10)
    with pytest.raises(ValueError, match="multiple of thin, 2, got 3"):
        result.continue_(3)


def test_a_progress_line_changes_no_draw(monkeypatch, capsys):
    monkeypatch.setattr(progress, "SHOWN_AFTER", 0.0)
    monkeypatch.setattr(progress, "NOTEBOOK_EVERY", 0.0)
    shown = lw.sample(RING, "dmala", steps=50, progress=True, diagnose=False)
    line = capsys.readouterr().err
    assert "50/50" in line
    assert "steps, acceptance" in line
    assert "R-hat" in line
    assert "to go" in line
    assert "DMALA: draws take 0.0002 MB" in line  # 50 draws of 4 chains, a byte each
    same_run(shown, lw.sample(RING, "dmala", steps=50, diagnose=False))
    assert capsys.readouterr().err == ""  # not a terminal


def test_a_notebook_shows_a_line_of_its_own(monkeypatch):
    """IPython's display is called with plain text, once, and then updated."""
    texts = []

    class Handle:
        def update(self, content, raw):
            texts.append(content["text/plain"])

    def display(content, raw, display_id):
        texts.append(content["text/plain"])
        return Handle()

    class ZMQInteractiveShell:
        pass

    shell = type(sys)("IPython")
    shell.get_ipython = ZMQInteractiveShell
    shell.display = type(sys)("IPython.display")
    shell.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", shell.display)
    monkeypatch.setattr(progress, "SHOWN_AFTER", 0.0)
    monkeypatch.setattr(progress, "NOTEBOOK_EVERY", 0.0)
    lw.sample(RING, "dmala", steps=8, diagnose=False)
    assert texts[0].startswith("DMALA: ")
    assert "8 of 8 steps, acceptance" in texts[-1]


# Until and budget.


def test_a_run_goes_on_until_it_converges():
    """The verdict is asked at 50, 100, 200, ... draws; the draws are those of a longer run."""
    asked = []
    result_of = sampling_run.SamplingRun.result

    def note(run, stopped):
        asked.append(run.loop.store.draws)
        return result_of(run, stopped)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling_run.SamplingRun, "result", note)
        result = lw.sample(RING, "dmala", steps=50, until="converged", budget="10min")
    draws = result.draws.shape[1]
    assert result.converged
    assert result.stopped == ""
    assert asked == [50 * 2**k for k in range(len(asked))]
    assert asked[-1] == draws > 50
    same_run(lw.sample(RING, "dmala", steps=draws), result)
    assert not lw.sample(RING, "dmala", steps=draws // 2).converged


def test_a_budget_of_evaluations_ends_a_run():
    """Chains that cannot agree go on to the end of their budget, in every use of one."""
    x = torch.tensor([[0.0] * 6, [1.0] * 6]).repeat(2, 1)
    model = lw.Graph([[i, j] for i in range(6) for j in range(i)], 2.0)
    result = lw.sample(model, "random_walk", x=x, steps=10, until="converged", budget="3000e")
    assert not result.converged
    assert 3000 <= result.evaluations / 4 < 3002
    assert f"after {result.draws.shape[1]:,} steps" in result.stopped
    assert result.stopped in result.verdict.text
    assert "budget of 3000 evaluations" in str(result)
    short = lw.sample(model, "random_walk", x=x, steps=10**6, budget="100e", diagnose=False)
    assert 80 < short.draws.shape[1] <= 100
    more = short.continue_(10**6, budget="200e")
    assert 180 < more.draws.shape[1] <= 200
    assert torch.equal(more.draws[:, : short.draws.shape[1]], short.draws)


def test_a_budget_of_time_ends_a_run():
    began = time.monotonic()
    result = lw.sample(RING, "gibbs", steps=10**7, budget="0.5s", diagnose=False)
    assert "budget of 0.5 seconds" in result.stopped
    assert 0 < result.draws.shape[1] < 10**7
    assert time.monotonic() - began > 0.5


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"until": "converged"}, "needs a budget"),
        ({"until": "mixed", "budget": "5s"}, 'until must be "converged"'),
        ({"budget": "5 apples"}, "write 10seconds, 5min"),
        ({"until": "converged", "budget": "5s", "chains": 1}, "would never hold: a single chain"),
        ({"until": "converged", "budget": "5s", "x": torch.zeros(4, 6)}, "the starts agree"),
    ],
)
def test_goals_that_cannot_be_reached_are_refused(given, match):
    with pytest.raises(ValueError, match=match):
        lw.sample(RING, "gibbs", **given)


# Ctrl-C.

SLOW = """
import signal, sys, time, torch
import latticework as lw

# A script that a shell began in the background ignores SIGINT, and so do those that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

def log_prob(x):
    time.sleep(0.002)
    return x.sum(-1)

def tell(*words):
    print(*words, flush=True)

class Told(lw.RandomWalk):
    def step(self, state, model, rng):
        if not hasattr(Told, "steps"):
            tell("steps")
            Told.steps = True
        return super().step(state, model, rng)

{code}
"""
STOPPED = """
result = lw.sample(log_prob, Told(), sites=4, steps=10**6, diagnose=False)
more = result.continue_(10)
tell(result.draws.shape[1], more.draws.shape[1], torch.equal(more.draws[:, :-10], result.draws))
tell(result.stopped)
tell(result.verdict.text)
"""
TWICE = """
import signal
def again(x):
    if hasattr(Told, "steps") and not hasattr(Told, "sent"):
        Told.sent = True
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    return log_prob(x)
lw.sample(again, Told(), sites=4, steps=10**6, diagnose=False)
"""
RACE = """
class Long(Told):
    pass
lw.race(log_prob, [Long()], sites=4, budget="300s")
tell("went on")
"""
BURN_IN = "lw.sample(log_prob, Told(), sites=4, steps=100, burn_in=10**6)\ntell('went on')"


def interrupted(code):
    """The output and exit status of a script that gets SIGINT while it makes steps."""
    words = [sys.executable, "-W", "ignore", "-c", SLOW.format(code=code)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout.readline().strip() == "steps"
        time.sleep(0.5)
        if code is not TWICE:
            run.send_signal(signal.SIGINT)
        try:
            printed, errors = run.communicate(timeout=100)
        finally:
            run.kill()  # else leaving this block would wait for a script that nothing stops
    return printed.splitlines(), errors, run.returncode


def test_ctrl_c_returns_what_was_drawn():
    (counts, stopped, verdict), errors, status = interrupted(STOPPED)
    first, second, same = counts.split()
    assert (status, errors) == (0, "")
    assert 1 < int(first) < 10**6
    assert int(second) == int(first) + 10
    assert same == "True"
    assert stopped == f"stopped by Ctrl-C after {int(first):,} steps"
    assert verdict.endswith(stopped)


@pytest.mark.parametrize("code", [TWICE, RACE, BURN_IN], ids=["twice", "race", "burn-in"])
def test_ctrl_c_ends_what_has_no_draws_to_give(code):
    """A second one, that of a race, and one before the first draw."""
    printed, errors, status = interrupted(code)
    assert printed == []
    assert "KeyboardInterrupt" in errors
    assert status != 0
