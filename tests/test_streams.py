"""No random word of a compiled kernel is read for two purposes in a step.

A word is named by its stream and its index. The test reads the source of the kernels: in a function
two fills of one step must have two streams, and two reads of a buffer two indices. Laws on
small targets hardly show a word that is shared.
"""

import ast
from pathlib import Path

import pytest

from latticework.samplers import compiled

FOLDER = Path(compiled.__file__).parent
FILLS = ("fill", "fill_ahead", "fill_steps", "fill_lanes")
KERNELS = [
    path.stem
    for path in sorted(FOLDER.glob("*.py"))
    if path.stem != "philox" and any(f"{name}(" in path.read_text() for name in FILLS)
]


def shared(source: str) -> list[str]:
    """The streams and words that a function of `source` uses twice."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            fills = [node for node in ast.walk(function) if called(node, *FILLS)]
            streams = [ast.unparse(fill.args[-1]) for fill in fills]
            buffers = {ast.unparse(fill.args[0]).split("[")[0] for fill in fills}
            words = [
                ast.unparse(node)
                for node in ast.walk(function)
                if isinstance(node, ast.Subscript)
                and isinstance(node.ctx, ast.Load)
                and ast.unparse(node.value) in buffers
                and not isinstance(node.slice, ast.Slice)
            ]
            for names in (streams, words):
                found += [f"{function.name}: {n}" for n in sorted(set(names)) if names.count(n) > 1]
    return found


def called(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_word_is_read_twice(kernel):
    assert shared((FOLDER / f"{kernel}.py").read_text()) == []


@pytest.mark.parametrize(
    ("kernel", "old", "new"),
    [
        ("swendsen_wang", "fill(draws, keys[t], c, 1)", "fill(draws, keys[t], c, 0)"),
        ("path_auxiliary", "unit(words[1])", "unit(words[0])"),
        ("flip_lattice", "unit(words[2, now])", "unit(words[1, now])"),
    ],
)
def test_shared_words_are_found(kernel, old, new):
    """Control: mistakes of this kind."""
    source = (FOLDER / f"{kernel}.py").read_text()
    assert old in source
    assert shared(source.replace(old, new)) != []
