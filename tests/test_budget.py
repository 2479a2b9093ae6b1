"""A budget is checked once, where it is made."""

import pytest
from command import command_line

from latticework.experiments.records.budget import Budget
from latticework.experiments.records.record import load_all


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((4, 7, 3), "steps must be a multiple of every, got 7 and 3"),
        ((0, 7, 7), "chains must be positive, got 0"),
        ((4, -7, 7), "steps must be positive, got -7"),
        ((4, 7, 0), "every must be positive, got 0"),
    ],
)
def test_what_cannot_be_run_is_refused(counts, message):
    with pytest.raises(ValueError, match=message):
        Budget(*counts)


def test_the_command_line_sets_it_and_names_what_is_wrong(tmp_path, capfd):
    words = ("model.shape=[3,3]", "scale=smoke", "sampler=gibbs")
    assert command_line(*words, "budget.steps=30", "budget.chains=3", outputs=tmp_path) == 0
    (record,) = load_all(tmp_path)
    assert record.budget == Budget(chains=3, steps=30, every=10)
    assert record.arrays("last")["x"].shape == (3, 9)
    assert list(record.metrics["step"]) == [0, 10, 20, 30]
    assert command_line(*words, "budget.steps=25", outputs=tmp_path) == 1
    assert "steps must be a multiple of every, got 25 and 10" in "".join(capfd.readouterr())


def test_a_budget_that_no_task_reads_is_not_checked(tmp_path):
    """Scales may hold lists of a sweep under the name `steps`."""
    words = ("task=unlearning", "model.shape=[2,3]", "scale=smoke", "scales.smoke.steps='2,4'")
    assert command_line(*words, outputs=tmp_path) == 0
