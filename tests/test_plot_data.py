"""The numbers of a figure's lines and bars."""

from __future__ import annotations

from io import StringIO

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from fakes import fake

from latticework.experiments.figures.style import line_and_band, means_by_reading
from latticework.experiments.papers.draw import csv, points

mpl.use("Agg")


def test_lines_have_their_bands_and_names():
    runs = [fake({"step": [0, 5], "y": [1.0, last]}) for last in (2.0, 3.0, 4.0)]
    figure, (left, right) = plt.subplots(1, 2)
    line_and_band(left, means_by_reading(runs, "y", "step", slice(0, 2)), label="GWG-1")
    left.set_title("one")
    right.plot([1, 2], [3, 4], label="_a bound")  # not in the legend
    right.plot([7], [8])  # has no name
    right.set(xlabel="steps", ylabel="error")
    table = points(figure)
    assert table["panel"].tolist() == ["1 one"] * 2 + ["2 steps"] * 2
    assert table["series"].tolist() == ["GWG-1", "GWG-1", "a bound", "a bound"]
    assert table["x"].tolist() == [0, 5, 1, 2]
    assert table["y"].tolist() == [1, 3, 3, 4]
    np.testing.assert_array_equal(table["low"], [1, 2, np.nan, np.nan])
    np.testing.assert_array_equal(table["high"], [1, 4, np.nan, np.nan])
    pd.testing.assert_frame_equal(pd.read_csv(StringIO(csv(figure))), table, check_dtype=False)


def test_bars_have_the_names_of_their_ticks_and_images_no_numbers():
    figure, (left, middle, right) = plt.subplots(1, 3)
    left.bar(["with", "without"], [0.5, 0.001], label="here")
    middle.barh(["a", "b"], [2, 3], label="time")
    right.imshow(np.zeros((2, 2)))
    rows = points(figure)[["series", "x", "y"]].to_numpy().tolist()
    assert rows[:2] == [["here", "with", 0.5], ["here", "without", 0.001]]
    assert rows[2:] == [["time", "a", 2], ["time", "b", 3]]
