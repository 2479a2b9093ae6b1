"""The profile of a step names its operations, with shares of the whole time."""

import pytest

from workshop import profile_step


def test_shares_are_of_the_operations_of_one_step():
    words = ["model=learned_ising", "model.shape=[3,3]", "sampler=dmala"]
    rows = profile_step.shares(words, chains=4, steps=5)
    calls = {name: count for name, count, _ in rows}
    assert calls["addmm"] == 1  # DMALA evaluates a gradient a step
    assert calls["sigmoid"] == 1
    found = [share for _, _, share in rows]
    assert sum(found) == pytest.approx(1)
    assert found == sorted(found, reverse=True)


def test_the_table_ends_with_the_products():
    rows = [("sigmoid", 2.0, 0.5), ("addmm", 1.0, 0.25), ("bmm", 1.0, 0.15), ("cat", 1.0, 0.1)]
    lines = profile_step.shares_table(rows, shown=1).splitlines()
    assert lines[2:] == ["| `sigmoid` | 2 | 50.0% |", "| all products and convolutions | | 40.0% |"]


def test_the_tables_of_a_page_are_measured_again():
    words = "--chains 3 --steps 2 --shown 2 model=ising sampler=dmala"
    page = f"before\n\n<!-- profile: {words} -->\nold\n<!-- /profile -->\n\nafter\n"
    found = profile_step.measure_page(page)
    assert found.startswith(f"before\n\n<!-- profile: {words} -->\n\n| operation |")
    assert found.endswith("|\n\n<!-- /profile -->\n\nafter\n")
    assert "old" not in found
