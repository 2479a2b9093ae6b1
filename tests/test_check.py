"""`latticework check`: right samplers pass, and each wrong one fails the check that is about it."""

import json
import re
import sys

import numpy as np
import pytest
import torch
from documented import ROOT, blocks
from exactness import dula

import latticework.run
from latticework.models.base import Function
from latticework.models.domain import Binary, Categorical, Ordinal
from latticework.samplers.base import Info, Sampler, State, metropolis
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.gwg import GWG
from latticework.samplers.langevin import DMALA, DULA
from latticework.samplers.locally_balanced import LocallyBalanced
from latticework.samplers.path_auxiliary import PAFS
from latticework.sampling.checking.examination import (
    LATER,
    SETTLING,
    Examination,
    deviation,
    visible,
)
from latticework.sampling.checking.suite import CHECKS, decisions_of, examine
from latticework.sampling.checking.targets import SMALL, Target
from latticework.scripts import check

HEAD = """
from dataclasses import dataclass
import numpy as np
import torch
from latticework.models.domain import Binary
from latticework.samplers.base import Info, Sampler, State, metropolis, require_domain

@dataclass(frozen=True)
class Mine(Sampler):
    memory = ()
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
    "overwrites x": (
        WALK + "        new, info = metropolis(state, new, ratio, rng)\n"
        "        state.x.copy_(new.x)\n"
        "        return new._replace(x=state.x), info",
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
        {"all states reached", "many sites"},
    ),
    "leaves the domain": (
        "        x = state.x + 0.5\n        return self.at(x, model), Info(torch.ones(len(x)))",
        {"valid states", "invariance"},
    ),
    "a bug": ("        return state.y", {"invariance", "valid states"}),
    "a scale that adapts for ever": (
        WALK
        + """        scale = state.grad[:, 0]
        lazy = torch.rand(len(ratio), generator=rng) > scale.sigmoid()
        moved, info = metropolis(state, new, ratio.masked_fill(lazy, -torch.inf), rng)
        scale = scale + 0.05 * (info.accept_prob - 0.3)
        return moved._replace(grad=scale.unsqueeze(1).expand_as(state.grad).clone()), info""",
        {"cached values"},
    ),
    "another law from step 12 on": (
        WALK
        + """        late = state.grad[:, 0] >= 12
        moved, info = metropolis(state, new, ratio.masked_fill(late, 0), rng)
        return moved._replace(grad=state.grad + 1), info""",
        {"many sites"},
    ),
    "wrong above eight sites": (
        WALK
        + """        ratio = ratio * (model.domain.dim <= 8)
        return metropolis(state, new, ratio, rng)""",
        {"many sites"},
    ),
    "wrong below eight chains": (
        WALK
        + """        ratio = ratio * (len(ratio) >= 8)
        return metropolis(state, new, ratio, rng)""",
        {"one chain"},
    ),
    "enters states of probability 0": (
        WALK
        + """        ratio = ratio.nan_to_num(neginf=0, nan=-torch.inf)
        return metropolis(state, new, ratio, rng)""",
        {"impossible states"},
    ),
    "accepts NaN": (
        WALK
        + """        refused = torch.rand(len(ratio), generator=rng) > ratio.exp()
        x = torch.where(refused.unsqueeze(1), state.x, new.x)
        return self.at(x, model), Info(ratio.exp().clamp(max=1).nan_to_num(0))""",
        {"impossible states"},
    ),
}
DECLARED = "another law from step 12 on"  # its memory is declared; without it, it cannot hide
ALSO = {"one chain", "many sites", "impossible states"}  # a wrong law may show there too
RIGHT = WALK + "        return metropolis(state, new, ratio, rng)"


def written(folder, body, memory="()"):
    head = HEAD.replace("memory = ()", f"memory = {memory}")
    (folder / "mine.py").write_text(head + body + "\n")
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
    mine = written(tmp_path, body, '("grad",)' if fault == DECLARED else "()")
    status, _, failed = outcomes(capsys, tmp_path, mine, "--domain", "binary")
    assert status == 1
    assert failed >= expected
    if len(expected) == 1:
        assert failed - (ALSO if "invariance" in expected else set()) == expected


@pytest.mark.parametrize(
    ("memory", "told"),
    [
        ("()", "state.grad is off by 10 from that of state.x; what must follow the past"),
        ('("clock",)', "memory names clock, which no state has"),
    ],
)
def test_memory_is_declared(memory, told, tmp_path, capsys):
    """A counter of steps, which may change the law at any later time."""
    body, _ = WRONG[DECLARED]
    mine = written(tmp_path, body, memory)
    _, page, failed = outcomes(capsys, tmp_path, mine, "--domain", "binary")
    assert "cached values" in failed
    assert told in " ".join(page.split())


@pytest.mark.parametrize("name", SMALL)
def test_sites_of_many_values(name):
    """Six on finite domains, and at least three whose probabilities are comparable."""
    target = SMALL[name]()
    sites = target.z.reshape(len(target.z), target.domain.dim, -1)
    for site in sites.swapaxes(0, 1):
        values, place = np.unique(site, axis=0, return_inverse=True)
        assert len(values) == 2 or (np.bincount(place.ravel(), target.law) > 0.05).sum() >= 3
    assert not isinstance(target.domain, Categorical | Ordinal) or target.domain.num_values == 6


class Once(Sampler):
    """Moves all chains to the first state in step 5, and forgets it in later steps."""

    memory = ("grad",)

    def at(self, x, model):
        return State(x, model.log_prob(x), torch.zeros(len(x)))

    def step(self, state, model, rng):
        moved, info = Gibbs().step(Gibbs().at(state.x, model), model, rng)
        x = torch.where((state.grad == 4).unsqueeze(1), model.domain.low, moved.x)
        return self.at(x, model)._replace(grad=state.grad + 1), info


def test_later_steps_are_counted():
    case = Examination(Once(), SMALL["binary"](), 1e-9, chains=5000)
    found = CHECKS["invariance"](case)
    assert found.status == "fails"
    assert f"after {LATER} steps" in found.detail


@pytest.mark.parametrize(
    ("times", "least", "most"), [(0.5, 0, 0.05), (1, 0.25, 0.75), (2, 0.95, 1)]
)
def test_the_power_that_is_told(times, least, most):
    """Independent draws from a law whose likeliest state is too likely."""
    target, draws, level = SMALL["binary"](), 20_000, 1e-8
    tilted = target.law.copy()
    best = tilted.argmax()
    tilted[best] *= 1 + times * visible(draws, target.law, level)
    tilted[np.arange(len(tilted)) != best] *= (1 - tilted[best]) / (1 - target.law[best])
    rng = np.random.default_rng(0)
    found = [deviation(target, rng.choice(len(tilted), draws, p=tilted), level) for _ in range(60)]
    assert least <= np.mean([bool(wrong) for wrong in found]) <= most


def test_a_right_sampler_passes(tmp_path, capsys):
    """Control: the sampler that the wrong ones are made from."""
    status, page, failed = outcomes(capsys, tmp_path, written(tmp_path, RIGHT))
    assert (status, failed) == (0, set())
    assert "everything holds, on binary, spins, rbm. Not supported: categorical" in " ".join(
        page.split()
    )
    assert "is below 1e-06" in " ".join(page.split())
    assert re.search(r"invariance [\d.]+ to [\d.]+ %, one chain \d+ to", " ".join(page.split()))


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


def test_a_sampler_by_name_on_every_domain(tmp_path, capsys):
    status, page, failed = outcomes(capsys, tmp_path, "dmala", "step_size=0.5", chains="5000")
    assert (status, failed) == (0, set())
    assert set(page.split("\n")[0].split()) == {"check", *SMALL}


def test_a_sampler_that_declares_a_bias(tmp_path, capsys):
    """DULA is said to be biased: its bias is told, and is no failure.

    It is the distance of its enumerated law from the target, whose draws it starts from.
    """
    status, page, failed = outcomes(capsys, tmp_path, "dula", "step_size=0.3", "--domain", "binary")
    assert (status, failed) == (0, set())
    target = SMALL["binary"]()
    matrix = dula(DULA(0.3), target).after[0]
    law = target.law @ np.linalg.matrix_power(matrix, SETTLING)
    bias = np.abs(law - target.law).sum() / 2
    found = {o["check"]: o for o in json.loads((tmp_path / "outcomes.json").read_text())[
        "outcomes"]["binary"]}  # fmt: skip
    assert bias > 0.1
    assert found["invariance"]["bias"] == pytest.approx(bias, abs=0.01)
    assert "invariance does not hold on binary" in page
    words = " ".join(page.split())
    assert "no failures, on binary. It declares exact = False, so a bias is no failure" in words
    assert f"with 20000 chains and seed 0: {found['invariance']['bias']:.2g} on binary." in words


LAW = """
import numpy as np
from latticework.sampling.checking.law import metropolis, one_site_proposal

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


RARE = """
import numpy as np
import torch
from latticework.sampling.checking.law import metropolis, one_site_proposal

def log_prob(x):  # two states are impossible
    values = x @ torch.tensor([0.5, -1.0, 0.3])
    return values.masked_fill(x[:, :2].sum(-1) == 2, -torch.inf)

def law(sampler, target):
    size = len(target.z)
    return metropolis(one_site_proposal(np.zeros((size, size)), target), target)

def undefined(sampler, target):
    matrix = law(sampler, target).after[0]
    matrix[~np.isfinite(target.log_prob)] = np.nan
    return matrix
"""


@pytest.mark.parametrize("law", ["law", "undefined"])
def test_impossible_states_are_no_starts(law, tmp_path, capsys):
    (tmp_path / "rare.py").write_text(RARE)
    own = ("--target", f"{tmp_path}/rare.py:log_prob", "--domain", "binary:3")
    mine = written(tmp_path, RIGHT)
    found = outcomes(capsys, tmp_path, mine, *own, "--law", f"{tmp_path}/rare.py:{law}")
    assert found[::2] == (0, set()), found[1]
    assert "law of one step     ok" in found[1]


FAULTY = """
import torch

def columns(x):
    return x.sum(-1, keepdim=True)

def noisy(x):
    return x.sum(-1) + torch.randn(len(x))

def mixing(x):
    return x.sum(-1) * x.mean()

def proper(x):
    return -x.sum(-1)
"""


@pytest.mark.parametrize(
    ("name", "domain", "match"),
    [
        ("columns", "binary:3", r"must have shape \[64\], one number a chain, got \[64, 1\]"),
        ("noisy", "binary:3", "the target is random"),
        ("mixing", "binary:3", r"of chain \d+ is .* beside some chains and .* beside others"),
        ("proper", "binary:11", "has 2048 states; give a target of at most 1024"),
        ("proper", "naturals:2", "has infinitely many states; .* --domain ordinal:SITES,VALUES"),
    ],
)
def test_a_faulty_target_is_refused(name, domain, match, tmp_path):
    (tmp_path / "target.py").write_text(FAULTY)
    with pytest.raises(ValueError, match=match):
        check.main(["gibbs", "--target", f"{tmp_path}/target.py:{name}", "--domain", domain])


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


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["mine.py"], "sampler 'mine.py' is not known"),
        (["nowhere.py:Mine"], "there is no file"),
        ([f"{ROOT}/docs/hooks.py:Mien"], "hooks.py has no Mien"),
        (["dmala", "step_size"], "'step_size' is not a setting; write key=value"),
        (["dmala", "step_size=abc"], "step_size of dmala must be a number, got 'abc'"),
        (["dmala", "stepsize=0.3"], "dmala has no setting stepsize: did you mean step_size?"),
        (["dmala", "--domain", "torus"], "--domain is one of binary, spins"),
        (["dmala", "--chains", "0"], "chains must be an integer of at least 1, got 0"),
        (["dmala", "--error", "2"], "error is a probability between 0 and 1, got 2"),
        (["dmala", "--error", "nan"], "error is a probability between 0 and 1"),
    ],
)
def test_mistakes_are_told(words, match):
    with pytest.raises(ValueError, match=match):
        check.main(words)


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

    case = Examination(Twice(), SMALL["binary"](), 1e-6, chains=20_000)
    found = {outcome.check: outcome for outcome in examine(case)}
    assert {name for name, o in found.items() if o.status == "fails"} == set()
    assert found["detailed balance"].status == "no"
    assert found["detailed balance"].flow is not None


def test_the_identity_does_not_move():
    class Still(Sampler):
        def at(self, x, model):
            return State(x, model.log_prob(x), x)

        def step(self, state, model, rng):
            return state, Info(torch.ones(len(state.x)))

    found = {
        o.check: o for o in examine(Examination(Still(), SMALL["binary"](), 1e-6, chains=20_000))
    }
    assert found["invariance"].status == "ok"
    assert found["all states reached"].status == "fails"
    assert "never changed these sites: 0, 1, 2" in found["all states reached"].detail


def reached(sampler, target):
    return CHECKS["all states reached"](Examination(sampler, target, 1e-6))


@pytest.mark.parametrize("shape", [(2,), (10,)], ids=str)
def test_states_that_no_move_connects_are_found(shape):
    """Rows of two sites that flip together: of four states, two are reached from each."""

    class Pairs(Sampler):
        def at(self, x, model):
            return State(x, model.log_prob(x), x)

        def step(self, state, model, rng):
            chosen = torch.rand(len(state.x), shape[0] - 1, generator=rng).argmax(-1, True)
            x = model.domain.move_one(model.domain.move_one(state.x, chosen), chosen + 1)
            new = self.at(x, model)
            return metropolis(state, new, new.log_prob - state.log_prob, rng)

    target = Target(Function(lambda x: x @ torch.linspace(-0.5, 0.5, shape[0]), Binary(*shape)))
    found = reached(Pairs(), target)
    assert found.status == "fails"
    odd = target.z.sum(1) % 2 == 1
    shares = {f"{target.law[part].sum():.2g}" for part in (odd, ~odd)}
    assert all(share in found.detail for share in shares)


ROUGH = torch.randn(2**8, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(
    "sampler",
    [Gibbs(), DMALA(0.1), DMALA(0.3), DMALA(torch.inf), GWG(), LocallyBalanced(), PAFS(2)],
    ids=str,
)
@pytest.mark.parametrize("slope", [0.0, 8.0])
def test_slow_chains_and_rare_states_are_no_alarm(sampler, slope):
    """Independent sites, and one mode for each random state: up to barriers of exp(-8)."""
    bits = 2.0 ** torch.arange(8)

    def log_prob(x):
        return slope * ROUGH.to(x)[(x.detach() @ bits.to(x)).long()] + x.sum(-1)

    found = reached(sampler, Target(Function(log_prob, Binary(8))))
    assert found.status in ("ok", "-"), found.detail


def test_false_alarms_are_as_rare_as_stated():
    """At level 1/100 instead of 1e-8, the counts of a right sampler fail about as often."""
    target, failed, seeds = SMALL["binary"](), 0, 120
    for seed in range(seeds):
        case = Examination(DMALA(0.5), target, 0.2 / decisions_of(target, False), None, 2000, seed)
        failed += CHECKS["invariance"](case).status == "fails"
    assert 1 <= failed < 0.2 * seeds


def test_the_documented_sampler_passes(tmp_path, capsys):
    source, *_ = blocks(ROOT / "docs" / "adding_a_sampler.md", "python")
    (tmp_path / "lazy_walk.py").write_text(source)
    status, *_ = outcomes(capsys, tmp_path, f"{tmp_path}/lazy_walk.py:LazyWalk")
    assert status == 0


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
