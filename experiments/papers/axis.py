"""The common axis of the intervals in the ledger, as SVG.

Margins have different units, so the axis counts half-widths of each margin's own interval: an
interval has the length 2 and reaches zero exactly if the claim is not decided. The scale is asinh,
linear around zero and logarithmic far from it.
"""

import math

from markupsafe import Markup

from latticework.experiments.papers.claims.verdict import Margin

WIDTH, MIDDLE, REACH = 200, 8, 40.0  # pixels, pixels, half-widths at the ends of the axis
TICKS = (-10, -1, 0, 1, 10)
LINE = Markup('<line class="{}" x1="{}" x2="{}" y1="{}" y2="{}"/>')


def axis() -> Markup:
    """The ticks with their numbers, for the heading of the column."""
    text = Markup('<text x="{}" y="11" text-anchor="middle">{}</text>')
    numbers = Markup("").join(text.format(_place(tick), tick) for tick in TICKS)
    return _svg("distance from zero in half-widths of the interval", numbers)


def interval(margin: Margin) -> Markup:
    """A margin on the axis: a dot with its interval.

    A diamond at an end is an exact margin. A line along the whole axis is the unknown interval of a
    single run. An undefined margin is not drawn.
    """
    if not math.isfinite(margin.mean):
        return Markup("")
    low, high = margin.interval()
    half = (high - low) / 2
    if math.isinf(half):
        drawn = LINE.format("unknown", 0, WIDTH, MIDDLE, MIDDLE)
    elif half == 0:
        shape = Markup('<path d="M{} 8 l5 -5 5 5 -5 5z" fill="currentColor"/>')
        drawn = shape.format(WIDTH - 10 if margin.mean > 0 else 0)
    else:
        ends = (_place(low / half), _place(high / half))
        dot = Markup('<circle cx="{}" cy="{}" r="4" fill="currentColor"/>')
        drawn = LINE.format("bar", *ends, MIDDLE, MIDDLE)
        drawn += dot.format(_place(margin.mean / half), MIDDLE)
    lines = (("zero" if tick == 0 else "tick", _place(tick)) for tick in TICKS)
    grid = Markup("").join(LINE.format(kind, x, x, 0, 16) for kind, x in lines)
    return _svg(margin.text(), grid + drawn)


def _place(value: float) -> float:
    inside = max(-REACH, min(REACH, value))
    return round(WIDTH / 2 * (1 + math.asinh(inside) / math.asinh(REACH)), 1)


def _svg(name: str, content: Markup) -> Markup:
    return Markup('<svg viewBox="0 0 {} 16" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, name, content
    )
