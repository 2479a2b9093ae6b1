"""Every command that the pages print: a shell reads it, it composes, and it runs at smoke scale.

Each command goes through a shell as it is typed. What it says to run.py is composed, with every
value of a sweep, and checked as a run checks it. README's commands are then run in this process
with `scale=smoke` and substitute data. Words that make a run larger are left out for that.
"""

import argparse
import importlib
import re
import subprocess

import pytest
from command import command_line
from documented import PLACEHOLDERS, ROOT, Command, commands, typed
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import OverrideParseException

import latticework.scripts.reproduce
from latticework.experiments.config import resolvers
from latticework.experiments.config.checks import checked
from latticework.experiments.report.exhibits import catalogue
from latticework.experiments.results.record import load_all

CONF = ROOT / "conf"
resolvers.register(CONF)
EXPERIMENTS = {file.stem for file in CONF.glob("experiment/*.yaml")}

# Commands that are not for this process, each with its reason.
UNTESTED = {
    r"\S*pip (install|freeze)\b.*": "installs packages; CI installs them by `make test`",
    r"pytest\b.*": "the suite itself",
    r"LATTICEWORK_SWEEP=200 python -m pytest .*": "minutes; test_survival.py runs it with 8",
    r"ray start.*": "needs Ray",
    r".*-sc install=.*": "prints a script for the shell; test_asking.py has bash run it",
    r"python run.py experiment=$": "the head of a table",
}
ALL = [c for c in commands() if not any(re.fullmatch(p, c.text) for p in UNTESTED)]
# Pages on adding something name what is not there yet: test_adding.py follows them.
PYTHON = [c for c in ALL if "run.py" in c.text and not c.page.startswith("docs/adding_")]
SCRIPTS = [c for c in ALL if "python -m latticework.scripts." in c.text]
MAKE = [c for c in ALL if c.text.startswith("make ")]

# Left out of a smoke run: its size, and where it runs.
LARGE = re.compile(
    r"(?:scale|scales\..*|budget\..*|model\.(?:maps|blocks|hidden)|hydra/launcher|"
    r"hydra\.launcher\..*|\+?(?:task|learning)\.(?:\w*steps|iterations|every|snapshots|batch|"
    r"buffer|trials|burn_in|back))=.*"
)


def ids(command):
    return command.text.removeprefix("python ")


def words_of(command, folder):
    """The words after run.py."""
    program, script, *words = typed(command, folder)
    assert (program, script.rpartition("/")[2]) == ("python", "run.py")
    return words


def sweeps(words):
    """Expand each word that sweeps over values to one word per value."""
    found = []
    for word, override in zip(words, OverridesParser.create().parse_overrides(words), strict=True):
        key = word.partition("=")[0]
        swept = override.is_sweep_override() and list(override.sweep_string_iterator())
        found.append([f"{key}={value}" for value in swept] if swept else [word])
    return found


def composed(words):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", words, return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    return config


def test_commands_are_found():
    pages = {command.page for command in PYTHON}
    expected = {"README.md", "docs/scaling.md", "docs/tuning.md", "docs/reproducing.md"}
    assert pages >= expected | {"docs/results/README.md", "conf/experiment/tune_ising.yaml"}
    assert SCRIPTS
    assert MAKE
    for pattern in UNTESTED:
        assert any(re.fullmatch(pattern, c.text) for c in commands()), f"no command is {pattern}"
    for placeholder in PLACEHOLDERS:
        assert any(placeholder in command.text for command in ALL), placeholder


@pytest.mark.parametrize("command", ALL, ids=ids)
def test_a_command_holds_nothing_that_only_some_shells_take(command):
    """Unquoted brackets and a leading ~ are patterns and names of users to zsh."""
    text = command.text
    for placeholder, value in PLACEHOLDERS.items():
        text = text.replace(placeholder, value)
    outside = re.sub(r"'[^']*'|\"[^\"]*\"", "", text)
    assert not re.search(r"[\[\]()*?{}]| ~", outside), f"{command.page}: {command.text}"


@pytest.mark.parametrize("command", PYTHON, ids=ids)
def test_a_command_composes_with_every_value_of_its_sweeps(command, tmp_path):
    words = [w for w in words_of(command, tmp_path) if not w.startswith("--")]
    choices = sweeps(words)
    turns = max((len(c) for c in choices if not c[0].startswith("seed=")), default=1)
    for turn in range(turns):
        checked(composed([values[turn % len(values)] for values in choices]))


def smoke(command, folder):
    """The words of a small run of `command`, or nothing where test_experiments.py makes it."""
    words = [word for word in words_of(command, folder) if not LARGE.fullmatch(word)]
    alone = len(words) == 1 and words[0].removeprefix("experiment=") in EXPERIMENTS
    return [] if alone else words


def distinct():
    """README's commands whose small runs differ."""
    found = {}
    for command in PYTHON:
        if command.page != "README.md" or command.text.endswith("--help"):
            continue  # the help is run below
        try:
            words = smoke(command, ROOT / "docs")
        except (AssertionError, OverrideParseException):
            words = [command.text]  # its own test says what is wrong
        if words:
            found.setdefault(tuple(sorted(words)), command)
    return list(found.values())


@pytest.mark.parametrize("command", distinct(), ids=ids)
def test_a_command_runs_at_smoke_scale(command, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)  # study.db
    words = ["scale=smoke", *smoke(command, tmp_path)]
    first = [values[0] for values in sweeps([w for w in words if not w.startswith("--")])]
    data = composed(first).data or {}
    local = {"root": "null", "download": "false"}
    given = [f"data.{key}={value}" for key, value in local.items() if key in data]
    assert command_line(*words, *given, outputs=tmp_path / "outputs") == 0, capfd.readouterr()
    assert load_all(tmp_path / "outputs")


def test_the_help_lists_the_experiments(tmp_path, capsys):
    assert command_line("--help", outputs=tmp_path) == 0
    assert set(capsys.readouterr().out.split()) >= EXPERIMENTS


class ParsedError(Exception):
    """Raised after a script has parsed its words, before it does any work."""


def read(module, words, monkeypatch):
    """Have `python -m latticework.scripts.<module>` read its words, and no more."""
    if module == "figures":
        checked(composed(words))
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
        names = [word for word in words if "=" not in word and word not in ("--scale", words[-1])]
        made = latticework.scripts.reproduce.commands(catalogue(), names, "smoke", [])
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
                checked(composed(words[1:]))
            elif words[1].startswith("latticework.scripts."):
                read(words[1].removeprefix("latticework.scripts."), words[2:], monkeypatch)
