"""The ledger: which records decide, thresholds halved and doubled, commands of a claim."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from fakes import fake, noise
from judged_records import FAILS, HOLDS, OPEN, SEEDS, judge_claim, the
from made_records import MADE
from made_records.langevin_learning import network
from snapshot import judged

from latticework.experiments.papers.claims.claim import Claim, Fresh
from latticework.experiments.papers.claims.compare import (
    Margin,
    margin_above,
)
from latticework.experiments.papers.claims.evidence import find_cheapest
from latticework.experiments.papers.claims.failures import list_failures, load_failures
from latticework.experiments.papers.claims.ledger import CLAIMS, DLP, GROUPS, RATES, Pool, judge
from latticework.experiments.papers.claims.readings import (
    by_seed,
    last_value,
)
from latticework.experiments.papers.claims.sensitivity import (
    describe_sensitivity,
    list_changes,
    list_thresholds,
)
from latticework.experiments.papers.claims.thresholds import Threshold, scale_thresholds
from latticework.experiments.papers.claims.verdict import Finding, Verdict
from latticework.experiments.records.record import Record
from latticework.scripts.claim import main


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
    usual = judge_claim("table1-small-caltech", made)
    assert judge_claim("table1-small-caltech", [*made, *longer]) == usual
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


def test_every_claim_of_the_papers_that_does_not_hold_has_a_reason():
    failing = set()
    for entry in judged():
        if entry.verdict is FAILS and entry.claim.group in (DLP, RATES):
            failing.add(entry.claim.name)
    assert {entry.claim.name for entry, _ in list_failures(judged())} == failing
    assert load_failures().keys() <= {claim.name for claim in CLAIMS}
    known = {"the paper", "settings", "this reproduction"}
    assert {failure.about for failure in load_failures().values()} <= known


def test_claims_are_counted_by_paper_and_ours_apart():
    groups = {one.name: one.group for one in CLAIMS}
    assert groups["fig3-dula"].startswith("Zhang")
    assert groups["rates-cost"].startswith("Breuleux")
    assert groups["later-linear"] == "Later samplers"
    for name in ("table3-diversity-mini", "rates-fig3-words-slow", "table1-small-caltech"):
        assert groups[name] == "Our readings"
    assert set(groups.values()) == set(GROUPS)
