"""Rates-FPCD, rates-herding and sample penalization, and the rates that a model carries."""

import math

import pytest
import torch
from torch import Generator

from latticework.models.ising import Lattice
from latticework.models.rated_rbm import RatedRBM
from latticework.models.rbm import RBM
from latticework.samplers import rates
from latticework.samplers.base import UnsupportedModelError, settled
from latticework.samplers.block_gibbs import BlockGibbs
from latticework.samplers.rates import RatesFPCD, RatesHerding, SamplePenalization, hidden_inputs
from latticework.sampling.checking.guard import NoHostReads

RATED = [
    RatesFPCD(0.05),
    RatesFPCD(0.05, steps=3, statistics="sampled"),
    RatesFPCD(0.05, emit="mean"),
    RatesHerding(0.3),
]
EVERY = [*RATED, SamplePenalization(0.02), SamplePenalization(0.02, coding="spin")]


def rng(seed=0):
    return Generator().manual_seed(seed)


def data(rows=40, visible=12):
    """Rows of two kinds, with noise."""
    kind = torch.arange(rows) % 2
    prototype = torch.stack([torch.arange(visible) < 6, torch.arange(visible) >= 6]).float()
    flips = (torch.rand(rows, visible, generator=rng(3)) < 0.1).float()
    return (prototype[kind] - flips).abs()


def rated(visible=12, hidden=7, dtype=torch.float64):
    model = RatedRBM(visible, hidden).to(dtype)
    for parameter in model.parameters():
        parameter.normal_(generator=rng(1))
    model.set_rates([data(visible=visible).to(dtype)])
    return model


def chain(sampler, model, steps, chains=2, seed=5, x=None):
    """States and their bits along a chain: cloned, since a step may reuse the memory."""
    generator = rng(seed)
    if x is None:
        x = model.domain.uniform(chains, rng(4)).to(model.weight.dtype)
    state = sampler.init(x, model)
    for _ in range(steps):
        state, info = sampler.step(state, model, generator)
        assert (info.accept_prob == 1).all()
        yield type(state)(*(tensor.clone() for tensor in state))


def test_rates_are_the_mean_statistics_whatever_the_batches():
    model, x = rated(), data().double()
    one = [rate.clone() for rate in (model.weight_rates, model.visible_rates, model.hidden_rates)]
    h = (x @ model.weight + model.hidden_bias).sigmoid()
    expected = torch.einsum("nv,nh->vh", x, h) / len(x), x.mean(0), h.mean(0)
    model.set_rates(x.split(7))
    two = model.weight_rates, model.visible_rates, model.hidden_rates
    for a, b, c in zip(one, two, expected, strict=True):
        torch.testing.assert_close(a, c)
        torch.testing.assert_close(b, c)
    with pytest.raises(ValueError, match="at least one row"):
        model.set_rates([])


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(("chains", "dtype"), [(1, torch.float32), (4, torch.float64)])
@pytest.mark.parametrize("decay", [1.0, 0.9])
def test_without_a_step_size_it_is_block_gibbs(steps, chains, dtype, decay):
    """Bit for bit, with the same use of the generator."""
    model = rated(dtype=dtype)
    gibbs = [state.x for state in chain(BlockGibbs(steps), model, 200, chains)]
    for sampler in (
        RatesFPCD(0.0, decay, steps),
        RatesFPCD(0.0, decay, steps, statistics="sampled"),
        SamplePenalization(0.0, decay, steps),
    ):
        xs = [state.x for state in chain(sampler, model, 200, chains)]
        assert all(map(torch.equal, xs, gibbs))
    moved = [state.x for state in chain(RatesFPCD(0.05, decay, steps), model, 200, chains)]
    assert not all(map(torch.equal, moved, gibbs))  # control


@pytest.mark.parametrize("sampler", RATED, ids=str)
def test_mean_statistics_are_the_rates_less_what_is_left_in_the_fast_weights(sampler):
    """At alpha = 1 the sum telescopes: mean S = R - F_T / (epsilon T), chain by chain."""
    model, steps = rated(), 150
    visible = weight = hidden = 0
    before = sampler.init(model.domain.uniform(2, rng(4)).double(), model)
    for state in chain(sampler, model, steps):
        x = state.position
        if isinstance(sampler, RatesFPCD) and sampler.statistics == "mean":
            h = hidden_inputs(model, before, x).sigmoid()  # under the F that x was drawn with
            weight, hidden = weight + x.unsqueeze(2) * h.unsqueeze(1), hidden + h
        visible, before = visible + x, state
    scale = sampler.fast_step_size * steps
    left = model.visible_rates - state.visible_bias / scale
    torch.testing.assert_close(visible / steps, left, rtol=0, atol=1e-12)
    if isinstance(hidden, torch.Tensor):
        left = model.weight_rates - state.weight / scale
        torch.testing.assert_close(weight / steps, left, rtol=0, atol=1e-12)
        left = model.hidden_rates - state.hidden_bias / scale
        torch.testing.assert_close(hidden / steps, left, rtol=0, atol=1e-12)
    assert (visible / steps - model.visible_rates).abs().max() > 1e-4  # control: F_T matters


def test_herding_statistics_obey_the_same_sum():
    """The whole of S, with the h that the sweeps end in."""
    model, steps, sampler = rated(), 100, RatesHerding(0.3, sweeps=20)
    weight, before = 0, sampler.init(model.domain.uniform(2, rng(4)).double(), model)
    for state in chain(sampler, model, steps):
        h = (hidden_inputs(model, before, state.x) > 0).double()
        weight, before = weight + state.x.unsqueeze(2) * h.unsqueeze(1), state
    left = model.weight_rates - state.weight / (0.3 * steps)
    torch.testing.assert_close(weight / steps, left, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [RatesFPCD, SamplePenalization])
def test_decay_forgets(kind):
    """All of F after T steps is the decayed sum of the updates; for SP without the rates."""
    model, sampler = rated(), kind(0.05, decay=0.7)
    before = sampler.init(model.domain.uniform(2, rng(4)).double(), model)
    weight = visible = hidden = 0
    for state in chain(sampler, model, 12):
        x = state.position
        h = hidden_inputs(model, before, x).sigmoid()  # under the F that x was drawn with
        known = kind is RatesFPCD
        weight = 0.7 * weight + 0.05 * (known * model.weight_rates - x[:, :, None] * h[:, None])
        visible = 0.7 * visible + 0.05 * (known * model.visible_rates - x)
        hidden = 0.7 * hidden + 0.05 * (known * model.hidden_rates - h)
        before = state
    torch.testing.assert_close(state.weight, weight)
    torch.testing.assert_close(state.visible_bias, visible)
    torch.testing.assert_close(state.hidden_bias, hidden)


def test_spin_statistics_act_on_spins():
    """The state's weights and biases of x and h give s'Ft + f's + g't, up to a constant."""
    model, sampler = rated(visible=5, hidden=3), SamplePenalization(0.05, 0.7, coding="spin")
    every = torch.cartesian_prod(*[torch.tensor([0.0, 1.0]).double()] * 8)
    before = sampler.init(model.domain.uniform(1, rng(4)).double(), model)
    weight = visible = hidden = 0
    for state in chain(sampler, model, 12, chains=1):
        x = state.position[0]
        h = hidden_inputs(model, before, state.position)[0].sigmoid()
        s, t = 2 * x - 1, 2 * h - 1
        weight = 0.7 * weight - 0.05 * s[:, None] * t
        visible, hidden = 0.7 * visible - 0.05 * s, 0.7 * hidden - 0.05 * t
        before = state
    x, h = every[:, :5], every[:, 5:]
    s, t = 2 * x - 1, 2 * h - 1
    fast = torch.einsum("ni,ij,nj->n", s, weight, t) + s @ visible + t @ hidden
    stored = torch.einsum("ni,ij,nj->n", x, state.weight[0], h)
    stored += x @ state.visible_bias[0] + h @ state.hidden_bias[0]
    torch.testing.assert_close(stored - stored[0], fast - fast[0])


def test_without_decay_binary_statistics_only_lower_the_fast_weights_and_spins_do_not():
    model = rated()
    for coding in (None, "spin"):
        (*_, state) = chain(SamplePenalization(0.05, 1.0, coding=coding), model, 60)
        raised = max(part.max().item() for part in state[2:])
        assert (raised > 0) == (coding == "spin")


def joint(model, before, x, h):
    """log p(x, h) under theta + F up to a constant, of one chain."""
    weight = model.weight + before.weight[0]
    visible, hidden = (
        model.visible_bias + before.visible_bias[0],
        model.hidden_bias + before.hidden_bias[0],
    )
    return x @ weight @ h + x @ visible + h @ hidden


def worst_flip(sampler, model):
    """The largest gain in log p(x, h), over 60 steps, from flipping one unit of a step's result."""
    worst, before = -math.inf, sampler.init(model.domain.uniform(1, rng(4)).double(), model)
    for state in chain(sampler, model, 60, chains=1):
        x = state.x[0]
        h = (hidden_inputs(model, before, state.x)[0] > 0).double()
        here = joint(model, before, x, h)
        flips = [(x - e).abs() for e in torch.eye(len(x)).double()]
        gains = [joint(model, before, y, h) - here for y in flips]
        gains += [joint(model, before, x, (h - e).abs()) - here for e in torch.eye(len(h)).double()]
        worst, before = max(worst, max(gains).item()), state
    return worst


def test_herding_ends_in_a_local_maximum():
    model = rated()
    assert worst_flip(RatesHerding(0.3, sweeps=20), model) < 0
    assert worst_flip(RatesHerding(0.3, sweeps=1), model) > 0  # control: stopped on the way
    assert worst_flip(RatesFPCD(0.3), model) > 0


def herded(bound, chains=8, steps=40):
    """States and shares of unsettled chains along rates-herding of an RBM of 40 x 30."""
    model, generator = rated(40, 30), rng()
    sampler = RatesHerding(0.3, sweeps=bound)
    state, states, shares = (
        sampler.init(model.domain.uniform(chains, rng(4)).double(), model),
        [],
        [],
    )
    for _ in range(steps):
        state, info = sampler.step(state, model, generator)
        states.append(state.x.clone())
        shares.append(info.unsettled.clone())
    return torch.stack(states), torch.stack(shares)


def test_herding_stops_at_its_fixed_point_and_says_when_it_does_not(monkeypatch):
    counted = []
    monkeypatch.setattr(rates, "settled", lambda done: counted.append(1) or settled(done))
    early, share = herded(100)
    assert 40 * 2 < len(counted) < 40 * 50  # sweeps in all: some, and far from the bound
    assert (share == 0).all()
    monkeypatch.setattr(rates, "settled", lambda done: False)  # as on a GPU
    whole, share = herded(100)
    assert torch.equal(early, whole)
    assert (share == 0).all()
    stopped, share = herded(2)
    assert 0 < share.mean() < 1
    assert not torch.equal(stopped, early)


def test_what_has_settled_is_asked_on_the_cpu_alone():
    assert settled(torch.ones(2, dtype=torch.bool))
    assert not settled(torch.tensor([True, False]))
    assert not settled(torch.ones(2, dtype=torch.bool, device="meta"))  # reading it would raise


@pytest.mark.parametrize("sampler", EVERY, ids=str)
def test_the_same_seed_gives_the_same_bits_and_nothing_is_read_on_the_host(sampler, monkeypatch):
    model = rated()
    one, two, other = (list(chain(sampler, model, 20, seed=seed))[-1] for seed in (5, 5, 6))
    assert all(map(torch.equal, one, two))
    if not isinstance(sampler, RatesHerding):  # which draws nothing
        assert not torch.equal(one.weight, other.weight)
    state = sampler.init(model.domain.uniform(2, rng()).double(), model)
    monkeypatch.setattr(rates, "settled", lambda done: settled(done.to("meta")))  # no CPU
    with NoHostReads():
        sampler.step(state, model, rng())


@pytest.mark.parametrize("sampler", EVERY, ids=str)
def test_chains_are_independent_and_leave_their_start_untouched(sampler):
    model, steps = rated(), 1 if not isinstance(sampler, RatesHerding) else 20
    x = model.domain.uniform(2, rng(4)).double()
    before = x.clone()
    state = list(chain(sampler, model, steps, x=x))[-1]
    assert torch.equal(x, before)
    if isinstance(sampler, RatesHerding):
        alone = list(chain(sampler, model, steps, x=x[1:]))[-1]
        torch.testing.assert_close(state.weight[1:], alone.weight)
    fresh = sampler.refresh(state, rated())
    assert torch.equal(fresh.weight, state.weight)  # the fast weights are kept
    if not isinstance(sampler, RatesHerding):  # whose chains may fall into step
        assert not torch.equal(state.weight[0], state.weight[1])


def test_emitted_means_are_grey_and_the_chain_stays_binary():
    model = rated()
    for state in chain(RatesFPCD(0.05, emit="mean"), model, 5):
        model.domain.check(state.position)
        assert ((state.x > 0) & (state.x < 1)).all()
    same = list(chain(RatesFPCD(0.05), model, 5))[-1]
    assert torch.equal(same.x, state.position)  # what is emitted does not change the chain


def bimodal():
    """An RBM of two deep, distant modes, and the rates of data that visits both equally."""
    model = RatedRBM(12, 2).double()
    model.weight.copy_(torch.tensor([[8.0, -8.0], [-8.0, 8.0]]).repeat_interleave(6, 0))
    model.visible_bias.zero_()
    model.hidden_bias.zero_()
    model.set_rates([data().double()])
    return model


@pytest.mark.parametrize("sampler", [RatesFPCD(0.1), RatesHerding(0.1), SamplePenalization(0.5)])
def test_unlearning_crosses_between_modes_where_gibbs_stays(sampler):
    model, x = bimodal(), data()[:1].double()

    def crossings(sampler):
        side = [state.x[0, :6].mean().item() > 0.5 for state in chain(sampler, model, 400, x=x)]
        return sum(a != b for a, b in zip(side, side[1:], strict=False))

    assert crossings(BlockGibbs()) == 0
    assert crossings(sampler) > 10


def test_other_models_are_refused():
    lattice, plain, unset = Lattice((2, 2), 0.1), RBM(4, 2), RatedRBM(4, 2)
    for sampler in EVERY:
        with pytest.raises(UnsupportedModelError, match="Lattice"):
            sampler.init(torch.zeros(1, 4), lattice)
    for sampler in RATED:
        for model in (plain, unset):
            with pytest.raises(UnsupportedModelError, match="rates of its training data"):
                sampler.init(torch.zeros(1, 4), model)
    SamplePenalization().init(torch.zeros(1, 4), plain)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RatesFPCD(-1.0), "fast_step_size must be 0 or more, got -1"),
        (lambda: RatesHerding(0.1, 1.5), r"decay must be in \[0, 1\], got 1.5"),
        (lambda: SamplePenalization(steps=0), "steps must be an integer"),
        (lambda: RatesHerding(sweeps=0), "sweeps must be an integer"),
        (lambda: RatesFPCD(statistics="both"), "statistics must be one of"),
        (lambda: RatesFPCD(emit="grey"), "emit must be one of"),
        (lambda: SamplePenalization(coding="sign"), "coding must be None or spin"),
    ],
)
def test_bad_arguments_say_so(make, message):
    with pytest.raises(ValueError, match=message):
        make()
