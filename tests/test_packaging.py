"""What is installed is pinned, and the Makefile says what it does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from latticework.experiments.papers.exhibits import catalogue

ROOT = Path(__file__).resolve().parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
NAMED = [Requirement(text) for text in sum(EXTRAS.values(), PROJECT["dependencies"])]
PINS = {
    canonicalize_name(pin.name): pin
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
    for pin in [Requirement(line)]
}


@pytest.mark.parametrize("needed", NAMED, ids=str)
def test_every_dependency_is_pinned_to_a_version_it_allows(needed: Requirement) -> None:
    (pin,) = PINS[canonicalize_name(needed.name)].specifier
    assert needed.specifier.contains(pin.version, prereleases=True)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("filelock", "3.13.4"),  # FileLock has no `blocking`, which shared searches need
        ("transformers", "4.57.1"),  # BERT reads its mask on the host in each step
        ("transformers", "5.0.0"),  # wrong energies of a loaded BERT, given embeddings
    ],
)
def test_versions_that_fail_are_not_allowed(name: str, version: str) -> None:
    (needed,) = (one for one in NAMED if canonicalize_name(one.name) == name)
    assert not needed.specifier.contains(version)


def test_constraints_are_exact_versions_and_nothing_else() -> None:
    for name, pin in PINS.items():
        assert re.fullmatch(r"==\d[\w.]*", str(pin.specifier)), name  # no local label, no range
        assert pin.url is None, name
        assert not pin.extras, name
    assert str(PINS["torch"].specifier) == "==2.13.0"


def _rules() -> set[str]:
    """Targets that have a recipe, without the files they make."""
    heads = re.findall(r"^([a-z][a-z0-9% -]*):.*\n\t", MAKEFILE, re.MULTILINE)
    return {target for head in heads for target in head.split()}


def test_make_help_lists_every_target() -> None:
    if not (make := shutil.which("make")):
        pytest.skip("make is not installed")
    shown = subprocess.run(
        [make, "-C", str(ROOT), "help"], capture_output=True, text=True, check=True
    ).stdout
    listed = {
        word
        for line in re.findall(r"^  make (.*?)  +\S", shown, re.MULTILINE)
        for word in line.split()
    }
    assert {"demo", "test", "lint", "fig%", "quick", "report"} <= listed
    assert listed == _rules()


def test_make_has_a_rule_for_every_exhibit() -> None:
    patterns = [re.escape(rule).replace("%", ".+") for rule in _rules()]
    for exhibit in catalogue().exhibits:
        assert any(re.fullmatch(pattern, exhibit.name) for pattern in patterns), exhibit.name


def test_run_py_says_what_to_install() -> None:
    """Without the packages that it needs."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    alone = [sys.executable, "-I", "-S", str(ROOT / "run.py")]
    done = subprocess.run(alone, capture_output=True, text=True, env=kept)
    assert done.returncode == 1
    assert "hydra, which Latticework needs, is not installed" in done.stderr
    assert "pip install -e . -c constraints.txt" in done.stderr
    assert "Traceback" not in done.stderr


def test_run_py_uses_its_own_files_beside_another_checkout(tmp_path: Path) -> None:
    """Another `latticework` comes first on the path, also of processes that a run starts."""
    other = tmp_path / "latticework"
    other.mkdir()
    (other / "__init__.py").write_text("raise ImportError('the wrong one')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    script = """
import runpy, subprocess, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    assert not end.code, end.code
import latticework
print(latticework.__file__, flush=True)
subprocess.run([sys.executable, "-c", "import latticework; print(latticework.__file__)"])
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(ROOT / "run.py"), "--version"],
        capture_output=True, text=True, env=environment, cwd=ROOT,
    )  # fmt: skip
    folders = [Path(line).parent for line in done.stdout.splitlines()[-2:]]
    assert folders == [ROOT / "src" / "latticework"] * 2, done.stderr
