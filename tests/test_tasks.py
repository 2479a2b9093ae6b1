"""Tasks are read by whoever adds one: no function of theirs is long."""

import ast
from pathlib import Path

import pytest

TASKS = Path(__file__).resolve().parent.parent / "experiments" / "tasks"
LONGEST = 59  # lines of a function, with its signature and docstring


def lengths(source):
    """The lines of each function, by name."""
    return {
        node.name: node.end_lineno - node.lineno + 1
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


@pytest.mark.parametrize("file", sorted(TASKS.glob("*.py")), ids=lambda file: file.stem)
def test_no_function_of_a_task_is_long(file):
    found = lengths(file.read_text())
    assert {name: count for name, count in found.items() if count > LONGEST} == {}


def test_lines_are_counted():
    """Control: a function of LONGEST + 1 lines is found."""
    assert lengths("def f():\n" + "    pass\n" * LONGEST) == {"f": LONGEST + 1}
