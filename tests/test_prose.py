"""Prose: docstrings say what they are about, and margins are written as differences."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("data", "experiments", "models", "samplers", "scripts", "tests", "tools")
FILES = sorted(
    [*ROOT.glob("*.py"), *(file for each in FOLDERS for file in ROOT.glob(f"{each}/**/*.py"))]
)
VAGUE = re.compile(r"(Of|The same)\b")  # the docstring's subject is elsewhere
NAME = r"(DULA|DMALA|GWG(-\d)?|Gibbs(-\d)?|LB-1|HB-10-1|DSVGD|R-MALA|SP|rates-\w+|\w*log\w*|ISL)"
LESS = re.compile(rf"{NAME} less {NAME}")  # "A - B" is clearer


def docstrings(tree: ast.Module) -> Iterator[str]:
    """The docstrings of the module, and of its classes and functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def vague(source: str) -> list[str]:
    """First lines of docstrings that begin with "Of" or "The same"."""
    found = (text.partition("\n")[0] for text in docstrings(ast.parse(source)))
    return [line for line in found if VAGUE.match(line)]


def less(source: str) -> list[str]:
    """Differences of two samplers or scores that are written with "less"."""
    return [match[0] for match in LESS.finditer(source)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_docstrings_name_their_subject(file):
    assert vague(file.read_text()) == []


@pytest.mark.parametrize("folder", ["experiments/claims", "experiments/report"])
def test_margins_are_differences(folder):
    files = [f for f in (ROOT / folder).rglob("*") if f.suffix in (".py", ".yaml", ".jinja", ".md")]
    assert files
    assert {file.name: found for file in files if (found := less(file.read_text()))} == {}


def test_faults_are_found():
    """Control: both checks detect what they forbid, and nothing else."""
    assert vague('def f():\n    """Of each chain."""') == ["Of each chain."]
    assert vague('class A:\n    """The same\n\n    for B."""') == ["The same"]
    assert vague('"""Often, the same."""') == []
    assert less('"log RMSE, GWG-1 less DMALA"') == ["GWG-1 less DMALA"]
    assert less('"DMALA takes less time than Gibbs"') == []
