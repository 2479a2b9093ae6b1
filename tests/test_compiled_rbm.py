"""Compiled kernels on restricted Boltzmann machines that are too large to enumerate."""

import copy
import math

import numpy as np
import pytest
import torch
from exactness import largest_z
from targets import TARGETS
from test_compiled import leaves
from torch import Generator, Tensor

from latticework.experiments.tasks.learning.negatives import Persistent
from latticework.models.annealed import ScaledRBM
from latticework.models.rbm import RBM
from latticework.samplers.base import Sampler
from latticework.samplers.block_gibbs import BlockGibbs
from latticework.samplers.compiled import rbm, sites
from latticework.samplers.compiled.choose import twin_of
from latticework.samplers.compiled.twin import Twin
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.gwg import GWG
from latticework.samplers.langevin import DMALA, DULA
from latticework.samplers.locally_balanced import LocallyBalanced
from latticework.sampling.annealing import anneal, estimate_log_normaliser, linear

VISIBLE, HIDDEN = 45, 26  # no multiples of the widths of vector registers
SCALE = np.linspace(0.5, 2.0, VISIBLE).tolist()
LANGEVIN = [DULA(0.4), DULA(math.inf), DULA(0.3, SCALE, 2), DMALA(0.4), DMALA(math.inf)]
ONE_SITE = [GWG(), GWG(5), LocallyBalanced()]
KEEPING = [
    *LANGEVIN,
    DMALA(0.3, SCALE),
    BlockGibbs(),
    BlockGibbs(3),
]  # samplers whose state holds more than x


def brief(sampler: Sampler) -> str:
    return str(sampler)[:40]


def rng(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def machine(scale: float = 0.4, seed: int = 1) -> RBM:
    model = RBM(VISIBLE, HIDDEN)
    for parameter in model.parameters():
        parameter.normal_(0, scale, generator=rng(seed))
    return model


def start(chains: int = 6, seed: int = 2) -> Tensor:
    return (torch.rand(chains, VISIBLE, generator=rng(seed)) < 0.5).float()


def advanced(twin: Twin, model: RBM, calls: list[int], x: Tensor | None = None, seed: int = 3):
    state, generator, all_sums = twin.init(start() if x is None else x, model), rng(seed), []
    for steps in calls:
        state, sums = twin.advance(state, model, generator, steps)
        all_sums.append(sums)
    return state, all_sums[-1]


@pytest.mark.parametrize("sampler", [*LANGEVIN, DMALA(0.3, SCALE)], ids=brief)
def test_flips_have_the_probabilities_of_the_eager_sampler(sampler: Sampler):
    """From one state: the flips of DULA site by site, the acceptance of DMALA, to 5 errors."""
    model, replicas = machine(), 20_000
    x = start(1).expand(replicas, -1).contiguous()
    twin = twin_of(sampler, model)
    state, info = twin.step(twin.init(x, model), model, rng())
    if isinstance(sampler, DULA):
        logits = sampler.logits(x[:1].double(), model.gradient(x[:1]).double(), model.domain)
        count = (state.x != x).sum(0).numpy()
        assert largest_z(count, replicas, logits.sigmoid()[0].numpy()) < 5
    else:
        eager, other = sampler.step(sampler.init(x, model), model, rng(1))
        ours, theirs = info.accept_prob.double(), other.accept_prob.double()
        error = ((ours.var() + theirs.var()) / replicas).sqrt()
        assert abs(ours.mean() - theirs.mean()) < 5 * error
        means = state.x.mean(0), eager.x.mean(0)
        error = (2 * 0.25 / replicas) ** 0.5
        assert (means[0] - means[1]).abs().max() < 5 * error


def test_block_gibbs_draws_each_unit_with_its_probability():
    """The mean of x after a step from one state, given h = 0 or 1 for certain."""
    model, replicas = machine(), 20_000
    model.hidden_bias.copy_(torch.tensor([-60.0, 60.0]).repeat(HIDDEN // 2))
    x = start(1).expand(replicas, -1).contiguous()
    twin = twin_of(BlockGibbs(), model)
    state, _ = twin.step(twin.init(x, model), model, rng())
    probability = model.visible_inputs((model.hidden_bias > 0).float()[None]).sigmoid()[0]
    assert largest_z(state.x.sum(0).numpy(), replicas, probability.double().numpy()) < 5


@pytest.mark.parametrize("sampler", ONE_SITE, ids=brief)
@pytest.mark.parametrize("scale", [0.4, 12.0])
def test_one_site_samplers_propose_and_accept_as_the_eager_sampler(sampler: Sampler, scale: float):
    """The flips made from one state, and the mean acceptance. Some weights of the
    larger scale are beyond those whose exponentials are multiplied in single precision."""
    model, replicas = machine(scale), 20_000
    x = start(1).expand(replicas, -1).contiguous()
    twin, eager = twin_of(sampler, model), sampler.init(x, model)
    state, info = twin.step(twin.init(x, model), model, rng())
    _, other = sampler.step(eager, model, rng(1))
    ours, theirs = info.accept_prob.double(), other.accept_prob.double()
    error = ((ours.var() + theirs.var()) / replicas).sqrt() + 1e-4
    assert abs(ours.mean() - theirs.mean()) < 5 * error
    if sampler.flips == 1:  # accepted flips, from the enumerated neighbours
        y = x[0].repeat(VISIBLE, 1)
        y[range(VISIBLE), range(VISIBLE)] = 1 - x[0]
        here, there = sampler.at(x[:VISIBLE], model), sampler.at(y, model)
        ratio = sampler.log_ratio(here, there, torch.arange(VISIBLE)[:, None], model).double()
        probability = here.logits[0].double().softmax(0) * ratio.clamp(max=0).exp()
        count = (state.x != x).sum(0).numpy()
        assert largest_z(count, replicas, probability.numpy()) < 5


@pytest.mark.parametrize("scale", [0.4, 200.0], ids=["moderate", "beyond double precision"])
def test_gibbs_resamples_a_site_with_its_conditional_probability(scale: float):
    model, replicas = machine(scale), 20_000
    x = start(1).expand(replicas, -1).contiguous()
    twin = twin_of(Gibbs(), model)
    for site in (0, 7, VISIBLE - 1):
        state = twin.init(x, model)
        state.scan[0].fill_(site)
        state, _ = twin.step(state, model, rng(site))
        log_odds = model.log_odds(x[:1], model.cache(x[:1]), torch.tensor([site]))
        count = state.x[:, site].sum().numpy()
        assert largest_z(count, replicas, log_odds.double().sigmoid()[0, 0].numpy()) < 5
        assert torch.equal(state.x[:, :site], x[:, :site])


def test_the_memory_of_gibbs_follows_its_flips_and_is_renewed_at_site_0():
    model, twin = machine(), twin_of(Gibbs(), machine())
    state, _ = advanced(twin, model, [3 * VISIBLE + 5])
    assert not torch.equal(state.x, start())
    expected = sites.memory_of(model.form(), state.x)
    torch.testing.assert_close(state.memory, expected, rtol=0, atol=5e-6)
    state.memory[:, :HIDDEN] += 0.5  # a large rounding error
    state, _ = twin.advance(state, model, rng(), VISIBLE - 6)
    wrong = (state.memory - sites.memory_of(model.form(), state.x)).abs()
    assert (wrong[:, :HIDDEN].amax(1) > 0.4).all()  # control: site 0 comes next
    state, _ = twin.advance(state, model, rng(), 2)
    expected = sites.memory_of(model.form(), state.x)
    torch.testing.assert_close(state.memory, expected, rtol=0, atol=5e-6)


def test_the_change_of_one_flip():
    """What other kernels that change a few sites ask of an RBM."""
    model = machine()
    form, x = model.form(), start()
    memory, every = sites.memory_of(form, x), torch.arange(VISIBLE)
    exact = copy.deepcopy(model).double()
    changes = exact.differences(x.double(), exact.cache(x.double()), every)
    for chain, site in ((0, 0), (1, 20), (5, VISIBLE - 1)):
        change = sites.rbm_change(form, x.numpy(), memory.numpy(), chain, site)
        assert change == pytest.approx(changes[chain, site].item(), abs=1e-5)
        sites.rbm_flip(form, x.numpy(), memory.numpy(), chain, site)
    assert (x != start()).sum() == 3
    torch.testing.assert_close(memory, sites.memory_of(form, x), rtol=0, atol=2e-6)


@pytest.mark.parametrize("sampler", KEEPING, ids=brief)
def test_kept_values_are_those_of_the_position(sampler: Sampler, monkeypatch):
    """After accepted and rejected steps, before and after FRESH of them, all by rows."""
    monkeypatch.setattr(rbm, "ROWS", 1.0)
    model, twin = machine(), twin_of(sampler, machine())
    for steps in (1, rbm.FRESH - 1, rbm.FRESH + 3):
        state, _ = advanced(twin, model, [steps])
        assert not torch.equal(state.x, start())
        torch.testing.assert_close(state.inputs, model.hidden_inputs(state.x), rtol=0, atol=2e-5)
        if isinstance(sampler, DMALA):
            grad = model.gradient(state.x)
            torch.testing.assert_close(state.gradient, grad, rtol=0, atol=5e-5)
            logits = sampler.logits(state.x, grad, model.domain)
            balance = model(state.x) - model.domain.log_normaliser(logits)
            torch.testing.assert_close(state.balance.float(), balance, rtol=1e-5, atol=1e-4)
        if sampler in ONE_SITE:
            eager = sampler.at(state.x, model)
            expected = eager.log_normaliser
            if isinstance(sampler, GWG):
                balance = eager.log_prob - sampler.flips * expected
                torch.testing.assert_close(state.balance.float(), balance, rtol=1e-5, atol=1e-4)
            else:
                torch.testing.assert_close(
                    state.log_normaliser.float(), expected, rtol=1e-5, atol=1e-5
                )


@pytest.mark.parametrize("sampler", KEEPING, ids=brief)
def test_inputs_are_computed_afresh_at_the_same_steps_in_all_calls(sampler: Sampler):
    model, twin, steps = machine(), twin_of(sampler, machine()), rbm.FRESH + 5
    one, two = (advanced(twin, model, calls)[0] for calls in ([steps], [100, steps - 101, 1]))
    assert not torch.equal(one.x, start())
    assert all(map(torch.equal, leaves(one), leaves(two)))


@pytest.mark.parametrize("sampler", [DULA(0.4), DMALA(0.4), BlockGibbs(2), GWG(3)], ids=brief)
def test_rows_and_products_give_the_same_chain(sampler: Sampler, monkeypatch):
    model, twin = machine(), twin_of(sampler, machine())
    states = []
    for share in (0.0, 2.0):
        monkeypatch.setattr(rbm, "ROWS", share)
        states.append(advanced(twin, model, [20])[0])
    products, rows = states
    assert torch.equal(products.x, rows.x)
    if isinstance(sampler, DMALA | GWG):
        assert not torch.equal(products.inputs, rows.inputs)  # control: rounded differently
    else:
        assert (products.age == 0).all()  # the next product is due
        assert (rows.age > 0).all()


@pytest.mark.parametrize("sampler", KEEPING, ids=brief)
def test_refresh_takes_up_new_parameters(sampler: Sampler):
    """PCD and AIS change the model in place."""
    model = machine()
    twin = twin_of(sampler, model)
    state, _ = advanced(twin, model, [7])
    model.weight.mul_(-1)
    new = twin.at(state.x.clone(), model)
    refreshed = twin.refresh(state, model)
    results = [twin.advance(s, model, rng(9), 5)[0] for s in (refreshed, new)]
    assert all(map(torch.equal, *map(leaves, results)))


@pytest.mark.parametrize("sampler", [DMALA(0.4), BlockGibbs(), Gibbs(), *ONE_SITE], ids=brief)
def test_a_path_of_machines_is_served(sampler: Sampler):
    path = ScaledRBM(machine())
    twin = twin_of(sampler, path)
    path.move_to(torch.tensor(0.5))
    state = twin.at(start(), path)
    path.move_to(torch.tensor(1.0))
    state, _ = twin.advance(twin.refresh(state, path), path, rng(), 5)
    same, _ = advanced(twin, machine(), [5], seed=0)
    assert all(map(torch.equal, leaves(state), leaves(same)))


@pytest.mark.parametrize("sampler", [*ONE_SITE, DMALA(0.4), BlockGibbs(), Gibbs()], ids=brief)
def test_annealing_estimates_the_normaliser(sampler: Sampler):
    target, path = TARGETS["rbm"], ScaledRBM(TARGETS["rbm"].model)
    truth = np.logaddexp.reduce(target.log_prob) - float(path.log_z_start())
    path.move_to(torch.tensor(0.0))
    twin, generator = twin_of(sampler, path), rng()
    x = path.draw(3000, generator)
    log_weight = anneal(twin, path, x, linear(25), generator).log_weight
    estimate = estimate_log_normaliser(log_weight, generator)
    assert abs(estimate.value - truth) < 5 * estimate.error


def test_persistent_chains_follow_the_model_as_it_learns():
    """PCD: after each change of the parameters, chains move under the new ones."""
    model = machine()
    twin = twin_of(BlockGibbs(), model)
    negatives = Persistent(twin, particles=7)
    memory, generator = negatives.start(model, rng()), rng(1)
    for bias in (60.0, -60.0):
        model.visible_bias.fill_(bias)
        model.weight.mul_(0.9)
        x, memory = negatives.draw(memory, model, start(), generator)
        assert (x == float(bias > 0)).all()


@pytest.mark.parametrize(
    ("sampler", "value"),
    [
        (DULA(0.4), math.nan),
        (DMALA(0.4), math.nan),
        (DMALA(0.4), math.inf),
        (BlockGibbs(2), math.nan),
    ],
)
def test_chains_without_finite_energies_stay_and_are_counted(sampler: Sampler, value: float):
    """One weight reaches all gradients."""
    model = machine()
    twin = twin_of(sampler, model)
    state = twin.at(start(), model)
    model.weight[0, 2] = value
    state, sums = twin.advance(twin.refresh(state, model), model, rng(), 8)
    assert torch.equal(state.x, start())
    assert (sums.invalid == 8).all()


@pytest.mark.parametrize("sampler", [DULA(0.4), DMALA(0.4), BlockGibbs(2), GWG(3)], ids=brief)
def test_chunks_and_threads_change_nothing(sampler: Sampler, monkeypatch):
    """Products are made for chunks of chains, which do not depend on threads."""
    monkeypatch.setattr("latticework.samplers.compiled.jit.ALONE", 1.0)
    monkeypatch.setattr(rbm, "CHUNK", 16 * (VISIBLE + HIDDEN))
    results = []
    allowed = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            state, _ = advanced(twin_of(sampler, machine()), machine(), [20], start(100))
            assert torch.get_num_threads() == threads
            results.append(leaves(state))
    finally:
        torch.set_num_threads(allowed)
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


def test_a_preconditioner_that_does_not_fit_is_refused():
    for sampler in (DULA(0.4, [1.0, 2.0]), DMALA(0.4, [1.0, 2.0])):
        with pytest.raises(ValueError, match=f"preconditioner must have {VISIBLE} entries, got 2"):
            twin_of(sampler, machine()).init(start(), machine())
