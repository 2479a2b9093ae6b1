"""Mutants: what the operators make of a few lines, and which of them tests notice."""

import ast

import pytest

from workshop.mutants import ROOT, chosen_tests, mutants, outcomes


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a + b", "a - b"),
        ("a += b", "a -= b; pass"),
        ("a < b <= c", "a <= b <= c; a < b < c"),
        ("a == b or c", "a != b or c; a == b and c"),
        ("-a[0]", "a[0]; -a[1]"),
        ("a.b = True", "a.b = False; pass"),
        ("b = a if c else d", "b = a if not c else d"),
        ("[a for a in b if c]", "[a for a in b if not c]"),
        ("a.add_(b, alpha=c)", "pass; a.sub_(b, alpha=c); a.add_(b)"),
        ("b = min(a.neg(), c)", "b = max(a.neg(), c); b = min(a, c)"),
        ("b = torch.where(a, b, c)", "b = torch.where(a, c, b)"),
        ("raise ValueError(f'{a + 1} or ' + b)", "pass"),
        ("@kernel(1)\ndef f(a: 1 | 2 = b) -> 1 | 2:\n    '''One.'''", ""),
        ("a: int | None = f(cache=True)\nlog.warning(a + b)", ""),
    ],
)
def test_operators(source, expected):
    found = [ast.unparse(ast.parse(text)) for _, text in mutants(source)]
    wanted = [ast.unparse(ast.parse(text)) for text in expected.split("; ") if text]
    assert sorted(found) == sorted(wanted)


@pytest.mark.slow
def test_a_mistake_survives_where_no_test_notices_it(tmp_path):
    """The copy is imported in place of this checkout, so the first mistake is noticed."""
    root = tmp_path / "checkout"
    file, test = root / "src/latticework/sums.py", root / "tests/test_sums.py"
    file.parent.mkdir(parents=True)
    test.parent.mkdir()
    source = "def noticed(a, b): return a + b\ndef other(a, b): return a * b\n"
    file.write_text(source)
    file.with_name("__init__.py").touch()
    test.write_text("from latticework.sums import *\ndef test_it(): assert noticed(1, 2) == 3")
    killed, survived = outcomes(file, root, mutants(source))
    assert killed.startswith("src/latticework/sums.py:1:27: a + b -> a - b: killed: 1 failed")
    assert survived == "src/latticework/sums.py:2:25: a * b -> a / b: survived"
    assert file.read_text() == source


def test_the_choice_of_tests():
    assert chosen_tests(ROOT / "models/constant_columns.py", ROOT) == ["tests/test_products.py"]
    *files, _, names = chosen_tests(ROOT / "samplers/langevin.py", ROOT)
    assert {"tests/test_kernels.py", "tests/test_start.py"} <= set(files)
    assert {"DMALA", "test_start"} <= set(names.split(" or "))
    assert "tests/test_extended.py" in chosen_tests(ROOT / "samplers/dhams.py", ROOT)  # lw.DHAMS
