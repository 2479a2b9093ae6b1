"""From numbers of runs to a verdict: margins, intervals, pairs of seeds, idle seconds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fakes import fake
from judged_records import FAILS, HOLDS, OPEN, SEEDS, cost, curves, fig5, the

from latticework.experiments.papers.claims.compare import (
    Margin,
    difference,
    margin_above,
)
from latticework.experiments.papers.claims.equal_times import lowest_at_equal_times
from latticework.experiments.papers.claims.readings import (
    by_seed,
    last_value,
    values_at_common_end,
)
from latticework.experiments.papers.claims.verdict import Finding, Verdict
from latticework.experiments.records.estimates import (
    drop_slow_runs,
    share_text,
    step_seconds,
    timed_runs_and_note,
)


def verdict(*margins: Margin) -> Verdict:
    return Finding(margins).verdict()[0]


ABOVE, BELOW = Margin("a", (1.0, 1.1, 0.9)), Margin("b", (-1.0, -1.1, -0.9))
NINETEEN = [Margin(str(place), (1.0, 1.1, 0.9)) for place in range(19)]
SLIGHT = Margin("slight", (-1.0, -1.3, -0.2, -0.9))


def between(*ends: tuple[float, float]) -> Margin:
    return Margin("a", (1.0,) * len(ends), ends=lambda level: ends, basis="bounds")


@pytest.mark.parametrize(
    ("margins", "found", "needs"),
    [
        ([ABOVE], HOLDS, ""),
        ([BELOW], FAILS, ""),
        ([ABOVE, BELOW], FAILS, ""),
        ([SLIGHT], FAILS, ""),
        ([SLIGHT, *NINETEEN], OPEN, "about"),  # one of many refutes at a shared level
        ([Margin("a", (5.0,))], OPEN, "more seeds"),  # a single run
        ([Margin("a", (5.0,), exact=True)], HOLDS, ""),
        ([Margin("a", (-5.0,), exact=True)], FAILS, ""),
        ([Margin("a", (0.0,), exact=True)], FAILS, ""),
        ([between((0.5, 1.5))], HOLDS, ""),
        ([between((-0.5, 2.5))], OPEN, "a: -0.5 to 2.5, bounds: closer ends"),
        ([between((-1.5, -0.5))], FAILS, ""),
        ([between((0.5, 1.5), (2.5, 3.5))], OPEN, "about 6 seeds"),
        ([between((-0.5, 1.5), (-0.7, 9.5))], OPEN, "closer ends"),
        ([Margin("a", (1.0, 1.1), at_least=True)], HOLDS, ""),
        ([Margin("a", (-9.0, -9.1), at_least=True)], OPEN, "only a lower bound: longer runs"),
        ([Margin("a", (1.0, math.nan, 1.0))], OPEN, "undefined"),
        ([Margin("a", (1.0, math.inf, 1.0))], OPEN, "undefined"),
    ],
)
def test_verdicts(margins, found, needs):
    verdict_, said = Finding(margins).verdict()
    assert verdict_ is found
    assert needs in said
    assert bool(needs) == bool(said)


def test_the_interval_is_students():
    low, high = Margin("a", (1.0, 2.0, 3.0)).interval()
    reach = 4.302652729911275 / math.sqrt(3)  # t(0.975, 2), standard deviation 1
    assert (low, high) == pytest.approx((2 - reach, 2 + reach))


@pytest.mark.parametrize("others", [0, 11])
def test_an_open_claim_says_how_many_seeds_would_decide(others):
    """One of several margins fails at the corrected level, for which it needs more."""
    values = (-0.135, -0.2, -0.07, -0.1, -0.03) if others else (1.0, -0.5, 0.7, -0.2)
    margin, more = Margin("the gap", values), [ABOVE] * others
    found, needs = Finding([margin, *more]).verdict()
    assert found is OPEN
    seeds = margin.seeds_needed(1 + others)
    assert f"about {seeds} seeds" in needs
    assert len(values) < seeds
    assert verdict(Margin("the gap", tuple(np.resize(values, 40 * len(values)))), *more) is not OPEN


def test_the_binding_margin_is_the_closest_to_failing():
    clear, close, unknown = (Margin("", v) for v in ((9.0, 9.1), (0.5, 0.9), (5.0,)))
    assert Finding((clear, close)).weakest_margin is close
    assert Finding((clear, unknown)).weakest_margin is unknown


def test_a_quantity_of_zero_is_shown_as_zero():
    """Its distance from the line is rounded: 0.1 + (5e-17 - 0.1) is no 5e-17."""
    shares = dict.fromkeys(range(3), 5e-17)
    margin = margin_above("share", shares, 0.1)
    assert margin.text() == "share: 0 [0, 0], expected above 0.1, 3 runs"
    small = dict.fromkeys(range(3), 1e-09)
    assert margin_above("error", small, 1e-9).text().startswith("error: 1e-09 [1e-09, 1e-09]")


def test_pairs_are_of_equal_seeds():
    gap = difference("gap", {0: 1.0, 1: 3.0, 2: 9.0}, {1: 1.0, 0: 0.5, 7: 0.0})
    assert gap.values == (0.5, 2.0)
    with pytest.raises(LookupError, match="no seed"):
        difference("gap", {0: 1.0}, {1: 1.0})
    first = fake({"x": [1.0]}, seed=3)
    another = fake({"x": [2.0]}, seed=3, config={"model_seed": 9})
    with pytest.raises(LookupError, match="two runs have seed 3"):
        by_seed([first, another], last_value("x"))
    again = fake({"x": [2.0]}, seed=3)  # the same run, made twice
    assert by_seed([first, again], last_value("x")) == {3: 1.0}


def test_other_work_on_the_machine_does_not_change_the_pace_of_a_run():
    """Eight of ten intervals take up to twice as long, and the pace stays that of the others."""
    step = np.arange(0.0, 101, 10)
    quiet = fake({"step": step, "seconds": step / 10})
    assert step_seconds(quiet) == pytest.approx(0.1)
    loaded = np.cumsum([0.0, 1, 2, 2, 1.5, 1.8, 2, 1, 2, 1.6, 2])
    assert step_seconds(fake({"step": step, "seconds": loaded})) == pytest.approx(0.1)
    assert step_seconds(fake({"step": step, "seconds": step / 5})) == pytest.approx(0.2)


def test_seconds_of_runs_beside_other_work_are_refused():
    """Two of five runs of a sampler took twice as long; their errors still count."""
    usual = curves({"dmala": -4.0, "gibbs": -3.0}, "log_rmse")
    groups = {"a": usual[:5], "b": usual[5:]}
    place, ends = values_at_common_end(groups, "log_rmse", "seconds")
    for record in usual[:2]:
        record.metrics["seconds"] *= 2
    assert drop_slow_runs(usual[:5]) == usual[2:5]
    again, same = values_at_common_end(groups, "log_rmse", "seconds")
    assert again == pytest.approx(place)
    assert same["a"] == pytest.approx(ends["a"])


def test_samplers_that_cross_are_not_ahead_at_every_time():
    """At equal time; the end alone would say that DMALA is."""
    step = np.arange(0.0, 1001, 10)
    records = []
    for seed in range(4):
        ours = fake(
            {"step": step, "seconds": step / 100, "error": 4 - step / 100 + seed / 100},
            sampler="dmala",
            seed=seed,
        )
        theirs = fake(
            {"step": step, "seconds": step / 100, "error": 2 - step / 200},
            sampler="gibbs",
            seed=seed,
        )
        records += [ours, theirs]
    finding = lowest_at_equal_times(records, "error", "error", ["Gibbs-1"])
    assert finding.verdict()[0] is Verdict.FAILS
    assert [margin.mean > 0 for margin in finding.margins] == [False, False, True, True]
    assert finding.note.startswith("error after 1.2, 2.5, 5, 10 seconds")
    assert finding.note.endswith("; DMALA overtakes Gibbs-1 between 2.5 and 5 s")


@pytest.mark.parametrize(("name", "records"), [
    ("fig5-ratio", lambda: fig5(True)), ("rates-cost", lambda: cost())
])  # fmt: skip
def test_claims_about_seconds_refuse_runs_on_a_busy_core(name, records):
    """A record of 79 % of a core is refused, and one of 81 % is not."""
    found = records()
    counts = []
    for seeds, share in ((SEEDS, 1.0), (SEEDS, 0.81), ([0], 0.79)):
        for record in found:
            if record.config["seed"] in seeds:
                record.document["cpu_share"] = share
        counts.append(len(the(name).judge(found).margins[-1].values))
    assert counts == [5, 5, 4]
    for record in found:
        record.document["cpu_share"] = 0.79
    with pytest.raises(LookupError, match="other work took the core of every run"):
        the(name).judge(found)


def test_the_share_of_a_core_is_told_where_it_is_known():
    """Figures leave busy runs out and say how many; a figure without others says that too."""
    known = [fake(seed=seed, cpu_share=share) for seed, share in enumerate((1.0, 0.9, 0.5))]
    old = fake(seed=3)
    assert share_text([old]) == ""
    assert share_text([old, *known[:2]]) == "timed with 90% of a core or more"
    assert "1 of 4 had a busy core" in share_text([old, *known])
    assert timed_runs_and_note([old, *known[:2]]) == ([old, *known[:2]], "")
    shown, note = timed_runs_and_note([old, *known])
    assert shown == [old, *known[:2]]
    assert "Without 1 of 4 runs" in note
    shown, note = timed_runs_and_note(known[2:])
    assert shown == known[2:]
    assert "every run" in note
