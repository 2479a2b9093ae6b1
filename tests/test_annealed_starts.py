"""Annealed starts: every sampler leads chains to every model that it supports, by its structure."""

import pytest
import torch
from torch import Generator

import latticework as lw
from latticework.models.bayes_net import synthetic_bayes_net
from latticework.models.graph_potts import GraphPotts
from latticework.models.rated_rbm import RatedRBM
from latticework.samplers import NAMES
from latticework.samplers.base import UnsupportedModelError
from latticework.sampling import starts
from latticework.sampling.naming import parse_sampler
from latticework.sampling.targets import why_unsupported

RING = [(i, (i + 1) % 8) for i in range(8)]
ZEROS = [((i, i + 1), [[0, -torch.inf], [0, 0.5]]) for i in range(7)]
THREE = [((i, i + 1), torch.randn(3, 3, generator=Generator().manual_seed(i))) for i in range(7)]
SIZES = [((0, 1), torch.randn(2, 3)), ((1, 2), torch.randn(3, 4)), ((2,), torch.randn(4))]


def rated():
    with torch.random.fork_rng():
        model = RatedRBM(8, 4)
    model.set_rates([torch.eye(8)])
    return model


MODELS = {
    "lattice": lambda: lw.Lattice([4, 4], 0.2, 0.1),
    "dense Ising": lambda: lw.DenseIsing(0.1 * (torch.ones(6, 6) - torch.eye(6))),
    "Potts": lambda: lw.LatticePotts([3, 3], 3, 0.5),
    "graph": lambda: lw.Graph(RING, 0.3, 0.1),
    "Potts graph": lambda: GraphPotts(RING, 0.3, 3),
    "tables": lambda: lw.Factors([((i, j), [[0.3, 0], [0, 0.6]]) for i, j in RING]),
    "tables with zeros": lambda: lw.Factors(ZEROS),
    "tables of three": lambda: lw.Factors(THREE),
    "tables of sizes": lambda: lw.Factors(SIZES),
    "RBM": lambda: lw.RBM(8, 4),
    "RBM with rates": rated,
    "regression": lambda: synthetic_bayes_net(3, 2, rows=20),
    "known sites": lambda: lw.Lattice([4, 4], 0.2).condition_on({0: 1, 5: 0}),
    "a size": lambda: lw.Graph(RING, 0.3).with_ones(3),
    "function": lambda: lw.Function(lambda x: -x.sum(-1).square(), lw.Binary(6)),
    "spins": lambda: lw.Function(lambda x: x.sum(-1).square() / 9, lw.Binary(6, -1, 1)),
    "ordinal": lambda: lw.Function(lambda x: -(x - 1).square().sum(-1), lw.Ordinal(5, 4)),
    "integers": lambda: lw.Function(lambda x: -x.square().sum(-1), lw.Integer(4)),
}
SETTINGS = {  # that make them fast, or fit
    "hamming_ball": "hamming_ball(sites=4)",
    "tempered": "tempered(rounds=1)",
    "tempered_gibbs": "tempered(kernel=gibbs,rounds=1)",
}
SAMPLERS = [SETTINGS.get(name, name) for name in NAMES]
SAMPLERS += ["gibbs(sites=2,scan=scopes)", "gibbs(sites=2,scan=random)"]
SAMPLERS += ["tempered(kernel=gibbs_sweep,rounds=1)", "stochastic_dula(batch=3)"]


@pytest.fixture(autouse=True)
def few_rungs(monkeypatch):
    monkeypatch.setattr(starts, "ANNEALED_START_STEPS", 4)


@pytest.mark.parametrize("name", MODELS)
def test_chains_are_led_by_each_sampler_that_supports_the_model(name):
    supported = 0
    for text in SAMPLERS:
        model, sampler = MODELS[name](), parse_sampler(text)
        if why_unsupported(sampler, model):
            continue
        rng = Generator().manual_seed(0)
        x = starts.draw_possible(model, 3, rng)
        before = {key: value.clone() for key, value in model.state_dict().items()}
        y = starts.anneal_starts(model, sampler, x, rng)
        model.domain.check(y)
        assert model.log_prob(y).isfinite().all()
        assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
        supported += 1
    assert supported > 1


def test_what_the_sampler_does_not_support_is_refused_as_the_model():
    x = torch.zeros(2, 6)
    with pytest.raises(UnsupportedModelError, match="got Function on Binary"):
        starts.anneal_starts(MODELS["function"](), lw.GibbsSweep(), x, Generator())


@pytest.mark.parametrize("temper", [False, True])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("graph", "gibbs_sweep"),
        ("lattice", "metropolis_sweep"),
        ("Potts", "swendsen_wang"),
        ("RBM", "block_gibbs"),
        ("tables with zeros", "gibbs(sites=2,scan=scopes)"),
    ],
)
def test_samples_start_so(name, text, temper):
    found = lw.sample(
        MODELS[name](), text, start="annealed", temper=temper, steps=10, diagnose=False
    )
    assert found.log_prob.isfinite().all()


def test_races_start_so():
    samplers = [lw.GibbsSweep(), lw.SwendsenWang()]
    settings = {"start": "annealed", "budget": "500evaluations", "chains": 4, "seeds": 3}
    table = lw.race(MODELS["lattice"](), samplers, **settings)
    assert set(table["sampler"]) == {"GibbsSweep", "SwendsenWang"}
    assert (table["ess_per_second"] > 0).all()
