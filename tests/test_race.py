"""`latticework race`: who takes part, ranks and ties, starts, what is refused."""

import math
import re

import numpy as np
import pandas as pd
import pytest
import torch

import latticework as lw
from latticework.experiments.records.record import open_record
from latticework.sampling.intervals import mean_interval, t_half_width
from latticework.sampling.tuning import race as contests
from latticework.sampling.tuning.race import BIASED, Entrant, Race, RaceRun, rank_entrants
from latticework.sampling.tuning.setup import (
    Allowance,
    TuningSetup,
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
        (("--domain", "binary:6", "--budget", "5steps"), "budget '5steps' is not known"),
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
