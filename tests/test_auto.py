"""`sample` without a sampler: candidates by structure, the best by pilots, its draws made anew."""

import math

import pytest
import torch

import latticework as lw
from latticework.sampling.budget import Allowance
from latticework.sampling.tuning import auto
from latticework.sampling.tuning.pilots import PilotRun, Pilots

pytestmark = pytest.mark.filterwarnings("ignore::latticework.sampling.sample.ConvergenceWarning")
PATH = lw.Graph([[i, i + 1] for i in range(9)], 0.3)

TWO_MODES = lw.Function(lambda x: 3 * (x.sum(-1) - 10).abs(), lw.Binary(20))
MODES = torch.tensor([[0.0], [1.0]]).repeat(4, 20)  # a state of each in turns, of eight chains


def names_of(model):
    return list(auto.Contest(model, None, 4, "eager", 0).list_candidates())


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (PATH, ["swendsen_wang", "gibbs_sweep", "metropolis_sweep", "gibbs"]),
        (lw.Lattice([3, 4], 0.2), ["swendsen_wang", "gibbs_sweep", "metropolis_sweep", "gibbs"]),
        (lw.Graph([[0, 1], [1, 2]], -0.3), ["gibbs_sweep", "metropolis_sweep", "gibbs"]),
        (lw.RBM(6, 3), ["block_gibbs", "gibbs"]),
        (lw.Factors([((0, 1), torch.eye(2) + 0.1)]), ["gibbs_sweep"]),
        (lw.Function(lambda x: x[..., 0].sum(-1), lw.Categorical(5, 3)), ["gibbs", "dmala", "gwg"]),
        (lw.Function(lambda x: x[:, 0], lw.Subset(8, 3)), ["gwg"]),
        (lw.Function(lambda x: -x.abs().sum(-1), lw.Integer(3)), ["dmala", "gwg"]),
    ],
    ids=lambda given: type(given).__name__,
)
def test_candidates_follow_the_structure(model, names):
    listed = names_of(model)
    assert listed[: len(names)] == names
    assert len(listed) <= auto.MAX_CANDIDATES


def test_the_draws_are_those_of_the_chosen_sampler_alone():
    """With a budget of evaluations, the choice is the same each time; it costs a part of it."""
    budget = "6000evaluations"
    result = lw.sample(PATH, steps=60, budget=budget)
    again = lw.sample(PATH, steps=60, budget=budget)
    assert result.sampler == again.sampler == result.choice.sampler
    assert torch.equal(result.draws, again.draws)
    named = lw.sample(PATH, result.sampler, steps=60)
    assert torch.equal(result.draws, named.draws)
    assert named.choice is None
    cost = result.choice.evaluations
    assert result.evaluations == pytest.approx(named.evaluations + cost)
    assert 0 < cost / 4 < 1.5 * auto.PILOT_SHARE * 6000
    rates = {pilot.name: pilot.rate for pilot in result.choice.pilots}
    assert set(rates) >= set(names_of(PATH))
    assert all(pilot.run is None for pilot in result.choice.pilots)
    assert "ESS a evaluation" not in str(result.choice)
    assert str(result.choice).count("swendsen_wang") == 1


def choose_by_numbers(monkeypatch, numbers, budget=10_000):
    """The contest on a path whose pilots have given rates and R-hats, by name."""

    def measure(pilots, name, sampler, allowed, x=None):
        rate, r_hat = numbers.get(name, (0.1, 1.001))
        pilots.runs.append(PilotRun(name, sampler, rate, r_hat, steps=100))
        return pilots.runs[-1]

    monkeypatch.setattr(Pilots, "measure", measure)
    contest = auto.Contest(PATH, None, 4, "eager", 0)
    return contest.choose(100, Allowance(budget, "evaluations"))


@pytest.mark.parametrize(
    ("best", "tempered", "chosen"),
    [
        ((1.0, 1.5), (0.5, 1.5), False),
        ((1.0, 1.5), (0.5, 1.001), True),
        ((1.0, 1.5), (2.0, 1.5), True),
        ((0.0, float("inf")), (0.5, 1.001), True),
    ],
)
def test_tempering_is_tried_where_chains_stay_apart(monkeypatch, best, tempered, chosen):
    """The two that are left have turns: their ESS says little where all chains stay apart."""
    numbers = {"swendsen_wang": best, "tempered swendsen_wang": tempered}
    numbers |= dict.fromkeys((*names_of(PATH)[1:], "tempered gibbs_sweep"), (best[0] / 2, best[1]))
    choice = choose_by_numbers(monkeypatch, numbers, 100_000)
    assert isinstance(choice.sampler, lw.Tempered) == chosen
    *rounds, first, last = [pilot.name for pilot in choice.pilots]
    assert (first, last) == ("tempered swendsen_wang", "tempered gibbs_sweep")
    assert [rounds.count(name) for name in rounds] == [3, 3, 2, 1, 1, 3, 3, 2, 3, 3]
    if chosen:
        assert isinstance(choice.sampler.inner, lw.SwendsenWang)
        assert choice.sampler.schedule is not None  # learned once, and then fixed


def test_a_sampler_that_mixes_is_before_one_that_does_not(monkeypatch):
    """Chains that stay apart may move fast, each in a mode of its own."""
    numbers = dict.fromkeys(names_of(PATH), (9.0, 1.5))
    choice = choose_by_numbers(monkeypatch, numbers | {"gibbs": (1.0, 1.01)})
    assert isinstance(choice.sampler, lw.Gibbs)
    assert not any(pilot.name.startswith("tempered") for pilot in choice.pilots)


def test_chains_that_agree_because_they_began_alike_are_found_out(monkeypatch):
    """The first pilot of DMALA begins in one of two modes; those of the others see both."""
    measure = Pilots.measure

    def measure_from(pilots, name, sampler, allowed, x=None):
        if len(pilots.runs) < auto.MAX_CANDIDATES:
            x = MODES * (name != "dmala")
        return measure(pilots, name, sampler, allowed, x)

    monkeypatch.setattr(Pilots, "measure", measure_from)
    choice = auto.Contest(TWO_MODES, None, 8, "eager", 0).choose(
        100, Allowance(100_000, "evaluations")
    )
    dmala = [pilot for pilot in choice.pilots if pilot.name == "dmala"]
    assert dmala[0].mixes
    assert not dmala[1].mixes
    assert isinstance(choice.sampler, lw.Tempered)


def test_a_rate_is_of_all_pilots_since_chains_stayed_apart():
    """A short pilot tells an ESS only roughly."""
    allowed = Allowance(400, "evaluations")
    pilots = Pilots(PATH, None, 4, "eager", 0)
    first, second, third = (pilots.measure("gibbs", lw.Gibbs(), allowed) for _ in range(3))
    assert first.mixes
    assert third.gained > second.gained > first.gained
    assert third.rate == pytest.approx(third.gained / third.cost)
    ends = torch.tensor([[0.0], [1.0]]).repeat(2, 10)
    frozen = Pilots(lw.Graph([[i, i + 1] for i in range(9)], 9.0), ends, 4, "eager", 0)
    runs = [frozen.measure("gibbs", lw.Gibbs(), allowed) for _ in range(2)]
    assert not runs[1].mixes
    assert runs[1].cost < 1.5 * runs[0].cost


def test_chains_that_gathered_by_chance_are_still_apart():
    """R-hat of a pilot counts the one before."""
    allowed = Allowance(4000, "evaluations")
    pilots = Pilots(TWO_MODES, None, 8, "eager", 0)
    for x, mixes in ((MODES, False), (0 * MODES, False), (0 * MODES, True)):
        assert pilots.measure("dmala", lw.DMALA(0.5), allowed, x).mixes == mixes


@pytest.mark.parametrize("r_hat", [1.005, 1.05, 1.09])
def test_a_short_pilot_is_no_doubt(monkeypatch, r_hat):
    """An R-hat that a few effective draws explain does not call for tempering."""
    numbers = dict.fromkeys(names_of(PATH), (1.0, r_hat))
    choice = choose_by_numbers(monkeypatch, numbers)
    assert len(choice.pilots) == 10
    assert not isinstance(choice.sampler, lw.Tempered)


@pytest.mark.parametrize(("rate", "chosen"), [(0.9, False), (1.1, True)])
def test_chains_that_may_be_stuck_compete_with_tempering(monkeypatch, rate, chosen):
    """An R-hat of 1.15 may be that of slow chains or of stuck ones: the rates decide."""
    numbers = dict.fromkeys(names_of(PATH), (0.5, 1.15))
    numbers |= {"swendsen_wang": (1.0, 1.15), "tempered swendsen_wang": (rate, 1.01)}
    choice = choose_by_numbers(monkeypatch, numbers, 100_000)
    assert [pilot.name for pilot in choice.pilots][-1] == "tempered swendsen_wang"
    assert isinstance(choice.sampler, lw.Tempered) == chosen


def test_stuck_chains_are_tempered_even_if_learning_leaves_no_time_to_measure(monkeypatch):
    numbers = dict.fromkeys(names_of(PATH), (1.0, 3.0))
    numbers |= dict.fromkeys(("tempered swendsen_wang", "tempered gibbs_sweep"), (0.0, math.inf))
    choice = choose_by_numbers(monkeypatch, numbers, 100_000)
    assert isinstance(choice.sampler, lw.Tempered)
    assert isinstance(choice.sampler.inner, lw.SwendsenWang)


def test_tempering_that_does_not_fit_is_not_tried(monkeypatch):
    numbers = dict.fromkeys(names_of(PATH), (1.0, 1.5))
    assert len(choose_by_numbers(monkeypatch, numbers, 1000).pilots) == 10


LARGE = {  # by domain, with targets on which a step of one site is a small part of an evaluation
    "lattice": lw.Lattice([16, 16], 0.2),
    "graph": lw.Graph([[i, i + 1] for i in range(299)], -0.3),
    "RBM": lw.RBM(200, 10),
    "Potts": lw.LatticePotts((12, 12), 3, 0.4),
    "function": lw.Function(lambda x: -x.sum(-1), lw.Binary(300)),
    "integers": lw.Function(lambda x: -x.abs().sum(-1), lw.Integer(40)),
    "k of n": lw.Function(lambda x: x[:, 0], lw.Subset(200, 20)),
}


@pytest.mark.parametrize("budget", [20, 300])
@pytest.mark.parametrize("kind", LARGE)
def test_any_budget_is_enough_to_choose(kind, budget):
    """Pilots too short for a draw have no rate; the order of the candidates then decides."""
    contest = auto.Contest(LARGE[kind], None, 4, "eager", 0)
    choice = contest.choose(100, Allowance(budget, "evaluations"))
    assert choice.sampler.exact
    if budget == 20:
        assert choice.pilots[0].rate == 0
        assert choice.pilots[0].name == next(iter(contest.list_candidates()))


def test_later_pilots_space_their_draws_by_what_the_first_ones_saw():
    """Draws that are independent are few; draws of slow chains cover all steps."""
    allowed = Allowance(1000, "evaluations")
    fast = Pilots(lw.Function(lambda x: 0 * x.sum(-1), lw.Binary(6)), None, 4, "eager", 0)
    slow = Pilots(lw.Graph([[i, i + 1] for i in range(29)], 1.5), None, 4, "eager", 0)
    for pilots in (fast, slow):
        first, second = (pilots.measure("gibbs", lw.Gibbs(), allowed) for _ in range(2))
        assert first.run.result.draws.shape[1] <= 1000
        assert second.run.result.seed != first.run.result.seed
        start = first.run.result.draws[:, -1]
        assert start.shape == second.run.result.draws[:, 0].shape
    assert fast.runs[1].ess / fast.runs[1].run.result.log_prob.numel() < 0.5
    assert slow.runs[1].run.thin >= slow.runs[0].run.thin


def test_pilots_of_a_compiled_engine_are_compiled():
    """Candidates without a kernel do not take part where only compiled steps are asked for."""
    contest = auto.Contest(PATH, None, 4, "compiled", 0)
    names = contest.list_candidates()
    assert "swendsen_wang" in names
    assert "gibbs(sites=2, scan=random)" not in names


@pytest.mark.parametrize(
    ("given", "match"),
    [({"adapt": "acceptance"}, "adapt needs a sampler by name"), ({"chains": 0}, "chains")],
)
def test_what_auto_cannot_use_is_refused(given, match):
    with pytest.raises(ValueError, match=match):
        lw.sample(PATH, steps=10, **given)
