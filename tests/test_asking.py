"""What a user asks of the command: versions, help, tab completion; and commands that were meant."""

import platform
import subprocess
import sys

import pytest
import torch
from command import command_line
from documented import CONF, ROOT, names

from latticework.experiments.runs import asking
from latticework.scripts import figures


@pytest.fixture
def printed(monkeypatch, tmp_path, capsys):
    """A function that runs a command, with no words beside its own, and returns what it prints."""
    monkeypatch.setattr("command.QUIET", ())

    def run(*words, status=0):
        assert command_line(*words, outputs=tmp_path) == status
        assert not list(tmp_path.iterdir())
        captured = capsys.readouterr()
        return captured.out + captured.err

    return run


def test_the_version_is_latticeworks_pytorchs_and_pythons(printed):
    lines = printed("--version").splitlines()
    assert [line.split()[0] for line in lines] == ["Latticework", "PyTorch", "Python"]
    assert lines[1].split()[1].startswith(torch.__version__.partition("+")[0])
    assert lines[2].split()[1] == platform.python_version()


def test_the_help_lists_what_a_user_may_set_and_no_helpers(printed):
    text = printed("--help")
    for key in ("scale", "seed", "device", "threads", "budget.chains", "budget.steps"):
        assert f"{key}=" in text, key
    for group in ("data", "experiment", "logger", "model", "sampler", "task"):
        assert names(group) <= set(text.replace(",", " ").split()), group
    for helper in asking.HELPERS:
        assert (CONF / helper).is_dir(), f"{helper} is no folder of conf"
        assert f"{helper} " not in text
        assert f"{helper}:" not in text
    assert 'eval "$(latticework -sc install=bash)"' in text


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("python run.py sampler=dma", ["sampler=dmala", "sampler=dmala_without_step_term"]),
        ("latticework sampler=dmala sampler.st", ["sampler.step_size="]),
        ("latticework +dat", ["+data="]),
        ("latticework exper", ["experiment="]),
        ("latticework tun", []),
        ("latticework data/", []),
        ("latticework scal", ["scale="]),
    ],
)
def test_completion_lists_what_can_be_given(line, found, printed, monkeypatch):
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", "0")
    monkeypatch.setattr(asking.CompletionPlugin, "_query", asking._query)  # restored afterwards
    assert printed("-sc", "query=bash").split() == found


def test_bash_completes_a_command(tmp_path):
    """The script that `-sc install=bash` prints, in bash, with the command in a folder of PATH."""
    run = f"import sys; sys.argv[0] = 'latticework'; sys.path.insert(0, {str(ROOT.parent)!r}); "
    program = tmp_path / "latticework"
    program.write_text(f"#!{sys.executable}\n{run}from latticework.run import main; main()\n")
    program.chmod(0o755)
    script = f"""
        PATH={tmp_path}:$PATH
        eval "$(latticework -sc install=bash)"
        COMP_LINE='latticework sampler=gw' COMP_CWORD=1 COMP_WORDS=(latticework sampler=gw)
        hydra_bash_completion
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.split() == ["sampler=gwg", "sampler=gwg4"], done.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["model=ising", "-m", "seed=1,2"], "--multirun model=ising seed=1,2"),
        (["a=1", "--multirun", "b=[1, 2]"], "--multirun a=1 'b=[1, 2]'"),
        (["-m", "seed=1,2"], ""),
        (["seed=1,2", "-m"], ""),
        (["-m", "seed=1", "--cfg", "job"], ""),
    ],
)
def test_a_flag_between_overrides_is_put_in_front(words, meant):
    assert asking.in_order(words) == meant


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("model=ising -m seed=1,2", "python run.py --multirun model=ising seed=1,2"),
        ("+experiment=ais scale=smoke", "python run.py scale=smoke experiment=ais"),
        ("+model=potts", "python run.py model=potts"),
        ("steps=100", "did you mean budget.steps=100?"),
        ("task.steps=100", "did you mean budget.steps=100?"),
        ("step_size=0.3", "did you mean sampler.step_size=0.3?"),
        ("seed=1,2", "python run.py --multirun seed=1,2"),
        ("logger=wandb,tensorboard", "python run.py 'logger=[wandb,tensorboard]'"),
        (
            "experiment=bias_step_size logger=wandb,tensorboard",
            "python run.py experiment=bias_step_size 'logger=[wandb,tensorboard]'",
        ),
        ("sampler.step=1", "did you mean step_size?"),  # no key anywhere: the nearest is named
    ],
)
def test_the_message_names_the_command_that_was_meant(words, meant, printed):
    text = printed(*words.split(), status=1)
    assert meant in text
    assert "Traceback" not in text


def test_the_figures_have_a_help(capsys):
    figures.main(["--help"])
    text = capsys.readouterr().out
    assert "python -m latticework.scripts.figures experiment=rbm_sampling" in text
