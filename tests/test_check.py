"""`latticework check`: right samplers pass, and each wrong one fails the check that is about it."""

import json
import sys

import numpy as np
import pytest
import torch
from documented import ROOT, blocks

import latticework.run
from latticework.experiments.exactness.counting import tails
from latticework.experiments.exactness.suite import CHECKS, Examination, decisions_of
from latticework.experiments.exactness.targets import SMALL, Target
from latticework.models.base import Function
from latticework.models.domain import Binary
from latticework.samplers.base import Info, Sampler, State
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.langevin import DMALA
from latticework.scripts import check

HEAD = """
from dataclasses import dataclass
import numpy as np
import torch
from latticework.models.domain import Binary
from latticework.samplers.base import Info, Sampler, State, metropolis, require_domain

@dataclass(frozen=True)
class Mine(Sampler):
    laziness: float = 0.0

    def at(self, x, model):
        require_domain(self, model, Binary)
        return State(x, model.log_prob(x), torch.zeros_like(x))

    def step(self, state, model, rng):
"""
WALK = """
        index = torch.randint(model.domain.dim, (len(state.x), 1), generator=rng)
        new = self.at(model.domain.move_one(state.x, index), model)
        ratio = new.log_prob - state.log_prob
"""
# The body of `step`, by what is wrong with it, and the checks that must fail.
WRONG = {
    "inverted ratio": (WALK + "        return metropolis(state, new, -ratio, rng)", {"invariance"}),
    "no reverse proposal": (
        """
        gains = model.differences(state.x, (), torch.arange(model.domain.dim))
        probs = (gains / 2).softmax(-1)
        index = (probs.cumsum(-1) < torch.rand(len(probs), 1, generator=rng)).sum(-1, True)
        new = self.at(model.domain.move_one(state.x, index.clamp(max=probs.shape[1] - 1)), model)
        return metropolis(state, new, new.log_prob - state.log_prob, rng)""",
        {"invariance"},
    ),
    "accepts always": (
        WALK + "        return new, Info(torch.ones_like(ratio))",
        {"invariance"},
    ),
    "overwrites x": (
        WALK + "        new, info = metropolis(state, new, ratio, rng)\n"
        "        state.x.copy_(new.x)\n"
        "        return new._replace(x=state.x), info",
        {"states not aliased"},
    ),
    "keeps the old state": (
        WALK + "        old = self.__dict__.get('old', state)\n"
        "        self.__dict__['old'] = state\n"
        "        ratio = ratio + 0 * old.log_prob\n"
        "        return metropolis(state, new, ratio, rng)",
        {"states not aliased"},
    ),
    "memory on self": (
        WALK + "        count = self.__dict__.get('count', 0)\n"
        "        self.__dict__['count'] = count + 1\n"
        "        lazy = -torch.inf if count % 4 == 3 else 0.0\n"
        "        return metropolis(state, new, ratio + lazy, rng)",
        {"resumes exactly"},
    ),
    "host read": (
        WALK + "        if ratio.max().item() > 9:\n"
        "            ratio = ratio * 1\n"
        "        return metropolis(state, new, ratio, rng)",
        {"no host reads"},
    ),
    "global generator": (
        WALK + "        ratio = ratio + 0 * torch.rand(())\n"
        "        return metropolis(state, new, ratio, rng)",
        {"chance from rng"},
    ),
    "a frozen site": (
        WALK.replace("model.domain.dim", "model.domain.dim - 1")
        + "        return metropolis(state, new, ratio, rng)",
        {"every site moves"},
    ),
    "leaves the domain": (
        "        x = state.x + 0.5\n        return self.at(x, model), Info(torch.ones(len(x)))",
        {"valid states", "invariance"},
    ),
    "stale log_prob": (
        WALK + "        new, info = metropolis(state, new, ratio, rng)\n"
        "        return new._replace(log_prob=state.log_prob), info",
        {"cached values", "invariance"},
    ),
    "a bug": ("        return state.y", {"invariance", "valid states"}),
}
RIGHT = WALK + "        return metropolis(state, new, ratio, rng)"


def written(folder, body):
    (folder / "mine.py").write_text(HEAD + body + "\n")
    return f"{folder / 'mine.py'}:Mine"


def outcomes(capsys, folder, *words, chains="20000"):
    """The exit status, the printed page, and the names of the checks that fail."""
    file = folder / "outcomes.json"
    status = check.main([*words, "--chains", chains, "--json", str(file)])
    content = json.loads(file.read_text())["outcomes"]
    failed = {o["check"] for each in content.values() for o in each if o["status"] == "fails"}
    return status, capsys.readouterr().out, failed


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_sampler_fails(fault, tmp_path, capsys):
    body, expected = WRONG[fault]
    status, _, failed = outcomes(capsys, tmp_path, written(tmp_path, body), "--domain", "binary")
    assert status == 1
    assert failed >= expected
    if len(expected) == 1:
        assert failed == expected


def test_a_right_sampler_passes(tmp_path, capsys):
    """Control: the sampler that the wrong ones are made from."""
    status, page, failed = outcomes(capsys, tmp_path, written(tmp_path, RIGHT))
    assert (status, failed) == (0, set())
    assert "everything holds, on binary, spins, rbm. Not supported: categorical" in " ".join(
        page.split()
    )
    assert "is below 1e-06" in " ".join(page.split())


def test_the_pair_of_states_shows_the_fault(tmp_path, capsys):
    """The inverted ratio moves as exp(-change): both flows of the pair are known."""
    body, _ = WRONG["inverted ratio"]
    file = tmp_path / "outcomes.json"
    check.main([written(tmp_path, body), "--domain", "binary", "--json", str(file)])
    capsys.readouterr()
    found = {o["check"]: o for o in json.loads(file.read_text())["outcomes"]["binary"]}
    flow, target = found["invariance"]["flow"], SMALL["binary"]()
    x, y = target.index(torch.tensor([flow["x"], flow["y"]]))
    assert len(target.sites_changed(x, y)) == 1
    pi = target.law

    def moved(a, b):
        return pi[a] * min(1, pi[a] / pi[b]) / 3

    assert flow["observed"] == pytest.approx(moved(x, y), rel=0.05)
    assert flow["expected"] == pytest.approx((moved(x, y) + moved(y, x)) / 2, rel=0.05)
    assert abs(flow["z"]) > 10


def test_settings_reach_the_sampler(tmp_path, capsys):
    mine = written(tmp_path, RIGHT)
    _, page, _ = outcomes(capsys, tmp_path, mine, "laziness=0.5", "--domain", "binary")
    assert "Mine(laziness=0.5)" in page


def test_a_sampler_by_name_on_every_domain(tmp_path, capsys):
    status, page, failed = outcomes(capsys, tmp_path, "dmala", "step_size=0.5", chains="5000")
    assert (status, failed) == (0, set())
    assert set(page.split("\n")[0].split()) == {"check", *SMALL}


def test_a_sampler_that_declares_a_bias(tmp_path, capsys):
    """DULA is said to be biased: its bias is told, and is no failure."""
    status, page, failed = outcomes(capsys, tmp_path, "dula", "step_size=4", "--domain", "binary")
    assert (status, failed) == (0, set())
    assert "invariance does not hold on binary" in page
    assert "declares exact = False" in page


LAW = """
import numpy as np
from latticework.experiments.exactness.law import metropolis, one_site_proposal

def law(sampler, target):
    size = len(target.z)
    return metropolis(one_site_proposal(np.zeros((size, size)), target), target)

def lazier(sampler, target):
    return 0.1 * np.eye(len(target.z)) + 0.9 * law(sampler, target).after[0]
"""


def test_the_law_of_a_step_is_compared_with_a_matrix(tmp_path, capsys):
    (tmp_path / "law.py").write_text(LAW)
    mine = (written(tmp_path, RIGHT), "--domain", "binary")
    right = outcomes(capsys, tmp_path, *mine, "--law", f"{tmp_path}/law.py:law")
    assert right[::2] == (0, set())
    status, page, failed = outcomes(capsys, tmp_path, *mine, "--law", f"{tmp_path}/law.py:lazier")
    assert (status, failed) == (1, {"law of one step"})
    assert "expected flow" in page


def test_a_target_of_the_users_own(tmp_path, capsys):
    (tmp_path / "target.py").write_text(
        "import torch\n"
        "def log_prob(x):\n"
        "    return x @ torch.tensor([0.5, -1.0]) + x[:, 0] * x[:, 1]\n"
    )
    own = ("--target", f"{tmp_path}/target.py:log_prob", "--domain", "spins:2")
    status, page, _ = outcomes(capsys, tmp_path, "gwg", *own)
    assert status == 0
    assert "on log_prob." in page
    own = ("--target", f"{tmp_path}/target.py:log_prob", "--domain", "binary:11")
    with pytest.raises(ValueError, match="has 2048 states; give a target of at most 1024"):
        check.main(["gwg", *own])


def test_settings_may_follow_options(tmp_path, capsys):
    words = ("--domain", "binary", "step_size=4e-1", "--chains", "2000")
    _, page, _ = outcomes(capsys, tmp_path, "dmala", *words)
    assert "DMALA(step_size=0.4," in page


def test_a_target_without_a_gradient_is_not_supported(tmp_path, capsys):
    (tmp_path / "target.py").write_text("def f(x):\n    return (x > 0.5).float().sum(-1)\n")
    words = ("--target", f"{tmp_path}/target.py:f", "--domain", "binary:2", "--chains", "2000")
    assert check.main(["dmala", *words]) == 2
    assert "cannot be differentiated" in " ".join(capsys.readouterr().out.split())
    assert check.main(["gibbs", *words]) == 0


def test_nothing_to_check(capsys):
    assert check.main(["stochastic_dula"]) == 2
    assert "supports none of the targets" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["mine.py"], "sampler 'mine.py' is not known"),
        (["nowhere.py:Mine"], "there is no file"),
        (["dmala", "step_size"], "'step_size' is not a setting; write key=value"),
        (["dmala", "--domain", "torus"], "--domain is one of binary, spins"),
    ],
)
def test_mistakes_are_told(words, match):
    with pytest.raises(ValueError, match=match):
        check.main(words)


def test_a_name_that_is_not_in_the_file(tmp_path):
    with pytest.raises(ValueError, match="has no Mien: did you mean Mine"):
        check.main([written(tmp_path, RIGHT).replace("Mine", "Mien")])


# The suite itself.


def test_a_sweep_is_exact_without_detailed_balance():
    """Two sites in a fixed order in one step: reported, and no failure."""

    class Twice(Sampler):
        def at(self, x, model):
            return Gibbs().at(x, model)

        def step(self, state, model, rng):
            for _ in range(model.domain.dim):
                state, info = Gibbs().step(state, model, rng)
            return state, info

    case = Examination(Twice(), SMALL["binary"](), 1e-6)
    found = {outcome.check: outcome for outcome in case.outcomes()}
    assert {name for name, o in found.items() if o.status == "fails"} == set()
    assert found["detailed balance"].status == "no"
    assert found["detailed balance"].flow is not None


def test_the_identity_does_not_move():
    class Still(Sampler):
        def at(self, x, model):
            return State(x, model.log_prob(x), x)

        def step(self, state, model, rng):
            return state, Info(torch.ones(len(state.x)))

    found = {o.check: o for o in Examination(Still(), SMALL["binary"](), 1e-6).outcomes()}
    assert found["invariance"].status == "ok"
    assert found["every site moves"].status == "fails"


def test_false_alarms_are_as_rare_as_stated():
    """At level 1/100 instead of 1e-8, the counts of a right sampler fail about as often."""
    target, failed, seeds = SMALL["binary"](), 0, 120
    for seed in range(seeds):
        case = Examination(DMALA(0.5), target, 0.2 / decisions_of(target, False), None, 2000, seed)
        failed += CHECKS["invariance"](case, "").status == "fails"
    assert 1 <= failed < 0.2 * seeds


def test_tails_are_the_smaller_of_both_sides():

    found = tails(np.array([0, 5, 10]), 10, np.array([0.5, 0.5, 0.5]))
    assert found[0] == found[2] == pytest.approx(2**-10)
    assert found[1] > 0.5


@pytest.mark.parametrize("name", SMALL)
def test_states_are_located(name):
    target = SMALL[name]()
    order = torch.randperm(len(target.states), generator=torch.Generator().manual_seed(0))
    assert (target.locate(target.states[order]) == order.numpy()).all()
    outside = torch.stack(
        (target.states[1] + 0.5, target.states[1] - 30, target.states[1] * 0 + 30)
    )
    assert (target.locate(outside) == -1).all()
    with pytest.raises(AssertionError, match="not a listed state"):
        target.index(outside)


def test_states_of_any_two_values_are_located():
    target = Target(Function(lambda x: x.sum(-1), Binary(3, 0.1, 0.7)))
    assert (target.locate(target.states) == np.arange(8)).all()
    assert (target.locate(target.states + 0.6) == -1).all()


def test_the_documented_sampler_passes(tmp_path, capsys):
    source, _, _ = blocks(ROOT / "docs" / "adding_a_sampler.md", "python")
    (tmp_path / "lazy_walk.py").write_text(source)
    status, *_ = outcomes(capsys, tmp_path, f"{tmp_path}/lazy_walk.py:LazyWalk")
    assert status == 0


def test_samplers_of_one_family_are_checked_on_its_model(tmp_path, capsys):
    status, page, _ = outcomes(capsys, tmp_path, "block_gibbs")
    assert status == 0
    assert "on rbm." in page


# The command line.


def typed(monkeypatch, *words):
    """The exit status of `latticework <words>`."""
    monkeypatch.setattr(sys, "argv", ["latticework", *words])
    with pytest.raises(SystemExit) as end:
        latticework.run.main()
    return end.value.code


def test_check_is_a_word_of_the_command_line(tmp_path, monkeypatch, capsys):
    body, _ = WRONG["a bug"]
    few = ("--domain", "binary", "--chains", "1000")
    assert typed(monkeypatch, "check", "gibbs", *few) == 0
    assert typed(monkeypatch, "check", written(tmp_path, body), *few) == 1
    assert "has no attribute 'y'" in " ".join(capsys.readouterr().out.split())
    assert typed(monkeypatch, "check", "gibs") == 1
    assert "sampler 'gibs' is not known: did you mean gibbs" in capsys.readouterr().err
