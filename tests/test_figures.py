"""Figures: how lines look and are named, what is averaged, and what is refused.

test_net.py compares the numbers of every committed figure, test_figure_files.py their files.
"""

import math
import warnings
from itertools import combinations, product

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from fakes import fake, measured
from matplotlib.colors import to_rgb
from omegaconf import OmegaConf

from latticework.experiments import CONF
from latticework.experiments.figures import bnn, line_names, means, plot, style
from latticework.experiments.figures.acceptance import ess_per_second, rates, step_term
from latticework.experiments.figures.benchmark import errors
from latticework.experiments.figures.curves import curve, final, learning
from latticework.experiments.figures.isl_curves import curves
from latticework.experiments.figures.likelihood import improvement
from latticework.experiments.figures.search import history, importance
from latticework.experiments.figures.text import COLOURS
from latticework.experiments.records.estimates import Estimate, estimate, published_estimate
from latticework.experiments.records.grouping import by_sampler
from latticework.experiments.records.labels import (
    SAMPLERS,
    format_seeds,
    sampler_label,
    sampler_style,
)

mpl.use("Agg")
RESULTS = CONF.parent / "docs" / "results"
MANY = "benchmark"  # the start of figures of all samplers, most of which are grey or named
OWN = [f"sampler_{number}" for number in range(500)]


# Looks.


def linear(ink):
    """Linear RGB of a colour of the screen."""
    part = np.array(to_rgb(ink))
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def contrast(ink):
    """To white, from 1 to 21, by relative luminance (WCAG 2.1)."""
    return 1.05 / (float(linear(ink) @ [0.2126, 0.7152, 0.0722]) + 0.05)


def test_every_line_is_readable_on_white():
    assert contrast("#777777") == pytest.approx(4.48, abs=0.01)
    keys = [(name, 0) for name in (*SAMPLERS, *OWN)]
    inks = [style.colour(key, place, 4) for key in keys for place in range(4)]
    assert min(map(contrast, [*inks, *style.INKS, style.GREY])) >= 3
    assert min(map(contrast, COLOURS.values())) >= 4.5  # of text


def test_lines_differ_by_marker_or_dashes():
    """There are more samplers than shades of grey."""
    keys = [(name, 1) for name in SAMPLERS] + [("gibbs", 4), ("gwg", 4)]
    lines = [style.sampler_line_style(key, place, 2) for key in keys for place in range(2)]
    for one, other in combinations(lines, 2):
        assert (one["marker"], one["linestyle"]) != (other["marker"], other["linestyle"])
    assert not {sampler_style(name).marker for name in OWN} & {
        one.marker for one in SAMPLERS.values()
    }
    others = [style.numbered_style(number) for number in range(12)]
    assert len({(one["color"], one["marker"]) for one in others}) == len(others)


def test_a_sampler_is_known_by_its_class_and_size():
    mine = {"_target_": "elsewhere.Mine"}
    records = [
        fake(sampler="gwg4"), fake(sampler="gwg"),
        fake(sampler="dmala", settings=mine, choices={"sampler": "mine"}),
    ]  # fmt: skip
    names = {
        sampler_label(key): [r.path.name for r in some] for key, some in by_sampler(records).items()
    }
    assert names == {"GWG-1": ["gwg-0"], "GWG-4": ["gwg4-0"], "mine": ["dmala-0"]}
    keys = [("hamming_ball", 10), ("hamming_ball", 5), ("my_sampler", 1), ("my_sampler", 4)]
    assert [sampler_label(key) for key in keys] == [
        "HB-10-1",
        "HB-5-1",
        "my_sampler",
        "my_sampler-4",
    ]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([(0, 0)], "seed 0"),
        ([(3, 0), (1, 0), (2, 0)], "seeds 1-3"),
        ([(0, 0), (4, 4)], "seeds 0, 4"),
        ([(0, 0), (0, 1), (0, 2)], "models 0-2"),
        ([(0, 1), (0, 3), (1, 1), (1, 3)], "seeds 0-1 and models 1, 3"),
    ],
)
def test_seeds_are_stated(found, text):
    """A model that has the seed of its run needs no mention; one that varies alone does."""
    records = [fake(seed=seed, config={"model_seed": model}) for seed, model in found]
    assert format_seeds(records) == text


# Machado, Oliveira and Fernandes (2009), "A Physiologically-based Model for Simulation of Color
# Vision Deficiency", severity 1, on linear RGB.
SEEN_BY = {
    "everybody": np.eye(3),
    "deuteranopes": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "protanopes": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def lab(ink, eye):
    """CIELAB coordinates of a colour as `eye` sees it."""
    found = XYZ @ np.clip(np.array(SEEN_BY[eye]) @ linear(ink), 0, 1) / XYZ.sum(1)
    x, y, z = np.where(found > 216 / 24389, np.cbrt(found), (24389 / 27 * found + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def difference(one, other, eye):
    """CIE 1976 colour difference."""
    return np.linalg.norm(
        lab(sampler_style(one).colour, eye) - lab(sampler_style(other).colour, eye)
    )


def drawn_together():
    """Pairs of samplers whose lines or bars are in one committed figure, by its CSV file."""
    names = {look.label: name for name, look in SAMPLERS.items()} | {"HB-10-1": "hamming_ball"}
    pairs = set()
    for file in RESULTS.glob("*.csv"):
        if file.with_suffix(".png").exists() and not file.stem.startswith(MANY):
            texts = {text.split(",")[0] for text in pd.read_csv(file)["series"].astype(str)}
            here = {names.get(text, names.get(text.removesuffix("-1"))) for text in texts} - {None}
            pairs |= set(combinations(sorted(here), 2))
    return pairs


@pytest.mark.parametrize("eye", SEEN_BY)
def test_samplers_drawn_together_differ_for_the_colour_blind(eye):
    pairs = drawn_together()
    assert {("dmala", "dula"), ("gibbs", "gwg"), ("dmala", "sample_penalization")} <= pairs
    config = OmegaConf.load(CONF / "experiment" / "benchmark.yaml")
    pairs |= set(combinations(config.figures.errors_seconds.coloured, 2))
    assert {pair for pair in pairs if difference(*pair, eye) < 22} == set()
    every = combinations(SAMPLERS, 2)
    assert {pair for pair in every if difference(*pair, eye) < 10} == set()
    assert difference("dula", "dmala", eye) > 30
    assert lab("#FFFFFF", "everybody")[0] == pytest.approx(100)


# Names of lines, and legends.


def drawn(second, **more):
    figure, ax = style.new_figure()
    x = np.linspace(0, 10, 50)
    panel = plot.Panel([plot.Series("LB-1", x, x), plot.Series("GWG-1", x, second(x))], **more)
    panel.draw(ax)
    dashes = style.key_of_dashes(forward_AIS="-")
    plot.finish_plot(figure, [ax], [panel], f"Exact; {style.BAND}.", dashes)
    figure.canvas.draw()
    return figure, ax


def test_lines_are_named_at_their_ends():
    for second in (lambda x: x, lambda x: x + 1, lambda x: np.where(x < 5, x, np.nan)):
        figure, ax = drawn(second)
        one, other = ax.texts
        assert [name.get_text() for name in ax.texts] == ["LB-1", "GWG-1"]
        assert one.xy == pytest.approx(figure_end(ax, 10, 10))
        ends = [name.get_bbox_patch().get_window_extent() for name in ax.texts]
        assert not ends[0].overlaps(ends[1])
        assert all(ax.bbox.y0 <= end.y0 and end.y1 <= ax.bbox.y1 for end in ends)
        assert other.get_color() == ax.lines[1].get_color()
        assert [text.get_text() for text in figure.legends[0].texts] == ["forward AIS"]


def figure_end(ax, x, y):
    return ax.transAxes.inverted().transform(ax.transData.transform((x, y)))


def test_a_line_beyond_the_panel_says_how_far():
    figure, ax = drawn(lambda x: x + 30, ylim=(0, 12))
    assert [name.get_text() for name in ax.texts] == ["LB-1", "GWG-1 \N{UPWARDS ARROW} 40"]
    assert ax.texts[1].xy[1] == 1
    assert "arrow: the line" in figure.legends[0].get_title().get_text()


@pytest.mark.parametrize("spread", [0.01, 2.0])
def test_a_band_within_its_line_is_not_promised(spread):
    figure, ax = style.new_figure()
    x = np.arange(5.0)
    panel = plot.Panel([plot.mean_line("GWG-1", means.Means(x, x, 0 * x + spread))])
    panel.draw(ax)
    plot.finish_plot(figure, [ax], [panel], f"Mean; {style.BAND}.")
    text = figure.legends[0].get_title().get_text()
    assert (text == f"Mean; {style.BAND}.") == (spread > 1)


def test_the_legend_takes_no_room_of_the_panels_and_little_of_the_figure():
    figure, ax = style.new_figure()
    for number in range(12):
        ax.plot([0, 1], [0, number], label=f"DMALA, step size {number}")
    ax.plot([0.5], [0.5], "x", label="the paper")
    line_names.label_lines_and_legend(figure, "Mean over seeds 0-4; band: smallest to largest.")
    figure.canvas.draw()
    (legend,) = figure.legends
    assert figure.get_figheight() > 2.8
    box = legend.get_window_extent()
    assert box.height < figure.bbox.height / 5
    assert figure.axes[0].get_tightbbox().y0 > box.y1
    boxes = [name.get_bbox_patch().get_window_extent() for name in ax.texts]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


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
