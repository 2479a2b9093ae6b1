"""The peers of the benchmark sample the law that they are compared on."""

from functools import cache

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from latticework.models.ising import Lattice
from latticework.models.rbm import RBM
from latticework.samplers.compiled.bits.vectors import copy_aligned
from latticework.samplers.langevin import DULA
from latticework.sampling.exact import distribution
from workshop.bench_contenders import CONTENDERS, _jax
from workshop.bench_models import edges_of, model_of
from workshop.bench_workloads import STEP_SIZES, Workload
from workshop.peers import limits
from workshop.peers.plain_numba import Lattices

pytestmark = pytest.mark.slow

A, B, ALPHA = 0.12, 0.15, 0.4
CHAINS, STEPS = 20_000, 400  # with scans of three lengths
SIDES = (3, 4)
ON_LATTICES = ("gibbs-1", "gwg-1", "dula", "dmala", "sweep")
ON_RBMS = ("gibbs-1", "gwg-1", "dula", "dmala", "block-gibbs")
LATTICE = Lattice(SIDES, A, B)


def small_rbm():
    model = RBM(6, 4)
    rng = torch.Generator().manual_seed(3)
    for parameter, scale in ((model.weight, 0.8), (model.visible_bias, 0.5)):
        parameter.normal_(0, scale, generator=rng)
    model.hidden_bias.normal_(0, 0.5, generator=rng)
    return model


@cache
def enumerated(model):
    return distribution(model)


def law(model, sampler):
    """States and their probabilities: the target, or the biased law that DULA converges to."""
    states, target = enumerated(model)
    if sampler == "dula":
        target = dula_law(model, states)
    return states.numpy(), target.numpy()


@cache
def dula_law(model, states):
    """The stationary law of DULA's transition matrix, by power iteration."""
    logits = DULA(ALPHA).at(states, model).logits.double()
    x = states.double()
    if x.ndim == 3:  # one-hot
        step = (logits.log_softmax(-1).flatten(1) @ x.flatten(1).T).exp()
    else:  # a move from x to y flips the sites where x + y - 2 x y is 1
        weight = (logits * x).sum(1, keepdim=True) + (logits * (1 - 2 * x)) @ x.T
        step = (weight - softplus(logits).sum(1, keepdim=True)).exp()
    now, before = step.mean(0), step[0]
    while (now - before).abs().sum() > 1e-9:
        now, before = now @ step, now
    return now


def largest_z(found, states, probability):
    """Means and pair moments of independent draws `[chains, sites]`: the largest |z|."""
    rows, columns = np.triu_indices(states.shape[1])
    products, draws = (x[:, rows] * x[:, columns] for x in (states, found))  # means on the diagonal
    mean = probability @ products
    scale = np.sqrt(mean * (1 - mean) / len(found))
    return np.abs((draws.mean(0) - mean) / scale).max()


def starts(model):
    rng = torch.Generator().manual_seed(5)
    return model.domain.uniform(CHAINS, rng).numpy()


def largest_z_of(chains, model, sampler, steps=STEPS):
    chains.burst(steps - 72)
    chains.burst(72)
    return largest_z(chains.states(), *law(model, sampler))


def by_numba(sampler, a=A):
    colours = LATTICE.colours().numpy()
    return Lattices(sampler, starts(LATTICE), SIDES, colours, a, B, ALPHA, seed=1)


@pytest.mark.parametrize("sampler", ON_LATTICES)
def test_plain_numba_samples_the_target(sampler):
    assert largest_z_of(by_numba(sampler), LATTICE, sampler) < 5


def test_another_law_is_noticed():
    """Control: a coupling that is a fifth larger, and the target in place of DULA's own law."""
    assert largest_z_of(by_numba("gibbs-1", 1.2 * A), LATTICE, "gibbs-1") > 8
    assert largest_z_of(by_numba("dula"), LATTICE, "dmala") > 8


def peer(name):
    """A module of workshop.peers; the test is skipped where the extra `bench` is not installed."""
    return pytest.importorskip(f"workshop.peers.{name}", exc_type=ImportError)


@pytest.mark.parametrize("sampler", ON_LATTICES)
def test_jax_samples_the_lattice(sampler):
    scan = peer("jax_scan")
    chains = scan.Scan(scan.lattice(sampler, SIDES, A, B, ALPHA), starts(LATTICE), seed=1)
    assert largest_z_of(chains, LATTICE, sampler) < 5


@pytest.mark.parametrize("sampler", ON_RBMS)
def test_jax_samples_the_rbm(sampler):
    scan, model = peer("jax_scan"), small_rbm()
    named = (model.weight, model.visible_bias, model.hidden_bias)
    kernel = scan.rbm(sampler, *(parameter.numpy() for parameter in named), ALPHA)
    assert largest_z_of(scan.Scan(kernel, starts(model), seed=1), model, sampler) < 5


@pytest.mark.parametrize("sampler", ["dula", "dmala", "gwg-1", "gibbs-1"])
@pytest.mark.parametrize("name", ["field-6", "categories-6x2"])
def test_jax_samples_a_function(name, sampler, monkeypatch):
    peer("jax_function")
    monkeypatch.setitem(STEP_SIZES, "dula", ALPHA)
    work = Workload(name, CHAINS, sampler)
    chains = _jax(work, 1)
    chains.burst(328)
    chains.burst(72)
    states, target = distribution(model_of(work))
    if sampler == "dula":
        target = dula_law(model_of(work), states)
    states, found = states.numpy(), chains.states()
    if states.ndim == 3:  # one-hot, of two values
        states, found = states[..., 1], found[..., 1]
    assert largest_z(found, states, target.numpy()) < 5


def test_thrml_samples_the_lattice():
    edges = LATTICE.adjacency().triu().nonzero().numpy()
    parts = edges, LATTICE.colours().numpy(), np.full(len(edges), 2 * A), np.full(12, B)
    chains = peer("thrml_sweep").Sweeps(starts(LATTICE), *parts, seed=1)
    assert largest_z_of(chains, LATTICE, "sweep", steps=88) < 5


@pytest.mark.parametrize("library", ["thrml", "hamon"])
@pytest.mark.parametrize("name", ["gnm-8x12", "torus-3x4"])
def test_block_gibbs_samples_graphs(name, library):
    pytest.importorskip(library)
    work = Workload(name, CHAINS, "sweep")
    chains = CONTENDERS[library].make(work, 1)
    assert largest_z_of(chains, model_of(work), "sweep", steps=88) < 5


@pytest.mark.parametrize(
    ("library", "name"),
    [
        *(("openjij", name) for name in ("gnm-8x12", "torus-3x4", "sk-6")),
        *(("ferrotherm", name) for name in ("gnm-8x12", "torus-3x4", "sk-6")),
        ("mcising", "torus-3x3"),
    ],
)
def test_chains_of_other_libraries_sample_graphs(library, name):
    pytest.importorskip(library)
    work = Workload(name, CHAINS, "sweep")
    chains = CONTENDERS[library].make(work, 1)
    assert largest_z_of(chains, model_of(work), "sweep", steps=172) < 5


@pytest.mark.parametrize("rule", ["Gibbs", "Metropolis"])
@pytest.mark.parametrize("name", ["gnm-8x12", "torus-3x4", "regular-10x3", "sk-6", "power-9x2"])
def test_dwave_samples_graphs(name, rule):
    sweeps = peer("dwave_sweeps")
    work = Workload(name, CHAINS, "sweep")
    model, parts = model_of(work), edges_of(work)
    chains = sweeps.Sweeps(starts(model), *parts, rule, seed=1)
    assert largest_z_of(chains, model, "sweep", steps=172) < 5


def test_another_temperature_is_noticed():
    """Control: weights that are a fifth larger."""
    work = Workload("gnm-8x12", CHAINS, "sweep")
    (edges, weights, biases), model = edges_of(work), model_of(work)
    parts = starts(model), edges, 1.2 * weights, biases
    chains = peer("dwave_sweeps").Sweeps(*parts, "Gibbs", seed=1)
    assert largest_z_of(chains, model, "sweep", steps=172) > 8


def test_the_torus_is_the_lattice():
    """So that both have the same rows of the peers."""
    lattice, torus = (model_of(Workload(f"{kind}-3x4", 1, "sweep")) for kind in ("ising", "torus"))
    x = torus.domain.enumerate()
    torch.testing.assert_close(torus(x) - torus(x[:1]), lattice(x) - lattice(x[:1]))


# The limits sample nothing, but they must do their work.


def test_limits_decide_about_every_site_with_uniform_bits():
    words, steps = np.zeros((3, 80), np.uint64), 40
    x, planes, seeds = map(copy_aligned, (words, limits.planes_of_flips(), np.zeros(64, np.uint64)))
    seeds[:] = np.random.default_rng(0).integers(2**63, size=len(seeds), dtype=np.uint64)
    limits.flip_all(x, planes, seeds, steps)
    ones = np.unpackbits(x.view(np.uint8), axis=1)
    once = limits.FLIP / 256
    on = (1 - (1 - 2 * once) ** steps) / 2  # flipped an odd number of times
    z = (ones.mean(1) - on) / np.sqrt(on * (1 - on) / ones.shape[1])
    assert np.abs(z).max() < 5
    assert (ones[0] != ones[1]).any()


def test_limits_of_single_sites_reach_all_of_them():
    x = np.zeros((30, 200), np.uint8)
    limits.flip_in_turn(x, 3 * len(x), 0)
    assert x.any(1).all()
    y = np.zeros((200, 30), np.uint8)
    limits.flip_anywhere(y, 2_000, 0)
    assert y.any(0).all()


@pytest.mark.parametrize("sampler", ["gibbs-1", "gwg-1", "dula"])
@pytest.mark.parametrize(("chains", "threads"), [(1, 2), (5, 2), (5, 1)])
def test_limits_share_the_work_among_threads(sampler, chains, threads):
    assert sum(limits.split(chains, threads)) == chains
    limits.lattice(sampler, chains, 9, threads)(3)


def test_products_have_the_shapes_of_the_models():
    limits.rbm("gibbs-1", 4, torch.randn(6, 5))(2)
    limits.rbm("dmala", 4, torch.randn(6, 5))(2)
    limits.network(8, 3, 3, 2, low=False)(1)
    limits.regression(2, 7, 3, 4)(1)
    limits.graph(model_of(Workload("gnm-8x12", 1, "dmala")), 3)(1)
