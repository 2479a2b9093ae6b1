"""`sample` without a sampler: candidates by structure, the best by pilots, its draws made anew."""

import pytest
import torch

import latticework as lw
from latticework.sampling.tuning import auto

pytestmark = pytest.mark.filterwarnings("ignore::latticework.sampling.sample.ConvergenceWarning")
PATH = lw.Graph([[i, i + 1] for i in range(9)], 0.3)


def names_of(model):
    return list(auto._Contest(model, None, 4, "eager", 0)._candidates())


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (PATH, ["swendsen_wang", "gibbs_sweep", "gibbs"]),
        (lw.Lattice([3, 4], 0.2), ["swendsen_wang", "gibbs_sweep", "gibbs"]),
        (lw.Graph([[0, 1], [1, 2]], -0.3), ["gibbs_sweep", "gibbs"]),
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


@pytest.mark.parametrize(
    ("rate", "r_hat", "tempered"),
    [(0.5, 1.2, False), (0.5, 1.001, True), (2.0, 1.2, True)],
    ids=["neither mixes", "only the tempered one mixes", "the tempered one is better"],
)
def test_tempering_is_tried_where_the_best_does_not_mix(monkeypatch, rate, r_hat, tempered):
    """Pilots with given numbers: those of all candidates do not mix."""

    def measure(contest, name, sampler, allowed):
        numbers = (rate, r_hat) if name.startswith("tempered") else (1.0, 1.5)
        contest.pilots.append(auto.Pilot(name, sampler, *numbers, steps=100))
        return contest.pilots[-1]

    monkeypatch.setattr(auto._Contest, "_measure", measure)
    contest = auto._Contest(PATH, None, 4, "eager", 0)
    choice = contest.choose(100, lw.sampling.budget.Allowance(10_000, "evaluations"))
    assert contest.pilots[-1].name.startswith("tempered")
    assert isinstance(choice.sampler, lw.Tempered) == tempered
    rounds = [pilot.name for pilot in contest.pilots[:-1]]
    assert [rounds.count(name) for name in rounds] == [3, 3, 2, 1, 1, 3, 3, 2, 3, 3]


@pytest.mark.parametrize(
    ("given", "match"),
    [({"adapt": "acceptance"}, "adapt needs a sampler by name"), ({"chains": 0}, "chains")],
)
def test_what_auto_cannot_use_is_refused(given, match):
    with pytest.raises(ValueError, match=match):
        lw.sample(PATH, steps=10, **given)
