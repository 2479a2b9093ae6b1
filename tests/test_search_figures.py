"""The figures of a search are drawn from its trials in the record, by Optuna's own studies."""

import numpy as np
import pytest
from fakes import fake

from latticework.experiments.figures.search import history, importance

SPACE = {
    "step_size": {"low": 0.01, "high": 1.0, "log": True},
    "flips": {"low": 1, "high": 9},
    "scan": {"choices": ["random", "systematic"]},
}


def searched(value, *, sampler="dmala", goal=None, direction="minimize", seed=0):
    """A search of 30 trials whose objective is `value` of its fields."""
    rng = np.random.default_rng(seed)
    fields = {
        "step_size": np.exp(rng.uniform(np.log(0.01), 0, 30)),
        "flips": rng.integers(1, 10, 30),
        "scan": rng.integers(0, 2, 30),
    }
    metrics = {"step": range(30), "value": value(**fields), **fields}
    return fake(
        metrics,
        sampler=sampler,
        seed=seed,
        config={"task": {"search": {sampler: SPACE}, "goal": goal}},
        tuning={"direction": direction, "objective": "log_rmse"},
    )


def curves(figure):
    """The lines of the best so far."""
    return [line.get_ydata() for line in figure.axes[0].lines if line.get_label()[0] != "_"]


@pytest.mark.parametrize(("direction", "best"), [("minimize", np.min), ("maximize", np.max)])
def test_the_history_ends_at_the_best_trial(direction, best):
    record = searched(lambda step_size, **_: step_size, direction=direction)
    (curve,) = curves(history([record]))
    values = record.metrics["value"]
    assert curve[0] == values[0]
    assert curve[-1] == best(values)


@pytest.mark.parametrize("field", SPACE)
def test_the_field_that_decides_has_nearly_all_of_the_variance(field):
    record = searched(lambda **fields: np.log(fields[field] + 1.0))
    (ax,) = importance([record]).axes
    shares = dict(
        zip(
            [label.get_text() for label in ax.get_yticklabels()],
            [bar.get_width() for bar in ax.patches],
            strict=True,
        )
    )
    assert set(shares) == set(SPACE)
    assert shares[field] > 0.8


def test_trials_without_a_value_are_left_out_and_the_others_keep_their_numbers():
    lost = np.isin(np.arange(30), (1, 2))
    record = searched(lambda step_size, **_: np.where(lost, np.nan, step_size))
    figure = history([record])
    for line in figure.axes[0].lines:
        assert list(line.get_xdata()) == [1, *range(4, 31)]
    (curve,) = curves(figure)
    assert curve[-1] == record.metrics["value"].min()
    assert len(importance([record]).axes) == 1
