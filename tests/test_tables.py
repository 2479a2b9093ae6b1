"""Tables: estimates, the three files of a table, and the papers' numbers beside ours."""

import math
import warnings
from itertools import product

import pandas as pd
import pytest
from fakes import fake

from latticework.experiments.figures import bnn
from latticework.experiments.papers.draw import write_table
from latticework.experiments.records.estimates import Estimate, estimate, published_estimate


def test_an_estimate_is_a_mean_with_the_spread_between_runs():
    assert estimate([1.0, 3.0]) == (2.0, pytest.approx(2**0.5), 2)
    assert estimate([1.5]) == (1.5, None, 1)
    assert estimate([1.0, 3.0]).text() == "2.0 ± 1.4 (2)"
    assert Estimate(-0.359, 0.0003).text() == "-0.3590 ± 0.0003"
    assert Estimate(-331.8121, 0.035968).text() == "-331.812 ± 0.036"
    assert Estimate(-0.359, 0.0003, 4).text() == "-0.35900 ± 0.00030 (4)"
    assert Estimate(17090.0, 14286.5, 3).text() == "17,090 ± 14,286 (3)"
    assert Estimate(-78.5).text() == "-78.5"


def test_an_infinite_value_is_no_cause_for_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = estimate([1.0, math.inf])
        assert (found.mean, found.runs) == (math.inf, 2)
        assert math.isnan(found.spread)
        assert found.text() == "inf (2)"


def test_a_table_is_written_for_programs_and_for_readers(tmp_path):
    frame = pd.DataFrame(
        {
            "data set": ["a_b", "c"],
            "ours": [Estimate(0.12345, 0.5, 3), Estimate(2.0)],
            "paper": [None, Estimate(1.0)],
        }
    )
    csv, markdown, latex = write_table(frame, tmp_path / "table.csv")
    back = pd.read_csv(csv)
    assert list(back) == ["data set", "ours", "ours (spread)", "ours (runs)", "paper"]
    assert back["ours"].tolist() == [0.12345, 2.0]
    assert back["paper"].isna().tolist() == [True, False]
    assert "| a_b        | 0.12 ± 0.50 (3) |" in markdown.read_text()
    assert r"a\_b & 0.12 \(\pm\) 0.50 (3)" in latex.read_text()


def test_published_numbers_have_one_home():
    assert published_estimate("table2", "train_log_likelihood", "compas", "dmala") == (
        -0.3394,
        0.0016,
        None,
    )
    assert published_estimate("table1", "omniglot", "vae") == (-97.65, None, None)
    assert published_estimate("table1", "omniglot", "a sampler of our own") is None
    with pytest.raises(KeyError):
        published_estimate("table9")


def regression(rows, *, scale=100.0, normalise=None, **columns):
    return fake(
        {"step": [100], **{name: [value] for name, value in columns.items()}},
        config={
            "data": {"normalise": normalise},
            "model": {"scale": scale, "hidden": 5},
        },
        rows=rows,
    )


def test_coverage_is_shown_where_targets_that_can_be_covered_were_counted():
    """Older records counted predictions that float32 rounded to a target of 1."""
    older = {"train": 80, "test": 20}
    counted = older | {"between": 5}
    covered = bnn.covered([regression(older, coverage=0.3), regression(counted, coverage=0.2)])
    assert covered == {"coverage of 90 %": (0.2, None, 1), "largest coverage": 0.25}
    for rows in (older, older | {"between": 0}):
        covered = bnn.covered([regression(rows, coverage=0.3)])
        assert set(covered.values()) == {None}


def test_the_paper_s_target_and_features_have_rows_of_their_own():
    rows = {"train": 80, "test": 20}
    records = [
        regression(rows, scale=scale, normalise=normalise, train_log_likelihood=-level, test_rmse=1)
        for level, (normalise, scale) in enumerate(product((None, "unit"), (100.0, None)))
    ]
    table = bnn.written(records)
    assert {tuple(row) for row in table[["features", "U", "train log-likelihood"]].values} == {
        ("standardised", "-100 mean", (0, None, 1)),
        ("standardised", "-sum", (-1, None, 1)),
        ("in [0, 1]", "-100 mean", (-2, None, 1)),
        ("in [0, 1]", "-sum", (-3, None, 1)),
    }
