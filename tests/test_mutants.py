"""The list of mutants fits the code: each text is found once, each test exists.

Whether the tests fail is what `make mutants` says.
"""

import re
from multiprocessing import get_context
from types import SimpleNamespace

import pytest

from latticework.scripts.mutants import ROOT, Mutant, Outcome, load, outcome_of, write

MUTANTS = load()
COVERED = [
    *(ROOT / "samplers").glob("*.py"),
    *(ROOT / "models").glob("*.py"),
    *(ROOT / "experiments" / "claims").glob("*.py"),
    *(ROOT / "experiments" / "measures").glob("*.py"),
    ROOT / "experiments" / "learning" / "negatives.py",
    ROOT / "experiments" / "sampling" / "adaptation.py",
    ROOT / "experiments" / "sampling" / "annealing.py",
    ROOT / "experiments" / "sampling" / "cycle.py",
    ROOT / "experiments" / "sampling" / "starts.py",
    ROOT / "experiments" / "tasks" / "ais.py",
    ROOT / "experiments" / "tasks" / "isl.py",
    ROOT / "data" / "base.py",
    ROOT / "data" / "grey.py",
    ROOT / "data" / "splits.py",
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_and_names_tests_that_exist(mutant):
    text = (ROOT / mutant.file).read_text()
    assert mutant.applied(text) != text
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        function = re.match(r"\w+", name)
        assert function, f"{test}: name a test function, so that the run stays short"
        assert f"def {function[0]}(" in (ROOT / file).read_text(), test


def test_names_are_distinct_and_every_file_has_a_mutant():
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 70
    files = {file.relative_to(ROOT).as_posix() for file in COVERED if file.stat().st_size}
    assert sorted(files - {mutant.file for mutant in MUTANTS}) == []


def test_a_text_that_is_not_there_once_is_an_error():
    mutant = Mutant("some", "some.py", "a = 1", "a = 2", ("tests/test_some.py::test_some",))
    assert mutant.applied("a = 1\n") == "a = 2\n"
    for text in ("b = 1\n", "a = 1\na = 1\n"):
        with pytest.raises(ValueError, match=r"find 'a = 1' once in some\.py, found it [02] times"):
            mutant.applied(text)


@pytest.mark.parametrize(
    ("raised", "when", "expected"),
    [
        (AssertionError(), "call", "killed (test_it)"),
        (pytest.fail.Exception("DID NOT RAISE"), "call", "killed (test_it)"),
        (ZeroDivisionError(), "call", "killed by ZeroDivisionError (test_it)"),
        (AssertionError(), "setup", "broken: setup of test_it failed (AssertionError)"),
        (pytest.skip.Exception("not here"), "call", ""),
        (None, "call", ""),
    ],
)
def test_how_a_test_failed_is_told_apart(raised, when, expected):
    outcome, item = Outcome(), SimpleNamespace(name="test_it")
    info = (
        None if raised is None else pytest.ExceptionInfo.from_exc_info((type(raised), raised, None))
    )
    outcome.pytest_runtest_makereport(item, SimpleNamespace(excinfo=info, when=when))
    assert outcome.text == expected
    assert outcome.ran == (when == "call" and not isinstance(raised, pytest.skip.Exception))
    outcome.pytest_collectreport(SimpleNamespace(failed=True, nodeid="test_it.py"))
    assert outcome.text == (expected or "broken: test_it.py cannot be collected")


IN_THE_COPY = """
import subprocess, sys

def test_it():
    import latticework.only_there
    assert latticework.only_there.VALUE == 1

def test_a_command():
    command = [sys.executable, "-c", "import latticework.only_there"]
    assert subprocess.run(command).returncode == 0
"""


def test_the_copy_is_imported_in_place_of_this_checkout(tmp_path):
    """An import that the mutant breaks fails, in the test and in a command that it starts."""
    tree = tmp_path / "latticework"
    (tree / "tests").mkdir(parents=True)
    (tree / "__init__.py").touch()
    (tree / "tests" / "test_copy.py").write_text(IN_THE_COPY)

    def outcome(text, test):
        write(tree / "only_there.py", text)
        return outcome_of(tree, [f"tests/test_copy.py::{test}"], get_context("forkserver"))

    assert outcome("VALUE = 1\n", "test_it") == "survived"
    assert outcome("VALUE = 1\n", "test_a_command") == "survived"
    assert outcome("VALUE = 2\n", "test_it").startswith("killed (")
    missing = "import latticework.nothing_of_that_name\n"
    assert outcome(missing, "test_it").startswith("killed by ModuleNotFoundError")
    assert outcome(missing, "test_a_command").startswith("killed (")
    elsewhere = tree.rename(tmp_path / "another_name")
    assert outcome_of(elsewhere, ["tests"], get_context("forkserver")).startswith("broken: ")
