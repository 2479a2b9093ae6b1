"""`latticework check`: faulty targets, what is printed, mistakes on the command line."""

import json
import shutil
import sys

import pytest
from documented import CONF, ROOT, blocks
from faulty_samplers import HEAD, WRONG

from latticework.experiments.runs import configuration
from latticework.samplers.gwg import GWG
from latticework.sampling.checking.suite import CHECKS
from latticework.scripts import check, command_line


def test_a_sampler_in_conf_is_found_by_its_name(tmp_path, monkeypatch):
    """As `run.py sampler=mine` finds it."""
    own = shutil.copytree(CONF, tmp_path / "conf")
    (own / "sampler" / "mine.yaml").write_text("defaults: [gwg]\nflips: 3\n")
    monkeypatch.setattr(check, "CONF", own)
    monkeypatch.setattr(configuration, "CONF", own)
    assert check.find_sampler("mine", {}) == GWG(flips=3)
    assert check.find_sampler("mine", {"flips": 2}) == GWG(flips=2)
    assert check.find_sampler("gwg", {}) == GWG()


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
