"""Samplers of an extended space: the joint law of the state and what it is extended by.

The table of enumerated matrices holds the law of x alone. Here chains start from exact draws of the
joint law, and the joint counts are compared with it after some steps.
"""

import numpy as np
import pytest
import torch
from exactness import p_value
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from targets import TARGETS
from torch import Generator

import latticework as lw
from latticework.models.distributions import normal_like
from latticework.samplers.pavg import learn_hessian
from latticework.samplers.swendsen_wang import clusters, interactions
from latticework.sampling.checking.targets import Target

# The joint law of x and a Gaussian variable.

BOXES = torch.tensor([-0.7, 0.0, 0.7])  # of the first entry; of the others, the sign


def cells(target, x, noise):
    """The index of each chain's joint cell: its state, a box of `noise`, and the signs of it."""
    flat = noise.flatten(1)
    signs = (flat[:, 1:] > 0).long() @ 2 ** torch.arange(flat.shape[1] - 1)
    box = torch.bucketize(flat[:, 0].contiguous(), BOXES)
    count = (len(BOXES) + 1) * 2 ** (flat.shape[1] - 1)
    return torch.from_numpy(target.index(x)) * count + box * (count // (len(BOXES) + 1)) + signs


def joint_law(target):
    """The probability of each cell under the target and independent standard normal noise."""
    size = target.z.shape[1]
    edges = torch.cat((torch.tensor([-torch.inf]), BOXES, torch.tensor([torch.inf])))
    boxes = torch.special.ndtr(edges.double()).diff()
    noise = (boxes.unsqueeze(1) * 0.5 ** (size - 1)).expand(-1, 2 ** (size - 1)).flatten()
    return (torch.from_numpy(target.law).unsqueeze(1) * noise).flatten().numpy()


def joint_p(sampler, name, memory, steps=5, chains=100_000):
    """P-value of the joint counts after some steps from exact draws of the joint law."""
    target, rng = TARGETS[name], Generator().manual_seed(2)
    state = sampler.init(target.draw(target.law, chains, rng), target.model)
    state = state._replace(**{memory: normal_like(state.x, rng)}, begun=torch.ones(chains))
    for _ in range(steps):
        state, _ = sampler.step(state, target.model, rng)
    law = joint_law(target)
    found = cells(target, state.x, getattr(state, memory))
    return p_value(torch.bincount(found, minlength=len(law)).numpy(), law)


class KeptMomentum(lw.DHAMS):
    """Control: does not reverse the momentum where it rejects."""

    def step(self, state, model, rng):
        after, info = super().step(state, model, rng)
        stays = (after.x == state.x).flatten(1).all(1, keepdim=True)
        return after._replace(momentum=torch.where(stays, -after.momentum, after.momentum)), info


class FreeGuide(lw.EDLP):
    """Control: forgets the guide in the ratio."""

    def _move_guide(self, guide, shift, rng):
        moved, ratio = super()._move_guide(guide, shift, rng)
        return moved, ratio * 0


JOINT = [
    (lw.DHAMS(0.7, 0.8, 0.3), KeptMomentum(0.7, 0.8, 0.3), "momentum"),
    (lw.DHAMS(1.2, 0.0), None, "momentum"),
    (lw.EDLP(0.6, 0.7), FreeGuide(0.6, 0.7), "guide"),
    (lw.EDLP(0.6, 0.7, 0.5), FreeGuide(0.6, 0.7, 0.5), "guide"),
]


@pytest.mark.parametrize(("sampler", "broken", "memory"), JOINT, ids=str)
def test_the_joint_law_is_invariant(sampler, broken, memory):
    for name in ("binary", "ordinal"):
        assert joint_p(sampler, name, memory) > 1e-4
    if broken:
        assert joint_p(broken, "binary", memory) < 1e-6


def test_a_momentum_persists():
    """Steps too short to move: the momentum is an autoregression with coefficient `persistence`."""
    model, rng = lw.Function(lambda x: 0 * x.sum(-1), lw.Binary(50)), Generator().manual_seed(0)
    sampler = lw.DHAMS(0.1, persistence=0.8)
    start, _ = sampler.step(sampler.init(model.domain.uniform(200, rng), model), model, rng)
    before = start.x.clone()
    pair = [start.momentum.flatten()]
    state, _ = sampler.step(start, model, rng)
    assert torch.equal(state.x, before)
    pair = torch.stack((*pair, state.momentum.flatten()))
    assert abs(torch.corrcoef(pair)[0, 1] - 0.8) < 0.02
    assert abs(pair[1].std() - 1) < 0.04


# DHAMS and PAVG without rejections.


def least_acceptance(sampler, model, steps=20, chains=200):
    rng = Generator().manual_seed(0)
    state = sampler.init(model.domain.uniform(chains, rng), model)
    least = 1.0
    for _ in range(steps):
        before = state.x.clone()
        state, info = sampler.step(state, model, rng)
        least = min(least, float(info.accept_prob.min()))
    assert not torch.equal(before, state.x)
    return least


def quadratic(domain, seed=0):
    """A log-quadratic target, with a diagonal."""
    weight = torch.randn(6, 6, generator=Generator().manual_seed(seed)) / 3
    return lw.LogQuadratic(weight + weight.T, 0.2, domain=domain)


QUADRATIC = {
    "spins": quadratic(lw.Binary(6, -1, 1)),
    "ordinal": quadratic(lw.Ordinal(6, 4)),
    "lattice": lw.Lattice((3, 4), 0.4, 0.1),
    "graph": lw.erdos_renyi(12, 4, 0.4),
}


@pytest.mark.parametrize("step_size", [0.3, 3.0])
@pytest.mark.parametrize("name", QUADRATIC)
def test_nothing_is_rejected_on_a_quadratic_target(name, step_size):
    assert least_acceptance(lw.PAVG(step_size), QUADRATIC[name]) > 0.9995
    assert least_acceptance(lw.AVG(step_size), QUADRATIC[name]) < 0.9  # control: M = 0


def test_the_hessian_is_learnt():
    """A target that does not say it is quadratic: the regression of its gradient is exact."""
    exact = QUADRATIC["graph"]
    model = lw.Function(exact, exact.domain)
    learnt = learn_hessian(model, lw.AVG(1.0), 40, torch.zeros(1, 12))
    torch.testing.assert_close(learnt, 8 * exact.coupling, rtol=0.02, atol=0.02)
    assert least_acceptance(lw.PAVG(1.0, burn_in=40), model) > 0.9
    assert not learn_hessian(model, lw.AVG(1.0), 0, torch.zeros(1, 12)).any()


def test_what_is_learnt_is_one_for_all_step_sizes():
    """A search over step sizes learns it once, and its choice alone gives the same sampler."""
    model, x = TARGETS["rbm"].model, torch.zeros(2, 4)
    shared = lw.PAVG(2.0, **lw.PAVG(0.5, burn_in=20).learn_fields(x, model))
    own, other = lw.PAVG(2.0, burn_in=20), lw.PAVG(2.0, 20, None, 0.1)
    root = shared.init(x, model).root
    assert torch.equal(root, own.init(x, model).root)
    assert not torch.equal(root, other.init(x, model).root)
    assert shared.learn_fields(x, model) == {}


# Clusters.


@pytest.mark.parametrize("shape", [(7, 9), (1, 40), (4, 3, 5)])
@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
def test_clusters_are_the_connected_components(shape, share):
    edges, price, _ = interactions(lw.Lattice(shape, 1.0, periodic=len(shape) == 2))
    sites, rng = int(edges.max()) + 1, Generator().manual_seed(0)
    bonds = (torch.rand(20, edges.shape[1], generator=rng) < share) & (price > 0)
    labels, found = clusters(edges, bonds, sites)
    assert found.all()
    for row, label in zip(bonds, labels, strict=True):
        ends = edges[:, row].numpy()
        graph = coo_array((np.ones(ends.shape[1]), ends), shape=(sites, sites))
        _, expected = connected_components(graph, directed=False)
        first = torch.tensor([list(expected).index(part) for part in expected])
        assert torch.equal(label, first)


def test_staying_is_exact(monkeypatch):
    """Whether a chain whose clusters are not found stays depends on its bonds alone."""
    monkeypatch.setattr("latticework.samplers.swendsen_wang.most_rounds", lambda sites: 3)
    model = lw.Lattice((3, 3), 0.25, [0.3, -0.2, 0.1, 0.0, 0.4, -0.1, 0.2, 0.1, -0.3])
    target, rng = Target(model), Generator().manual_seed(5)
    sampler = lw.SwendsenWang()
    state = sampler.init(target.draw(target.law, 20_000, rng), model)
    stays = 0.0
    for _ in range(4):
        before = state.x.clone()
        state, info = sampler.step(state, model, rng)
        assert torch.equal(state.x[info.unsettled == 1], before[info.unsettled == 1])
        stays += float(info.unsettled.mean()) / 4
    assert 0.03 < stays < 0.9
    count = np.bincount(target.index(state.x), minlength=len(target.law))
    assert p_value(count, target.law) > 1e-4
