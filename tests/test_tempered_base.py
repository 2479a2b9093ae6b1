"""The base of tempering, independent sites: given, learned and told."""

from dataclasses import replace

import pytest
import torch
from replicas import errors_off, run_ladders
from targets import TARGETS

import latticework as lw
from latticework.models.references.catalogue import reference_model

pytestmark = pytest.mark.usefixtures("no_grad")


def test_a_base_near_the_target_needs_fewer_levels():
    """Sites are nearly independent, with means far from 1/2. Log Z is exact from both laws."""
    model = lw.Lattice((4, 4), 0.05, -3.0)
    exact, mean = model.log_z_and_mean()
    x, barriers = torch.zeros(1, 16), []
    for odds in (None, mean.logit()):
        sampler = lw.Tempered(lw.GibbsSweep(), 6, log_odds=odds)
        found = run_ladders(replace(sampler, **sampler.learn_fields(x, model)), model, 1600)
        assert errors_off(found.log_z, float(exact), 8) < 5
        barriers.append(found.barrier)
    assert barriers[1] < barriers[0] / 3


def test_a_learned_base_is_that_of_the_site_means():
    """It makes the round trips faster. Sites of several values stay uniform."""
    model = lw.Lattice((14, 10), 0.05, -1.2)
    exact, mean = model.log_z_and_mean()
    x = torch.zeros(1, 140)
    sampler = lw.Tempered(lw.GibbsSweep(), 6, learn_base=True)
    fields = sampler.learn_fields(x, model)
    assert (fields["log_odds"] - mean.logit()).abs().max() < 1.5
    found = run_ladders(replace(sampler, **fields), model, 400)
    assert errors_off(found.log_z, float(exact), 8) < 5
    uniform = replace(sampler, learn_base=None).learn_fields(x, model)
    assert "log_odds" not in uniform
    assert found.barrier < run_ladders(replace(sampler, **uniform), model, 400).barrier / 2
    potts = TARGETS["lattice_potts"]
    assert "log_odds" not in sampler.learn_fields(potts.states[:1].float(), potts.model)


@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_no_base_is_learned_where_round_trips_are_frequent(beta):
    """That of the site means would make the smaller of two modes rare at b = 0, and lose it."""
    edges = [(i, j) for i in range(10) for j in range(i)]
    signs = torch.where(torch.arange(10) % 3 == 0, -1.0, 1.0)
    weights = torch.tensor([0.3 * beta * signs[i] * signs[j] for i, j in edges])
    graph = lw.Graph(edges, weights, 0.1 * beta * signs)
    _, mean = lw.exact(graph)
    settings = {"chains": 20, "steps": 1500, "burn_in": 300, "diagnose": False}
    result = lw.sample(graph, "gibbs_sweep", temper=True, **settings)
    assert "uniform sites" in repr(result.ladders)
    assert result.converged
    assert (result.draws.double().mean((0, 1)) - mean).abs().max() < 0.05


@pytest.mark.parametrize("kernel", ["gibbs_sweep", "metropolis_sweep"])
def test_no_base_is_learned_that_holds_a_mode_at_the_top(kernel):
    """Its ladders make frequent trips in the modes that the base has, and none in the others."""
    model = reference_model("grids_11")
    result = lw.sample(model, kernel, temper=True, chains=8, steps=600, diagnose=False)
    assert "uniform sites" in repr(result.ladders)
    assert int(result.ladders.trips.min()) > 0


def test_the_report_says_which_base():
    model = lw.Lattice((14, 10), 0.05, -1.5)
    settings = {"temper": True, "steps": 20, "diagnose": False}
    found = lw.sample(model, "gibbs_sweep", **settings).ladders
    assert len(found.log_odds) == 140
    assert "independent sites, high with probability" in repr(found)
    compiled = lw.sample(model, "gibbs_sweep", engine="compiled", **settings).ladders
    assert "uniform sites" in repr(compiled)
