"""Commands that run nothing: --version, --help, tab completion; and misplaced flags."""

import platform
import shlex
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hydra.plugins.completion_plugin import CompletionPlugin

ROOT = Path(__file__).resolve().parents[2]
# Folders of conf that hold no options.
HELPERS = ("data/base", "experiment/parts", "target/parts", "tuned")
NOT_GIVEN = ("also", "figures", "published", "scales", "tables")  # keys that experiments set
COMMANDS = ("check", "race", "trace", "why")  # scripts that are also `latticework NAME ...`
FLAGS = {"-m": "--multirun", "--multirun": "--multirun", "-r": "--run", "--run": "--run"}


def answered(words: Sequence[str]) -> bool:
    """Answer --version, and make completion list what a user may give; whether there is no more.

    Raises SystemExit for a flag between overrides, which Hydra cannot read.
    """
    if "--version" in words:
        print(versions())
        return True
    if meant := in_order(words):
        raise SystemExit(f"flags stand before or after all overrides: {program()} {meant}")
    if {"-sc", "--shell-completion"} & set(words):
        CompletionPlugin._query = _listed  # type: ignore
    return False


def program() -> str:
    """How the user started this program."""
    name = Path(sys.argv[0]).name
    return f"python {name}" if name.endswith(".py") else name


def versions() -> str:
    """The versions of Latticework, PyTorch and Python, in a line each."""
    try:
        own = version("latticework")
    except PackageNotFoundError:  # a checkout that is not installed
        own = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    parts = {"Latticework": own, "PyTorch": version("torch"), "Python": platform.python_version()}
    return "\n".join(f"{name} {number}" for name, number in parts.items())


def in_order(words: Sequence[str]) -> str:
    """The words with the flag before the overrides, if it stands between two; else ""."""
    for place, word in enumerate(words):
        before, after = words[:place], words[place + 1 :]
        if word in FLAGS and any(map(_is_override, before)) and any(map(_is_override, after)):
            return shlex.join([FLAGS[word], *before, *after])
    return ""


def _is_override(word: str) -> bool:
    return "=" in word and not word.startswith("-")


def is_helper(group: str) -> bool:
    """Whether a group of conf is for the files of other groups, and not for a command."""
    return any(group == helper or group.startswith(f"{helper}/") for helper in HELPERS)


_query = CompletionPlugin._query


def _listed(plugin: CompletionPlugin, config_name: str | None, line: str) -> list[str]:
    """Hydra's completions, without helpers; groups that hold helpers complete to their options."""
    found = set()
    for match in _query(plugin, config_name, line):
        name = match.lstrip("+~").rstrip("=/.")
        if is_helper(name) or name.partition(".")[0] in NOT_GIVEN:
            continue
        holds = any(helper.startswith(f"{name}/") for helper in HELPERS)
        found.add(f"{match}=" if holds and match[-1] not in "=/" and match[0] != "~" else match)
    return sorted(found)
