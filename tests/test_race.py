"""`latticework race`: samplers tuned and measured under an equal budget, ranked with ties."""

import dataclasses
import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
from exactness import dmala, gwg, random_walk
from scipy.stats import norm
from targets import TARGETS
from torch import Generator

import latticework as lw
from latticework.experiments.records.record import open_record
from latticework.sampling import starts
from latticework.sampling.checking.targets import Target
from latticework.sampling.evaluations import evaluations_of_step
from latticework.sampling.intervals import mean_interval, t_half_width
from latticework.sampling.tuning import race as contests
from latticework.sampling.tuning import setup
from latticework.sampling.tuning.race import BIASED, Entrant, Race, RaceRun, rank_entrants
from latticework.sampling.tuning.setup import (
    Allowance,
    Quality,
    TuningSetup,
    ess_of_worst,
    fit_blocks,
    quality,
)
from latticework.scripts import race, trace

FILE = """
import math
from dataclasses import dataclass

import torch
from latticework.samplers.base import Sampler, State, metropolis

WEIGHTS = torch.linspace(-1, 1, 6)

def linear(x):
    return x @ WEIGHTS

def steps(x):  # no gradient
    return (x > 0.5).float().sum(-1)

def rare(x):  # a sixteenth of all states are impossible
    return linear(x).masked_fill(x[:, :4].sum(-1) == 4, -torch.inf)

def potts(x):  # [chains, 4, 3]
    return (x[:, 1:] * x[:, :-1]).sum((1, 2))

def needle(x):  # the state of ones holds a half of the mass
    return x.prod(-1).detach() * math.log(2 ** x.shape[1] - 1) + 0 * x.sum(-1)

def flat(x):
    return 0 * x.sum(-1)

STARTS = torch.ones(5, 6).tolist()

@dataclass(frozen=True)
class Jump(Sampler):  # an independence sampler that proposes the state of ones half of the time
    def at(self, x, model):
        return State(x, model.log_prob(x), torch.zeros_like(x))

    def step(self, state, model, rng):
        x = state.x
        ones = torch.rand(len(x), 1, generator=rng) < 0.5
        new = self.at(torch.where(ones, 1.0, model.domain.uniform(len(x), rng)), model)
        log_q = [(0.5 * y.prod(-1) + 0.5 ** (x.shape[1] + 1)).log() for y in (x, new.x)]
        return metropolis(state, new, new.log_prob - state.log_prob + log_q[0] - log_q[1], rng)
"""
TINY = ("--chains", "4", "--seeds", "3", "--trials", "2")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("user")
    (folder / "target.py").write_text(FILE)
    return f"{folder}/target.py"


def asked(capsys, outputs, *words, budget=3000):
    """The exit status, the page in one line, and the folder of the records."""
    few = ("--budget", f"{budget}evaluations", *TINY)
    status = race.main([*words, *few, "--outputs", str(outputs)])
    page = " ".join(capsys.readouterr().out.split())
    return status, page, sorted(outputs.glob("race/*/*"))[-1]


@pytest.mark.slow
def test_a_race_on_a_target(file, tmp_path, capsys):
    words, budget = ("--domain", "categorical:4,3", "--samplers", "dmala,gwg"), 6000
    status, page, folder = asked(capsys, tmp_path, f"{file}:potts", *words, budget=budget)
    assert status == 0
    table = pd.read_csv(folder / "race.csv", dtype={"rank": str})
    assert len(table) == 2
    ranks = table[table["rank"] != "-"]
    assert ranks["rank"].iloc[0] in ("1", "=1")
    assert (ranks["ess_per_evaluation_low"] <= ranks["ess_per_evaluation"]).all()
    assert (ranks["ess_per_evaluation"] <= ranks["ess_per_evaluation_high"]).all()
    assert ranks["ess_per_evaluation"].between(1e-6, 2).all()
    spent = open_record(folder).metrics.groupby("sampler")["spent"].sum()
    assert (spent <= 4 * budget / 2).all()  # half of the budget, for each of 4 chains
    assert (spent > 0.9 * 4 * budget / 2).all()
    assert "table, figure and records:" in page
    assert (folder / "race.pdf").exists()


def test_every_exact_sampler_takes_part_by_default(file, tmp_path, capsys):
    """With a budget for nothing else than to be listed."""
    status, page, folder = asked(
        capsys, tmp_path, f"{file}:linear", "--domain", "binary:6", budget=60
    )
    assert status == 1  # none is ranked
    table = pd.read_csv(folder / "race.csv")
    exact = {"acs", "avg", "dhams", "dlmc", "dlmcf", "dmala", "edlp", "gibbs", "gwg"}
    exact |= {"hamming_ball", "locally_balanced", "pafs", "pafs_with_replacement", "pavg"}
    exact |= {"random_walk", "rmala", "tempered"}
    assert set(table["sampler"]) == exact
    assert "left out: block_gibbs (BlockGibbs needs" in page
    assert "left out: dsvgd, dula, " in page
    assert "locally_balanced: the budget allows 2 steps a run, too few to judge" in page
    assert "No sampler has a rank: none mixed within the budget" in page
    assert "Give a larger --budget" in page
    assert "The exit status is 1." in page


@pytest.mark.slow
def test_no_sampler_is_ranked_where_one_missed_half_of_the_mass(file, tmp_path, capsys):
    """DMALA never sees the needle, and its own chains agree."""
    words = ("--domain", "binary:24", "--samplers", f"dmala,{file}:Jump")
    status, page, folder = asked(capsys, tmp_path, f"{file}:needle", *words, budget=16000)
    assert status == 1, page
    table = pd.read_csv(folder / "race.csv", index_col="sampler")
    assert (table["r_hat"] < 1.05).all()
    assert list(table["rank"]) == ["-", "-"]
    assert "No sampler has a rank, because they disagree about the target" in page
    assert "by dmala and" in page
    assert " differ too" in page
    assert open_record(folder).config["disagreements"]
    status, page, folder = asked(capsys, tmp_path, f"{file}:flat", *words, budget=16000)
    assert status == 0  # the control: without the needle
    assert "disagree" not in page


def test_chains_start_where_they_are_told(file, tmp_path, capsys, monkeypatch):
    words = (f"{file}:linear", "--domain", "binary:6", "--samplers", "gibbs")
    started, drawn = [], TuningSetup.sample_run

    def noted(self, sampler, steps, seed, x=None):
        started.append(self.x if x is None else None)
        return drawn(self, sampler, steps, seed, x)

    monkeypatch.setattr(TuningSetup, "sample_run", noted)
    *_, folder = asked(capsys, tmp_path, *words, "--x", f"{file}:STARTS")
    given = [x for x in started if x is not None]
    assert len(given) == 5  # two trials, three seeds
    assert all(torch.equal(x, torch.ones(5, 6)) for x in given)
    assert open_record(folder).config["chains"] == 5
    with pytest.raises(ValueError, match=r"x must have shape \[chains, 16\]"):
        race.main([f"{file}:flat", "--domain", "binary:16", "--x", f"{file}:STARTS"])


@pytest.mark.slow
def test_a_biased_sampler_runs_and_has_no_rank(file, tmp_path, capsys):
    """At its largest step sizes, DULA makes more effective samples than DMALA."""
    words = ("--domain", "binary:6", "--samplers", "dula,dmala")
    status, page, folder = asked(capsys, tmp_path, f"{file}:linear", *words, budget=12000)
    assert status == 0, page
    table = pd.read_csv(folder / "race.csv", index_col="sampler")
    assert table["rank"].to_dict() == {"dmala": "1", "dula": "-"}
    assert table["ess_per_evaluation"]["dula"] > 0
    assert table["note"]["dula"] == BIASED
    assert re.search(r"- dula +\S+ \[", page)
    assert f"dula: {BIASED}" in page
    status, page, folder = asked(
        capsys, tmp_path, f"{file}:linear", *words[:3], "dula", budget=1500
    )
    assert status == 1  # none is ranked


@pytest.mark.slow
def test_a_race_is_repeatable_and_traced(file, tmp_path, capsys):
    """Two equal races have the same numbers; the figure's record is verified."""
    words = (f"{file}:linear", "--domain", "binary:6", "--samplers", "dmala")
    one, other = (asked(capsys, tmp_path, *words)[2] for _ in range(2))
    assert one != other
    assert open_record(one).config == open_record(other).config
    numbers = [open_record(each).metrics.drop(columns="seconds") for each in (one, other)]
    pd.testing.assert_frame_equal(*numbers)
    assert trace.main([str(one / "race.png")]) == 0
    (one / "metrics.csv").write_text("changed")
    assert trace.main([str(one / "race.png")]) == 1
    capsys.readouterr()


@pytest.mark.slow
def test_a_sampler_that_fails_leaves_the_others(file, tmp_path, capsys, monkeypatch):
    """A target without a gradient, one that is -inf in places, and a sampler that raises."""
    words = ("--domain", "binary:6", "--samplers", "gibbs,dmala")
    _, page, folder = asked(capsys, tmp_path, f"{file}:steps", *words)
    assert "left out: dmala (the log-probability of Function cannot be differentiated" in page
    assert pd.read_csv(folder / "race.csv")["sampler"].tolist() == ["gibbs"]
    status, page, folder = asked(capsys, tmp_path, f"{file}:rare", *words, budget=12000)
    assert status == 0, page
    assert pd.read_csv(folder / "race.csv")["note"].isna().all()
    faults = {"dmala": ValueError("a chain met NaN"), "gwg": RuntimeError("sizes differ")}
    enter = Race.enter

    def entered(self, name, sampler, space):
        if name in faults:
            raise faults[name]
        return enter(self, name, sampler, space)

    monkeypatch.setattr(Race, "enter", entered)
    words = ("--domain", "binary:6", "--samplers", "gibbs,dmala,gwg")
    status, page, folder = asked(capsys, tmp_path, f"{file}:linear", *words, budget=40000)
    assert status == 0
    assert "dmala: a chain met NaN" in page
    assert "gwg: RuntimeError: sizes differ" in page
    ranks = pd.read_csv(tmp_path / "race/linear/1/race.csv", index_col="sampler")["rank"]
    assert str(ranks["gibbs"]) == "1"


def test_a_folder_that_cannot_be_written_costs_no_race(file, tmp_path, monkeypatch):
    (tmp_path / "race").touch()
    monkeypatch.setattr(Race, "run", lambda *_: pytest.fail("it raced"))
    with pytest.raises(OSError, match="race"):
        race.main([f"{file}:linear", "--domain", "binary:6", "--outputs", str(tmp_path)])


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("--domain", "binary:6", "--budget", "5minutes"), "budget '5minutes' is not known"),
        ((), "the states of linear are not known: give --domain"),
        (("--domain", "binary:6", "--trials", "0"), "trials must be an integer of at least 1"),
        (("--domain", "binary:6", "--seeds", "2"), "three seeds or more"),
        (("--domain", "binary:6", "--samplers", "block_gibbs"), "no sampler supports"),
        (("--domain", "binary:6", "--samplers", "dmalla"), "did you mean dmala"),
        (("--domain", "binary:6", "--samplers", "gibbs,"), "names with commas between .* 'gibbs,'"),
        (("--domain", "binary:6", "--budget", ".s"), "budget '.s' is not known"),
        (("--domain", "binary:6", "--budget", "1.2.3s"), "budget '1.2.3s' is not known"),
        (("--domain", "binary:6", "--budget", "1e400s"), "budget '1e400s' is not known"),
        (("--domain", "binary:7"), "Function could not evaluate x of shape"),
    ],
)
def test_mistakes_are_told(words, match, file, tmp_path):
    with pytest.raises(ValueError, match=match):
        race.main([f"{file}:linear", *words, "--outputs", str(tmp_path)])


def test_samplers_of_one_class_with_other_settings_all_take_part():
    given = [lw.DMALA(0.1), lw.DMALA(0.5), "dmala", lw.DMALA(0.3)]
    taken, left = contests.select_entrants(given, lw.Lattice((2, 2), 0.1))
    assert list(taken) == ["DMALA", "DMALA(step_size=0.5)", "dmala", "DMALA(step_size=0.3)"]
    assert not left
    with pytest.raises(ValueError, match=r"DMALA\(step_size=0.5\) is given twice"):
        contests.select_entrants([*given, lw.DMALA(0.5)], lw.Lattice((2, 2), 0.1))


# Parts.


def entrant(name, *rates, r_hat=1.0, sampler=lw.Gibbs()):  # noqa: B008 - it never changes
    laps = [RaceRun(seed, 100, rate, 1.0, 10.0) for seed, rate in enumerate(rates)]
    return Entrant(name, sampler, {}, laps, r_hat)


def test_ranks_and_ties():
    """An entrant ranks below those whose whole interval is above its own."""
    found = rank_entrants(
        [
            entrant("slow", 10, 11, 10.5),
            entrant("fast", 100, 110, 105),
            entrant("stuck", 0, 500, 500),
            entrant("as fast", 90, 120, 104),
            entrant("apart", 900, 900, 900, r_hat=1.3),
            entrant("biased", 900, 900, 900, sampler=lw.DULA(2.0)),
        ],
        "seconds",
    )
    assert [(rank, each.name) for rank, each in found] == [
        ("=1", "fast"),
        ("=1", "as fast"),
        ("3", "slow"),
        ("-", "stuck"),
        ("-", "apart"),
        ("-", "biased"),
    ]


def test_no_measured_run_repeats_the_random_numbers_of_the_search(monkeypatch):
    taken, drawn = [], TuningSetup.sample_run

    def noted(self, sampler, steps, seed, x=None):
        taken.append(seed)
        return drawn(self, sampler, steps, seed, x)

    monkeypatch.setattr(TuningSetup, "sample_run", noted)
    model, seeds = lw.Function(lambda x: x.sum(-1), lw.Binary(4)), (3, 4, 5)
    contest = Race(model, Allowance(600, "evaluations"), 4, seeds, trials=2)
    contest.enter("dmala", lw.DMALA(0.2), {"step_size": {"low": 0.1, "high": 1.0}})
    search, other, *measured = taken
    assert search == other  # trials differ in their settings alone
    assert sorted({search, *measured}) == [2, *seeds]


def test_the_interval_is_students_of_the_logarithm():
    mean, low, high = entrant("x", 1.0, math.e, math.e**2).interval("seconds")
    half = 4.302652729749 / math.sqrt(3)  # the 97.5 % point of Student's t, 2 degrees of freedom
    assert np.log([mean, low, high]) == pytest.approx([1, 1 - half, 1 + half])
    assert entrant("x", 10.0, 10.0).interval("evaluations") == pytest.approx((1, 1, 1))


def test_intervals_of_one_value_are_infinite_and_quantiles_are_those_of_tables():
    assert mean_interval([3.0]) == (3.0, -math.inf, math.inf)
    assert [t_half_width(1), t_half_width(1.9)] == [math.inf] * 2
    assert t_half_width(3) == pytest.approx(4.302652729749)
    assert t_half_width(11, 0.9) == pytest.approx(1.812461122812)


def summed(domain):
    return lw.Function(lambda x: x.flatten(1).sum(-1), domain)


RBM, RING = TARGETS["rbm"].model, TARGETS["ring"].model
ROWS, FIELD = lw.synthetic_regression(40, 6), lw.DenseIsing(torch.zeros(6, 6), 0.1)
TEMPERED = lw.Tempered(lw.DMALA(0.2), schedule=[0.4, 0.7, 1.0])


@pytest.mark.parametrize(
    ("sampler", "model", "expected"),
    [
        (lw.DMALA(0.4), summed(lw.Binary(5)), 1),  # value and gradient together
        (lw.Gibbs(), summed(lw.Binary(5)), 2),  # each value of the site
        (lw.Gibbs(2), summed(lw.Binary(5)), 4),
        (lw.LocallyBalanced(), summed(lw.Binary(5)), 6),  # itself and its neighbours
        (lw.Gibbs(), summed(lw.Categorical(5, 3)), 3),
        (lw.HammingBall(3, 1), summed(lw.Binary(5)), 4),
        (lw.StochasticDULA(0.1, 10), ROWS, 0.25),  # a minibatch: its part of the rows
        (lw.StochasticDULA(0.1, 40), ROWS, 1),
        (lw.DMALA(0.4), RBM, 1),  # closed forms
        (lw.GWG(), RBM, 1),
        (lw.GWG(), RING, 1),  # all differences, though a lattice updates only some
        (lw.BlockGibbs(), RBM, 1),  # no counted call
        (TEMPERED, RBM, 3),  # each replica, as for a function of x
        (TEMPERED, lw.Function(RBM.forward, RBM.domain), 3),
        (TEMPERED, RING, 3),
        (lw.Gibbs(), FIELD, 1 / 6),  # a local change: sites over all sites, for each pattern
        (lw.Gibbs(2), FIELD, 4 * 2 / 6),
        (lw.LocallyBalanced(), FIELD, 1),
        (lw.HammingBall(3, 1), FIELD, 4 / 2),
    ],
    ids=str,
)
def test_evaluations_of_a_step(sampler, model, expected):
    x = model.domain.uniform(7, Generator().manual_seed(0))
    found = evaluations_of_step(sampler, model, x, Generator().manual_seed(1))
    assert found == pytest.approx(7 * expected)


def test_quality_is_arvizs_of_the_worst_and_the_median_site_and_of_the_energy():
    result = lw.sample(lambda x: 3 * x[:, 0], "gibbs", sites=3, steps=300, chains=4)
    found = quality(result)
    table = result.summary(digits=None)
    sites = table.drop("log_prob")
    assert found.ess == pytest.approx(sites["ess_bulk"].min())
    assert found.ess_median == pytest.approx(sites["ess_bulk"].median())
    assert found.ess_energy == pytest.approx(table["ess_bulk"]["log_prob"])
    assert found.r_hat == pytest.approx(table["r_hat"].max())
    assert found.worst == min(found.ess, found.ess_energy)


def test_chains_that_are_stuck_have_no_effective_samples():
    """At one value or at several; a site at which all draws of all chains agree is left out."""
    frozen = lw.sample(lambda x: 99 * x[:, 0], "gibbs", x=torch.ones(4, 3), sites=3, steps=90)
    assert frozen.draws[..., 1].var() > 0
    alone = quality(frozen)
    assert (alone.still, alone.ess > 0, math.isfinite(alone.r_hat)) == (1, True, True)
    apart = lw.sample(lambda x: 0 * x.sum(-1), lw.DMALA(1e-9), sites=3, steps=90, chains=4)
    assert apart.draws.var(1).max() == 0
    found = quality(apart)
    assert (found.ess, found.ess_median, found.score, found.r_hat) == (0, 0, 0, math.inf)
    assert math.isnan(found.ess_energy)


def test_a_stuck_site_beside_one_that_moves_leaves_no_effective_samples():
    """Two sites that are locked together, in half of the chains at 0 and in the others at 1."""
    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 0.0]]).repeat(2, 1)
    locked = lw.sample(
        lambda x: 99 * (x[:, 0] == x[:, 1]) + x[:, 2], "gibbs", x=x, sites=3, steps=90
    )
    found = quality(locked)
    assert (found.ess, found.worst, found.r_hat, found.still) == (0, 0, math.inf, 0)
    assert found.score > 0  # a search still prefers that the third site moves


def test_what_a_sampler_learns_first_is_learned_once_and_charged():
    """PAVG learns with 256 pilots, here in 20 steps, for all trials and runs together."""
    called = []

    def counting(x):
        called.append(len(x))
        return x @ torch.linspace(-1, 1, 4)

    contest = Race(
        lw.Function(counting, lw.Binary(4)), Allowance(2000, "evaluations"), 8, range(3), 2
    )
    found = contest.enter(
        "pavg", lw.PAVG(1.0, burn_in=20), {"step_size": {"low": 0.5, "high": 2.0}}
    )
    assert called.count(256) == 21
    assert found.beforehand["evaluations"] == 21 * 256 / 8
    assert found.sampler == lw.PAVG(found.fields["step_size"], burn_in=20)
    at_most = 2000 * 8 + 3 * 100 * 8  # with the starts of the runs and their checks
    assert sum(called) < at_most
    space = {"step_size": {"low": 0.5, "high": 2.0}}
    for amount, given, part in ((1000, space, "half of the budget"), (600, {}, "the budget")):
        poor = dataclasses.replace(contest, budget=Allowance(amount, "evaluations"))
        found = poor.enter("pavg", lw.PAVG(1.0, burn_in=20), given)
        assert found.laps == []
        assert found.note.startswith(f"{part} does not pay for 672 evaluations by each")


@pytest.mark.parametrize(
    ("sampler", "space"),
    [(lw.DMALA(0.5), {"step_size": {"low": 0.4, "high": 0.6}})]
    + [
        (each, {})
        for each in (
            lw.DMALA(0.5), lw.GWG(), lw.Gibbs(), lw.Gibbs(2), lw.RandomWalk(),
            lw.LocallyBalanced(), lw.HammingBall(3, 1),
        )
    ],
    ids=str,
)  # fmt: skip
def test_a_budget_is_what_the_target_receives(sampler, space):
    """All of it without tuning, half with it; draws are paid, and the warm-up is in no rate."""
    rows = []

    def counting(x):
        rows.append(len(x))
        return x @ torch.linspace(-1, 1, 4)

    model = lw.Function(counting, lw.Binary(4))
    contest = Race(model, Allowance(1500, "evaluations"), 8, range(3), 2)
    found = contest.enter("x", sampler, space)
    part = 8 * 1500 / 2 if space else 8 * 1500
    spent = sum(lap.spent for lap in found.laps)
    assert 0.9 * part < spent <= part
    assert sum(rows) < 1.2 * 8 * 1500  # with starts and checks of each run
    each = evaluations_of_step(sampler, model, torch.zeros(8, 4), Generator().manual_seed(0))
    for lap in found.laps:
        assert lap.evaluations < lap.spent
        assert lap.evaluations == pytest.approx(0.8 * lap.steps * each, rel=0.05)


def test_rates_are_those_of_a_long_run(monkeypatch):
    """The exact worst inefficiency of random-scan Gibbs on n free sites is 2 n - 1 steps."""
    contest = Race(lw.DenseIsing(torch.zeros(5, 5)), Allowance(4000, "evaluations"), 8, range(3))
    found = contest.enter("gibbs", lw.Gibbs(scan="random"), {})
    evaluations_of_a_step = 1 / 5
    exact = 1 / 9 / evaluations_of_a_step
    assert found.interval("evaluations").middle == pytest.approx(exact, rel=0.15)


def quality_of(*ess):
    """A run with these ESS of the log-probability and of the entries."""
    numbers = [value for value in ess if value is not None]
    return Quality(min(numbers), 1.0, 1.0, math.nan, 1.0, 0, ess)


def test_all_runs_choose_the_quantity_whose_ess_counts():
    """What is still in a run has no ESS there; a run in which a quantity is stuck counts 0."""
    runs = [quality_of(50, 90), quality_of(80, 70), quality_of(90, 40)]
    assert ess_of_worst(runs) == [90, 70, 40]
    assert ess_of_worst([quality_of(50, None), quality_of(80, 10)]) == [50, 10]
    assert ess_of_worst([quality_of(None, 50), quality_of(None, 60)]) == [50, 60]
    assert ess_of_worst([quality_of(50, 0), quality_of(80, 90)]) == [0, 90]


def test_the_ess_of_the_worst_is_that_of_one_quantity():
    """The smallest of nine close estimates with errors of 15 % is a tenth too low."""
    rng, ratios, smallest = np.random.default_rng(0), [], []
    exact = 100 * np.linspace(1, 1.3, 9)
    for _ in range(400):
        runs = [quality_of(*(exact * np.exp(rng.normal(0, 0.15, 9)))) for _ in range(4)]
        ratios += ess_of_worst(runs)
        smallest += [run.worst for run in runs]
    assert np.mean(np.log(ratios)) == pytest.approx(math.log(100), abs=0.04)
    assert np.mean(np.log(smallest)) < math.log(90)


def coupled(x):
    """Eight spins on a ring: sites are alike, so each may seem the worst."""
    spins = 2 * x - 1
    return 0.4 * (spins * spins.roll(1, -1)).sum(-1) + 0.1 * spins.sum(-1)


def exact_rate(matrix, target):
    """Effective samples a step of the worst entry or of the log-probability's normal scores.

    With (I - P + 1 pi) y = h, the sum of autocovariances of h over all lags is 2 <h, y> - <h, h>.
    """
    level = np.unique(target.log_prob.round(6), return_inverse=True)[1]
    mass = np.bincount(level, target.law)
    scores = norm.ppf(mass.cumsum() - mass / 2)[level]
    values = np.column_stack((scores, target.z))
    values = values - target.law @ values
    solved = np.linalg.solve(np.eye(len(matrix)) - matrix + target.law, values)
    own, shared = target.law @ values**2, target.law @ (values * solved)
    return (own / (2 * shared - own)).min()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "law"),
    [
        (lw.DMALA(0.3), dmala),
        (lw.GWG(), gwg),
        (lw.RandomWalk(), random_walk),
    ],
    ids=["dmala", "gwg", "random_walk"],
)
def test_rates_are_those_of_the_exact_transition_matrix(sampler, law):
    """Short runs, in which the smallest estimate of each is a tenth to a quarter too low."""
    target = Target(lw.Function(coupled, lw.Binary(8)))
    x = target.model.domain.uniform(8, Generator().manual_seed(0))
    each = evaluations_of_step(sampler, target.model, x, Generator().manual_seed(0)) / 8
    seeds = range(12)
    contest = Race(target.model, Allowance(1500 * each * len(seeds), "evaluations"), 8, seeds)
    found = contest.enter("x", sampler, {})
    exact = exact_rate(law(sampler, target).after[0], target) / each
    assert found.interval("evaluations").middle == pytest.approx(exact, rel=0.14)


def test_a_chain_that_never_moved_leaves_no_rank():
    """However good the others are."""
    moving = lw.sample(lambda x: 0 * x.sum(-1), lw.DMALA(1.0), sites=3, steps=400, chains=60)
    assert quality(moving).r_hat < 1.1
    moving.draws[7] = moving.draws[7, :1]
    assert quality(moving).r_hat == math.inf


def test_annealed_starts_are_made_once_and_charged(monkeypatch):
    monkeypatch.setattr(starts, "ANNEALED_START_STEPS", 30)
    made, annealed = [], starts.anneal_starts

    def counted(*words):
        made.append(1)
        return annealed(*words)

    monkeypatch.setattr(contests, "anneal_starts", counted)
    model = lw.Function(lambda x: x @ torch.linspace(-1, 1, 4), lw.Binary(4))
    contest = Race(model, Allowance(800, "evaluations"), 4, range(3), 2, annealed=True)
    found = contest.enter("dmala", lw.DMALA(0.5), {"step_size": {"low": 0.5, "high": 2.0}})
    assert len(made) == 1
    assert 30 <= found.beforehand["evaluations"] <= 2 * 30 + 3
    assert len(found.laps) == 3
    assert math.isfinite(found.seen.start)


def test_draws_are_evenly_spaced():
    contest = TuningSetup(lw.Function(lambda x: x.sum(-1), lw.Binary(4)), 3, kept=10)
    stint = contest.sample_run(lw.DMALA(0.2), 93, 0)
    assert (stint.thin, stint.burn_in, stint.steps) == (7, 14, 91)
    assert stint.result.draws.shape == (3, 11, 4)


def test_the_search_prefers_what_moves_where_a_site_is_stuck_in_every_trial():
    """The first two sites are equal in every chain's life; the third is free."""
    lock = torch.tensor([[0.0, 40, 0], [40, 0, 0], [0, 0, 0]])
    contest = TuningSetup(lw.DenseIsing(lock), 8)
    fields, rate = contest.tune_fields(
        "dmala", lw.DMALA(1e-3), {"step_size": {"choices": [1e-3, 2.0]}},
        [Allowance(1200, "evaluations")], 6, seed=1,
    )  # fmt: skip
    assert fields == {"step_size": 2.0}
    assert 0 < rate < 1e-3


@pytest.mark.slow
def test_the_scores_of_two_settings_keep_their_ratio_with_the_budget(monkeypatch):
    """Long chains have .35 and 1.8 effective samples a step of 16 chains, within a fifth."""
    monkeypatch.setattr(setup, "MAX_DRAWS", 400)
    contest = TuningSetup(lw.Lattice((6,), 0.15, 0.3), 16, "compiled")
    rates = {
        (size, budget): contest.rate(lw.DMALA(size), [Allowance(budget, "evaluations")], 0)
        for size in (0.15, 0.4)
        for budget in (1500, 40_000)
    }
    for budget in (1500, 40_000):
        assert 3 < rates[0.4, budget] / rates[0.15, budget] < 9
    for size in (0.15, 0.4):
        assert rates[size, 40_000] == pytest.approx(rates[size, 1500], rel=0.4)


def test_blocks_fit_the_target():
    space = {"sites": {"low": 2, "high": 16}}
    small = lw.Function(lambda x: x.flatten(1).sum(-1), lw.Binary(4))
    sampler, found = fit_blocks(lw.HammingBall(), space, small)
    assert (sampler.sites, found["sites"]) == (4, {"low": 2, "high": 4})
    many = lw.Function(lambda x: x.flatten(1).sum(-1), lw.Categorical(9, 5))
    sampler, found = fit_blocks(lw.Gibbs(), space, many)
    assert 5 ** found["sites"]["high"] <= 1024
    endless = lw.Function(lambda x: -x.square().sum(-1), lw.Integer(3))
    assert fit_blocks(lw.Gibbs(4), {}, endless)[0].sites == 3
    assert fit_blocks(lw.DMALA(0.4), {}, small) == (lw.DMALA(0.4), {})


def test_budgets_are_read():
    assert Allowance.read("5s") == Allowance(5, "seconds")
    assert Allowance.read("2e4evaluations") == Allowance(20000, "evaluations")
    assert Allowance.read(".5s") == Allowance(0.5, "seconds")
    assert Allowance.read("1.5 s") == Allowance(1.5, "seconds")
    assert Allowance.read("1e") == Allowance(1, "evaluations")
