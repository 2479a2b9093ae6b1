"""How figures look: contrast to white, samplers told apart in grey, and the legend's words."""

from __future__ import annotations

from itertools import combinations

import matplotlib as mpl
import numpy as np
import pytest
from fakes import fake
from matplotlib.colors import to_rgb

from latticework.experiments.figures import style
from latticework.experiments.figures.text import COLOURS
from latticework.experiments.records.labels import SAMPLERS, label, look

mpl.use("Agg")
OWN = ("my_sampler", "zanella_2020", "path_auxiliary", "multiple_try", "tempered", "a")


def luminance(ink):
    """Relative luminance, WCAG 2.1."""
    part = np.array(to_rgb(ink))
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(ink):
    """To white, from 1 to 21."""
    return 1.05 / (luminance(ink) + 0.05)


def test_contrast_is_that_of_wcag():
    assert contrast("white") == 1
    assert contrast("black") == pytest.approx(21)
    assert contrast("#F0E442") == pytest.approx(1.3, abs=0.05)
    assert contrast("#777777") == pytest.approx(4.48, abs=0.01)


def test_every_line_is_readable_on_white():
    keys = [(name, 0) for name in (*SAMPLERS, *OWN)]
    inks = [
        style.colour(key, place, of) for key in keys for of in range(1, 5) for place in range(of)
    ]
    assert min(map(contrast, [*inks, *style.INKS, style.GREY])) >= 3
    assert min(map(contrast, COLOURS.values())) >= 4.5  # of text


def test_any_colour_made_from_a_name_is_readable():
    assert min(contrast(look(f"sampler_{number}").colour) for number in range(500)) >= 3


def seen_in_grey(line):
    return line["marker"], line["linestyle"], round(luminance(line["color"]), 1)


def test_lines_differ_in_grey():
    """By marker or dashes: there are more samplers than shades of grey."""
    keys = [(name, 1) for name in SAMPLERS] + [("gibbs", 4), ("gwg", 4)]
    lines = [style.line(key, place, 2) for key in keys for place in range(2)]
    for one, other in combinations(lines, 2):
        assert seen_in_grey(one)[:2] != seen_in_grey(other)[:2]
    markers = [SAMPLERS[name].marker for name in SAMPLERS]
    assert len(set(markers)) == len(markers)
    others = [style.series(number) for number in range(12)]
    assert len({(one["color"], one["marker"]) for one in others}) == len(others)
    assert len({one["marker"] for one in others[:7]}) == 7


def test_an_unknown_sampler_has_a_look_of_its_own():
    """It follows from the name alone, and no marker of a known sampler is taken."""
    looks = [look(name) for name in OWN]
    assert looks == [look(name) for name in OWN]
    assert len({(one.colour, one.marker) for one in looks}) == len(OWN)
    assert not {one.marker for one in looks} & {one.marker for one in SAMPLERS.values()}
    assert label(("my_sampler", 0)) == "my_sampler"


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


def test_many_lines_that_coincide_are_summed_up():
    for count, lines in ((3, 3), (4, 1)):  # 3 and 6 pairs
        figure, ax = style.new_figure()
        for number in range(count):
            ax.plot([0, 1, 2, 3], [0, 1, 2, 3], label=str(number))
        ax.plot([0, 1, 2, 3], [3, 2, 1, 0], label="apart")
        named = style.covered(figure)
        assert len(named) == lines
        assert (named == ["Some lines lie under others."]) == (count == 4)


def test_the_legend_takes_no_room_of_the_panels_and_fits_a_phone():
    figure, legend = drawn(lambda x: -x)
    figure.canvas.draw()
    assert figure.get_figheight() > 2.8
    box = legend.get_window_extent()
    assert box.x0 < 0.3 * figure.dpi
    assert box.x1 <= style.PHONE * figure.dpi
    assert figure.axes[0].get_tightbbox().y0 > box.y1


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
    assert style.seeds(records) == text
