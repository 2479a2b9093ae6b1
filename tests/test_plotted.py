"""The numbers of a figure's lines and bars."""

from __future__ import annotations

from io import StringIO

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from fakes import fake

from latticework.experiments.figures.acceptance import step_term
from latticework.experiments.figures.band import at_readings, line_and_band
from latticework.experiments.papers.plotted import csv, plotted

mpl.use("Agg")


def test_lines_have_their_bands_and_names():
    runs = [fake({"step": [0, 5], "y": [1.0, last]}) for last in (2.0, 3.0, 4.0)]
    figure, (left, right) = plt.subplots(1, 2)
    line_and_band(left, at_readings(runs, "y", "step", slice(0, 2)), label="GWG-1")
    left.set_title("one")
    right.plot([1, 2], [3, 4], label="_a bound")  # not in the legend
    right.plot([7], [8])  # has no name
    right.set(xlabel="steps", ylabel="error")
    table = plotted(figure)
    assert table["panel"].tolist() == ["1 one"] * 2 + ["2 steps"] * 2
    assert table["series"].tolist() == ["GWG-1", "GWG-1", "a bound", "a bound"]
    assert table["x"].tolist() == [0, 5, 1, 2]
    assert table["y"].tolist() == [1, 3, 3, 4]
    np.testing.assert_array_equal(table["low"], [1, 2, np.nan, np.nan])
    np.testing.assert_array_equal(table["high"], [1, 4, np.nan, np.nan])
    pd.testing.assert_frame_equal(pd.read_csv(StringIO(csv(figure))), table, check_dtype=False)


def test_bars_have_the_names_of_their_ticks():
    sizes = {0.4: 0.5, float("inf"): 0.001}
    records = [
        fake({"step": [0], "acceptance": [rate]}, settings={"step_size": size})
        for size, rate in sizes.items()
    ]
    table = plotted(step_term(records))
    here = table[table["series"] == "here"]
    assert dict(zip(here["x"], here["y"], strict=True)) == {"with": 0.5, "without": 0.001}
    assert table[table["series"] == "the paper"]["y"].tolist() == [0.51, 0.00005]
    figure, ax = plt.subplots()
    ax.barh(["a", "b"], [2, 3], label="time")
    assert plotted(figure)[["x", "y"]].to_numpy().tolist() == [["a", 2], ["b", 3]]


def test_images_have_no_numbers():
    figure, ax = plt.subplots()
    ax.imshow(np.zeros((2, 2)))
    assert csv(figure) == ""
