"""Means over runs with a band of one standard deviation, in one place for all figures."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from fakes import fake, measured

from latticework.experiments.figures import band
from latticework.experiments.figures.benchmark import errors
from latticework.experiments.papers.draw import png

FIGURES = Path(band.__file__).parent


def edges(ax):
    """The x, lowest and highest values of the only band."""
    (area,) = ax.collections
    x, y = area.get_paths()[0].vertices.T
    places = np.unique(x)
    return places, *(np.array([f(y[x == place]) for place in places]) for f in (min, max))


def test_the_band_is_one_standard_deviation_over_runs():
    runs = [fake({"step": [0, 5], "y": [1.0, low], "seconds": [0, s]}) for low, s in
            ((2.0, 1), (4.0, 2), (9.0, 60))]  # fmt: skip
    means = band.at_readings(runs, "y", "step", slice(0, 2))
    figure, ax = plt.subplots()
    line = band.line_and_band(ax, means, linestyle="--", color="red", label="some")
    assert (line.get_label(), line.get_linestyle()) == ("some", "--")
    np.testing.assert_allclose(line.get_data(), [[0, 5], [1, 5]])
    x, low, high = edges(ax)
    deviation = np.std([2.0, 4.0, 9.0], ddof=1)
    np.testing.assert_allclose(x, [0, 5])
    np.testing.assert_allclose(low, [1, 5 - deviation])
    np.testing.assert_allclose(high, [1, 5 + deviation])
    plt.close(figure)
    # The median: a run that took a minute shifts no line.
    assert band.at_readings(runs, "y", "seconds", slice(1, 2)).x.tolist() == [2]


def test_runs_with_readings_at_different_steps_are_not_averaged_step_by_step():
    runs = [fake({"step": [0, step], "y": [1.0, 2.0]}) for step in (5, 5, 6)]
    assert band.at_readings(runs[:2], "y", "step").mean.tolist() == [1, 2]
    with pytest.raises(LookupError, match="different steps"):
        band.at_readings(runs, "y", "step")
    assert band.readings(runs, "y", slice(0, 1)).tolist() == [[1], [1], [1]]


def test_runs_that_follow_a_clock_are_compared_at_equal_cost():
    """Both errors fall with the logarithm of the seconds; one run reads twice as late."""
    places = [np.array([1.0, 10.0, 100.0]), np.array([2.0, 20.0, 200.0, 2000.0])]
    runs = [fake({"step": 9 * x, "seconds": x, "y": -np.log(x) + up}) for x, up in
            zip(places, (1, -1), strict=True)]  # fmt: skip
    ((x, mean, _),) = band.at_places(runs, "y", "seconds")
    np.testing.assert_allclose(x, np.geomspace(2, 100, 3))
    np.testing.assert_allclose(mean, -np.log(x))


def test_runs_that_share_no_range_of_seconds_are_drawn_one_by_one():
    """One took longer for its first reading than the other for all of them."""
    early, late = (
        measured("gibbs", "a", seed, metrics={"step": [1, 2], "seconds": x, "log_rmse": [0.0, -1]})
        for seed, x in enumerate(([1.0, 9.0], [50.0, 80.0]))
    )
    figure = errors([early, late], "seconds")
    lines = figure.axes[0].get_lines()
    assert [line.get_xdata().round(9).tolist() for line in lines] == [[1, 9], [50, 80]]
    assert [line.get_ydata().tolist() for line in lines] == [[0, -1]] * 2
    assert png(figure, 20)
    (line,) = errors([early, early], "seconds").axes[0].get_lines()  # control: one mean
    assert line.get_xdata().round(9).tolist() == [1, 9]


def test_settings_are_in_order_and_may_have_different_numbers_of_runs():
    x, mean, spread = band.at_settings({0.5: [1.0], 0.1: [2.0, 4.0]})
    assert x.tolist() == [0.1, 0.5]
    assert mean.tolist() == [3.0, 1.0]
    assert spread.tolist() == [pytest.approx(2**0.5), 0.0]  # as in tables
    assert band.at_readings([fake({"step": [1], "y": [2.0]})], "y", "step").spread == 0


def test_no_other_figure_draws_bands_of_its_own():
    files = [f for f in FIGURES.glob("*.py") if "fill_between" in f.read_text()]
    assert files == [FIGURES / "band.py"]
