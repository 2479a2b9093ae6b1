"""Chains begin only where they can: x, its domain and the target there are checked, once."""

import copy

import pytest
import torch
from everyone import FEW, PAIRS
from targets import TARGETS
from torch import Generator

from latticework.models.annealed import GeometricPath
from latticework.models.base import EnergyModel, Function
from latticework.models.domains import Binary, Categorical, Integer, Ordinal
from latticework.models.ising import Lattice
from latticework.models.rbm import RBM
from latticework.samplers.checks import PROBES, check_start
from latticework.samplers.compiled.registry import find_compiled_kernel
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.hamming import HammingBall
from latticework.samplers.langevin import DMALA, DULA
from latticework.samplers.rates import RatesFPCD, RatesHerding
from latticework.samplers.svgd import DiscreteSVGD
from latticework.samplers.sweep import GibbsSweep
from latticework.sampling.annealing import anneal, linear
from latticework.sampling.chain import run_chain
from latticework.sampling.checking.host_reads import NoHostReads

CHAINS = 6


def each(pairs):
    """Parameters (sampler, model)."""
    return pytest.mark.parametrize(
        ("sampler", "model"), [pytest.param(s, m, id=f"{s}-{name}") for s, m, name in pairs]
    )


def crossed(faults, one):
    """Parameters (sampler, model, fault): every fault with DMALA, and one with each other sampler.

    The checks are those of all samplers, which each has to make.
    """
    first, *others = FEW
    found = [(*first, fault) for fault in faults] + [(*pair, one) for pair in others]
    return pytest.mark.parametrize(
        ("sampler", "model", "fault"),
        [pytest.param(s, m, fault, id=f"{s}-{name}-{fault}") for s, m, name, fault in found],
    )


def states(model):
    return model.domain.uniform(CHAINS, Generator().manual_seed(0))


def doors(sampler, model, x):
    """The ways in: `init` and `run_chain`."""
    rng = Generator().manual_seed(0)
    return (
        lambda: sampler.init(x, model),
        lambda: next(run_chain(sampler, model, x, rng, steps=1, every=1)),
    )


def refused(sampler, model, x, match):
    for door in doors(sampler, model, x):
        with pytest.raises(ValueError, match=match):
            door()


# x.


def halved(x):
    x = x.clone()
    x.view(-1)[-1] += 0.5
    return x


X_FAULTS = {
    "no chains": (lambda x: x[0], r"x must have shape \[chains, .*\], a row .* is one chain"),
    "too few sites": (lambda x: x[:, :-1], r"x must have shape \[chains, .*\], .* got \[6, "),
    "one dimension more": (lambda x: x.unsqueeze(1), r"x must have shape .* got \[6, 1, "),
    "no rows": (lambda x: x[:0], r"x must have shape .* got \[0, "),
    "a list": (lambda x: x.tolist(), "x must have shape .* got list"),
    "integers": (lambda x: x.long(), "x must be floating point, got torch.int64; use x.float"),
    "bits": (lambda x: x.bool(), "x must be floating point, got torch.bool"),
    "between two values": (halved, "every entry of a state must be .* got values such as"),
    "NaN": (lambda x: x * torch.nan, r"every entry .* got values such as \[nan"),
    "infinite": (lambda x: x + torch.inf, r"every entry .* got values such as \[inf"),
}


@crossed(X_FAULTS, "between two values")
def test_a_faulty_start_is_refused(sampler, model, fault):
    spoil, match = X_FAULTS[fault]
    refused(sampler, model, spoil(states(model)), match)


@pytest.mark.parametrize(
    ("domain", "x", "match"),
    [
        (Binary(3, -1, 1), [[0.0, 1, 1]], r"must be -1 or 1, got values such as \[0.0\]"),
        (Categorical(2, 3), [[[1.0, 0, 0], [1, 1, 0]]], r"one-hot, got sites that sum to \[2.0\]"),
        (Ordinal(2, 4), [[0.0, 4]], r"an integer in 0..3, got values such as \[4.0\]"),
        (Integer(2, low=0), [[0.0, -1]], r"an integer of Integer.* such as \[-1.0\]"),
    ],
)
def test_values_outside_each_domain_are_named(domain, x, match):
    model = Function(lambda x: x.flatten(1).sum(-1), domain)
    refused(DULA(0.5), model, torch.tensor(x), match)


# The target.


def faulty(model: EnergyModel, spoil=None, spoil_gradient=None) -> EnergyModel:
    """A copy of the model whose values, or gradients, go through a function."""

    class Faulty(type(model)):
        def log_prob(self, x):
            value = super().log_prob(x)
            return spoil(value) if spoil else value

        def log_prob_and_grad(self, x):
            value, grad = super().log_prob_and_grad(x)
            return (spoil or (lambda v: v))(value), (spoil_gradient or (lambda g: g))(grad)

    model = copy.deepcopy(model)
    model.__class__ = Faulty
    return model


def first(value):
    """Put a number in place of the first chain's."""

    def spoil(tensor):
        tensor = tensor.clone()
        tensor[0] = value
        return tensor

    return spoil


TARGET_FAULTS = {
    "scalar": (torch.sum, r"must have shape \[6\], .* got \[\]; sum over the sites alone"),
    "[n, 1]": (lambda v: v.unsqueeze(1), r"must have shape \[6\], .* got \[6, 1\]; squeeze"),
    "one chain": (lambda v: v[:1], r"must have shape \[6\], one number a chain, got \[1\]"),
    "a float": (lambda v: 1.5, r"must have shape \[6\], one number a chain, got float"),
    "integers": (lambda v: v.long(), "must be floating point, got torch.int64"),
    "NaN": (lambda v: v * torch.nan, "is NaN at the start of 6 of 6 chains"),
    "one NaN": (
        first(torch.nan),
        "is NaN at the start of 1 of 6 chains, the first of them chain 0",
    ),
    "-inf": (first(-torch.inf), "is -inf at the start of 1 of 6 chains"),
    "inf": (first(torch.inf), "is inf at the start of 1 of 6 chains"),
}


@crossed(TARGET_FAULTS, "one NaN")
def test_a_faulty_target_is_refused(sampler, model, fault):
    spoil, match = TARGET_FAULTS[fault]
    refused(sampler, faulty(model, spoil), states(model), match)


GRADIENT_FAULTS = {
    "no chains": (lambda g: g[0], "the gradient of Faulty must have the shape of x"),
    "NaN": (first(torch.nan), "the gradient of Faulty is NaN or inf at the start of 1 of 6"),
    "infinite": (first(torch.inf), "the gradient of Faulty is NaN or inf at the start of 1 of 6"),
}


@crossed(GRADIENT_FAULTS, "NaN")
def test_a_faulty_gradient_is_refused_where_it_is_read(sampler, model, fault):
    spoil, match = GRADIENT_FAULTS[fault]
    if sampler.uses_gradient:
        refused(sampler, faulty(model, spoil_gradient=spoil), states(model), match)
    else:
        for door in doors(sampler, faulty(model, spoil_gradient=spoil), states(model)):
            door()


# Shortcuts.


@pytest.mark.parametrize(
    "name", ["log_odds", "differences", "block_log_probs", "gradient", "log_prob_and_grad"]
)
def test_a_shortcut_of_another_target_is_refused(name):
    """One method is that of the lattice before its bias changed."""
    model, before = Lattice((3, 3), 0.1, 0.5), Lattice((3, 3), 0.1, 0.0)
    x = states(model)
    check_start(x, model, gradient=True)  # control

    class Old(Lattice):
        pass

    setattr(Old, name, lambda self, *args: getattr(before, name)(*args))
    model.__class__ = Old
    with pytest.raises(ValueError, match="of Old disagrees with its log_prob"):
        check_start(x, model, gradient=True)


@pytest.mark.parametrize("kind", ["lattice", "dense_ising", "lattice_potts", "dense_potts", "rbm"])
def test_a_form_of_another_target_is_refused(kind):
    """Compiled kernels read the form."""
    model = copy.deepcopy(TARGETS[kind].model if kind != "rbm" else RBM(7, 5))
    sampler, x = Gibbs() if "potts" not in kind else DMALA(0.5), states(model)
    find_compiled_kernel(sampler, model).init(x, model)  # control
    other, bias = copy.deepcopy(model), "visible_bias" if kind == "rbm" else "bias"
    steps = torch.arange(getattr(other, bias).numel()).view_as(getattr(other, bias))
    getattr(other, bias).add_(steps)
    model.form = other.form
    with pytest.raises(ValueError, match="form of .* disagrees with its log_prob"):
        find_compiled_kernel(sampler, model).init(x, model)


# The price.


@each(FEW)
def test_the_check_costs_one_evaluation_and_few_rows(sampler, model):
    rows = []

    class Counted(type(model)):
        def log_prob(self, x):
            rows.append(len(x))
            return super().log_prob(x)

        def log_prob_and_grad(self, x):
            rows.append(len(x))
            return super().log_prob_and_grad(x)

    model = copy.deepcopy(model)
    model.__class__ = Counted
    x = model.domain.uniform(40, Generator().manual_seed(0))
    sampler.at(x, model)
    own = sum(rows)
    rows.clear()
    sampler.init(x, model)
    assert sum(rows) <= own + len(x) + 3 * (PROBES + 1)


# These look at their model when they begin, and are not made for learning.
LOOKING = (GibbsSweep, RatesFPCD, RatesHerding)


@each([pair for pair in PAIRS if not isinstance(pair[0], LOOKING)])
def test_loops_are_not_checked(sampler, model):
    """The update of a state in PCD and AIS reads nothing on the host."""
    x, rng = states(model), Generator().manual_seed(0)
    state, _ = sampler.step(sampler.init(x, model), model, rng)  # patterns are listed once
    with NoHostReads():
        state = sampler.refresh(state, model)
        state = sampler.relocate(x, state, model)
        sampler.step(state, model, rng)


def test_annealing_checks_its_start_and_nothing_after_it():
    path, rng = GeometricPath(Function(lambda x: x.sum(-1), Binary(4))), Generator().manual_seed(0)
    with pytest.raises(ValueError, match="every entry of a state must be 0 or 1"):
        anneal(DMALA(0.5), path, torch.full((6, 4), 0.5), linear(4), rng)
    holed = GeometricPath(Function(lambda x: x.sum(-1) - torch.nan, Binary(4)))
    with pytest.raises(ValueError, match="NaN"):
        anneal(DMALA(0.5), holed, torch.ones(6, 4), linear(4), rng)
    impossible = GeometricPath(Function(lambda x: x.sum(-1) - torch.inf, Binary(4)))
    with pytest.raises(ValueError, match="all of 6 draws from beta = 0 are impossible"):
        anneal(DMALA(0.5), impossible, torch.ones(6, 4), linear(4), rng)
    anneal(DMALA(0.5), path, path.draw(6, rng), linear(4), rng)


# In double precision.


@pytest.mark.parametrize("sampler", [Gibbs(), Gibbs(2), HammingBall(3), DiscreteSVGD(0.1, 0.5)])
@pytest.mark.parametrize("double", ["the target", "the states"])
def test_targets_and_states_may_have_other_precisions(sampler, double):
    """A target that is made from NumPy gives float64."""
    if double == "the target":
        model = Function(lambda x: x.double().sum(-1), Binary(4))
    else:
        model = Function(lambda x: x.sum(-1), Binary(4))
    x = model.domain.uniform(3, Generator()).to(torch.float64 if double == "the states" else None)
    rng = Generator().manual_seed(0)
    state, _ = sampler.step(sampler.init(x, model), model, rng)
    assert state.x.dtype == x.dtype
