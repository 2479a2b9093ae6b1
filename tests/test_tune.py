"""The search for a sampler's settings: equal budgets, honest values, and the YAML it writes."""

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
import pytest
import torch
import yaml
from command import command_line

import latticework as lw
from latticework.experiments.records.record import Budget
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks import tune as task
from latticework.experiments.tasks.measures import objective as measuring
from latticework.samplers.base import evaluate
from latticework.samplers.sums import SumRequest
from latticework.sampling import starts
from latticework.sampling.metrics import Steps
from latticework.sampling.tuning.space import check_space, fields_as_numbers, round_fields, suggest
from latticework.sampling.tuning.study import (
    best_trial,
    completed_trials,
    count_random_trials,
    join_study,
    run_trials,
)

MODEL = lw.Lattice([3, 3], 0.1, 0.2)
STEP_SIZE = {"step_size": {"low": 0.02, "high": 3.0, "log": True}}


def run_tune(path, sampler, name="dmala", space=STEP_SIZE, seed=0, config=None, **settings):
    path.mkdir(parents=True, exist_ok=True)
    run = Run(path, seed=seed, config=config)
    defaults: dict[str, Any] = {
        "names": {"model": "ising", "sampler": name},
        "search": {name: space},
        "objective": "ess_min",
        "direction": None,
        "goal": None,
        "trials": 4,
        "budget": Budget(chains=8, steps=200, every=50),
        "seconds": None,
        "start": starts.uniform,
        "metrics": [lw.Acceptance(), lw.Changed()],
    }
    task.tune(model=MODEL, sampler=sampler, data=None, run=run, **(defaults | settings))
    return run


def rows(run):
    return np.genfromtxt(run.path / "metrics.csv", delimiter=",", names=True)


def test_the_best_trial_is_frozen_and_measured_with_fresh_chains(tmp_path):
    run = run_tune(tmp_path, lw.DMALA(0.02), trials=8)
    table = rows(run)
    assert len(table) == 8
    best = table[np.nanargmax(table["value"])]  # NaN where a coordinate never changed
    tuned, facts = run.notes["tuned"], run.notes["tuning"]
    assert tuned == {"step_size": best["step_size"]}
    assert facts["search_value"] == pytest.approx(best["value"], rel=1e-6)
    assert facts["held_out"] != facts["search_value"]  # other random numbers
    assert facts["held_out"] > 2 * np.nanmin(table["value"])  # and yet far from a poor setting
    json.dumps(run.notes)

    text = (tmp_path / "tuned.yaml").read_text()
    assert text.startswith("# @package sampler\n")
    assert yaml.safe_load(text) == tuned
    for fact in ("8 trials of 8 chains x 200 steps", "TPE, seed 0", optuna.__version__, "ess_min"):
        assert fact in text


@pytest.mark.parametrize(
    ("direction", "goal", "best"),
    [
        ("maximize", None, np.argmax),
        ("minimize", None, np.argmin),
        (None, 0.7, lambda values: np.abs(values - 0.7).argmin()),
    ],
)
def test_the_direction_or_the_goal_decides_what_is_chosen(tmp_path, direction, goal, best):
    """Acceptance falls with the step size."""
    settings = {"objective": "acceptance", "direction": direction, "goal": goal}
    run = run_tune(tmp_path, lw.DMALA(1.0), trials=6, **settings)
    table = rows(run)
    assert run.notes["tuned"]["step_size"] == table["step_size"][best(table["value"])]


def test_an_undefined_value_is_the_worst_in_both_directions():
    for name, goal, worst in (
        ("ess_min", None, -np.inf),
        ("log_rmse", None, np.inf),
        ("x", 0.7, np.inf),
    ):
        assert measuring.Objective.of(name, None, goal).score(np.nan) == worst


@dataclass(frozen=True)
class Idle(lw.Sampler):
    """Heat-bath on one site; `setting` does nothing."""

    setting: float = 1.0

    def at(self, x, model):
        return lw.Gibbs().at(x, model)

    def step(self, state, model, rng):
        return lw.Gibbs().step(state, model, rng)


def test_every_trial_has_the_same_budget_start_and_random_numbers(tmp_path):
    """A field without influence on the chain gives the same value in every trial."""
    seen = []

    def start(*arguments):
        seen.append(starts.uniform(*arguments))
        return seen[-1]

    space = {"setting": {"low": 0.0, "high": 1.0}}
    run = run_tune(tmp_path, Idle(), name="idle", space=space, start=start)
    assert len(np.unique(rows(run)["value"])) == 1
    assert len(np.unique(rows(run)["setting"])) == 4
    *search, held_out = seen
    assert all(torch.equal(x, search[0]) for x in search)
    assert not torch.equal(held_out, search[0])
    assert run.notes["tuning"]["held_out"] != run.notes["tuning"]["search_value"]


@dataclass(frozen=True)
class Stuck(lw.Sampler):
    """Leaves the last site alone when `frozen`, and mixes better than Gibbs in all the others."""

    frozen: bool = False

    def at(self, x, model):
        return evaluate(model, x)

    def step(self, state, model, rng):
        x = torch.bernoulli(torch.full_like(state.x, 0.5), generator=rng)
        if self.frozen:
            x[:, -1] = state.x[:, -1]
        else:
            slow = torch.rand(len(x), 1, generator=rng) < 0.9
            x = torch.where(slow, state.x, x)
        return evaluate(model, x), lw.Info(x.new_ones(len(x)))


def test_a_constant_coordinate_makes_a_trial_the_worst(tmp_path):
    for objective in ("ess_min", "ess_median"):
        run = run_tune(
            tmp_path / objective, Stuck(), "stuck", {"frozen": {"choices": [False, True]}},
            objective=objective, trials=8,
        )  # fmt: skip
        table = rows(run)
        assert np.isnan(table["value"][table["frozen"] == 1]).all()
        assert {0.0, 1.0} == set(table["frozen"])
        assert run.notes["tuned"] == {"frozen": False}
    with pytest.raises(ValueError, match="undefined in every trial"):
        run_tune(tmp_path / "all", Stuck(), "stuck", {"frozen": {"choices": [True]}})


def test_a_budget_of_seconds_gives_a_slow_setting_fewer_steps(tmp_path, monkeypatch):
    steps = []

    class Counted(measuring.Chain):
        """Record the number of steps of each trial, times the flips per step."""

        def __init__(self, sampler, *arguments, every, **settings):
            super().__init__(sampler, *arguments, every=every, **settings)
            self.steps_at_once = every * sampler.flips
            steps.append(0)

        def advance(self):
            super().advance()
            steps[-1] += self.steps_at_once

    monkeypatch.setattr(measuring, "Chain", Counted)
    monkeypatch.setattr(
        measuring, "seconds_per_step", lambda sampler, *_, **__: 0.01 * sampler.flips
    )
    run_tune(
        tmp_path, lw.GWG(), "gwg", {"flips": {"low": 1, "high": 4}},
        objective="changed", seconds=2.4, budget=Budget(8, 200, 10),
    )  # fmt: skip
    assert set(steps) == {240}


@pytest.fixture(params=["sqlite:///{}/study.db", "{}/study.journal"], ids=["sqlite", "journal"])
def storage(request, tmp_path):
    return request.param.format(tmp_path)


def search(tmp_path, storage, trials=4, name="study"):
    """A study, its points in the order of their trials, and an iterator that runs trials."""
    study = join_study(name, storage=storage, locks=tmp_path / "locks", direction="minimize")
    points = []

    def objective(trial):
        points.append(trial.suggest_float("x", 0, 1))
        return points[-1]

    return study, points, run_trials(study, objective, trials, lambda number: number)


def test_processes_of_a_study_try_different_points_and_make_one_choice(tmp_path, storage):
    """Two in turn, each with the same seed."""
    (first, mine, made), (second, theirs, others) = (search(tmp_path, storage) for _ in range(2))
    for step in (made, others, made, others):
        next(step)
    assert next(made, None) is None is next(others, None)
    points = [*mine, *theirs]
    assert len(set(points)) == 4
    for study in (first, second):
        assert len(completed_trials(study, 4)) == 4
        assert best_trial(study, 4).params == {"x": min(points)}


def test_a_trial_that_is_complete_after_the_last_one_changes_no_choice(tmp_path, storage):
    """That of a process that was slow; all others have made their choice."""
    slow, *_ = search(tmp_path, storage)
    late = slow.ask()
    study, points, made = search(tmp_path, storage)
    list(made)
    slow.tell(late, -1.0)
    assert slow.best_trial.number == late.number
    for each in (slow, study):
        assert [trial.params["x"] for trial in completed_trials(each, 4)] == points
        assert best_trial(each, 4).params == {"x": min(points)}


def test_a_search_goes_on_after_a_process_that_died(tmp_path, storage):
    """Killed (its trial stays as it is), or by an error (its trial has failed)."""
    killed, *_ = search(tmp_path, storage)
    killed.ask()
    study, points, made = search(tmp_path, storage)
    next(made)
    with pytest.raises(KeyboardInterrupt):
        study.optimize(lambda trial: (_ for _ in ()).throw(KeyboardInterrupt), n_trials=1)
    again, more, rest = search(tmp_path, storage)
    list(rest)
    assert [trial.params["x"] for trial in completed_trials(again, 4)] == [*points, *more]
    assert len(set(points + more)) == 4


def test_a_database_gets_signs_of_life_of_a_trial(tmp_path, monkeypatch):
    """By which Optuna tells that a process has died."""
    beats = []
    monkeypatch.setattr(
        optuna.storages.RDBStorage, "record_heartbeat", lambda _, trial: beats.append(trial)
    )
    *_, made = search(tmp_path, f"sqlite:///{tmp_path / 'study.db'}")
    next(made)
    assert len(beats) == 1


@pytest.mark.slow
def test_workers_end_with_one_choice_and_all_trials_and_a_search_is_extended(tmp_path):
    """The last process runs no trial, and its record has the same result."""
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    first, last, more = (
        run_tune(tmp_path / name, lw.DMALA(1.0), storage=storage, trials=trials)
        for name, trials in (("a", 3), ("b", 3), ("c", 4))
    )
    assert first.notes == last.notes
    assert (first.path / "metrics.csv").read_text() == (last.path / "metrics.csv").read_text()
    assert rows(more)["step_size"][:3] == pytest.approx(rows(first)["step_size"])
    assert len(rows(more)) == 4


def test_searches_of_one_storage_share_no_trials_unless_all_settings_agree(tmp_path):
    def name(coupling=0.1, **settings):
        own = {"_target_": "t", "goal": 0.5, "trials": 3, **settings}
        config = {"task": own, "model": {"coupling": coupling}, "seed": 0}
        return task.digest_of_settings(Run(tmp_path, config=config))

    assert name() == name(trials=5, storage="sqlite:///a.db", worker=2, apply=True)
    assert len({name(), name(goal=0.9), name(coupling=0.2)}) == 3


@pytest.mark.parametrize("storage", [None, "sqlite:///{}/study.db"])
def test_searches_of_two_models_or_samplers_do_not_begin_at_the_same_points(tmp_path, storage):
    """Otherwise both searches would have the same best random point."""
    points = []
    for names in (("ising", "dmala"), ("potts", "dmala"), ("ising", "dula")):
        run = run_tune(
            tmp_path / "-".join(names), lw.DMALA(1.0), name=names[1], trials=3,
            names=dict(zip(("model", "sampler"), names, strict=True)),
            storage=storage and storage.format(tmp_path),
        )  # fmt: skip
        points.append(set(rows(run)["step_size"]))
    assert len(set.union(*points)) == 9
    assert [count_random_trials(trials) for trials in (1, 3, 12, 16, 100)] == [1, 1, 4, 6, 10]


def test_apply_writes_where_hydra_reads_and_spares_the_papers_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(task, "ROOT", tmp_path)
    home = tmp_path / "conf" / "tuned" / "ising" / "dmala.yaml"
    run = run_tune(tmp_path / "a", lw.DMALA(1.0), apply=True, trials=2)
    assert home.read_text() == (run.path / "tuned.yaml").read_text()
    run_tune(tmp_path / "b", lw.DMALA(1.0), apply=True, trials=3)  # its own may be replaced
    assert "3 trials" in home.read_text()

    home.write_text("# @package sampler\nstep_size: 0.4  # the paper\n")
    with pytest.raises(ValueError, match=r"tuned/ising/dmala\.yaml holds numbers"):
        run_tune(tmp_path / "c", lw.DMALA(1.0), apply=True)
    assert "the paper" in home.read_text()
    assert not (tmp_path / "c" / "metrics.csv").exists()  # refused before anything was spent


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "charm"}, "the direction of charm is not known"),
        ({"objective": "charm", "direction": "maximize"}, "no metric gives the objective charm"),
        ({"space": {}}, r"\+task\.search\.dmala"),
        ({"space": {"flips": {"low": 1, "high": 2}}}, "dmala has no field flips; it has step_size"),
        ({"space": {"step_size": {"low": 1}}}, "needs low and high, or choices"),
    ],
)
def test_bad_settings_say_so(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        run_tune(tmp_path, lw.DMALA(1.0), **settings)


def test_suggestions_have_the_type_of_their_field():
    study = optuna.create_study()
    space = {"flips": {"low": 1, "high": 8}}
    check_space(lw.GWG(), space, "gwg")
    assert isinstance(suggest(study.ask(), lw.GWG(), space)["flips"], int)
    space = {"step_size": {"low": 1, "high": 2}, "accept": {"choices": ["target", "relaxation"]}}
    fields = suggest(study.ask(), lw.RMALA(0.3, 0.5), space)
    assert isinstance(fields["step_size"], float)
    assert fields["step_size"] == float(f"{fields['step_size']:.3g}")


def test_a_choice_is_not_rounded():
    study, space = optuna.create_study(), {"step_size": {"choices": [0.12345]}}
    fields = suggest(study.ask(), lw.DMALA(), space)
    assert fields == {"step_size": 0.12345}
    assert fields_as_numbers(round_fields(fields, space), space) == {"step_size": 0}


@pytest.mark.parametrize("sampler", [lw.DMALA(0.6), lw.GWG(6)], ids=str)
def test_proposed_sites_are_those_that_draws_of_the_proposal_change(sampler):
    """Sites changed by accepted and rejected proposals alike, against 4,000 draws from states."""
    rng = torch.Generator().manual_seed(0)
    state = sampler.init(MODEL.domain.uniform(4000, rng), MODEL)
    metric = lw.Proposed(getattr(sampler, "flips", 0))
    carry = metric.update(
        metric.init(MODEL, state, lw.Reference()),
        state,
        Steps.of_one(state.x, state, lw.Info(state.x[:, 0]), SumRequest()),
        1,
    )
    expected = float(metric.read(carry)["proposed"])
    if metric.draws:
        weights = state.logits.softmax(-1)
        index = torch.multinomial(weights, metric.draws, replacement=True, generator=rng)
        counts = torch.tensor([len(set(row)) for row in index.tolist()]).float()
    else:
        flips = torch.rand(state.logits.shape, generator=rng) < state.logits.sigmoid()
        counts = flips.sum(-1).float()
    deviation = float(counts.std()) / len(counts) ** 0.5
    assert abs(float(counts.mean()) - expected) < 4 * deviation + 1e-5


def test_a_search_without_a_result_has_no_numbers():
    space = {"kernel": {"choices": ["gibbs", "dmala"]}, "steps": {"low": 1, "high": 9}}
    assert fields_as_numbers({}, space) == {}
    assert fields_as_numbers({"kernel": "dmala", "steps": 2}, space) == {
        "kernel": 1.0,
        "steps": 2.0,
    }


@pytest.mark.parametrize("experiment", ["ising_sampling", "ising_acceptance"])
def test_a_search_on_an_experiment_draws_the_figures_of_a_search(tmp_path, capsys, experiment):
    """And none of the experiment's own, whose runs sample."""
    words = (f"experiment={experiment}", "task=tune", "sampler=dmala", "seed=0", "scale=smoke")
    goal = ("task.objective=acceptance", "task.goal=0.574")
    assert command_line(*words, *goal, outputs=tmp_path) == 0
    told = capsys.readouterr()
    assert not re.search(r"\bfig\d\w* was not drawn", told.out + told.err)
    drawn = {file.stem for file in tmp_path.rglob("*.png")}
    assert "history" in drawn
    assert drawn <= {"history", "importance"}
