"""`latticework check`: right samplers pass, and each wrong one fails the check that is about it."""

import json
import re
import shutil
import sys

import numpy as np
import pytest
import torch
from documented import CONF, ROOT, blocks
from exactness import dula

import latticework as lw
from latticework.experiments.runs import configuration
from latticework.models.base import Function
from latticework.models.domains import Binary, Categorical, Ordinal
from latticework.samplers import sweep
from latticework.samplers.base import Info, Sampler, State, metropolis
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.gwg import GWG
from latticework.samplers.langevin import DMALA, DULA
from latticework.samplers.locally_balanced import LocallyBalanced
from latticework.samplers.path_auxiliary import PAFS
from latticework.sampling.checking.check import run_checks
from latticework.sampling.checking.check_case import (
    SECOND_TEST_STEPS,
    SETTLING,
    CheckCase,
    deviation,
    smallest_visible_error,
)
from latticework.sampling.checking.law import metropolis_law as law_of
from latticework.sampling.checking.law import one_site_proposal
from latticework.sampling.checking.suite import CHECKS, decisions_of
from latticework.sampling.checking.targets import SMALL_TARGETS, Target
from latticework.scripts import check, command_line

HEAD = """
from dataclasses import dataclass
import numpy as np
import torch
from latticework.models.domains import Binary
from latticework.samplers.base import Info, Sampler, State, metropolis, require_domain

@dataclass(frozen=True)
class Mine(Sampler):
    memory = MEMORY

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
}
# Exact samplers that do not bear NaN, which no target may give.
NOT_BEARING = {
    "accepts NaN": """        refused = torch.rand(len(ratio), generator=rng) > ratio.exp()
        x = torch.where(refused.unsqueeze(1), state.x, new.x)
        return self.at(x, model), Info(ratio.exp().clamp(max=1).nan_to_num(0))""",
    "raises at NaN": """        if ratio.isnan().any():
            raise ArithmeticError("the target is NaN")
        return metropolis(state, new, ratio, rng)""",
}
DECLARED = "another law from step 12 on"  # its memory is declared; without it, it cannot hide
ALSO = {"one chain", "many sites", "impossible states"}  # a wrong law may show there too
RIGHT = WALK + "        return metropolis(state, new, ratio, rng)"


def mine(body, memory=()):
    """A sampler whose step has this body."""
    names = {"__name__": "of_a_user"}
    exec(HEAD.replace("MEMORY", str(memory)) + body, names)
    return names["Mine"]()


def checked(sampler, *names, law=None, target=None, chains=20_000):
    """The report, and the names of the checks that fail, on these of the small targets."""
    targets = {name: SMALL_TARGETS[name]() for name in names} if target is None else {"own": target}
    report = run_checks(sampler, targets, law=law, chains=chains, seed=0, error=1e-6)
    return report, {outcome.check for _, outcome in report.failures}


def found(report, check):
    (each,) = report.outcomes.values()
    return next(outcome for outcome in each if outcome.check == check)


def words(report):
    return " ".join(str(report).split())


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_sampler_fails(fault):
    body, expected = WRONG[fault]
    _, failed = checked(mine(body, ("grad",) if fault == DECLARED else ()), "binary")
    assert failed >= expected
    if len(expected) == 1:
        assert failed - (ALSO if "invariance" in expected else set()) == expected


@pytest.mark.parametrize("body", NOT_BEARING.values(), ids=NOT_BEARING)
def test_an_exact_sampler_need_not_bear_nan(body):
    """Impossible states are told apart from faults of a target."""
    report, failed = checked(mine(WALK + body), "binary")
    assert found(report, "impossible states").status == "ok"
    assert found(report, "unknown states").status == "no"
    assert not failed - {"no host reads"}
    assert "NaN is a fault of the target; impossible states are -inf" in words(report)


@pytest.mark.parametrize("name", ["gibbs_sweep", "metropolis_sweep", "swendsen_wang"])
def test_samplers_of_some_models_are_checked_on_such_models(name):
    report = lw.check(name, chains=20_000)
    assert report.passed, words(report)
    assert {"lattice", "graph", "potts"} <= set(report.outcomes)


def test_a_sweep_that_keeps_the_parity_of_free_sites_is_caught(monkeypatch):
    """Metropolis' rule alone, which changes both free sites of the graph in every sweep."""
    monkeypatch.setattr(sweep, "TIE_NATS", -1.0)
    report = lw.check("metropolis_sweep", chains=20_000)
    assert {outcome.check for _, outcome in report.failures} == {"all states reached"}
    assert {name for name, _ in report.failures} == {"graph"}


@pytest.mark.parametrize(
    ("memory", "told"),
    [
        ((), "state.grad is off by 10 from that of state.x; what must follow the past"),
        (("clock",), "memory names clock, which no state has"),
    ],
)
def test_memory_is_declared(memory, told):
    """A counter of steps, which may change the law at any later time."""
    report, failed = checked(mine(WRONG[DECLARED][0], memory), "binary")
    assert "cached values" in failed
    assert told in words(report)


@pytest.mark.parametrize("name", SMALL_TARGETS)
def test_sites_of_many_values(name):
    """Six on finite domains, and at least three whose probabilities are comparable."""
    target = SMALL_TARGETS[name]()
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
    case = CheckCase(Once(), SMALL_TARGETS["binary"](), 1e-9, chains=5000)
    found = CHECKS["invariance"](case)
    assert found.status == "fails"
    assert f"after {SECOND_TEST_STEPS} steps" in found.detail


@pytest.mark.parametrize(
    ("times", "least", "most"), [(0.5, 0, 0.05), (1, 0.25, 0.75), (2, 0.95, 1)]
)
def test_the_power_that_is_told(times, least, most):
    """Independent draws from a law whose likeliest state is too likely."""
    target, draws, level = SMALL_TARGETS["binary"](), 20_000, 1e-8
    tilted = target.law.copy()
    best = tilted.argmax()
    tilted[best] *= 1 + times * smallest_visible_error(draws, target.law, level)
    tilted[np.arange(len(tilted)) != best] *= (1 - tilted[best]) / (1 - target.law[best])
    rng = np.random.default_rng(0)
    found = [deviation(target, rng.choice(len(tilted), draws, p=tilted), level) for _ in range(60)]
    assert least <= np.mean([bool(wrong) for wrong in found]) <= most


def test_a_right_sampler_passes():
    """Control: the sampler that the wrong ones are made from."""
    report, failed = checked(mine(RIGHT), *SMALL_TARGETS)
    assert not failed
    page = words(report)
    assert "everything holds, on binary, spins, rbm. Not supported: categorical" in page
    assert "is below 1e-06" in page
    assert re.search(r"invariance [\d.]+ to [\d.]+ %, one chain \d+ to", page)


def test_a_sampler_in_conf_is_found_by_its_name(tmp_path, monkeypatch):
    """As `run.py sampler=mine` finds it."""
    own = shutil.copytree(CONF, tmp_path / "conf")
    (own / "sampler" / "mine.yaml").write_text("defaults: [gwg]\nflips: 3\n")
    monkeypatch.setattr(check, "CONF", own)
    monkeypatch.setattr(configuration, "CONF", own)
    assert check.find_sampler("mine", {}) == GWG(flips=3)
    assert check.find_sampler("mine", {"flips": 2}) == GWG(flips=2)
    assert check.find_sampler("gwg", {}) == GWG()


def test_the_pair_of_states_shows_the_fault():
    """The inverted ratio moves as exp(-change): both flows of the pair are known."""
    report, _ = checked(mine(WRONG["inverted ratio"][0]), "binary", chains=200_000)
    flow, target = found(report, "invariance").flow, SMALL_TARGETS["binary"]()
    x, y = target.index(torch.tensor([flow.x, flow.y]))
    assert len(target.sites_changed(x, y)) == 1
    pi = target.law

    def moved(a, b):
        return pi[a] * min(1, pi[a] / pi[b]) / 3

    assert flow.observed == pytest.approx(moved(x, y), rel=0.05)
    assert flow.expected == pytest.approx((moved(x, y) + moved(y, x)) / 2, rel=0.05)
    assert abs(flow.z) > 10


@pytest.mark.slow
def test_a_sampler_on_every_domain():
    report, failed = checked(DMALA(0.5), *SMALL_TARGETS, chains=5000)
    assert not failed
    assert set(report.outcomes) == set(SMALL_TARGETS)


def test_a_sampler_that_declares_a_bias():
    """DULA is said to be biased: its bias is reported, and is no failure.

    It is the distance of its enumerated law from the target, whose draws it starts from.
    """
    report, failed = checked(DULA(0.3), "binary")
    assert not failed
    target = SMALL_TARGETS["binary"]()
    matrix = dula(DULA(0.3), target).after[0]
    law = target.law @ np.linalg.matrix_power(matrix, SETTLING)
    bias = np.abs(law - target.law).sum() / 2
    assert bias > 0.1
    assert (measured := found(report, "invariance").bias) == pytest.approx(bias, abs=0.01)
    page = words(report)
    assert "invariance does not hold on binary" in page
    assert "no failures, on binary. It declares exact = False, so a bias is no failure" in page
    assert f"with 20000 chains and seed 0: {measured:.2g} on binary." in page


def walk_law(sampler, target):
    size = len(target.z)
    return law_of(one_site_proposal(np.zeros((size, size)), target), target)


def lazier(sampler, target):
    return 0.1 * np.eye(len(target.z)) + 0.9 * walk_law(sampler, target).after[0]


def undefined(sampler, target):
    matrix = walk_law(sampler, target).after[0]
    matrix[~np.isfinite(target.log_prob)] = np.nan
    return matrix


def rare(x):  # two states are impossible
    values = x @ torch.tensor([0.5, -1.0, 0.3])
    return values.masked_fill(x[:, :2].sum(-1) == 2, -torch.inf)


def test_the_law_of_a_step_is_compared_with_a_matrix():
    assert checked(mine(RIGHT), "binary", law=walk_law)[1] == set()
    report, failed = checked(mine(RIGHT), "binary", law=lazier)
    assert failed == {"law of one step"}
    assert "expected flow" in str(report)
    for law in (walk_law, undefined):
        report, failed = checked(mine(RIGHT), law=law, target=Target(Function(rare, Binary(3))))
        assert not failed
        assert found(report, "law of one step").status == "ok"


FAULTY = """
import torch

def mixing(x):
    return x.sum(-1) * x.mean()

def proper(x):
    return -x.sum(-1)

def steps(x):
    return (x > 0.5).float().sum(-1)
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "target.py").write_text(FAULTY)
    return f"{tmp_path}/target.py"


@pytest.mark.parametrize(
    ("name", "domain", "match"),
    [
        ("mixing", "binary:3", r"of chain \d+ is .* beside some chains and .* beside others"),
        ("proper", "binary:11", "has 2048 states; give a target of at most 1024"),
        ("proper", "naturals:2", "has infinitely many states; .* --domain ordinal:SITES,VALUES"),
    ],
)
def test_a_faulty_target_is_refused(name, domain, match, file):
    with pytest.raises(ValueError, match=match):
        check.main(["gibbs", "--target", f"{file}:{name}", "--domain", domain])


def test_the_command(file, tmp_path, capsys):
    """Settings may follow options; a target without a gradient is not supported by DMALA."""
    few = ("--chains", "2000")
    outcomes = tmp_path / "outcomes.json"
    status = check.main(
        ["dmala", "--domain", "binary", "step_size=4e-1", *few, "--json", str(outcomes)]
    )
    assert status == 0
    assert "DMALA(step_size=0.4," in capsys.readouterr().out
    assert [o["check"] for o in json.loads(outcomes.read_text())["outcomes"]["binary"]] == [*CHECKS]
    own = ("--target", f"{file}:steps", "--domain", "binary:2", *few)
    assert check.main(["dmala", *own]) == 2
    assert "cannot be differentiated" in " ".join(capsys.readouterr().out.split())
    assert check.main(["gibbs", *own]) == 0
    assert "on steps." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["mine.py"], "sampler 'mine.py' is not known"),
        (["nowhere.py:Mine"], "there is no file"),
        ([f"{ROOT}/tests/command.py:Mien"], "command.py has no Mien"),
        (["dmala", "step_size"], "'step_size' is not a setting; write key=value"),
        (["dmala", "step_size=abc"], "step_size of dmala must be a number, got 'abc'"),
        (["dmala", "stepsize=0.3"], "dmala has no setting stepsize: did you mean step_size?"),
        (["dmala", "--domain", "torus"], "--domain is one of binary, spins"),
        (["dmala", "--chains", "0"], "chains must be an integer of at least 1, got 0"),
        (["dmala", "--error", "nan"], "error is a probability between 0 and 1"),
    ],
)
def test_mistakes_are_reported(words, match):
    with pytest.raises(ValueError, match=match):
        check.main(words)


# The suite itself.


class Sweep(Sampler):
    """Every site in a fixed order in one step: exact without detailed balance."""

    def at(self, x, model):
        return Gibbs().at(x, model)

    def step(self, state, model, rng):
        for _ in range(model.domain.dim):
            state, info = Gibbs().step(state, model, rng)
        return state, info


class Still(Sampler):
    def at(self, x, model):
        return State(x, model.log_prob(x), x)

    def step(self, state, model, rng):
        return state, Info(torch.ones(len(state.x)))


def test_a_sweep_is_exact_without_detailed_balance():
    case = CheckCase(Sweep(), SMALL_TARGETS["binary"](), 1e-6, chains=20_000)
    assert CHECKS["invariance"](case).status == "ok"
    balance = CHECKS["detailed balance"](case)
    assert balance.status == "no"
    assert balance.flow is not None


def test_the_identity_does_not_move():
    report, _ = checked(Still(), "binary")
    assert found(report, "invariance").status == "ok"
    assert found(report, "all states reached").status == "fails"
    assert "never changed these sites: 0, 1, 2" in found(report, "all states reached").detail


def reached(sampler, target):
    return CHECKS["all states reached"](CheckCase(sampler, target, 1e-6))


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


@pytest.mark.slow
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
    target, failed, seeds = SMALL_TARGETS["binary"](), 0, 120
    for seed in range(seeds):
        case = CheckCase(DMALA(0.5), target, 0.2 / decisions_of(target, False), None, 2000, seed)
        failed += CHECKS["invariance"](case).status == "fails"
    assert 1 <= failed < 0.2 * seeds


def test_the_documented_sampler_passes(tmp_path):
    source, *_ = blocks(ROOT / "docs" / "adding_a_sampler.md", "python")
    (tmp_path / "lazy_walk.py").write_text(source)
    assert check.main([f"{tmp_path}/lazy_walk.py:LazyWalk", "--chains", "20000"]) == 0


def test_check_is_a_word_of_the_command_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(HEAD.replace("MEMORY", "()") + WRONG["a bug"][0] + "\n")
    few = ("--domain", "binary", "--chains", "1000")
    for status, *typed in ((0, "gibbs", *few), (1, f"{tmp_path}/mine.py:Mine", *few), (1, "gibs")):
        monkeypatch.setattr(sys, "argv", ["latticework", "check", *typed])
        with pytest.raises(SystemExit) as end:
            command_line.main()
        assert end.value.code == status
    captured = capsys.readouterr()
    page = "".join(captured.out.split())  # the console folds long paths
    assert "hasnoattribute'y'" in page
    assert "mine.py:returnstate.y)" in page
    assert "sampler 'gibs' is not known: did you mean gibbs" in captured.err
