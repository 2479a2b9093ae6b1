"""Figures and tables of records: averages, searches, estimates."""

import math
import warnings
from itertools import product

import matplotlib as mpl
import numpy as np
import pytest
from fakes import fake, measured

from latticework.experiments.figures import bnn, means
from latticework.experiments.figures.acceptance import ess_per_second, rates, step_term
from latticework.experiments.figures.benchmark import errors
from latticework.experiments.figures.curves import curve, final, learning
from latticework.experiments.figures.isl_curves import curves
from latticework.experiments.figures.likelihood import improvement
from latticework.experiments.figures.search import history, importance
from latticework.experiments.records.estimates import Estimate, estimate, published_estimate

mpl.use("Agg")


# Averages.


def points(plot, panel, series=None):
    """The pairs of a panel, by its number, and of a series."""
    table = plot.table[plot.table["panel"].str.split().str[0] == str(panel)]
    shown = table if series is None else table[table["series"] == series]
    return shown[["x", "y"]].to_numpy().tolist()


def test_runs_with_readings_at_different_steps_are_not_averaged_step_by_step():
    runs = [fake({"step": [0, step], "y": [1.0, 2.0]}) for step in (5, 5, 6)]
    assert means.means_by_reading(runs[:2], "y", "step").mean.tolist() == [1, 2]
    with pytest.raises(LookupError, match="different steps"):
        means.means_by_reading(runs, "y", "step")


def test_runs_that_share_no_range_of_seconds_are_drawn_one_by_one():
    """One took longer for its first reading than the other for all of them."""
    early, late = (
        measured("gibbs", "a", seed, metrics={"step": [1, 2], "seconds": x, "log_rmse": [0.0, -1]})
        for seed, x in enumerate(([1.0, 9.0], [50.0, 80.0]))
    )
    apart = errors([early, late], "seconds", ["gibbs"])
    assert apart.table["x"].round(9).tolist() == [1, 9, 50, 80]
    assert len(apart.figure.axes[0].lines) == 2
    averaged = errors([early, early], "seconds", ["gibbs"])
    assert averaged.table["x"].round(9).tolist() == [1, 9]


def test_ess_a_second_counts_all_chains_and_leaves_constant_coordinates_out():
    records = [
        fake(
            sampler=sampler, seed=seed, seconds_per_step=0.01,
            stored={"convergence": {"ess": np.array(ess), "draws": 100, "chains": 2}},
        )
        for sampler, seed, ess in (
            ("dmala", 0, [10.0, 20.0, np.nan]),
            ("dmala", 1, [30.0, 20.0, 5.0]),
            ("gwg", 0, [1.0, 1.0, np.nan]),
        )
    ]  # fmt: skip
    # 2 of 4 chains were traced: 100 steps of all of them take 1 s, of these two 0.5 s.
    np.testing.assert_allclose(rates(records[0]), [20.0, 40.0, np.nan])
    shown = ess_per_second(records, ["dmala", "gwg"])
    names = [text.get_text() for text in shown.figure.axes[0].get_xticklabels()]
    assert names == ["GWG-1\n1 constant", "DMALA\n1 constant"]
    values = shown.table.groupby("series")["y"].apply(list)
    assert values["DMALA"] == pytest.approx([40.0, 40.0, 10.0])
    medians = [line for line in shown.figure.axes[0].lines if line.get_color() == "black"]
    assert any(np.allclose(line.get_ydata(), 40.0) for line in medians)
    with pytest.raises(LookupError, match="holds a trace"):
        ess_per_second(records, ["gibbs"])


def test_learning_compares_the_same_seeds_and_lengths():
    """One sampler has a further seed and more iterations at one value, and one seed at another."""

    def run(sampler, seed, steps, length):
        rows = {"step": range(length), "seconds": range(length), "y": [-float(seed)] * length}
        return fake(rows, sampler=sampler, seed=seed, config={"task": {"steps": steps}})

    records = [run("gwg", seed, 100, 9) for seed in range(4)]
    records += [run("dmala", seed, 100, 5) for seed in range(3)]
    records += [run("gwg", seed, 50, 5) for seed in range(3)] + [run("dmala", 0, 50, 5)]
    shown = learning(records, "y", "y", "task.steps", "steps")
    for sampler in ("GWG-1", "DMALA"):  # the mean of seeds 0 to 2
        assert points(shown, 1, sampler) == [[step, -1] for step in range(5)]
    assert points(shown, 3) == [[100, -1], [100, -1]]
    assert "seeds 0-2" in shown.figure.legends[0].get_title().get_text()


def test_learning_shows_the_seconds_of_idle_runs_where_longer_ones_had_a_busy_core():
    """The longer runs count at equal iterations: their values are lower."""
    records = []
    for sampler, length, low in (("gwg", 5, 0.0), ("dmala", 5, 0.0), ("dmala", 9, 1.0)):
        task = {"steps": 100, "iterations": length}
        rows = {"step": range(length), "seconds": range(length), "y": [-low] * length}
        share = 0.5 if length > 5 else 1.0
        records.append(fake(rows, sampler=sampler, config={"task": task}, cpu_share=share))
    shown = learning(records, "y", "y", "task.steps", "steps")
    assert {points(shown, 1, sampler)[-1][1] for sampler in ("GWG-1", "DMALA")} == {0, -1}
    assert [y for _, y in points(shown, 2)] == [0] * 10


@pytest.mark.parametrize("substitute", [False, True])
def test_the_papers_value_stands_at_its_steps_and_beside_its_sampler(substitute):
    data = {"variant": "mnist", "substitute": substitute}
    rows = {"step": [0, 10], "y": [0.0, -1.0]}
    records = [fake(rows, sampler=name, data=data) for name in ("gwg", "dmala")]
    shown = curve(records, "y", "y", ["step"], paper="fig4")
    steps, value = (published_estimate("fig4", key).mean for key in ("steps", "dmala"))
    assert points(shown, 1, "the paper: DMALA") == ([] if substitute else [[steps, value]])
    assert points(shown, 1, "the paper: GWG-1") == []


def test_no_line_is_left_out_where_there_are_more_than_dashes():
    parzen = {"size": np.array([1, 10]), "isl": np.array([-9.0, -5.0])}
    rows = {"step": [1, 10], "isl": [-8.0, -6.0]}
    records = [
        fake(
            rows, config={"model": {"hidden": hidden}}, choices={"task": "isl"},
            stored={"parzen": parzen},
        )
        for hidden in range(6)
    ]  # fmt: skip
    names = curves(records, lines="model.hidden").table["series"].unique()
    assert sum("hidden" in name for name in names) == 6


def test_a_line_of_trial_values_has_the_runs_with_the_longest_trials():
    """Short trials are too high, so both kinds are not averaged."""
    learned = {"steps": 40, "optimiser": {"lr": 1e-3}}
    records = [
        fake(
            sampler="dmala", seed=seed, validation_by_candidate={"ema_000010": value},
            config={"task": {"trial_steps": betas}, "learning": learned},
        )
        for seed, (betas, value) in enumerate([(500, -90.0), (10_000, -99.0), (10_000, -101)])
    ]  # fmt: skip
    assert improvement(records).table["y"].tolist() == [100.0]


@pytest.mark.parametrize("missing", ["model.bias", "model.coupling.more"])
def test_a_setting_that_no_record_has_is_refused(missing):
    record = fake({"step": [0], "log_rmse": [0.0]}, config={"model": {"coupling": 0.1}})
    with pytest.raises(LookupError, match=f"has no setting {missing}"):
        final([record], {"log_rmse": "log RMSE"}, missing, "a")


@pytest.mark.parametrize("substitute", [False, True])
def test_substitute_data_stand_beside_no_rate_of_the_paper(substitute):
    data = {"variant": "digits", "substitute": substitute}
    records = [
        fake({"step": [0], "acceptance": [rate]}, settings={"step_size": size}, data=data)
        for size, rate in ((0.2, 0.5), (float("inf"), 1e-4))
    ]
    shown = step_term(records)
    assert shown.table["x"].tolist() == ["with", "without"] * (1 if substitute else 2)
    texts = [text.get_text() for text in shown.figure.axes[0].texts]
    paper = ("", "") if substitute else ("\npaper 51 %", "\npaper 0.005 %")
    assert texts == [f"here 50 %{paper[0]}", f"here 0.01 %{paper[1]}"]
    with pytest.raises(LookupError, match="without the step-size term"):
        step_term(records[:1])


# Searches.


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


@pytest.mark.parametrize(("direction", "best"), [("minimize", np.min), ("maximize", np.max)])
def test_the_history_ends_at_the_best_trial(direction, best):
    record = searched(lambda step_size, **_: step_size, direction=direction)
    shown, values = history([record]), record.metrics["value"]
    assert [y for _, y in points(shown, 1, "DMALA, trials")] == values.tolist()
    bests = [y for _, y in points(shown, 1, "DMALA")]
    assert bests[0] == values[0]
    assert bests[-1] == best(values)


@pytest.mark.parametrize("field", SPACE)
def test_the_field_that_decides_has_nearly_all_of_the_variance(field):
    record = searched(lambda **fields: np.log(fields[field] + 1.0))
    shares = dict(points(importance([record]), 1))
    assert set(shares) == set(SPACE)
    assert shares[field] > 0.8


def test_trials_without_a_value_are_left_out_and_the_others_keep_their_numbers():
    lost = np.isin(np.arange(30), (1, 2))
    record = searched(lambda step_size, **_: np.where(lost, np.nan, step_size))
    shown = history([record])
    for name in ("DMALA", "DMALA, trials"):
        assert [x for x, _ in points(shown, 1, name)] == [1, *range(4, 31)]
    assert points(shown, 1, "DMALA")[-1][1] == record.metrics["value"].min()
    assert len(importance([record]).figure.axes) == 1


# Tables.


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
    covered = bnn.coverage_columns(
        [regression(older, coverage=0.3), regression(counted, coverage=0.2)]
    )
    assert covered == {"coverage of 90 %": (0.2, None, 1), "largest coverage": 0.25}
    for rows in (older, older | {"between": 0}):
        covered = bnn.coverage_columns([regression(rows, coverage=0.3)])
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
