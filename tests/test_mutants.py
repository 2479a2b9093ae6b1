"""The list of mutants fits the code: each text is found once, each test exists.

Whether the tests fail is what `make mutants` says.
"""

import re
from types import SimpleNamespace

import pytest

from scripts.mutants import ROOT, Mutant, Outcome, load

MUTANTS = load()
COVERED = [
    *(ROOT / "samplers").glob("*.py"),
    *(ROOT / "models").glob("*.py"),
    *(ROOT / "experiments" / "claims").glob("*.py"),
    *(
        ROOT / "experiments" / f"{name}.py"
        for name in (
            "ais", "diagnostics", "exact", "isl", "metrics", "mmd", "negatives", "predictive",
            "starts", "stationary", "text_metrics", "truth", "validation",
        )
    ),
    ROOT / "data" / "base.py",
    ROOT / "data" / "grey.py",
    ROOT / "data" / "splits.py",
]  # fmt: skip


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
