"""Gibbs sweeps by classes of independent sites, against the product of single-site steps."""

import pytest
import torch
from exactness import p_value
from torch import Generator

from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.learning.generated import examples
from latticework.models.base import Function
from latticework.models.domain import Binary
from latticework.models.ising import DenseIsing, Lattice
from latticework.models.lattice import colouring, neighbour_table
from latticework.samplers.base import UnsupportedModelError
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.sweep import GibbsSweep
from latticework.sampling.checking.guard import NoHostReads

SHAPES = [(25, 25), (3, 3), (3, 4), (4, 4), (5, 2, 3), (1, 7), (2, 2), (1,), (2,), (3,)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("periodic", [True, False])
def test_neighbours_have_different_classes(shape, periodic):
    colours = colouring(shape, periodic)
    near, exists = neighbour_table(shape, periodic)
    assert not ((colours[near] == colours.unsqueeze(1)) & (exists > 0)).any()
    odd = periodic and any(size > 2 and size % 2 for size in shape)
    assert int(colours.max()) + 1 <= (3 if odd else 2)


def lattice():
    bias = [0.3, -0.2, 0.1, 0.4, -0.5, 0.2, 0.0, -0.1, 0.35]  # no symmetry
    return Lattice((3, 3), 0.25, bias)


def one_site(model, site):
    """The transition matrix of resampling one site, from `forward` alone, float64."""
    states = model.domain.enumerate().double()
    flipped = states.clone()
    flipped[:, site] = 1 - flipped[:, site]
    values = model.double()(torch.stack((states, flipped)).flatten(0, 1)).view(2, -1)
    move = (values[1] - values[0]).sigmoid()
    index = states @ (2.0 ** torch.arange(8, -1, -1).double())
    matrix = torch.diag(1 - move)
    target = (flipped @ (2.0 ** torch.arange(8, -1, -1).double())).long()
    return matrix.index_put((index.long(), target), move)


def sweep_law(model, order):
    """One single-site step after another, in this order of the sites."""
    matrix = torch.eye(512, dtype=torch.float64)
    for site in order:
        matrix = matrix @ one_site(model, site)
    return matrix


def counts(model, start, chains=50_000, seed=0):
    states = model.domain.enumerate()
    rng = Generator().manual_seed(seed)
    x = states[start].expand(chains, -1).clone()
    state, info = GibbsSweep().step(GibbsSweep().init(x, model), model, rng)
    assert (info.accept_prob == 1).all()
    index = state.x @ (2.0 ** torch.arange(8, -1, -1))
    return torch.bincount(index.long(), minlength=512).numpy()


def test_a_sweep_has_the_law_of_the_single_site_chain():
    """On a periodic lattice of odd sides, which two classes do not colour."""
    model = lattice()
    colours = model.colours()
    assert int(colours.max()) == 2
    law = sweep_law(lattice(), colours.argsort(stable=True).tolist())
    target = model(model.domain.enumerate()).double().softmax(0)
    torch.testing.assert_close(target @ law, target, atol=1e-6, rtol=0)
    for start in (0, 511, 137):
        assert p_value(counts(model, start), law[start].numpy()) > 1e-4


def test_two_classes_do_not_have_it(monkeypatch):
    """Control: a chequerboard, where the two ends of an odd row are neighbours of one colour."""
    model = lattice()
    wrong = (torch.arange(3).view(3, 1) + torch.arange(3)).flatten() % 2
    monkeypatch.setattr(model, "colours", lambda: wrong)
    law = sweep_law(lattice(), wrong.argsort(stable=True).tolist())
    assert max(-p_value(counts(model, start), law[start].numpy()) for start in (0, 511)) > -1e-9


def test_the_state_given_to_it_is_left_and_nothing_is_read_on_the_host():
    model, rng = lattice(), Generator().manual_seed(0)
    x = model.domain.uniform(8, rng)
    before = x.clone()
    state = GibbsSweep().init(x, model)
    with NoHostReads():
        GibbsSweep().step(state, model, rng)
    assert torch.equal(x, before)


def test_models_without_classes_are_refused():
    model = DenseIsing(torch.zeros(3, 3))
    with pytest.raises(UnsupportedModelError, match="classes of independent sites"):
        GibbsSweep().init(torch.zeros(1, 3), model)


def test_examples_are_of_zeros_and_ones(tmp_path):
    """A byte holds -1 as 255."""
    model = Function(lambda x: x.sum(-1), Binary(3, -1, 1))
    with pytest.raises(ValueError, match=r"need a model on \{0, 1\}\^dim, got Function on Binary"):
        examples(run=Run(tmp_path), model=model, sampler=Gibbs(), chains=4, steps=1)


def test_examples_are_made_once_and_follow_the_model(tmp_path):
    """The mean of s_i s_j over neighbours against enumeration, and as single-site steps have it."""
    model = Lattice((3, 3), 0.2)
    settings = {"model": model, "chains": 1500, "steps": 30}
    data = examples(run=Run(tmp_path), sampler=GibbsSweep(), **settings)
    assert data.train.shape == (1500, 9)
    assert (len(data.valid), len(data.test)) == (0, 0)
    again = examples(run=Run(tmp_path, seed=5), sampler=GibbsSweep(), **settings)
    assert torch.equal(again.train, data.train)  # by the model seed alone
    other = examples(run=Run(tmp_path, model_seed=5), sampler=GibbsSweep(), **settings)
    assert not torch.equal(other.train, data.train)

    def pair(rows):  # [n], s_0 s_1
        spins = 2 * rows[:, :2].double() - 1
        return spins.prod(-1)

    states = model.domain.enumerate()
    exact = (model(states).double().softmax(0) * pair(states)).sum()
    error = (1 - exact**2).sqrt() / 1500**0.5
    assert (pair(data.train).mean() - exact).abs() / error < 4.5
    steps = {**settings, "steps": 270}
    single = examples(run=Run(tmp_path), sampler=Gibbs(), **steps)
    assert (pair(single.train).mean() - exact).abs() / error < 4.5
    short = examples(run=Run(tmp_path), sampler=GibbsSweep(), **{**settings, "steps": 0})
    assert (pair(short.train).mean() - exact).abs() / error > 10  # control: uniform rows
