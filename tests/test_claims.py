"""The ledger: verdicts from numbers, and what the committed records (test_net.py) do not show.

A claim that they do not judge is tested on records that make it true and untrue.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from fakes import fake, noise
from made_records import MADE
from made_records.langevin_learning import network

from latticework.experiments.figures.likelihood import records_at_best_rate
from latticework.experiments.papers.claims.claim import Claim, Fresh
from latticework.experiments.papers.claims.compare import (
    Margin,
    corrected_level,
    difference,
    margin_above,
)
from latticework.experiments.papers.claims.evidence import find_cheapest
from latticework.experiments.papers.claims.ledger import CLAIMS, GROUPS, Pool, judge
from latticework.experiments.papers.claims.readings import (
    by_seed,
    last_value,
    values_at_common_end,
)
from latticework.experiments.papers.claims.sensitivity import (
    describe_sensitivity,
    list_changes,
    list_thresholds,
)
from latticework.experiments.papers.claims.thresholds import Threshold, scale_thresholds
from latticework.experiments.papers.claims.verdict import Finding, Verdict
from latticework.experiments.papers.exhibits import catalogue
from latticework.experiments.records.estimates import (
    drop_slow_runs,
    format_estimate,
    share_text,
    step_seconds,
    timed_runs_and_note,
)
from latticework.experiments.records.likelihood import bounds, log_z_error
from latticework.experiments.records.record import Record
from latticework.scripts.claim import main

SEEDS = range(5)
KNOWN = catalogue()
HOLDS, FAILS, OPEN = Verdict.HOLDS, Verdict.FAILS, Verdict.OPEN


def verdict(*margins: Margin) -> Verdict:
    return Finding(margins).verdict()[0]


# From numbers to a verdict.


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


# The ledger.


def claim(judge_: Callable) -> Claim:
    return Claim("some", "fig3", "ising_sampling", "text", "source", judge_)


def mean_of(records: list[Record]) -> Finding:
    if len(records) < 2:
        raise LookupError("no record of gwg")
    return Finding((Margin("x", tuple(float(r.metrics["x"].iloc[-1]) for r in records)),))


def entry(*pools: Pool):
    (found,) = judge({"ising_sampling": pools}, [claim(mean_of)])
    return found


GOOD = [fake({"x": [1.0 + noise(seed)]}, seed=seed) for seed in SEEDS]
BAD = [fake({"x": [-1.0 + noise(seed)]}, seed=seed) for seed in SEEDS]


def test_other_runs_give_an_indication_and_decide_nothing():
    for records, pointed in ((GOOD, HOLDS), (BAD, FAILS)):
        found = entry(Pool("quick", False, records))
        assert (found.verdict, found.indication, found.basis) == (OPEN, pointed, "quick")
        assert found.needs == "python run.py experiment=ising_sampling"
    for records, expected in ((GOOD, HOLDS), (BAD, FAILS)):
        found = entry(Pool("paper", True, records), Pool("quick", False, BAD))
        assert (found.verdict, found.indication) == (expected, None)
    found = entry()
    assert found.verdict is Verdict.NOT_RUN
    assert found.needs == "python run.py experiment=ising_sampling"


def test_runs_that_do_not_suffice_say_what_is_missing():
    found = entry(Pool("paper", True, GOOD[:1]), Pool("quick", False, GOOD))
    assert (found.verdict, found.indication) == (OPEN, HOLDS)
    assert found.needs.startswith("paper: no record of gwg; python run.py")
    assert entry(Pool("paper", True, GOOD[:1])).verdict is OPEN


def test_a_seed_that_chose_settings_does_not_judge():
    """Seed 0 alone would refute the claim."""
    records = [fake({"x": [-99.0]}, seed=0), *GOOD[1:]]
    chose = dataclasses.replace(claim(mean_of), tuning_seed=0)
    pools = {"ising_sampling": [Pool("paper", True, records)]}
    (with_it,), (without,) = judge(pools, [claim(mean_of)]), judge(pools, [chose])
    assert (with_it.verdict, without.verdict) == (OPEN, HOLDS)
    assert "without seed 0, which was used for tuning" in without.finding.note


def test_fresh_seeds_are_judged_alone_beside_all():
    fresh = Fresh("seeds from 3", lambda record: record.config["seed"] >= 3)
    one = dataclasses.replace(claim(mean_of), fresh=fresh)
    records = [*GOOD[:3], *BAD[3:]]
    (found,) = judge({"ising_sampling": [Pool("paper", True, records)]}, [one])
    assert found.verdict is OPEN
    assert len(found.fresh.margins[0].values) == 2
    assert found.fresh.verdict()[0] is FAILS
    (found,) = judge({"ising_sampling": [Pool("paper", True, GOOD[:3])]}, [one])
    assert (found.verdict, found.fresh) == (HOLDS, None)


def test_data_that_are_a_part_of_the_papers_only_indicate():
    made = MADE["table2-news"]
    records = made.make(data="news_partial")
    (found,) = judge({"bnn": [Pool("paper", True, records)]}, [the("table2-news")])
    assert (found.verdict, found.indication, found.basis) == (OPEN, HOLDS, "paper, news_partial")
    both = [*records, *made.make(likelihood_gwg=-0.2)]
    (found,) = judge({"bnn": [Pool("paper", True, both)]}, [the("table2-news")])
    assert (found.verdict, found.indication) == (FAILS, None)


def test_models_that_were_chosen_by_other_rules_are_not_compared():
    """Checkpoints chosen by the most betas that all samplers have; none, if they share none."""
    longer = [network(name, "caltech", -50.0, seed=7) for name in ("gwg", "dmala")]
    for record in longer:
        record.config["task"]["trial_steps"] = 10_000
    made = MADE["table1-small-caltech"].make()
    usual = judged("table1-small-caltech", made)
    assert judged("table1-small-caltech", [*made, *longer]) == usual
    for record in made:
        if record.choices["sampler"] == "dmala":
            record.config["task"]["trial_steps"] = 500
    with pytest.raises(LookupError, match="trials of different lengths"):
        the("table1-small-caltech").judge(made)


def test_film_reviews_stand_for_the_papers_and_decide_nothing():
    pools = {"rates_fig3_words": [Pool("paper", True, MADE["rates-fig3-zeros"].make())]}
    (found,) = judge(pools, [the("rates-fig3-zeros")])
    assert (found.verdict, found.indication, found.basis) == (OPEN, HOLDS, "film reviews")
    assert "OpenTable" in found.needs


NEAR = Threshold(1.0, "distance of x from 0", "made up")
CLOSE = Threshold(2.0, "ratio of x", "made up", is_factor=True)


def near_zero(records: list[Record]) -> Finding:
    values = by_seed(records, last_value("x"))
    bounds = (-NEAR.value(), -CLOSE.value())
    return Finding([margin_above("x", values, bound) for bound in bounds])


@pytest.mark.parametrize(
    ("level", "verdicts"),
    [(-0.7, (FAILS, HOLDS)), (-1.2, (FAILS, HOLDS)), (0.0, (HOLDS, HOLDS)), (-3.0, (FAILS, FAILS))],
)
def test_a_verdict_is_judged_again_with_our_thresholds_halved_and_doubled(level, verdicts):
    """A factor is scaled in its logarithm: 2 becomes the root of 2, and 4."""
    pools = [Pool("paper", True, [fake({"x": [level + noise(s) / 10]}, seed=s) for s in SEEDS])]
    (found,) = judge({"ising_sampling": pools}, [claim(near_zero)])
    assert found.scaled == verdicts
    assert found.thresholds == (NEAR, CLOSE)
    (other,) = judge({"ising_sampling": pools}, [claim(mean_of)])
    assert (other.thresholds, other.scaled) == ((), ())
    changed = sum(verdict is not found.verdict for verdict in verdicts)
    text = describe_sensitivity([found, other])
    assert text.startswith("1 of 2 verdicts depend on thresholds of ours: ")
    assert len(list_changes([found, other])) == bool(changed)
    assert list_thresholds([found, other]) == [(NEAR, ["some"]), (CLOSE, ["some"])]
    with scale_thresholds(0.5):
        assert (NEAR.value(), CLOSE.value()) == (0.5, 2**0.5)
    assert (NEAR.value(), CLOSE.value()) == (1.0, 2.0)


def test_the_cheapest_evidence_has_the_options_and_the_seeds_that_decide():
    """DULA and DMALA alone, and two seeds, where all of Figure 4's samplers have three."""
    records = MADE["fig4-lowest"].make()
    evidence = find_cheapest(the("fig4-lowest"), Pool("paper", True, records))
    assert evidence.overrides == {"sampler": ["dmala", "dula"]}
    assert evidence.seeds == [1, 2]
    assert len(evidence.records) == 4
    assert evidence.entry.verdict is HOLDS
    open_ = [*GOOD, *(fake({"x": [-1.0]}, seed=seed) for seed in range(5, 10))]
    undecided = find_cheapest(claim(mean_of), Pool("paper", True, open_))
    assert (undecided.overrides, len(undecided.records)) == ({}, 10)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("fig4-lowest", ["experiment=rbm_sampling sampler=dmala,dula", "these runs: holds"]),
        ("rates-fig3-zeros", ["negatives=cd", "(film reviews): does not hold", "OpenTable"]),
        ("table1-caltech", ["not run: python run.py experiment=ais"]),
    ],
)
def test_a_command_judges_one_claim(name, lines, tmp_path, capsys):
    main([name, f"--outputs={tmp_path}"])
    printed = capsys.readouterr().out
    assert all(line in printed for line in lines)
    main([])
    assert f"{name}: " in capsys.readouterr().out
    with pytest.raises(SystemExit, match="not a claim"):
        main(["nothing"])


def test_claims_are_counted_by_paper_and_ours_apart():
    groups = {one.name: one.group for one in CLAIMS}
    assert groups["fig3-dula"].startswith("Zhang")
    assert groups["rates-cost"].startswith("Breuleux")
    assert groups["later-linear"] == "Later samplers"
    for name in ("table3-diversity-mini", "rates-fig3-words-slow", "table1-small-caltech"):
        assert groups[name] == "Our readings"
    assert set(groups.values()) == set(GROUPS)


# Each claim, on records where it is true and on records where it is not.


def curves(level: dict[str, float], column: str, speed: dict[str, float] | None = None, **extra):
    """Each sampler's curve falls to its level within the seconds that it needs for 100 steps."""
    return [
        fake(
            {
                "step": [0, 50, 100],
                "seconds": np.array([0.0, 0.5, 1.0]) * (speed or {}).get(name, 1.0),
                column: np.array([0.0, 0.5, 1.0]) * (value + noise(seed, place)),
                **{key: [value_] * 3 for key, value_ in extra.items()},
            },
            sampler=name,
            seed=seed,
        )
        for (place, (name, value)), seed in product(enumerate(level.items()), SEEDS)
    ]


def fig5(true: bool) -> list[Record]:
    """The Langevin samplers lead, by more with few steps, and reach -5 in half the seconds."""
    level = {(5, "gwg"): -3.0, (100, "gwg"): -5.1, (100, "gibbs"): -5.2}
    for ours in ("dula", "dmala"):
        level |= {(5, ours): -5.0 if true else -2.9, (100, ours): -5.5 if true else -5.05}
    records = []
    for (steps, name), value in level.items():
        speed = {"dula": 0.4, "dmala": 0.4} if true else {}
        for record in curves({name: value}, "log_rmse", speed):
            record.config["task"] = {"steps": steps}
            records.append(record)
    return records


def table1(data: str) -> list[Record]:
    score = {"gibbs": -117.0, "gwg": -80.0, "dula": -81.0, "dmala": -79.0}
    return [network(name, data, value, 0.4, 0.2, 40.0) for name, value in score.items()]


def words() -> list[Record]:
    """On models by CD, Gibbs is stuck in one state, at different ISLs from two starts."""
    records = []
    for method, name, start, seed in product(
        ("cd", "sml", "fpcd"), ("block_gibbs", "rates_fpcd"), ("data_mean", "uniform"), SEEDS
    ):
        isl, stuck = [-400, -380, -330, -310, -300], (method, name) == ("cd", "block_gibbs")
        if stuck:
            isl = [-400, -330, -318, -315, -321] if start == "data_mean" else [-530] * 5
        record = fake(
            {"step": [1, 5, 30, 100, 1000], "isl": np.array(isl) + noise(seed)},
            sampler=name,
            seed=seed,
            choices={"negatives": method, "model": "rbm_reviews", "start": start},
            commonest_share=0.9 if stuck else 1e-3,
        )
        records.append(record)
    return records


def cost() -> list[Record]:
    return [
        fake(
            sampler=name,
            seed=seed,
            choices={"model": f"rbm_{data}"},
            seconds_per_step=(1.0 if name == "block_gibbs" else 3.0) * (1 + noise(seed)),
        )
        for data, name, seed in product(("usps", "mnist"), ("block_gibbs", "rates_fpcd"), SEEDS)
    ]


JUDGED = {one.name: one for one in CLAIMS}
JUDGED |= {
    f"{one.name}, fresh": dataclasses.replace(one, judge=one.fresh.judge, fresh=None)
    for one in CLAIMS
    if one.fresh is not None and one.fresh.judge is not None
}


def test_every_claim_has_made_up_records_of_both_kinds():
    assert len({one.name for one in CLAIMS}) == len(CLAIMS)
    assert set(MADE) == set(JUDGED)
    assert all(made.false for made in MADE.values())


@pytest.mark.parametrize("name", JUDGED)
def test_a_claim_holds_on_records_where_it_is_true_and_fails_where_it_is_not(name):
    """Each part of a claim is broken alone, so that a sign anywhere in its judge is noticed."""
    made, one = MADE[name], JUDGED[name]
    cases = {"as it is": {}, **made.true, **made.false, **made.undecided}
    verdicts = {}
    for case, change in cases.items():
        pool = Pool("paper", True, made.make(**change))
        (found,) = judge({one.experiment: [pool]}, [one])
        verdicts[case] = found.indication or found.verdict
    expected = dict.fromkeys(cases, HOLDS) | dict.fromkeys(made.false, FAILS)
    assert verdicts == expected | dict.fromkeys(made.undecided, OPEN)


@pytest.mark.parametrize("one", CLAIMS, ids=lambda one: one.name)
def test_a_claim_is_about_an_exhibit_and_asks_for_what_it_needs(one):
    assert one.experiment in KNOWN[one.exhibit].items_by_experiment
    assert re.search(r"(et al\.| and \w+) \(", one.source)
    with pytest.raises(LookupError):
        one.judge([fake({"step": [0], "nothing": [0.0]}, choices={"data": "none"})])


def test_limits_are_corrected_for_the_number_of_margins():
    """-3 nats, with a spread of 1 over three seeds: below 0 alone, not as one of four margins."""
    scores = {"dmala": 0.0, "dula": 3.0, "gwg": -10.0, "gibbs": -20.0}
    records = [
        network(name, "caltech", -100 + value + (seed - 1) * (name == "dula"), 0.0, 0.0, 1e6, seed)
        for (name, value), seed in product(scores.items(), range(3))
    ]
    for record in records:
        record.document.update(log_z_lower_error=0.0, log_z_upper_error=0.0)
    finding = the("table1-caltech").judge(records)
    margin = finding.weakest_margin
    assert margin.interval()[1] < 0
    assert margin.interval(corrected_level(4)) == pytest.approx(
        Margin("", (-2.0, -3.0, -4.0)).interval(corrected_level(4))
    )
    assert finding.verdict()[0] is OPEN


def the(name: str) -> Claim:
    (found,) = [one for one in CLAIMS if one.name == name]
    return found


def test_the_best_rate_has_the_highest_validation_likelihood_over_all_seeds():
    """Not the largest rate, nor the highest test score, nor a score of one lucky seed."""
    valid = {1e-4: -95.0, 3e-4: -90.0, 1e-3: -92.0, 3e-3: -80.0}
    rates = {rate: range(1 if rate == 3e-3 else 3) for rate in valid}
    records = [
        network("dmala", "caltech", -80.0 + 1e3 * rate, 0.1, 0.1, 30.0, seed, rate, valid[rate])
        for rate, seeds in rates.items()
        for seed in seeds
    ]
    chosen = records_at_best_rate(records)
    assert [record.config["learning"]["optimiser"]["lr"] for record in chosen] == 3 * [3e-4]


def test_bounds_of_a_likelihood_are_those_of_log_z_turned_round():
    low, high = bounds(network("dmala", "caltech", -80.0, 3.0, 1.0, 20.0))
    reach = 2.0095752371292392 * 0.01  # t(0.975, 49)
    assert (low, high) == pytest.approx((-83.0 - reach, -79.0 + reach))
    record = network("dmala", "caltech", -80.0, 3.0, 1.0, 20.0)
    del record.document["log_z_upper"]
    with pytest.raises(LookupError, match="no upper bound on log Z"):
        bounds(record)


def test_the_error_of_log_z_grows_as_fewer_chains_are_effective():
    errors = [
        log_z_error(network("dmala", "caltech", -80.0, 1.0, 1.0, ess)) for ess in (5e4, 5, 2.5, 1.1)
    ]
    assert errors[0] == pytest.approx(0.1, rel=1e-3)
    assert errors[1] == pytest.approx(0.1 * 2.7764451051977987 / 1.959963984540054)  # t(0.975, 4)
    assert errors == sorted(errors)
    assert math.isinf(errors[-1])


# What is judged on records that are unlike the committed ones, as a whole text.


def judged(name: str, records: list[Record]) -> str:
    """The verdict with all margins and numbers, or why there is none."""
    try:
        finding = the(name).judge(records)
    except LookupError as error:
        return f"{name}: none, {error}"
    found, needs = finding.verdict()
    margins = [margin.text() for margin in finding.margins]
    numbers = [f"{one.what}: {format_estimate(one.here)}" for one in finding.numbers]
    return "\n  ".join([f"{name}: {found}; {needs}", *margins, *numbers, finding.note])


def stuck(start: str, sampler: str = "", share: float | None = None, isl: object = 0.0):
    """The words where CD's chains from that start have other ISLs, and are less often stuck."""
    records = words()
    for record in records:
        chosen = record.choices
        if (chosen["negatives"], chosen["start"]) == ("cd", start):
            if sampler in chosen["sampler"]:
                record.metrics["isl"] += isl
            record.document["commonest_share"] = share or record.document["commonest_share"]
    return records


def without_a_level(seeds: range) -> list[Record]:
    """DULA stays at -4.9 with these seeds. With fewer steps than Gibbs needs, it is open."""
    records = fig5(True)
    for record in records:
        steps, seed = record.config["task"]["steps"], record.config["seed"]
        if (record.choices["sampler"], steps) == ("dula", 100) and seed in seeds:
            record.metrics["log_rmse"] += 0.6
    return records


def some_reach_it() -> list[Record]:
    """Without the seed that fails, the ratio would refute the claim; the others must not."""
    records = fig5(False)
    for record in records:
        if record.choices["sampler"] == "dula" and record.config["seed"] == 0:
            record.metrics["log_rmse"] = record.metrics["log_rmse"].clip(lower=-4.99)
    return records


def longer() -> list[Record]:
    """Gibbs never reaches -5. Its run of twice the iterations took four times the seconds."""
    records = [r for r in fig5(True) if r.config["task"]["steps"] == 100]
    for record in (some := [r for r in records if r.choices["sampler"] == "gibbs"]):
        record.metrics["log_rmse"] += 1
    columns = {"step": [0, 100, 200], "seconds": [0.0, 2.0, 4.0], "log_rmse": [0.0, -4.2, -4.1]}
    config = {"task": {"steps": 100, "iterations": 200}}
    return records + [
        fake(columns, sampler="gibbs", seed=r.config["seed"], config=config, cpu_share=0.5)
        for r in some
    ]


def unfinished() -> list[Record]:
    """One seed of 100 steps: claims are judged at 5 steps."""
    return [r for r in fig5(True) if r.config["task"]["steps"] == 5 or r.config["seed"] == 0]


def near(dula: tuple, dmala: tuple, **change: float) -> list[Record]:
    """Caltech, where the two are close: (mean, below, above, ess), and a change of DMALA's."""
    others = [network(name, "caltech", -130.0, 1.0, 1.0, 20.0) for name in ("gibbs", "gwg")]
    pair = network("dula", "caltech", *dula), network("dmala", "caltech", *dmala)
    pair[1].document.update(change)
    return [*others, *pair]


def likelihoods(**means: float) -> list[Record]:
    return [network(name, "static_mnist", mean, 0.4, 0.2, 40.0) for name, mean in means.items()]


def ineffective() -> list[Record]:
    records = table1("caltech")
    records[-1].document["ess"] = 20.0
    return records


def no_common_rate() -> list[Record]:
    rates = {"gibbs": 1e-4, "gwg": 3e-4, "dula": 1e-3, "dmala": 1e-3}
    return [network(*(name, "caltech", -80.0, 0, 0, 9, 0), rate) for name, rate in rates.items()]


def gibbs(*curve: float) -> list[Record]:
    columns, config = {"step": [0, 50, 100], "log_rmse": curve}, {"task": {"steps": 5}}
    return [fake(columns, sampler="gibbs", seed=seed, config=config) for seed in SEEDS]


def sizes(*decays: float) -> list[Record]:
    """The best fast step size is the largest that was tried."""
    return [
        fake(
            {"step": [1], "isl": [-99.0]},
            sampler=name,
            validation_isl=-(math.log(size / 0.1) ** 2),
            settings={"fast_step_size": size, "decay": decay},
        )
        for name in ("rates_fpcd", "rates_herding")
        for size in (0.01, 0.05, 0.1)
        for decay in (decays if name == "rates_fpcd" else (1.0,))
    ]


WIDE = (-99.4, 17.4, 4.9, 4.6), (-96.2, 27.5, 5.4, 1.1)  # bounds by AIS that overlap
TIGHT = (-109.4, 1.0, 1.0, 30.0), (-105.2, 1.3, 0.6, 30.0)  # the VAE has -106.35
VAE = {"gibbs": -117.0, "gwg": -90.0, "dula": -91.0}  # the paper prints -82.41
CASES: dict[str, tuple[str, Callable[[], list[Record]]]] = {
    "a level that is never reached": ("fig5-ratio", lambda: without_a_level(SEEDS)),
    "a level reached too late": ("fig5-ratio", lambda: fig5(False)),
    "a level reached with some seeds": ("fig5-ratio", some_reach_it),
    "a longer run beside other work": ("fig5-ratio", longer),
    "a sweep that is unfinished at one value": ("fig5-iterations", unfinished),
    "a sweep that is unfinished at the value asked for": ("fig5-ratio", unfinished),
    "a curve that diverged": ("fig5-gibbs", lambda: gibbs(-2.0, 3.0, math.nan)),
    "a curve without a number": ("fig5-gibbs", lambda: gibbs(*[math.nan] * 3)),
    "bounds that overlap": ("table1-caltech", lambda: near(*WIDE)),
    "bounds that reach to the VAE": ("table1-caltech", lambda: near(*TIGHT)),
    "bounds above the VAE": ("table1-caltech", lambda: near(*TIGHT, log_z_upper=100.05)),
    "rows that are no draws": (
        "table1-caltech", lambda: near(*TIGHT, log_z_upper=100.05, log_z_back=92.0)
    ),
    "a value that is none": ("table1-caltech", ineffective),
    "worse than the VAE": ("table1-static_mnist", lambda: likelihoods(**VAE, dmala=-84.0)),
    "better than the VAE": ("table1-static_mnist", lambda: table1("static_mnist")),
    "no VAE": ("table1-small-static_mnist", lambda: likelihoods(**VAE, dmala=-84.0)),
    "other images": ("table1-omniglot", lambda: table1("omniglot_derived")),
    "no rate in common": ("table1-small-caltech", no_common_rate),
    "both stuck, uniform": ("rates-fig3-start", lambda: stuck("uniform", "rates_fpcd", isl=-100)),
    "both stuck, mean": ("rates-fig3-start", lambda: stuck("data_mean", "rates_fpcd", isl=-100)),
    "rising with samples": ("rates-fig3-start", lambda: stuck("data_mean", isl=np.arange(5) * 5.0)),
    "no narrow mode, start": ("rates-fig3-start", lambda: stuck("data_mean", share=1e-4)),
    "no narrow mode, words": ("rates-fig3-words", lambda: stuck("data_mean", share=1e-4)),
    "one start": (
        "rates-fig3-start", lambda: [r for r in words() if r.choices["start"] == "data_mean"]
    ),
    "two models": (
        "rates-fig3-consistency", lambda: [r for r in words() if r.config["seed"] < 2]
    ),
    "the end of the grid, decay": ("rates-fig3-decay", lambda: sizes(1.0, 0.95)),
    "the end of the grid, step": ("rates-fig2-step", lambda: sizes(1.0)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_claim_is_judged_on_records_like_these(case, golden):
    name, make = CASES[case]
    golden(judged(name, make()))
