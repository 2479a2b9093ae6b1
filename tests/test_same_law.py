"""Compiled kernels against their eager samplers on targets that are too large or steep to list.

Independent chains make some steps with each, from uniform states or from given ones. Means over the
chains of the energy, the acceptance, the changed sites and each site are compared by z-tests.
"""

import itertools
from math import inf, nan

import numpy as np
import pytest
import torch
from rows import MEMORY, flat
from targets import scattered
from torch import Generator, Tensor

import latticework as lw
from latticework.samplers.compiled.all_sites import twin as all_sites
from latticework.samplers.compiled.compiled_sampler import NoCompiledKernelError
from latticework.samplers.compiled.moves import several_moves
from latticework.samplers.compiled.rbm import chunks
from latticework.samplers.compiled.registry import find_compiled_kernel
from latticework.samplers.compiled.resampling import gibbs_blocks

pytestmark = pytest.mark.slow  # many kernels are compiled

CHAINS, REPLICAS = 2000, 500
PRECONDITIONER = [0.5 + i / 40 for i in range(40)]


def machine(visible: int, hidden: int, scale: float) -> lw.RBM:
    return scattered(lw.RBM(visible, hidden), 2, scale)


def spins() -> lw.LogQuadratic:
    weight = torch.randn(40, 40, generator=Generator().manual_seed(0)) / 25
    return lw.LogQuadratic(weight + weight.T, 0.1, domain=lw.Binary(40, -1, 1))


def one_unit(sites: int, weight: float) -> lw.RBM:
    """Its hidden input goes from -100 to 80 or more. All sites at 0 or at 1 weigh the same."""
    model = lw.RBM(sites, 1)
    model.weight.data.fill_(weight)
    model.hidden_bias.data.fill_(-100.0)
    model.visible_bias.data.fill_(100.0 / sites - weight)
    return model


def dense(bias: list[float]) -> lw.DenseIsing:
    return lw.DenseIsing(torch.zeros(len(bias), len(bias)), torch.tensor(bias))


MODELS = {
    "lattice": lw.Lattice((12, 12), 0.18, 0.05),
    "graph": lw.erdos_renyi(60, 4, 0.15),
    "sparse": lw.Graph(lw.regular_graph(60, 6, 1.0).edges, 0.15, 0.1, 61),
    "spins": spins(),
    "rbm": machine(45, 26, 0.3),  # no multiples of the widths of vector registers
    "potts": lw.LatticePotts((8, 8), 4, 0.8, [0.2, 0.0, -0.1, 0.1]),
    "dense potts": lw.random_potts(25, 4, 1.5),
    "sparse potts": lw.GraphPotts(lw.regular_graph(40, 4, 1.0).edges, 0.4, 3, [0.2, 0.0, -0.1], 41),
    "0.1 or 0.7": lw.LogQuadratic(0.1 * torch.ones(6, 6), domain=lw.Binary(6, 0.1, 0.7)),
}
BINARY = ("lattice", "graph", "sparse", "spins", "rbm")
POTTS = ("potts", "dense potts")
CASES = [
    *[(lw.Gibbs(3), name, 30) for name in MODELS],
    *[(lw.Gibbs(), name, 60) for name in ("rbm", "0.1 or 0.7", *POTTS)],
    *[(lw.HammingBall(6, 2, "systematic"), name, 40) for name in BINARY],
    *[(lw.DULA(0.4), name, 15) for name in ("graph", "sparse", "rbm", *POTTS, "sparse potts")],
    *[(lw.DMALA(0.3), name, 15) for name in ("graph", "sparse", "rbm", *POTTS, "sparse potts")],
    *[(lw.ACS(2.0, 0.2, 3), name, 15) for name in ("sparse", "spins", *POTTS, "sparse potts")],
    *[(lw.DMALA(inf), name, 15) for name in ("spins", "potts")],
    (lw.DMALA(0.6, PRECONDITIONER, 2), "spins", 15),
    (lw.DMALA(0.3, [0.5 + i / 30 for i in range(45)]), "rbm", 15),
    *[(lw.SwendsenWang(), name, 4) for name in ("lattice", "sparse", "potts")],
    *[(lw.GibbsSweep(), name, 10) for name in ("sparse", "sparse potts")],
    *[(lw.RandomWalk(3), name, 30) for name in BINARY],
    *[(lw.GWG(3), name, 40) for name in BINARY],
    *[(lw.PAFS(5), name, 20) for name in ("lattice", "graph", "sparse", "spins")],
    *[(kind(0.1), name, 20) for kind in (lw.DLMC, lw.DLMCf) for name in ("sparse", "spins")],
    *[(lw.MetropolisSweep(), name, 10) for name in ("sparse", "sparse potts")],
    *[
        (kind, name, 60)
        for kind in (lw.GWG(), lw.LocallyBalanced())
        for name in ("sparse", "rbm", *POTTS, "sparse potts")
    ],
]
# One flip changes the log-probability by many nats. The weights of sites then differ by more than
# a sum of them resolves. Some, or products of several, are beyond double precision.
ONE_FLIP, SEVERAL = [lw.GWG(), lw.LocallyBalanced()], [lw.GWG(3), lw.GWG(12)]
STEEP = {
    "ring": lw.Lattice((5,), 5.0, 0.2),
    "steep ring": lw.Lattice((5,), 120.0, 0.2),
    "bias": lw.Lattice((2, 3), 0.3, 21.0),
    "square": lw.Lattice((2, 2), 60.0, 0.2),
}
STEEPEST = {
    "graph of 1800": lw.Graph([[0, 1], [1, 2], [2, 3]], [450.0, -300.0, 0.2], [0.2, 0, 0, 0.1]),
    "ring of 1600": lw.Lattice((5,), 200.0, 0.2),
    "two sites": lw.Lattice((5,), 0.2, [800.0, 0.3, -0.1, 0.0, -900.0]),
    "four sites": dense([800.0, 0.3, -0.1, -900.0]),
    "steep potts": lw.LatticePotts((3,), 2, -1.0, [0.0, -2500.0]),
}
OTHERS = {
    "path": dense([600.0, 1.0, -400.0, 3.0, 0.0, -2.0, 2.0, -1.0]),
    "lone": lw.Lattice((20, 20), 6.0, 0.3),
    "steep rbm": machine(45, 26, 12.0),
    "steepest rbm": machine(45, 26, 200.0),
    **{f"unit of {n}": one_unit(n, weight) for n, weight in ((2, 100.0), (4, 40.0), (6, 30.0))},
}
MODELS |= STEEP | STEEPEST | OTHERS
FROM_STATES = [
    *itertools.product([*ONE_FLIP, *SEVERAL], STEEP),
    *itertools.product(ONE_FLIP, [*STEEPEST, "steep rbm"]),
    (lw.GWG(10), "lone"),
    (lw.PAFS(3), "path"),
    *((lw.Gibbs(), name) for name in ("steep rbm", "steepest rbm")),
    *((lw.Gibbs(n), f"unit of {n}") for n in (2, 4, 6)),
    *((lw.HammingBall(n, 1, "systematic"), f"unit of {n}") for n in (2, 4, 6)),
]


def starts(name: str) -> Tensor:
    """The states from which chains make a step, `[starts, dim]`."""
    model = MODELS[name]
    if name == "path":  # all sites would better flip
        return (model.bias < 0).float().unsqueeze(0)
    if name == "lone":  # a hundred lone sites; a step that draws one of them twice is rejected
        x = torch.ones(1, 20, 20)
        x[:, ::2, ::2] = 0
        return x.flatten(1)
    if model.domain.dim > 6:
        return model.domain.uniform(4, Generator().manual_seed(1))
    return model.domain.enumerate()


def advance(sampler, model, x, steps: int, seed: int) -> tuple:
    """The state after some steps, and of each chain: acceptance, changed sites, invalid steps."""
    state, rng = sampler.at(x, model), Generator().manual_seed(seed)
    found = torch.zeros(3, len(x))
    for _ in range(steps):
        before = state.x.clone()
        state, info = sampler.step(state, model, rng)
        assert ((info.accept_prob >= 0) & (info.accept_prob <= 1)).all()
        found[0] += info.accept_prob
        found[1] += (state.x != before).flatten(1).sum(1)
        if info.log_ratio is not None:
            found[2] += ~(info.log_ratio < inf)
    return state, found


def compared(sampler: lw.Sampler, name: str, steps: int, x: Tensor | None = None) -> tuple:
    """The largest z-score of means over all chains, or over those of each start; the last state."""
    model, rng, results = MODELS[name], Generator().manual_seed(0), []
    for kind, seed in ((sampler, 1), (find_compiled_kernel(sampler, model), 2)):
        begin = model.domain.uniform(CHAINS, rng) if x is None else x.repeat_interleave(REPLICAS, 0)
        with torch.no_grad():
            state, (accept, changed, _) = advance(kind, model, begin, steps, seed)
            values = [accept, changed, *state.x.flatten(1).unbind(1)]
            values += [model.log_prob(state.x)] if x is None else []
        model.domain.check(state.x)
        results.append(
            torch.stack(values, 1).double().unflatten(0, (1 if x is None else len(x), -1))
        )
    one, other = results
    count = one.shape[1]
    error = ((one.var(1) + other.var(1)) / count + count**-2).sqrt()
    return float(((one.mean(1) - other.mean(1)) / error).abs().max()), state


@pytest.mark.parametrize(("sampler", "name", "steps"), CASES, ids=str)
def test_many_steps_have_the_law_of_the_eager_sampler(sampler, name, steps):
    """And what a kernel remembers is that of its state."""
    z, state = compared(sampler, name, steps)
    assert z < 5
    fresh = find_compiled_kernel(sampler, MODELS[name]).at(state.x, MODELS[name])
    fields = {"fields"} if name == "rbm" else set(state._fields) - MEMORY - {"order", "place"}
    if isinstance(sampler, lw.ACS):  # each step of a cycle weighs the moves anew
        fields -= {"law", "normaliser"}
    for field in fields & set(state._fields):  # an RBM's other values may be computed when due
        kept, computed = (flat([getattr(s, field)]) for s in (state, fresh))
        torch.testing.assert_close(kept, computed, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("sampler", "name"), FROM_STATES, ids=str)
def test_a_step_from_any_state_is_that_of_the_eager_sampler(sampler, name):
    assert compared(sampler, name, 1, starts(name))[0] < 5


# Two ways through the code.

ALONE, ROWS = ("MAX_CACHED_FIELDS", 256, 0), ("MAX_ROWS_SHARE", 0.0, 2.0)
WAYS = [
    *[(kind, name, all_sites, ALONE) for name in ("spins", "dense potts")
      for kind in (lw.DULA(1.0), lw.DMALA(1.0), lw.DMALA(inf), lw.ACS(2.0, 0.2, 3))],
    *[(kind, "spins", all_sites, ALONE) for kind in (lw.DMALA(0.6, PRECONDITIONER), lw.DLMC(0.3))],
    *[(kind, "rbm", chunks, ROWS)
      for kind in (lw.DULA(0.4), lw.DMALA(0.4), lw.GWG(3))],
]  # fmt: skip


@pytest.mark.parametrize(
    ("sampler", "name", "module", "switch"), WAYS, ids=[f"{way[0]}-{way[1]}" for way in WAYS]
)
def test_rows_and_matrix_product_agree(sampler, name, module, switch, monkeypatch):
    """With equal random numbers, states are equal: only rounding could tell them apart."""
    model, found = MODELS[name], []
    x = model.domain.uniform(20, Generator().manual_seed(2))
    for value in switch[1:]:
        monkeypatch.setattr(module, switch[0], value)
        found.append(advance(find_compiled_kernel(sampler, model), model, x, 20, 1))
    (one, sums), (other, others) = found
    assert torch.equal(one.x, other.x)
    assert sums[1].any()
    torch.testing.assert_close(sums, others, rtol=1e-4, atol=1e-4)


# Energies that are unknown.


def unknown(kind: str) -> lw.EnergyModel:
    """A model whose bias of site 1, or of a value of site 0, is NaN."""
    bias = [0.2, nan, -0.1, 0.3, 0.0, 0.1]
    if kind == "lattice":
        return lw.Lattice((6,), 0.1, bias)
    if kind == "dense":
        return dense(bias)
    if kind == "rbm":
        model = machine(6, 4, 1.0)
        model.visible_bias.data.copy_(torch.tensor(bias))
        return model
    biases = torch.zeros(12, 3)
    biases[0, 2] = nan
    if kind == "potts":
        model = lw.LatticePotts((3, 4), 3, 0.6, biases.nan_to_num().tolist())
        model.bias.data.copy_(biases)  # a model that is made with NaN is refused
        return model
    model = lw.random_potts(12, 3, 1.0)
    model.bias.data.copy_(biases)
    return model


KINDS = ("lattice", "dense", "rbm", "potts", "dense potts")
SAMPLERS = [
    *(lw.Gibbs(), lw.Gibbs(2), lw.HammingBall(2, 1, "systematic"), lw.DULA(0.5), lw.DMALA(0.5)),
    *(lw.GWG(), lw.GWG(3), lw.LocallyBalanced(), lw.PAFS(2), lw.RandomWalk(2)),
]
UNKNOWN = [
    *itertools.product(SAMPLERS[1:3] + SAMPLERS[5:], KINDS),
    *itertools.product(SAMPLERS[:1] + SAMPLERS[3:5], KINDS[1:]),
]


@pytest.mark.parametrize(("sampler", "kind"), UNKNOWN, ids=str)
def test_unknown_energies_are_never_drawn_and_are_counted(sampler, kind):
    """With an acceptance test, every proposal is rejected."""
    model = unknown(kind)
    try:
        twin = find_compiled_kernel(sampler, model)
    except NoCompiledKernelError:
        pytest.skip("no compiled kernel")
    x, potts = model.domain.uniform(100, Generator().manual_seed(0)), "potts" in kind
    if potts:
        x[:, 0] = torch.tensor([1.0, 0.0, 0.0])
    state, (_, _, invalid) = advance(twin, model, x.clone(), 30, 1)
    moved, balanced = (state.x != x).any(0), isinstance(sampler, lw.LocallyBalanced)
    avoids = balanced and kind != "lattice"  # never proposes the value
    rejects = isinstance(sampler, lw.DMALA | lw.GWG | lw.PAFS | lw.RandomWalk) or balanced
    assert not (moved[0, 2] if potts else moved[1])
    assert moved.any() != (rejects and not avoids)
    assert (invalid > 0).all() != avoids


# Controls.


def _without_last_set(sites: int, radius: int) -> gibbs_blocks.Ball:
    return gibbs_blocks.Ball(*(field[:-1].copy() for field in WHOLE_BALL(sites, radius)))


def _without_last_neighbour(form: object) -> object:
    form = LISTS(form)
    form.coupling[form.starts[1:] - 1] = 0
    return form


def _with_steeper_weights(form: object) -> object:
    form = LISTS(form)
    return form._replace(weights=form.weights**1.1)


WHOLE_BALL, LISTS, PRICES = gibbs_blocks.list_ball, all_sites.pairwise, all_sites.prices
BROKEN = {
    "a pattern left out": (
        gibbs_blocks, "list_ball", _without_last_set, lw.Gibbs(3), "lattice", 30
    ),
    "a pattern left out, RBM": (
        gibbs_blocks, "list_ball", _without_last_set, lw.Gibbs(3), "rbm", 30
    ),
    "a step size 10 % off": (
        all_sites, "prices", lambda *of: PRICES(*of) * np.float32(1.1), lw.DMALA(0.3), "graph", 15
    ),
    "a neighbour left out": (
        all_sites, "pairwise", _without_last_neighbour, lw.DMALA(0.3), "potts", 15
    ),
    "weights to the power 1.1": (
        several_moves, "pairwise", _with_steeper_weights, lw.GWG(3), "lattice", 40
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_kernel_is_caught(name, monkeypatch):
    owner, part, wrong, *case = BROKEN[name]
    monkeypatch.setattr(owner, part, wrong)
    assert compared(*case)[0] > 6
