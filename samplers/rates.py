"""RBM samplers with fast weights: rates-FPCD, rates-herding and sample penalization (SP).

O. Breuleux, Y. Bengio and P. Vincent, "Quickly Generating Representative Samples from an
RBM-Derived Process", Neural Computation 2011, Sections 2 and 4. A chain samples the RBM with
parameters theta + F. The fast weights F start at 0, and each sample (x, h) is unlearned by

    F <- alpha F + epsilon_F (R - S),    S = (x h', x, h)

epsilon_F = `fast_step_size`, alpha = `decay`, k = `steps`. R are the rates of the training data
(`models.rated_rbm`), or 0 in sample penalization. Since F depends on the samples, none of the three
leaves the RBM's distribution invariant. The exception is epsilon_F = 0, where rates-FPCD and sample
penalization reduce to block Gibbs.

Each chain has its own fast weights, so a state has chains * visible * hidden numbers (1.6 MB per
chain at 784 x 500). Usual runs have one chain or a few.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.distributions import bernoulli
from latticework.models.rated_rbm import RatedRBM
from latticework.models.rbm import RBM
from latticework.samplers.base import (
    Info,
    Sampler,
    UnsupportedModelError,
    all_done_on_cpu,
    require_count,
)

Statistics = Literal["mean", "sampled"]
Emit = Literal["sample", "mean"]
Coding = Literal["spin"]


class RatesState(NamedTuple):
    x: Tensor  # [chains, visible], what is emitted: a binary sample, or E[x|h]
    position: Tensor  # [chains, visible], the chain's binary state
    weight: Tensor  # [chains, visible, hidden], fast weights, as are the two below
    visible_bias: Tensor  # [chains, visible]
    hidden_bias: Tensor  # [chains, hidden]


class _FastWeights(Sampler):
    """Base class of the three: the fast weights are kept when the model changes."""

    exact = False
    memory = ("position", "weight", "visible_bias", "hidden_bias")

    def refresh(self, state: RatesState, model: EnergyModel) -> RatesState:
        return state


@dataclass(frozen=True)
class RatesFPCD(_FastWeights):
    """`steps` block-Gibbs steps under theta + F, then the update of F. Needs a RatedRBM.

    `statistics` chooses the h of S: "mean" uses E[h|x] under theta + F, "sampled" uses the h from
    which x was drawn. `emit="mean"` returns E[x|h], as grey values, in place of x.
    """

    fast_step_size: float = 0.001
    decay: float = 1.0
    steps: int = 1
    statistics: Statistics = "mean"
    emit: Emit = "sample"

    def __post_init__(self) -> None:
        _check_gibbs(self)

    def at(self, x: Tensor, model: EnergyModel) -> RatesState:
        return _start(x, _require_rates(self, model))

    def step(
        self, state: RatesState, model: EnergyModel, rng: Generator
    ) -> tuple[RatesState, Info]:
        assert isinstance(model, RatedRBM)
        return _gibbs(self, state, model, model, rng)


@dataclass(frozen=True)
class SamplePenalization(_FastWeights):
    """`RatesFPCD` with rates R = 0: samples are only penalised. Works with any RBM.

    S = (x h', x, h) is never negative, so without decay every fast weight can only fall, and the
    blank image absorbs the chain. With `coding="spin"`, S = (s t', s, t) with s = 2x - 1 and
    t = 2h - 1, and the fast weights act on s and t. The state holds them as the equal weights and
    biases of x and h: 4 F, and biases that include the row and column sums -2 F 1. According to the
    paper, samples tend to uniform noise with `decay=1`. The claims `rates-fig1-uniform` of the
    ledger measure it in both codings.
    """

    fast_step_size: float = 0.001
    decay: float = 0.95
    steps: int = 1
    statistics: Statistics = "mean"
    emit: Emit = "sample"
    coding: Coding | None = None

    def __post_init__(self) -> None:
        _check_gibbs(self)
        if self.coding not in (None, *get_args(Coding)):
            raise ValueError(f"coding must be None or spin, got {self.coding!r}")

    def at(self, x: Tensor, model: EnergyModel) -> RatesState:
        if not isinstance(model, RBM):
            raise UnsupportedModelError(self, model, "a restricted Boltzmann machine")
        return _start(x, model)

    def step(
        self, state: RatesState, model: EnergyModel, rng: Generator
    ) -> tuple[RatesState, Info]:
        assert isinstance(model, RBM)
        return _gibbs(self, state, model, None, rng)


@dataclass(frozen=True)
class RatesHerding(_FastWeights):
    """Sets h and x in turn to the most likely value given the other, up to a fixed point.

    Deterministic. Needs a RatedRBM. The fixed point is a local maximum of log p(x, h) under
    theta + F (Section 2). A step takes at most `sweeps` sweeps over h and x. A chain that reaches
    this bound is counted in `Info.unsettled`, and its next step continues from there. On the CPU,
    the loop ends once all chains have settled. On other devices this test would be a host read, so
    the loop takes all `sweeps`. The result is the same, since a sweep at a fixed point changes
    nothing.
    """

    fast_step_size: float = 0.01
    decay: float = 1.0
    sweeps: int = 100

    def __post_init__(self) -> None:
        require_count(sweeps=self.sweeps)
        _check_rule(self)

    def at(self, x: Tensor, model: EnergyModel) -> RatesState:
        return _start(x, _require_rates(self, model))

    def step(
        self, state: RatesState, model: EnergyModel, rng: Generator
    ) -> tuple[RatesState, Info]:
        assert isinstance(model, RatedRBM)
        # theta + F is computed once per step: a step has many sweeps, of two products each.
        weight = state.weight + model.weight
        hidden_bias = (state.hidden_bias + model.hidden_bias).unsqueeze(1)
        visible_bias = (state.visible_bias + model.visible_bias).unsqueeze(1)
        x = state.position.unsqueeze(1)  # [chains, 1, visible]
        for _ in range(self.sweeps):
            before = x
            h = (torch.baddbmm(hidden_bias, x, weight) > 0).to(x.dtype)
            x = (torch.baddbmm(visible_bias, h, weight.transpose(1, 2)) > 0).to(x.dtype)
            moving = (x != before).flatten(1).any(-1)
            if all_done_on_cpu(~moving):
                break
        x = x.squeeze(1)
        state, info = _update_fast_weights(
            self, state._replace(x=x, position=x), h.squeeze(1), model
        )
        return state, info._replace(unsettled=moving.to(x.dtype))


def hidden_inputs(model: RBM, state: RatesState, x: Tensor) -> Tensor:
    """Log-odds of the hidden units given `x` under theta + F, `[chains, hidden]`."""
    fast = torch.bmm(x.unsqueeze(1), state.weight).squeeze(1)
    return model.hidden_inputs(x) + fast.add_(state.hidden_bias)


def visible_inputs(model: RBM, state: RatesState, h: Tensor) -> Tensor:
    """Log-odds of the visible units given `h` under theta + F, `[chains, visible]`."""
    fast = torch.bmm(h.unsqueeze(1), state.weight.transpose(1, 2)).squeeze(1)
    return model.visible_inputs(h) + fast.add_(state.visible_bias)


def _start(x: Tensor, model: RBM) -> RatesState:
    chains, (visible, hidden) = len(x), model.weight.shape
    return RatesState(
        x=x,
        position=x,
        weight=x.new_zeros(chains, visible, hidden),
        visible_bias=x.new_zeros(chains, visible),
        hidden_bias=x.new_zeros(chains, hidden),
    )


def _gibbs(
    sampler: RatesFPCD | SamplePenalization,
    state: RatesState,
    model: RBM,
    rates: RatedRBM | None,
    rng: Generator,
) -> tuple[RatesState, Info]:
    """A step of rates-FPCD, or of sample penalization if `rates` is None."""
    x = state.position
    for _ in range(sampler.steps):
        h = bernoulli(hidden_inputs(model, state, x), rng)
        inputs = visible_inputs(model, state, h)
        x = bernoulli(inputs, rng)
    if sampler.statistics == "mean":
        h = hidden_inputs(model, state, x).sigmoid()
    emitted = inputs.sigmoid() if sampler.emit == "mean" else x
    if isinstance(sampler, SamplePenalization) and sampler.coding == "spin":
        return _penalise_spins(sampler, state._replace(x=emitted, position=x), h)
    return _update_fast_weights(sampler, state._replace(x=emitted, position=x), h, rates)


def _update_fast_weights(
    sampler: RatesFPCD | SamplePenalization | RatesHerding,
    state: RatesState,
    h: Tensor,
    rates: RatedRBM | None,
) -> tuple[RatesState, Info]:
    """F <- alpha F + epsilon_F (R - S), in place. S is computed from the position and `h`."""
    size, decay, x = sampler.fast_step_size, sampler.decay, state.position
    state.weight.baddbmm_(x.unsqueeze(2), h.unsqueeze(1), beta=decay, alpha=-size)
    state.visible_bias.mul_(decay).sub_(x, alpha=size)
    state.hidden_bias.mul_(decay).sub_(h, alpha=size)
    if rates is not None:
        state.weight.add_(rates.weight_rates, alpha=size)
        state.visible_bias.add_(rates.visible_rates, alpha=size)
        state.hidden_bias.add_(rates.hidden_rates, alpha=size)
    return state, Info(x.new_ones(len(x)))


def _penalise_spins(
    sampler: SamplePenalization, state: RatesState, h: Tensor
) -> tuple[RatesState, Info]:
    """F <- alpha F - epsilon_F S in place, with S of spins, as weights and biases of x and h."""
    size, decay = sampler.fast_step_size, sampler.decay
    s, t = 2 * state.position - 1, 2 * h - 1
    state.weight.baddbmm_(s.unsqueeze(2), t.unsqueeze(1), beta=decay, alpha=-4 * size)
    sums = t.sum(1, keepdim=True), s.sum(1, keepdim=True)
    state.visible_bias.mul_(decay).add_(s * (sums[0] - 1), alpha=2 * size)
    state.hidden_bias.mul_(decay).add_(t * (sums[1] - 1), alpha=2 * size)
    return state, Info(s.new_ones(len(s)))


def _require_rates(sampler: Sampler, model: EnergyModel) -> RatedRBM:
    needs = "an RBM with the rates of its training data"
    if not isinstance(model, RatedRBM):
        raise UnsupportedModelError(sampler, model, f"{needs} (models.rated_rbm.RatedRBM)")
    if not model.has_rates:
        raise UnsupportedModelError(
            sampler,
            model,
            needs,
            got="a RatedRBM whose rates are not set: training sets them (pretrain=fpcd "
            "data=usps), and so does model.set_rates(batches of training rows)",
        )
    return model


def _check_rule(sampler: RatesFPCD | SamplePenalization | RatesHerding) -> None:
    if not sampler.fast_step_size >= 0:
        raise ValueError(f"fast_step_size must be 0 or more, got {sampler.fast_step_size}")
    if not 0 <= sampler.decay <= 1:
        raise ValueError(f"decay must be in [0, 1], got {sampler.decay}")


def _check_gibbs(sampler: RatesFPCD | SamplePenalization) -> None:
    _check_rule(sampler)
    require_count(steps=sampler.steps)
    for name, allowed in (("statistics", Statistics), ("emit", Emit)):
        if getattr(sampler, name) not in get_args(allowed):
            given = getattr(sampler, name)
            raise ValueError(f"{name} must be one of {get_args(allowed)}, got {given!r}")
