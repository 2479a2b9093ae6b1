"""Samplers of an RBM that unlearn what they have just drawn: rates-FPCD, rates-herding and SP.

O. Breuleux, Y. Bengio and P. Vincent, "Quickly Generating Representative Samples from an
RBM-Derived Process", Neural Computation 2011, Sections 2 and 4. A chain draws from the RBM with
parameters theta + F, where the fast weights F start at 0 and after each sample (x, h) become

    F <- alpha F + epsilon_F (R - S),    S = (x h', x, h)

epsilon_F = `fast_step_size`, alpha = `decay`, k = `steps`. R are the rates of the training data
(`models.rated_rbm`), or 0 in sample penalization. Since F follows the samples, none of the three
leaves the RBM's own distribution invariant, save at epsilon_F = 0, where rates-FPCD and sample
penalization are block Gibbs.

Every chain has fast weights of its own: a state takes chains * visible * hidden numbers (1.6 MB a
chain at 784 x 500), and one chain, or a few, is the usual number.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Generator, Tensor

from models.base import EnergyModel
from models.rated_rbm import RatedRBM
from models.rbm import RBM, bernoulli
from samplers.base import Info, Sampler, UnsupportedModelError, require_count, settled

Statistics = Literal["mean", "sampled"]
Emit = Literal["sample", "mean"]


class RatesState(NamedTuple):
    x: Tensor  # [chains, visible], what is emitted: a binary sample, or E[x|h]
    position: Tensor  # [chains, visible], the chain's binary state
    weight: Tensor  # [chains, visible, hidden], fast weights, as are the two below
    visible_bias: Tensor  # [chains, visible]
    hidden_bias: Tensor  # [chains, hidden]


class _FastWeights(Sampler):
    """What the three share: the fast weights outlive a change of the model."""

    exact = False

    def refresh(self, state: RatesState, model: EnergyModel) -> RatesState:
        return state


@dataclass(frozen=True)
class RatesFPCD(_FastWeights):
    """`steps` block-Gibbs steps under theta + F, then F moves from the sample towards the rates.

    `statistics` "mean" takes E[h|x] under theta + F for the h of S, "sampled" the h that x was
    drawn from. `emit` "mean" gives E[x|h] in place of x, as grey values. Needs a RatedRBM.
    """

    fast_step_size: float = 0.001
    decay: float = 1.0
    steps: int = 1
    statistics: Statistics = "mean"
    emit: Emit = "sample"

    def __post_init__(self) -> None:
        _check_gibbs(self)

    def at(self, x: Tensor, model: EnergyModel) -> RatesState:
        return _start(x, _rated(self, model))

    def step(
        self, state: RatesState, model: EnergyModel, rng: Generator
    ) -> tuple[RatesState, Info]:
        assert isinstance(model, RatedRBM)
        return _gibbs(self, state, model, model, rng)


@dataclass(frozen=True)
class SamplePenalization(_FastWeights):
    """`RatesFPCD` with the rates set to 0: samples are penalised, and nothing is learned back.

    With `decay` 1 the samples tend to uniform noise. Any RBM will do.
    """

    fast_step_size: float = 0.001
    decay: float = 0.95
    steps: int = 1
    statistics: Statistics = "mean"
    emit: Emit = "sample"

    def __post_init__(self) -> None:
        _check_gibbs(self)

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
    """h and x are set in turn to what is likeliest given the other, until nothing changes.

    The fixed point is a local maximum of log p(x, h) under theta + F (Section 2). `sweeps` is a
    bound on the sweeps over h and x. A chain that hits it stops on its way up, goes on from there
    in the next step, and is counted in `Info.unsettled`. A sweep at a fixed point changes nothing.
    So the CPU leaves the loop once all chains have settled, while other devices, where that would
    be a host read, take all `sweeps`, and both end in the same state. Nothing is drawn. Needs a
    RatedRBM.
    """

    fast_step_size: float = 0.01
    decay: float = 1.0
    sweeps: int = 100

    def __post_init__(self) -> None:
        require_count(sweeps=self.sweeps)
        _check_rule(self)

    def at(self, x: Tensor, model: EnergyModel) -> RatesState:
        return _start(x, _rated(self, model))

    def step(
        self, state: RatesState, model: EnergyModel, rng: Generator
    ) -> tuple[RatesState, Info]:
        assert isinstance(model, RatedRBM)
        # theta + F once a step: a sweep is two products, and a step has many sweeps.
        weight = state.weight + model.weight
        hidden_bias = (state.hidden_bias + model.hidden_bias).unsqueeze(1)
        visible_bias = (state.visible_bias + model.visible_bias).unsqueeze(1)
        x = state.position.unsqueeze(1)  # [chains, 1, visible]
        for _ in range(self.sweeps):
            before = x
            h = (torch.baddbmm(hidden_bias, x, weight) > 0).to(x.dtype)
            x = (torch.baddbmm(visible_bias, h, weight.transpose(1, 2)) > 0).to(x.dtype)
            moving = (x != before).flatten(1).any(-1)
            if settled(~moving):
                break
        x = x.squeeze(1)
        state, info = _learned(self, state._replace(x=x, position=x), h.squeeze(1), model)
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
    """A step of rates-FPCD, or of sample penalization where `rates` is None."""
    x = state.position
    for _ in range(sampler.steps):
        h = bernoulli(hidden_inputs(model, state, x), rng)
        inputs = visible_inputs(model, state, h)
        x = bernoulli(inputs, rng)
    if sampler.statistics == "mean":
        h = hidden_inputs(model, state, x).sigmoid()
    emitted = inputs.sigmoid() if sampler.emit == "mean" else x
    return _learned(sampler, state._replace(x=emitted, position=x), h, rates)


def _learned(
    sampler: RatesFPCD | SamplePenalization | RatesHerding,
    state: RatesState,
    h: Tensor,
    rates: RatedRBM | None,
) -> tuple[RatesState, Info]:
    """F <- alpha F + epsilon_F (R - S), in place; S is that of the position and `h`."""
    size, decay, x = sampler.fast_step_size, sampler.decay, state.position
    state.weight.baddbmm_(x.unsqueeze(2), h.unsqueeze(1), beta=decay, alpha=-size)
    state.visible_bias.mul_(decay).sub_(x, alpha=size)
    state.hidden_bias.mul_(decay).sub_(h, alpha=size)
    if rates is not None:
        state.weight.add_(rates.weight_rates, alpha=size)
        state.visible_bias.add_(rates.visible_rates, alpha=size)
        state.hidden_bias.add_(rates.hidden_rates, alpha=size)
    return state, Info(x.new_ones(len(x)))


def _rated(sampler: Sampler, model: EnergyModel) -> RatedRBM:
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
