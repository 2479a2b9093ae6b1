"""What the sampling loop hands out is safe to keep; a debug mode finds who keeps what is not."""

from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
import torch
from everyone import FEW, rated
from targets import TARGETS
from torch import Generator, Tensor
from torch.utils import _pytree as pytree

import latticework as lw
from latticework.experiments.tasks.measures.sampling_likelihood import draw_consecutive
from latticework.sampling.annealing import anneal, linear
from latticework.sampling.chain import Chain
from latticework.sampling.evaluations import calls_of_step
from latticework.sampling.learning.negatives import Contrastive, FastPersistent, Persistent

each = pytest.mark.parametrize(
    ("sampler", "model"), [pytest.param(s, m, id=f"{s}-{name}") for s, m, name in FEW]
)
STEPS = 6


def leaves(tree) -> list[Tensor]:
    return pytree.tree_leaves(tree)


def equal(one, other) -> bool:
    pairs = zip(leaves(one), leaves(other), strict=True)
    return all(torch.equal(a.nan_to_num(nan=7.5), b.nan_to_num(nan=7.5)) for a, b in pairs)


def start(model, chains: int = 20) -> tuple[Tensor, Generator]:
    rng = Generator().manual_seed(5)
    return model.domain.uniform(chains, rng), rng


def by_hand(sampler, model) -> list:
    """The states of a loop over `step` that copies each of them at once."""
    x, rng = start(model)
    state = sampler.init(x, model)
    states = [pytree.tree_map(torch.clone, state)]
    for _ in range(STEPS):
        state, _ = sampler.step(state, model, rng)
        states.append(pytree.tree_map(torch.clone, state))
    return states


# Readings.


@each
def test_the_readings_of_a_chain_can_be_kept(sampler, model):
    x, rng = start(model)
    given = x.clone()
    readings = list(lw.run_chain(sampler, model, x, rng, steps=STEPS, every=1))
    assert [reading.step for reading in readings] == list(range(STEPS + 1))
    for reading, state in zip(readings, by_hand(sampler, model), strict=True):
        assert type(reading.state) is type(state)
        assert equal(reading.state, state)
    addresses = {reading.state.x.data_ptr() for reading in readings}
    assert len(addresses) == len(readings)
    assert torch.equal(x, given)


def test_carries_and_values_can_be_kept():
    model = TARGETS["lattice"].model
    x, rng = start(model)
    metrics = [lw.Acceptance(), lw.Changed()]
    readings = list(lw.run_chain(lw.Gibbs(), model, x, rng, steps=STEPS, every=2, metrics=metrics))
    for reading in readings:
        assert [float(carry.steps) for carry in reading.carries] == [reading.step] * 2
    totals = [float(reading.carries[0].total) for reading in readings]
    assert totals == [0, 2, 4, 6]
    assert [float(reading.values["acceptance"]) for reading in readings[1:]] == [1, 1, 1]


def test_a_call_by_keyword_is_counted_like_any_other():
    """A user's sampler may name the arguments of the model's methods."""

    class ByName(lw.DULA):
        def step(self, state, model, rng):
            model.log_prob_and_grad(x=state.x)
            model.forward(x=state.x)
            return super().step(state, model, rng)

    model = TARGETS["lattice"].model
    x, rng = start(model)
    plain = calls_of_step(lw.DULA(0.4), model, x, rng)
    named = calls_of_step(ByName(0.4), model, x, rng)
    assert named == (plain.whole + 2, plain.local)


def test_the_loop_itself_copies_nothing():
    """A task that only reads metrics copies nothing: `Chain.values` does not copy the state."""
    model = TARGETS["lattice"].model
    chain = Chain(lw.Gibbs(), model, *start(model), every=2, metrics=[lw.Acceptance()])
    address = chain.state.x.data_ptr()
    for _ in range(3):
        chain.advance()
        assert list(chain.values()) == ["acceptance"]
        assert chain.state.x.data_ptr() == address


# The debug mode.


class Position(NamedTuple):
    x: Tensor


@dataclass(frozen=True)
class Remembering(lw.Sampler):
    """Returns to its position two steps ago, by keeping a state that it must not keep."""

    seen: list = field(default_factory=list)

    def at(self, x: Tensor, model) -> Position:
        return Position(x.clone())

    def step(self, state: Position, model, rng: Generator) -> tuple[Position, lw.Info]:
        back = self.seen[-1].x if self.seen else state.x
        self.seen.append(state)
        x = torch.where(torch.rand(state.x.shape, generator=rng) < 0.5, back, 1 - state.x)
        return Position(x), lw.Info(x.new_ones(len(x)))


def test_a_sampler_that_reads_an_old_state_is_caught():
    model = TARGETS["rbm"].model
    x, rng = start(model)
    list(lw.run_chain(Remembering(), model, x, rng, steps=4, every=1))  # by luck it works
    with pytest.raises(RuntimeError, match=r"NaN by step 2: Poisoned\(sampler=Remembering"):
        list(lw.run_chain(Remembering(), model, x, rng, steps=4, every=1, debug=True))


class Last(NamedTuple):
    distance: Tensor
    x: Tensor


class Distance(lw.Metric):
    """The distance that a step moves. Wrongly keeps the state itself instead of a copy."""

    def init(self, model, state, reference):
        return Last(torch.zeros(()), state.x)

    def update(self, carry, state, sums, steps):
        return Last((state.x - carry.x).abs().sum(), state.x)

    def read(self, carry):
        return {"distance": carry.distance}


def distances(sampler, debug):
    model = TARGETS["lattice"].model
    x, rng = start(model)
    chain = lw.run_chain(
        sampler, model, x, rng, steps=STEPS, every=1, metrics=[Distance()], debug=debug
    )
    return torch.stack([reading.values["distance"] for reading in chain])[1:]


def test_a_metric_that_reads_an_old_state_is_caught():
    assert (distances(lw.DULA(1.0), debug=False) > 0).any()  # right with one sampler
    assert (distances(lw.Gibbs(), debug=False) == 0).all()  # silently wrong with another
    assert distances(lw.DULA(1.0), debug=True).isnan().all()
    assert distances(lw.Gibbs(), debug=True).isnan().all()


# Our own loops keep to the contract.


@pytest.mark.parametrize(
    "sampler", [lw.DMALA(0.5), lw.GWG(), lw.Gibbs(), lw.DHAMS(0.7, 0.8)], ids=str
)
def test_annealing_keeps_to_the_contract(sampler):
    def log_weights(kernel):
        path = lw.GeometricPath(TARGETS["binary"].model)
        rng = Generator().manual_seed(1)
        return anneal(kernel, path, path.draw(30, rng), linear(12), rng, 3).log_weight

    assert torch.equal(log_weights(lw.Poisoned(sampler)), log_weights(sampler))


def test_annealing_that_would_end_before_the_target_is_refused():
    path, rng = lw.GeometricPath(TARGETS["binary"].model), Generator().manual_seed(1)
    with pytest.raises(ValueError, match="steps must be a multiple of every, got 100 and 30"):
        anneal(lw.GWG(), path, path.draw(5, rng), linear(100), rng, every=30)


@pytest.mark.parametrize("kind", [Contrastive, Persistent, FastPersistent])
@pytest.mark.parametrize("sampler", [lw.BlockGibbs(), lw.Gibbs()], ids=str)
def test_negatives_keep_to_the_contract(kind, sampler):
    def drawn(kernel):
        model, rng = rated(), Generator().manual_seed(1)
        negatives = kind(kernel, **({} if kind is Contrastive else {"particles": 10}))
        memory, found = negatives.start(model, rng), []
        positive = lw.Binary(5).uniform(10, rng)
        for _ in range(5):
            x, memory = negatives.draw(memory, model, positive, rng)
            found.append(x.clone())
            model.weight.add_(0.1)
        return torch.stack(found)

    assert torch.equal(drawn(lw.Poisoned(sampler)), drawn(sampler))


def test_consecutive_draws_keep_to_the_contract():
    def drawn(kernel):
        model = TARGETS["rbm"].model
        return draw_consecutive(kernel, model, *start(model), steps=9)

    assert torch.equal(drawn(lw.Poisoned(lw.Gibbs())), drawn(lw.Gibbs()))
