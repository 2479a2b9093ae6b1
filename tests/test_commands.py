"""Every command that the pages print: a shell reads it, it composes, README's run at smoke scale.

Each command goes through a shell as it is typed. What it says to run.py is composed and checked as
a run checks it. README's commands are then run in this process with `scale=smoke` and substitute
data. Words that make a run larger are left out for that.
"""

import argparse
import importlib
import platform
import re
import signal
import subprocess
import sys

import pytest
from command import command_line
from documented import CONF, PLACEHOLDERS, ROOT, Command, commands, composed, names, typed
from hydra.core.override_parser.overrides_parser import OverridesParser

import latticework.scripts.reproduce
from latticework.experiments.papers.exhibits import catalogue
from latticework.experiments.records.record import load_all
from latticework.experiments.runs import configuration
from latticework.experiments.runs.validation import validate_config

configuration.register()
EXPERIMENTS = set(names("experiment"))

# Commands that are not for this process, each with its reason.
UNTESTED = {
    r"\S*pip (install|freeze)\b.*": "installs packages; CI installs them by `make test`",
    r"pytest\b.*": "the suite itself",
    r"LATTICEWORK_SWEEP=200 python -m pytest .*": "minutes; test_faults.py runs it with 8",
    r"ray start.*": "needs Ray",
    r".*-sc install=.*": "prints a script for the shell; bash runs it below",
    r"python run.py experiment=$": "the head of a table",
}
ALL = [c for c in commands() if not any(re.fullmatch(p, c.text) for p in UNTESTED)]
# Pages on adding something name what is not there yet: test_adding.py follows them.
PYTHON = [c for c in ALL if "run.py" in c.text and not c.page.startswith("docs/adding_")]
SCRIPTS = [c for c in ALL if "python -m latticework.scripts." in c.text]
MAKE = [c for c in ALL if c.text.startswith("make ")]
# An experiment without settings: test_experiments.py runs it.
ALONE = [c for c in PYTHON if re.fullmatch(r"python run\.py experiment=\w+( scale=\w+)?", c.text)]
WITH_SETTINGS = [c for c in PYTHON if c not in ALONE and not c.text.endswith("--help")]
README = [c for c in WITH_SETTINGS if c.page == "README.md"]

# Left out of a smoke run.
LARGE = re.compile(r"scale=.*|--multirun")


def ids(command):
    return command.text.removeprefix("python ")


def words_of(command, folder):
    """The words after run.py, without flags."""
    program, script, *words = typed(command, folder)
    assert (program, script.rpartition("/")[2]) == ("python", "run.py")
    return [word for word in words if not word.startswith("--")]


def first(words):
    """The words of the first run of a sweep. Values of groups must be options."""
    found = []
    for word, override in zip(words, OverridesParser.create().parse_overrides(words), strict=True):
        key = word.partition("=")[0]
        values = list(override.sweep_string_iterator()) if override.is_sweep_override() else []
        if (CONF / key).is_dir():
            assert set(values) <= set(names(key)), word
        found.append(f"{key}={values[0]}" if values else word)
    return found


def test_commands_are_found():
    pages = {command.page for command in PYTHON}
    expected = {"README.md", "docs/scaling.md", "docs/tuning.md", "docs/reproducing.md"}
    assert pages >= expected | {"docs/results/fig4.md", "conf/experiment/tune_ising.yaml"}
    assert min(len(SCRIPTS), len(MAKE), len(README)) > 0
    for pattern in UNTESTED:
        assert any(re.fullmatch(pattern, c.text) for c in commands()), f"no command is {pattern}"
    for placeholder in PLACEHOLDERS:
        assert any(placeholder in command.text for command in ALL), placeholder


def test_commands_hold_nothing_that_only_some_shells_take():
    """Unquoted brackets and a leading ~ are patterns and names of users to zsh."""
    for command in ALL:
        text = command.text
        for placeholder, value in PLACEHOLDERS.items():
            text = text.replace(placeholder, value)
        outside = re.sub(r"'[^']*'|\"[^\"]*\"", "", text)
        assert not re.search(r"[\[\]()*?{}]| ~", outside), f"{command.page}: {command.text}"


def test_experiments_that_run_alone_exist():
    assert {re.search(r"experiment=(\w+)", c.text)[1] for c in ALONE} <= EXPERIMENTS
    assert {c.text.partition("scale=")[2] for c in ALONE} <= {"", "cpu", "quick", "smoke"}


@pytest.mark.slow
@pytest.mark.parametrize("command", WITH_SETTINGS, ids=ids)
def test_a_command_composes(command, tmp_path):
    validate_config(composed(*first(words_of(command, tmp_path))))


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("command", README, ids=ids)
def test_a_command_runs_at_smoke_scale(command, tmp_path, capfd):
    words = [word for word in first(words_of(command, tmp_path)) if not LARGE.fullmatch(word)]
    words.append("scale=smoke")
    data = composed(*words).data or {}
    local = {"root": "null", "download": "false"}
    given = [f"data.{key}={value}" for key, value in local.items() if key in data]
    assert command_line(*words, *given, outputs=tmp_path / "outputs") == 0, capfd.readouterr()
    assert load_all(tmp_path / "outputs")


class ParsedError(Exception):
    """Raised after a script has parsed its words, before it does any work."""


def read(module, words, monkeypatch):
    """Have `python -m latticework.scripts.<module>` read its words, and no more."""
    if module == "figures":
        validate_config(composed(*words))
        return
    parse = argparse.ArgumentParser.parse_args

    def parsed(parser, given):
        parse(parser, given)
        raise ParsedError

    main = importlib.import_module(f"latticework.scripts.{module}").main
    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parsed)
        with pytest.raises(ParsedError):
            main(words)
    if module == "reproduce":
        exhibits = [
            word for word in words if "=" not in word and word not in ("--scale", words[-1])
        ]
        made = latticework.scripts.reproduce.list_commands(catalogue(), exhibits, "smoke", [])
        assert {w.removeprefix("experiment=") for w, *_ in made} <= EXPERIMENTS
        assert made


@pytest.mark.parametrize("command", SCRIPTS, ids=ids)
def test_a_script_reads_its_words(command, tmp_path, monkeypatch):
    _, _, module, *words = typed(command, tmp_path)
    read(module.removeprefix("latticework.scripts."), words, monkeypatch)


@pytest.mark.parametrize("command", MAKE, ids=ids)
def test_a_make_target_runs_what_there_is(command, tmp_path, monkeypatch):
    """Print the recipe without running it, as if .venv existed."""
    made = ("-o", ".venv/.installed", "-o", ".venv/.installed-dev")
    recipe = subprocess.run(
        [*typed(command, tmp_path)[:1], "-n", *made, *typed(command, tmp_path)[1:]],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert recipe.returncode == 0, recipe.stderr
    lines = [line for line in recipe.stdout.splitlines() if ".venv/bin/" in line]
    assert lines or command.text.endswith(("help", "..."))
    for line in lines:
        if found := re.match(r".venv/bin/(python .*)", line):
            _, *words = typed(Command(found[1], "Makefile"), tmp_path)
            if words[0] == "run.py":
                validate_config(composed(*words[1:]))
            elif words[1].startswith("latticework.scripts."):
                read(words[1].removeprefix("latticework.scripts."), words[2:], monkeypatch)


@pytest.fixture
def printed(monkeypatch, tmp_path, capsys):
    """A function that runs a command and returns what it prints."""
    monkeypatch.setattr("command.QUIET", ())

    def run(*words):
        assert command_line(*words, outputs=tmp_path) == 0
        assert not list(tmp_path.iterdir())
        return capsys.readouterr().out

    return run


def test_the_version_is_latticeworks_pytorchs_and_pythons(printed):
    lines = [line.split() for line in printed("--version").splitlines()]
    assert [name for name, _ in lines] == ["Latticework", "PyTorch", "Python"]
    assert lines[2][1] == platform.python_version()


def test_the_help_lists_what_a_user_may_set_and_no_helpers(printed):
    text = printed("--help")
    places = [text.index(f"\n  {name:5}  ") for name in ("check", "race", "trace")]
    assert sorted(places) == places
    groups = text.index("Groups (group=option)")
    assert places[-1] < groups
    for key in ("scale", "seed", "device", "threads", "budget.chains", "budget.steps"):
        assert f"{key}=" in text, key
    for group in ("data", "experiment", "logger", "model", "sampler", "task"):
        assert set(names(group)) <= set(text.replace(",", " ").split()), group
    for helper in configuration.HIDDEN_GROUPS:
        assert (CONF / helper).is_dir(), f"{helper} is no folder of conf"
        assert f"{helper} " not in text[groups:]


def test_help_whose_reader_ends_early_ends_quietly():
    """As in `latticework --help | head`."""
    command = [sys.executable, str(ROOT / "run.py"), "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 128 + signal.SIGPIPE


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_an_experiment_is_described_by_a_sentence_of_one_line(name):
    line = configuration.first_comment(CONF / "experiment" / f"{name}.yaml")
    assert re.fullmatch(r"\w.{,98}[.?]", line), line


def test_bash_completes_a_command(tmp_path):
    """The script that `-sc install=bash` prints, in bash, with the command in a folder of PATH."""
    run = f"import sys; sys.argv[0] = 'latticework'; sys.path.insert(0, {str(ROOT / 'src')!r}); "
    start = "from latticework.scripts.command_line import main; main()"
    program = tmp_path / "latticework"
    program.write_text(f"#!{sys.executable}\n{run}{start}\n")
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
