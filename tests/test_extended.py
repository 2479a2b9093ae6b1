"""Samplers of an extended space: the joint law of the state and what it is extended by.

The table of enumerated matrices holds the law of x alone. Here chains start from exact draws of the
joint law, and the joint counts are compared with it after some steps.
"""

from itertools import product

import numpy as np
import pytest
import torch
from exactness import p_value
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from targets import TARGETS
from torch import Generator

from latticework.models.annealed import GeometricPath
from latticework.models.base import Function
from latticework.models.domain import Binary, Ordinal
from latticework.models.ising import Lattice, erdos_renyi
from latticework.models.quadratic import LogQuadratic
from latticework.samplers.auxiliary import normal_like
from latticework.samplers.avg import AVG
from latticework.samplers.base import UnsupportedModelError, acceptance, own_generator
from latticework.samplers.dhams import DHAMS
from latticework.samplers.edlp import EDLP
from latticework.samplers.pavg import PAVG, hessian, learnt_hessian
from latticework.samplers.pt_dmala import PTDMALA
from latticework.samplers.swendsen_wang import SwendsenWang, clusters, interactions
from latticework.sampling.annealing import anneal, estimate_log_normaliser, linear
from latticework.sampling.checking.examination import Examination
from latticework.sampling.checking.suite import CHECKS
from latticework.sampling.checking.targets import Target
from latticework.sampling.evaluations import calls_of_step
from latticework.sampling.targets import unsupported


@pytest.mark.parametrize("sampler", [AVG(1.0)], ids=str)
def test_a_gradient_whose_rows_share_memory_is_copied(sampler):
    """PyTorch expands the gradient of a sum; rows of large states are selected in place."""
    model, rng = Function(lambda x: x.sum(-1), Binary(200)), Generator().manual_seed(0)
    x = model.domain.uniform(100, rng)
    state = sampler.init(x, model)
    for _ in range(2):
        state, info = sampler.step(state, model, rng)
    assert (info.accept_prob > 0.9).all()
    assert (state.grad == 1).all()


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


JOINT = [
    (DHAMS(0.7, 0.8, 0.3), "momentum"),
    (DHAMS(1.2, 0.0), "momentum"),
    (EDLP(0.6, 0.7), "guide"),
    (EDLP(0.6, 0.7, 0.5), "guide"),
]


@pytest.mark.parametrize("name", ["binary", "ordinal"])
@pytest.mark.parametrize(("sampler", "memory"), JOINT, ids=str)
def test_the_joint_law_is_invariant(sampler, memory, name):
    assert joint_p(sampler, name, memory) > 1e-4


class KeptMomentum(DHAMS):
    """Control: does not reverse the momentum where it rejects."""

    def step(self, state, model, rng):
        after, info = super().step(state, model, rng)
        stays = (after.x == state.x).flatten(1).all(1, keepdim=True)
        return after._replace(momentum=torch.where(stays, -after.momentum, after.momentum)), info


class FreeGuide(EDLP):
    """Control: forgets the guide in the ratio."""

    def _moved(self, guide, shift, rng):
        moved, ratio = super()._moved(guide, shift, rng)
        return moved, ratio * 0


@pytest.mark.parametrize(
    ("sampler", "memory"),
    [
        (KeptMomentum(0.7, 0.8, 0.3), "momentum"),
        (FreeGuide(0.6, 0.7), "guide"),
        (FreeGuide(0.6, 0.7, 0.5), "guide"),
    ],
    ids=["momentum kept", "guide free, Gibbs-like", "guide free, joint"],
)
def test_a_broken_joint_kernel_is_caught(sampler, memory):
    assert joint_p(sampler, "binary", memory) < 1e-6


def test_a_momentum_persists():
    """Steps too short to move: the momentum is an autoregression with coefficient `persistence`."""
    model, rng = Function(lambda x: 0 * x.sum(-1), Binary(50)), Generator().manual_seed(0)
    sampler = DHAMS(0.1, persistence=0.8)
    start, _ = sampler.step(sampler.init(model.domain.uniform(200, rng), model), model, rng)
    before = start.x.clone()
    pair = [start.momentum.flatten()]
    state, _ = sampler.step(start, model, rng)
    assert torch.equal(state.x, before)
    pair = torch.stack((*pair, state.momentum.flatten()))
    assert abs(torch.corrcoef(pair)[0, 1] - 0.8) < 0.02
    assert abs(pair[1].std() - 1) < 0.04


@pytest.mark.parametrize("sampler", [DHAMS(0.8, 0.9), EDLP(0.5, 0.4, 0.3)], ids=str)
def test_few_chains_are_stationary_from_their_start(sampler):
    """Each start draws its own momentum or guide: 4 chains at a time keep the law of x."""
    target = TARGETS["binary"]
    rng = Generator().manual_seed(5)
    count = torch.zeros(len(target.law))
    for _ in range(1500):
        state = sampler.init(target.draw(target.law, 4, rng), target.model)
        for _ in range(2):
            state, _ = sampler.step(state, target.model, rng)
        count += torch.bincount(torch.from_numpy(target.index(state.x)), minlength=len(count))
    assert p_value(count.numpy(), target.law) > 1e-4


def test_numbers_of_a_pilot_are_not_those_of_a_run():
    """With a common seed, a run would repeat the numbers of the pilot."""
    own = torch.rand(4, generator=own_generator(torch.device("cpu")))
    for seed in (0, 1, 2):
        assert not torch.equal(own, torch.rand(4, generator=Generator().manual_seed(seed)))


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


@pytest.mark.parametrize("domain", [Binary(6), Binary(6, -1, 1), Ordinal(6, 4)], ids=str)
@pytest.mark.parametrize("sampler", [DHAMS(0.6), DHAMS(1.3, 0.4, 0.7), AVG(0.8)], ids=str)
def test_nothing_is_rejected_on_a_linear_target(sampler, domain):
    slope = torch.tensor([1.0, -2.0, 0.3, 0.0, 1.5, -0.7])
    assert least_acceptance(sampler, Function(lambda x: x @ slope, domain)) > 0.9999
    curved = Function(lambda x: x @ slope + x[:, 0] * x[:, 1] - x[:, 2] * x[:, 4], domain)
    assert least_acceptance(sampler, curved) < 0.9


def quadratic(domain, seed=0):
    """A log-quadratic target, with a diagonal."""
    weight = torch.randn(6, 6, generator=Generator().manual_seed(seed)) / 3
    return LogQuadratic(weight + weight.T, 0.2, domain=domain)


QUADRATIC = {
    "spins": quadratic(Binary(6, -1, 1)),
    "ordinal": quadratic(Ordinal(6, 4)),
    "lattice": Lattice((3, 4), 0.4, 0.1),
    "graph": erdos_renyi(12, 4, 0.4),
}


@pytest.mark.parametrize("step_size", [0.3, 3.0])
@pytest.mark.parametrize("name", QUADRATIC)
def test_nothing_is_rejected_on_a_quadratic_target(name, step_size):
    assert least_acceptance(PAVG(step_size), QUADRATIC[name]) > 0.9995
    assert least_acceptance(AVG(step_size), QUADRATIC[name]) < 0.9  # control: M = 0


def test_the_given_matrix_is_taken():
    """The Hessian is 2 W; another matrix rejects."""
    model = QUADRATIC["spins"]
    given = (2 * model.weight).tolist()
    assert least_acceptance(PAVG(0.5, matrix=given), model) > 0.9995
    assert least_acceptance(PAVG(0.5, matrix=(2.4 * model.weight).tolist()), model) < 0.98
    with pytest.raises(ValueError, match=r"matrix must be \[4, 4\] for states \[4\], got 6 rows"):
        PAVG(0.5, matrix=given).init(torch.zeros(2, 4), TARGETS["rbm"].model)


def test_the_hessian_is_learnt():
    """A target that does not say it is quadratic: the regression of its gradient is exact."""
    exact = QUADRATIC["graph"]
    model = Function(exact, exact.domain)
    learnt = learnt_hessian(model, AVG(1.0), 40, torch.zeros(1, 12))
    torch.testing.assert_close(learnt, 8 * exact.coupling, rtol=0.02, atol=0.02)
    assert least_acceptance(PAVG(1.0, burn_in=40), model) > 0.9
    assert not learnt_hessian(model, AVG(1.0), 0, torch.zeros(1, 12)).any()


def test_eigenvectors_are_found_once_for_a_matrix(monkeypatch):
    """A search changes the step size on one model; another model has another matrix."""
    found, exact = [], torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda matrix: found.append(1) or exact(matrix))
    models = [Lattice((3, 4), coupling, 0.1) for coupling in (0.31, 0.32)]
    starts = [
        PAVG(step_size).init(torch.ones(2, 12), model)
        for model in models
        for step_size in (0.5, 2.0)
    ]
    assert len(found) == 2
    for (model, step_size), start in zip(product(models, (0.5, 2.0)), starts, strict=True):
        delta = 2 * start.price
        square = hessian(model, start.x) + delta * torch.eye(12)
        torch.testing.assert_close(start.root @ start.root, square, rtol=1e-4, atol=1e-4)
        assert delta > 2 / step_size


def test_the_matrix_is_frozen():
    """Nothing adapts after the start: not in a step, nor where the target or position changes."""
    model, rng = TARGETS["rbm"].model, Generator().manual_seed(0)
    sampler = PAVG(1.0, burn_in=20)
    x = model.domain.uniform(30, rng)
    state = sampler.init(x, model)
    root, price = state.root.clone(), state.price.clone()
    for _ in range(3):
        state, _ = sampler.step(state, model, rng)
    other = TARGETS["binary"].model.__class__(Binary(4))
    for later in (state, sampler.refresh(state, other), sampler.moved_to(1 - x, state, other)):
        assert torch.equal(later.root, root)
        assert torch.equal(later.price, price)
    again = sampler.init(1 - x, model)  # M does not depend on where the chains start
    assert torch.equal(again.root, root)
    assert not torch.equal(sampler.init(x, other).root, root)


def test_what_is_learnt_is_one_for_all_step_sizes():
    """A search over step sizes learns it once, and its choice alone gives the same sampler."""
    model, x = TARGETS["rbm"].model, torch.zeros(2, 4)
    learnt = PAVG(0.5, burn_in=20).learnt(x, model)
    shared = PAVG(2.0, **learnt)
    assert torch.equal(shared.init(x, model).root, PAVG(2.0, burn_in=20).init(x, model).root)
    assert not torch.equal(shared.init(x, model).root, PAVG(2.0, 20, None, 0.1).init(x, model).root)
    assert shared.learnt(x, model) == {}


def test_support_is_asked_for_without_learning():
    called = []
    model = Function(lambda x: called.append(len(x)) or x.sum(-1), Binary(4))
    assert not unsupported(PAVG(1.0), model)
    assert sum(called) < 10
    assert "states of at most 4,096 numbers" in unsupported(
        PAVG(1.0), Function(lambda x: x.sum(-1), Binary(5000))
    )


# Parallel tempering.


def tempered_p(sampler, name, steps=4, chains=50_000):
    """P-value of the joint counts of two replicas after steps from their joint law."""
    target, rng = TARGETS[name], Generator().manual_seed(4)
    laws = [(b * torch.from_numpy(target.log_prob)).softmax(0) for b in sampler.ladder]
    replicas = torch.cat([target.draw(law.numpy(), chains, rng) for law in laws])
    start = sampler.init(replicas[:chains], target.model)
    state = sampler.at_replicas(replicas, start.ladder, start.turn, target.model)
    for _ in range(steps):
        state, _ = sampler.step(state, target.model, rng)
    assert torch.equal(state.x, state.replicas.x[:chains])
    first, second = target.index(state.replicas.x).reshape(2, chains)
    law = torch.outer(*laws).flatten().numpy()
    count = torch.bincount(torch.from_numpy(first * len(target.z) + second), minlength=len(law))
    return p_value(count.numpy(), law)


@pytest.mark.parametrize("name", ["binary", "categorical"])
def test_replicas_keep_the_product_of_their_targets(name):
    assert tempered_p(PTDMALA(0.5, [1.0, 0.3]), name) > 1e-4


def law_after_a_step(sampler, name="binary", chains=20_000):
    """P-value of the counts of x, one step after exact draws."""
    target, rng = TARGETS[name], Generator().manual_seed(4)
    state = sampler.init(target.draw(target.law, chains, rng), target.model)
    state, _ = sampler.step(state, target.model, rng)
    return p_value(np.bincount(target.index(state.x), minlength=len(target.law)), target.law)


def test_hot_replicas_are_burnt_in():
    """Replicas that all start at x disturb the law of exact draws."""
    assert law_after_a_step(PTDMALA(0.5, [1.0, 0.1], burn_in=20)) > 1e-4
    assert law_after_a_step(PTDMALA(0.5, [1.0, 0.1])) < 1e-4  # control


def test_swaps_with_the_wrong_ratio_are_caught(monkeypatch):
    wrong = lambda ratio: acceptance(ratio / 2)  # noqa: E731
    monkeypatch.setattr("latticework.samplers.pt_dmala.acceptance", wrong)
    assert tempered_p(PTDMALA(0.5, [1.0, 0.3]), "binary") < 1e-4


def test_swaps_alternate_and_exchange_whole_replicas():
    """Four replicas in turn: (0 1) (2 3), then (1 2). Equal temperatures, nearly, always swap."""
    model, rng = TARGETS["rbm"].model, Generator().manual_seed(0)
    sampler = PTDMALA(1e-4, [1.0, 1 - 1e-6, 1 - 2e-6, 1 - 3e-6])  # no replica moves
    replicas = model.domain.enumerate()[:12]
    start = sampler.init(replicas[:3], model)
    state = sampler.at_replicas(replicas, start.ladder, start.turn, model)
    orders = []
    for _ in range(4):
        state, _ = sampler.step(state, model, rng)
        torch.testing.assert_close(state.replicas.log_prob, model.log_prob(state.replicas.x))
        same = (state.replicas.x[::3].unsqueeze(1) == replicas[::3]).all(-1)
        orders.append(same.long().argmax(1).tolist())
    assert orders == [[1, 0, 3, 2], [1, 3, 0, 2], [3, 1, 2, 0], [3, 2, 1, 0]]


def swap_rates(sampler, model, steps=300):
    rng = Generator().manual_seed(7)
    state = sampler.init(model.domain.uniform(100, rng), model)
    total = 0
    for step in range(steps):
        state, _, swap = sampler.advance(state, model, rng)
        total += swap.mean(1) if step >= steps // 3 else 0
    return total / (steps - steps // 3), state.ladder


def test_the_ladder_is_spaced_for_even_swap_rates():
    model = erdos_renyi(16, 4, 0.35)
    ladder = [1.0, 0.95, 0.9, 0.1]
    uneven, given = swap_rates(PTDMALA(0.3, ladder), model)
    even, learnt = swap_rates(PTDMALA(0.3, ladder, burn_in=500), model)
    assert uneven.max() - uneven.min() > 0.3
    assert even.max() - even.min() < 0.06
    assert given.tolist() == pytest.approx(ladder)
    assert (learnt[0], learnt[-1]) == (given[0], given[-1])
    assert (learnt.diff() < 0).all()


@pytest.mark.parametrize("ladder", [[1.0], [0.9, 0.5], [1.0, 1.0], [1.0, 0.5, -0.1], [0.5, 1.0]])
def test_a_ladder_that_does_not_fall_from_1_is_refused(ladder):
    with pytest.raises(ValueError, match="ladder must be two numbers or more that fall from 1"):
        PTDMALA(0.5, ladder)


def test_all_replicas_are_counted():
    model, rng = TARGETS["rbm"].model, Generator().manual_seed(0)
    x = model.domain.uniform(6, rng)
    for sampler, count in ((AVG(1.0), 1), (PTDMALA(0.5, [1.0, 0.6, 0.3]), 3)):
        assert calls_of_step(sampler, model, x, rng) == (count, 0)


def test_the_suite_lets_replicas_settle():
    """`latticework check`: without the burn-in, invariance fails."""
    invariance, target = CHECKS["invariance"], TARGETS["binary"]
    sampler = PTDMALA(0.5, [1.0, 0.1])
    assert invariance(Examination(sampler, target, 1e-6, chains=20_000)).status == "ok"
    hasty = Hasty(0.5, [1.0, 0.1])
    assert invariance(Examination(hasty, target, 1e-6, chains=20_000)).status == "fails"


class Hasty(PTDMALA):
    """Control: says that its chains are stationary at once."""

    stationary_start = True


# Annealed importance sampling.


@pytest.mark.parametrize(
    "sampler", [AVG(1.0), PAVG(1.0, 20), DHAMS(0.7), EDLP(0.6, 0.7), EDLP(0.6, 0.7, 0.5)], ids=str
)
def test_annealing_finds_the_normaliser(sampler):
    path, rng = GeometricPath(TARGETS["rbm"].model), Generator().manual_seed(3)
    done = anneal(sampler, path, path.draw(500, rng), linear(30), rng)
    found = estimate_log_normaliser(done.log_weight, rng)
    truth = torch.from_numpy(TARGETS["rbm"].log_prob).logsumexp(0)
    assert abs(found.value - truth) < 5 * found.error
    assert found.error < 0.05


def test_annealing_refuses_replicas_that_do_not_start_from_their_law():
    path, rng = GeometricPath(TARGETS["rbm"].model), Generator()
    with pytest.raises(ValueError, match="cannot use PTDMALA.*still need a burn-in"):
        anneal(PTDMALA(0.5, [1.0, 0.5]), path, path.draw(5, rng), linear(3), rng)
    lattice = GeometricPath(TARGETS["lattice"].model)
    with pytest.raises(UnsupportedModelError, match="an Ising or Potts lattice"):
        anneal(SwendsenWang(), lattice, lattice.draw(5, rng), linear(3), rng)


# Clusters.


@pytest.mark.parametrize("shape", [(7, 9), (1, 40), (4, 3, 5)])
@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
def test_clusters_are_the_connected_components(shape, share):
    edges, price, _ = interactions(Lattice(shape, 1.0, periodic=len(shape) == 2))
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


@pytest.mark.parametrize("order", ["in line", "shuffled"])
def test_a_long_chain_of_bonds_needs_few_rounds(order, monkeypatch):
    sites = torch.arange(3000)
    path = sites if order == "in line" else torch.randperm(3000, generator=Generator())
    edges = torch.stack((path[:-1], path[1:]))
    bonds = torch.ones(1, 2999, dtype=torch.bool)
    labels, found = clusters(edges, bonds, 3000)
    assert found.all()
    assert not labels.any()
    monkeypatch.setattr("latticework.samplers.swendsen_wang.most_rounds", lambda sites: 5)
    assert not clusters(edges, bonds, 3000)[1].any()


@pytest.fixture
def three_rounds(monkeypatch):
    monkeypatch.setattr("latticework.samplers.swendsen_wang.most_rounds", lambda sites: 3)


@pytest.mark.usefixtures("three_rounds")
def test_a_chain_whose_clusters_are_not_found_stays():
    model, rng = Lattice((8, 8), 0.1), Generator().manual_seed(0)
    sampler = SwendsenWang()
    x = model.domain.uniform(200, rng)
    state, info = sampler.step(sampler.init(x, model), model, rng)
    lost = info.unsettled == 1
    assert 0 < lost.sum() < 200
    assert torch.equal(state.x[lost], x[lost])
    assert (state.x[~lost] != x[~lost]).any(1).all()


@pytest.mark.usefixtures("three_rounds")
def test_staying_is_exact():
    """Whether a chain stays depends on its bonds alone."""
    model = Lattice((3, 3), 0.25, [0.3, -0.2, 0.1, 0.0, 0.4, -0.1, 0.2, 0.1, -0.3])
    target, rng = Target(model), Generator().manual_seed(5)
    sampler = SwendsenWang()
    state = sampler.init(target.draw(target.law, 20_000, rng), model)
    stays = 0.0
    for _ in range(4):
        state, info = sampler.step(state, model, rng)
        stays += float(info.unsettled.mean()) / 4
    assert 0.03 < stays < 0.9
    count = np.bincount(target.index(state.x), minlength=len(target.law))
    assert p_value(count, target.law) > 1e-4


@pytest.mark.parametrize("periodic", [True, False])
def test_swendsen_wang_finds_the_exact_mean(periodic):
    """A lattice too large to list, near its critical coupling, with a field."""
    model, rng = Lattice((6, 6), 0.21, 0.02, periodic), Generator().manual_seed(0)
    _, exact = model.log_z_and_mean()
    sampler, chains = SwendsenWang(), 1000
    state, total = sampler.init(model.domain.uniform(chains, rng), model), 0
    for step in range(60):
        state, _ = sampler.step(state, model, rng)
        total = total + (state.x if step >= 20 else 0)
    mean = (total / 40).double().mean(1)
    z = (mean.mean() - exact.mean()) / (mean.std() / chains**0.5)
    assert abs(z) < 4.5
