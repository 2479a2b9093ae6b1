"""How figures look: colours, dashes, names of lines and legends."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from fakes import fake
from matplotlib.colors import to_rgb
from omegaconf import OmegaConf

from latticework.experiments import CONF
from latticework.experiments.figures import line_names, means, plot, style
from latticework.experiments.figures.text import COLOURS
from latticework.experiments.records.grouping import by_sampler
from latticework.experiments.records.labels import (
    SAMPLERS,
    format_seeds,
    sampler_label,
    sampler_style,
)

RESULTS = CONF.parent / "docs" / "results"
MANY = "benchmark"  # the start of figures of all samplers, most of which are grey or named
OWN = [f"sampler_{number}" for number in range(500)]


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
    assert [name.arrow_patch is None for name in ax.texts] == [False, True]  # no end to join
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


def test_a_name_in_the_panel_lies_on_no_other_line():
    """One line ends where the peak of another is; a name beside the panel stays at its end."""
    figure, ax = style.new_figure()
    ax.plot([0, 1, 2], [5, 5.1, 5], label="rates-FPCD")
    ax.plot([1, 2.6, 4], [0, 5, 3], label="rates-herding")
    line_names.label_lines_and_legend(figure, "Mean.")
    figure.canvas.draw()
    inner, outer = ax.texts
    box = inner.get_window_extent()
    at = np.linspace(1, 4, 500)
    peak = ax.transData.transform(np.column_stack((at, np.interp(at, [1, 2.6, 4], [0, 5, 3]))))
    assert box.x0 < ax.transData.transform((2.6, 5))[0] < box.x1
    assert not any(box.contains(*point) for point in peak)
    middle = (outer.get_window_extent().y0 + outer.get_window_extent().y1) / 2
    assert abs(middle - ax.transData.transform((4, 3))[1]) < 2
