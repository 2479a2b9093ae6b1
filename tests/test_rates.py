"""Rates-FPCD, rates-herding and sample penalization by both engines, and the rates of a model."""

import math

import pytest
import torch
from exactness import largest_z
from torch import Generator

import latticework as lw
from latticework.samplers import rates
from latticework.samplers.base import all_done_on_cpu
from latticework.samplers.compiled.registry import find_compiled_kernel
from latticework.samplers.rates import hidden_inputs
from latticework.sampling.checking.host_reads import NoHostReads
from latticework.sampling.checking.targets import Target
from workshop.laws.blocks import block_gibbs

RATED = [
    lw.RatesFPCD(0.05),
    lw.RatesFPCD(0.05, steps=3, statistics="sampled"),
    lw.RatesFPCD(0.05, emit="mean"),
    lw.RatesHerding(0.3),
]
EVERY = [*RATED, lw.SamplePenalization(0.02), lw.SamplePenalization(0.02, coding="spin")]
ENGINES = pytest.mark.parametrize(
    "engine", ["eager", pytest.param("compiled", marks=pytest.mark.slow)]
)


def rng(seed=0):
    return Generator().manual_seed(seed)


def data(rows=40, visible=12):
    """Rows of two kinds, with noise."""
    kind = torch.arange(rows) % 2
    prototype = torch.stack([torch.arange(visible) < 6, torch.arange(visible) >= 6]).float()
    flips = (torch.rand(rows, visible, generator=rng(3)) < 0.1).float()
    return (prototype[kind] - flips).abs()


def rated(engine="eager", visible=12, hidden=7):
    """In double precision, but for compiled kernels."""
    model = lw.RatedRBM(visible, hidden)
    for parameter in model.parameters():
        parameter.normal_(generator=rng(1))
    model.set_rates([data(visible=visible)])
    return model.double() if engine == "eager" else model


def chain(sampler, model, steps, chains=2, seed=5, x=None):
    """States and their bits along a chain: cloned, since a step may reuse the memory."""
    if model.weight.dtype == torch.float32:
        sampler = find_compiled_kernel(sampler, model)
    if x is None:
        x = model.domain.uniform(chains, rng(4)).to(model.weight.dtype)
    state, generator = sampler.init(x, model), rng(seed)
    for _ in range(steps):
        state, info = sampler.step(state, model, generator)
        assert (info.accept_prob == 1).all()
        yield type(state)(*(tensor.clone() for tensor in state))


def start(model, chains=2):
    """The state before the first of `chain`: without fast weights."""
    x = model.domain.uniform(chains, rng(4)).to(model.weight.dtype)
    return lw.SamplePenalization(0.1).init(x, model)


def close(found, expected):
    small = found.dtype == torch.float32
    tolerance = {"rtol": 1e-4, "atol": 1e-5} if small else {"rtol": 0, "atol": 1e-12}
    torch.testing.assert_close(found, expected, **tolerance)


def test_rates_are_the_mean_statistics_whatever_the_batches():
    model, x = rated(), data().double()
    h = (x @ model.weight + model.hidden_bias).sigmoid()
    expected = torch.einsum("nv,nh->vh", x, h) / len(x), x.mean(0), h.mean(0)
    for batches in ([x], x.split(7)):
        model.set_rates(batches)
        found = model.weight_rates, model.visible_rates, model.hidden_rates
        torch.testing.assert_close(found, expected)
    with pytest.raises(ValueError, match="at least one row"):
        model.set_rates([])


# The law of a step.


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("decay", [1.0, 0.9])
def test_without_a_step_size_it_is_block_gibbs(steps, decay):
    """Bit for bit, with the same use of the generator."""
    model = rated()
    gibbs = [state.x for state in chain(lw.BlockGibbs(steps), model, 200)]
    for sampler, same in (
        (lw.RatesFPCD(0.0, decay, steps), True),
        (lw.RatesFPCD(0.0, decay, steps, statistics="sampled"), True),
        (lw.SamplePenalization(0.0, decay, steps), True),
        (lw.RatesFPCD(0.05, decay, steps), False),  # control
    ):
        xs = [state.x for state in chain(sampler, model, 200)]
        assert all(map(torch.equal, xs, gibbs)) == same


@ENGINES
def test_a_step_under_fast_weights_draws_from_the_moved_model(engine):
    """Many chains with one and the same F: the law of block Gibbs of the RBM W + F."""
    model, replicas, sampler = lw.RatedRBM(4, 3), 30_000, lw.RatesFPCD(0.1)
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.normal_(generator=rng(6))
    kernel = sampler if engine == "eager" else find_compiled_kernel(sampler, model)
    state = kernel.at(torch.tensor([1.0, 0, 1, 1]).expand(replicas, -1).contiguous(), model)
    moved = lw.RBM(4, 3)
    for target, own, fast in zip(moved.parameters(), model.parameters(), state[2:], strict=True):
        fast.copy_(torch.empty_like(own).normal_(generator=rng(7)))
        target.copy_(own + fast[0])
    law = block_gibbs(lw.BlockGibbs(), Target(moved)).after[0][0b1011]
    state, _ = kernel.step(state, model, rng())
    index = (state.x @ torch.tensor([8.0, 4, 2, 1])).long()
    assert largest_z(index.bincount(minlength=16).numpy(), replicas, law) < 5


# The fast weights.


@ENGINES
@pytest.mark.parametrize(
    "sampler",
    [
        lw.RatesFPCD(0.05),
        lw.RatesFPCD(0.05, 0.9, steps=3),
        lw.RatesFPCD(0.05, 0.7, statistics="sampled"),
        lw.RatesFPCD(0.05, emit="mean"),
        lw.SamplePenalization(0.05, decay=0.7),
        lw.RatesHerding(0.3, sweeps=20),
    ],
    ids=str,
)
def test_fast_weights_are_updated_from_the_sample(sampler, engine):
    """F after each step, by the formula from F before it and the chain's new position."""
    model = rated(engine)
    parts = [model.weight_rates, model.visible_rates, model.hidden_rates]
    if isinstance(sampler, lw.SamplePenalization):
        parts = list(map(torch.zeros_like, parts))
    before, size, decay = start(model), sampler.fast_step_size, sampler.decay
    herds, emit = isinstance(sampler, lw.RatesHerding), getattr(sampler, "emit", "sample")
    sampled = not herds and sampler.statistics == "sampled"
    for state in chain(sampler, model, 20):
        x = state.position
        model.domain.check(x)
        h = hidden_inputs(model, before, x)  # under the F that x was drawn with
        h = (h > 0).to(x) if herds else h.sigmoid()
        if sampled:  # h as the update of its bias shows it
            h = (decay * before.hidden_bias - state.hidden_bias) / size + parts[2]
            torch.testing.assert_close(h, h.round(), rtol=0, atol=1e-4)
            h = h.round()
            assert set(h.unique().tolist()) == {0.0, 1.0}
        close(state.weight, decay * before.weight + size * (parts[0] - x[:, :, None] * h[:, None]))
        close(state.visible_bias, decay * before.visible_bias + size * (parts[1] - x))
        close(state.hidden_bias, decay * before.hidden_bias + size * (parts[2] - h))
        grey = (state.x > 0) & (state.x < 1)
        assert grey.all() if emit == "mean" else torch.equal(state.x, x)
        before = state


@ENGINES
def test_spin_statistics_act_on_spins(engine):
    """The state's weights and biases of x and h give s'Ft + f's + g't, up to a constant."""
    model, sampler = rated(engine, 5, 3), lw.SamplePenalization(0.05, 0.7, coding="spin")
    every = torch.cartesian_prod(*[torch.tensor([0.0, 1.0]).to(model.weight)] * 8)
    before, weight, visible, hidden = start(model, 1), 0, 0, 0
    for state in chain(sampler, model, 12, chains=1):
        h = hidden_inputs(model, before, state.position)[0].sigmoid()
        s, t = 2 * state.position[0] - 1, 2 * h - 1
        weight = 0.7 * weight - 0.05 * s[:, None] * t
        visible, hidden = 0.7 * visible - 0.05 * s, 0.7 * hidden - 0.05 * t
        before = state
    x, h = every[:, :5], every[:, 5:]
    s, t = 2 * x - 1, 2 * h - 1
    fast = torch.einsum("ni,ij,nj->n", s, weight, t) + s @ visible + t @ hidden
    stored = torch.einsum("ni,ij,nj->n", x, state.weight[0], h)
    stored += x @ state.visible_bias[0] + h @ state.hidden_bias[0]
    torch.testing.assert_close(stored - stored[0], fast - fast[0], rtol=1e-5, atol=1e-5)


# Herding.


def worst_flip(sampler, model):
    """The largest gain in log p(x, h), over 60 steps, from flipping one unit of a step's result."""
    worst, before = -math.inf, start(model, 1)
    for state in chain(sampler, model, 60, chains=1):
        weight = model.weight + before.weight[0]
        visible = model.visible_bias + before.visible_bias[0]
        hidden = model.hidden_bias + before.hidden_bias[0]
        x = state.x[0]
        h = (hidden_inputs(model, before, state.x)[0] > 0).double()
        gains = (
            ((1 - 2 * x) * (weight @ h + visible)).max(),
            ((1 - 2 * h) * (x @ weight + hidden)).max(),
        )
        worst, before = max(worst, float(max(gains))), state
    return worst


def test_herding_ends_in_a_local_maximum():
    model = rated()
    assert worst_flip(lw.RatesHerding(0.3, sweeps=20), model) < 0
    assert worst_flip(lw.RatesHerding(0.3, sweeps=1), model) > 0  # control: stopped on the way


@pytest.mark.slow
@pytest.mark.parametrize("bound", [100, 2])
def test_compiled_herding_is_the_eager_chain(bound, monkeypatch):
    """Which stops at its fixed point, and counts the chains that do not reach it."""
    model, sampler, counted = rated("compiled", 40, 30), lw.RatesHerding(0.3, sweeps=bound), []

    def count(done):
        counted.append(1)
        return all_done_on_cpu(done)

    monkeypatch.setattr(rates, "all_done_on_cpu", count)
    twin, x = find_compiled_kernel(sampler, model), model.domain.uniform(8, rng(4))
    state, eager, unsettled = twin.init(x, model), sampler.init(x.clone(), model), 0
    for _ in range(60):
        state, info = twin.step(state, model, rng())
        eager, other = sampler.step(eager, model, rng())
        assert torch.equal(state.x, eager.x)
        assert torch.equal(info.unsettled, other.unsettled)
        for ours, theirs in zip(state[2:], eager[2:], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-5)
        unsettled += info.unsettled.sum()
    assert (unsettled > 0) == (bound == 2)
    assert len(counted) < 60 * 50  # sweeps in all


def test_what_has_settled_is_read_on_the_cpu_alone():
    assert all_done_on_cpu(torch.ones(2, dtype=torch.bool))
    assert not all_done_on_cpu(torch.tensor([True, False]))
    assert not all_done_on_cpu(
        torch.ones(2, dtype=torch.bool, device="meta")
    )  # reading it would raise


# The rules of a step.


@ENGINES
@pytest.mark.parametrize("sampler", EVERY, ids=str)
def test_rules(sampler, engine, monkeypatch):
    model = rated(engine)
    x = model.domain.uniform(2, rng(4)).to(model.weight)
    before = x.clone()
    one, two, other = (list(chain(sampler, model, 20, seed=seed, x=x))[-1] for seed in (5, 5, 6))
    assert all(map(torch.equal, one, two))
    assert torch.equal(x, before)
    if not isinstance(sampler, lw.RatesHerding):  # which draws nothing; its chains fall into step
        assert not torch.equal(one.weight, other.weight)
        assert not torch.equal(one.weight[0], one.weight[1])
    kernel = sampler if engine == "eager" else find_compiled_kernel(sampler, model)
    assert torch.equal(kernel.refresh(one, model).weight, one.weight)  # which are kept
    if engine == "eager":
        state = sampler.init(x, model)
        monkeypatch.setattr(
            rates, "all_done_on_cpu", lambda done: all_done_on_cpu(done.to("meta"))
        )  # no CPU
        with NoHostReads():
            sampler.step(state, model, rng())


@pytest.mark.slow
def test_states_without_energies_stay_and_are_counted():
    model = rated("compiled")
    twin = find_compiled_kernel(lw.RatesFPCD(0.1), model)
    state = twin.init(model.domain.uniform(5, rng(4)), model)
    x = state.x.clone()
    model.weight[0, 2] = torch.nan
    state.position[:, 0] = 1
    state, sums = twin.advance(state, model, rng(), 3)
    assert (sums.invalid == 3).all()
    assert torch.equal(state.position[:, 1:], x[:, 1:])


def test_other_models_are_refused():
    for sampler in EVERY:
        with pytest.raises(lw.UnsupportedModelError, match="Lattice"):
            sampler.init(torch.zeros(1, 4), lw.Lattice((2, 2), 0.1))
    for sampler in RATED:
        for model in (lw.RBM(4, 2), lw.RatedRBM(4, 2)):
            for kernel in (sampler, find_compiled_kernel(sampler, model)):
                with pytest.raises(lw.UnsupportedModelError, match="rates of its training data"):
                    kernel.init(torch.zeros(1, 4), model)
