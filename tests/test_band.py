"""Means over runs with a band of one standard deviation, in one place for all figures."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from fakes import fake

from latticework.experiments.figures import band

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
    deviation = np.std([2.0, 4.0, 9.0])
    np.testing.assert_allclose(x, [0, 5])
    np.testing.assert_allclose(low, [1, 5 - deviation])
    np.testing.assert_allclose(high, [1, 5 + deviation])
    plt.close(figure)
    # The median: a run that took a minute shifts no line.
    assert band.at_readings(runs, "y", "seconds", slice(1, 2)).x.tolist() == [2]


def test_settings_are_in_order_and_may_have_different_numbers_of_runs():
    x, mean, spread = band.at_settings({0.5: [1.0], 0.1: [2.0, 4.0]})
    assert x.tolist() == [0.1, 0.5]
    assert mean.tolist() == [3.0, 1.0]
    assert spread.tolist() == [1.0, 0.0]


def test_no_other_figure_draws_bands_of_its_own():
    files = [f for f in FIGURES.glob("*.py") if "fill_between" in f.read_text()]
    assert files == [FIGURES / "band.py"]
