"""Figures: how lines look and are named, what is averaged, and what is refused.

test_net.py compares the numbers of every committed figure.
"""

from itertools import combinations

import matplotlib as mpl
import numpy as np
import pytest
from fakes import fake, measured
from matplotlib.colors import to_rgb

from latticework.experiments.figures import band, style
from latticework.experiments.figures.acceptance import step_term
from latticework.experiments.figures.benchmark import errors
from latticework.experiments.figures.ess import ess_per_second, rates
from latticework.experiments.figures.finals import final
from latticework.experiments.figures.text import COLOURS
from latticework.experiments.papers.draw import png
from latticework.experiments.records.grouping import by_sampler
from latticework.experiments.records.labels import SAMPLERS, label, look, seeds

mpl.use("Agg")
OWN = [f"sampler_{number}" for number in range(500)]


# Looks.


def luminance(ink):
    """Relative luminance, WCAG 2.1."""
    part = np.array(to_rgb(ink))
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(ink):
    """To white, from 1 to 21."""
    return 1.05 / (luminance(ink) + 0.05)


def test_every_line_is_readable_on_white():
    assert contrast("#777777") == pytest.approx(4.48, abs=0.01)
    keys = [(name, 0) for name in (*SAMPLERS, *OWN)]
    inks = [style.colour(key, place, 4) for key in keys for place in range(4)]
    assert min(map(contrast, [*inks, *style.INKS, style.GREY])) >= 3
    assert min(map(contrast, COLOURS.values())) >= 4.5  # of text


def test_lines_differ_by_marker_or_dashes():
    """There are more samplers than shades of grey."""
    keys = [(name, 1) for name in SAMPLERS] + [("gibbs", 4), ("gwg", 4)]
    lines = [style.line(key, place, 2) for key in keys for place in range(2)]
    for one, other in combinations(lines, 2):
        assert (one["marker"], one["linestyle"]) != (other["marker"], other["linestyle"])
    assert not {look(name).marker for name in OWN} & {one.marker for one in SAMPLERS.values()}
    others = [style.series(number) for number in range(12)]
    assert len({(one["color"], one["marker"]) for one in others}) == len(others)


def test_a_sampler_is_known_by_its_class_and_size():
    mine = {"_target_": "elsewhere.Mine"}
    records = [
        fake(sampler="gwg4"), fake(sampler="gwg"),
        fake(sampler="dmala", settings=mine, choices={"sampler": "mine"}),
    ]  # fmt: skip
    names = {label(key): [r.path.name for r in some] for key, some in by_sampler(records).items()}
    assert names == {"GWG-1": ["gwg-0"], "GWG-4": ["gwg4-0"], "mine": ["dmala-0"]}
    keys = [("hamming_ball", 10), ("hamming_ball", 5), ("my_sampler", 1), ("my_sampler", 4)]
    assert [label(key) for key in keys] == ["HB-10-1", "HB-5-1", "my_sampler", "my_sampler-4"]


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
    assert seeds(records) == text


# Legends.


def drawn(second):
    figure, ax = style.new_figure()
    x = np.linspace(0, 10, 50)
    ax.plot(x, x, label="LB-1")
    ax.plot(x, second(x), label="GWG-1")
    style.explain(figure, "Exact.", style.key_of_dashes(forward_AIS="-"))
    (legend,) = figure.legends
    return figure, legend


def test_lines_that_coincide_are_named():
    _, legend = drawn(lambda x: x + 0.02)
    assert legend.get_title().get_text() == "Exact. LB-1 lies under GWG-1."
    assert [text.get_text() for text in legend.texts] == ["LB-1", "GWG-1", "forward AIS"]
    for other in (lambda x: x + 1, lambda x: 10 - x, lambda x: np.where(x < 5, x, np.nan)):
        assert drawn(other)[1].get_title().get_text() == "Exact."


def test_the_legend_takes_no_room_of_the_panels_and_fits_a_phone():
    figure, legend = drawn(lambda x: -x)
    figure.canvas.draw()
    assert figure.get_figheight() > 2.8
    box = legend.get_window_extent()
    assert box.x1 <= style.PHONE * figure.dpi
    assert figure.axes[0].get_tightbbox().y0 > box.y1


# Averages.


def test_runs_with_readings_at_different_steps_are_not_averaged_step_by_step():
    runs = [fake({"step": [0, step], "y": [1.0, 2.0]}) for step in (5, 5, 6)]
    assert band.at_readings(runs[:2], "y", "step").mean.tolist() == [1, 2]
    with pytest.raises(LookupError, match="different steps"):
        band.at_readings(runs, "y", "step")


def test_runs_that_share_no_range_of_seconds_are_drawn_one_by_one():
    """One took longer for its first reading than the other for all of them."""
    early, late = (
        measured("gibbs", "a", seed, metrics={"step": [1, 2], "seconds": x, "log_rmse": [0.0, -1]})
        for seed, x in enumerate(([1.0, 9.0], [50.0, 80.0]))
    )
    figure = errors([early, late], "seconds")
    lines = figure.axes[0].get_lines()
    assert [line.get_xdata().round(9).tolist() for line in lines] == [[1, 9], [50, 80]]
    assert png(figure, 20)
    (line,) = errors([early, early], "seconds").axes[0].get_lines()  # control: one mean
    assert line.get_xdata().round(9).tolist() == [1, 9]


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
    figure = ess_per_second(records, ["dmala", "gwg"])
    names = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert names == ["GWG-1\n1 constant", "DMALA\n1 constant"]
    medians = [line for line in figure.axes[0].lines if line.get_color() == "black"]
    assert any(np.allclose(drawn.get_ydata(), np.median([40.0, 40.0, 10.0])) for drawn in medians)
    with pytest.raises(LookupError, match="holds a trace"):
        ess_per_second(records, ["gibbs"])


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
    texts = [text.get_text() for text in step_term(records).axes[0].texts]
    paper = ("", "") if substitute else ("\npaper 51 %", "\npaper 0.005 %")
    assert texts == [f"here 50 %{paper[0]}", f"here 0.01 %{paper[1]}"]
    with pytest.raises(LookupError, match="without the step-size term"):
        step_term(records[:1])
