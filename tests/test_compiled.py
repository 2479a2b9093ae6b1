"""Many steps in one call of a compiled kernel: the bits, sums and threads of single steps."""

from math import inf, nan

import numpy as np
import pytest
import torch
from everyone import PAIRS, rated
from rows import FEW, flat
from targets import TARGETS
from torch import Generator

import latticework as lw
from latticework.samplers.compiled.bits.lattice_rows import TILE_WORDS
from latticework.samplers.compiled.compiled_sampler import NoCompiledKernelError
from latticework.samplers.compiled.draws import draw_by_blocks, draw_index
from latticework.samplers.compiled.jit import MIN_THREAD_CHAINS
from latticework.samplers.compiled.rbm.chunks import CHUNK_UNITS, RENEWAL_STEPS
from latticework.samplers.compiled.registry import find_compiled_kernel
from latticework.samplers.sums import SumRequest
from latticework.sampling.annealing import anneal, estimate_log_normaliser, linear


def compiled() -> list:
    """Parameters (twin, model, chains, steps): all small models, and larger ones."""
    small, found, first = 2 * MIN_THREAD_CHAINS + 3, [], set(FEW)
    cases = [(sampler, model, small, 9, name) for sampler, model, name in PAIRS]
    cases += [
        (lw.RatesFPCD(0.05, 0.9, steps=3), rated(13, 7), small, 9, "machine"),
        (lw.RatesFPCD(0.05, emit="mean"), rated(13, 7), small, 9, "machine"),
    ]
    lattice, rbm = lw.Lattice((5, 5), 0.15, 0.1), rated(45, 26)
    for sampler in (lw.DULA(0.4), lw.DMALA(0.3), lw.ACS(2.0, 0.2, 3), lw.GibbsSweep()):
        # More chains than a tile holds, more steps than three planes count.
        cases.append((sampler, lattice, 2 * TILE_WORDS + 5, 300, "tiles"))
    for sampler in (lw.DULA(0.4), lw.DMALA(0.4), lw.GWG(3)):
        # More steps than products are used for, more chains than a chunk holds.
        cases.append((sampler, rbm, 5, RENEWAL_STEPS + 5, "rows"))
        cases.append((sampler, rbm, CHUNK_UNITS // 71 + 5, 3, "chunks"))
    graph = lw.regular_graph(30, 6, 0.2)
    sweeps = lw.GibbsSweep(), lw.MetropolisSweep()
    cases += [(s, graph, chains, 300, f"graph of {chains}") for s in sweeps for chains in (1, 37)]
    cases += [
        (sampler, graph, 5, 300, "graph") for sampler in (lw.DMALA(0.4), lw.GWG(), lw.DLMC(0.2))
    ]
    scattered_lattice = lw.Lattice((4, 9), 0.2, torch.linspace(-1, 1, 36), periodic=False)
    star = [[0, leaf] for leaf in range(1, 300)]  # whose hub has more neighbours than a few
    pull = torch.linspace(-0.3, 0.2, len(star))
    side_by_side = (lattice, scattered_lattice, lw.Lattice((3, 3, 3), 0.1), graph)
    side_by_side += (
        lw.Graph(star, pull),
        lw.GraphPotts(star, pull, 3),
        lw.LatticePotts((4, 5), 3, 1.0),
    )
    for model in side_by_side:
        # Tiles, from so many steps on; single steps are made by rows.
        cases += [
            (lw.Gibbs(1, scan), model, chains, 300, f"tiles of {chains} {model}")
            for scan, chains in (("random", 5), ("systematic", 11), ("shuffled", 37))
        ]
    dense, values = lw.erdos_renyi(300, 4, 0.15), lw.random_potts(90, 3, 1.0)
    for model in (dense, values):  # too many fields for rows alone; large steps need products
        cases += [(s, model, 5, 20, "together") for s in (lw.DMALA(0.2), lw.DULA(8.0))]
    cases += [(lw.ACS(2.0, 0.2, 3), dense, 5, 20, "together")]
    potts = lw.GraphPotts(graph.edges, graph.weights, 3)
    cases += [
        (s, potts, chains, 20, f"potts graph of {chains}") for s in sweeps for chains in (1, 37)
    ]
    cases.append((lw.Gibbs(2), potts, 5, 20, "potts graph"))
    for sampler, model, chains, steps, name in cases:
        try:
            twin = find_compiled_kernel(sampler, model)
        except NoCompiledKernelError:
            continue
        again = [pytest.mark.slow] * (type(sampler) not in first)  # and on further models
        first.discard(type(sampler))
        found.append(pytest.param(twin, model, chains, steps, id=f"{sampler}-{name}", marks=again))
    return found


each = pytest.mark.parametrize(("twin", "model", "chains", "steps"), compiled())


def start(twin, model, chains):
    rng = Generator().manual_seed(1)
    return twin.init(model.domain.uniform(chains, rng), model), Generator().manual_seed(5)


@pytest.mark.slow
@each
def test_division_into_calls_and_threads_changes_nothing(twin, model, chains, steps, monkeypatch):
    monkeypatch.setattr("latticework.samplers.compiled.jit.MIN_THREAD_NANOSECONDS", 1.0)
    results = []
    for calls, threads in (([steps], 1), ([steps - 3, 1, 2], 2)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        state, rng = start(twin, model, chains)
        for count in calls:
            state, _ = twin.advance(state, model, rng, count)
        results.append(flat(state))
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("chains", [5, 30])
@pytest.mark.parametrize(
    "model",
    [lw.erdos_renyi(300, 4, 0.15), lw.random_potts(90, 3, 1.0), lw.RBM(300, 70), lw.RBM(6, 300)],
    ids=["pairs", "potts", "rbm", "wide rbm"],
)
@pytest.mark.parametrize(
    "sampler",
    [lw.Gibbs(), *(pytest.param(s, marks=pytest.mark.slow) for s in (lw.GWG(), lw.DMALA(0.2)))],
    ids=str,
)
def test_first_fields_do_not_depend_on_the_threads(sampler, model, chains):
    """A library rounds products of few rows in other ways on two threads, on some processors."""
    if isinstance(model, lw.RBM):
        torch.nn.init.normal_(model.weight, generator=Generator().manual_seed(3))
    twin, allowed = find_compiled_kernel(sampler, model), torch.get_num_threads()
    x, states = model.domain.uniform(chains, Generator().manual_seed(1)), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            state, _ = twin.advance(twin.init(x, model), model, Generator().manual_seed(2), 1)
            states.append(flat(state))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(allowed)
    assert all(map(torch.equal, *states))


@each
def test_sums_are_those_of_single_steps(twin, model, chains, steps):
    state, rng = start(twin, model, chains)
    before, unsettled = state.x.clone(), torch.zeros(chains)
    total, accept, changed, trace = torch.zeros(before.shape), torch.zeros(chains), 0, []
    for _ in range(steps):
        state, info = twin.step(state, model, rng)
        changed = changed + (state.x != before).reshape(chains, model.domain.dim, -1).any(-1).sum(1)
        total, accept = total + state.x, accept + info.accept_prob
        unsettled += 0 if info.unsettled is None else info.unsettled
        before = state.x.clone()
        trace = [*trace[-3:], before.flatten(1)[:3]]
    state, rng = start(twin, model, chains)
    _, sums = twin.advance(state, model, rng, steps, SumRequest(total=True, draws=4, traced=3))
    np.testing.assert_allclose(sums.total.reshape(total.shape), total, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(sums.trace, torch.stack(trace).char())
    np.testing.assert_allclose(sums.accept, accept, rtol=1e-4)
    np.testing.assert_array_equal(sums.changed, changed)
    if twin.loops:
        np.testing.assert_array_equal(sums.unsettled, unsettled)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler", [lw.GWG(), lw.DMALA(0.4), lw.Gibbs(), lw.LocallyBalanced()], ids=str
)
def test_annealing_estimates_the_normaliser(sampler):
    """A path of machines: the model changes in place before each step."""
    target, path = TARGETS["rbm"], lw.ScaledRBM(TARGETS["rbm"].model)
    truth = np.logaddexp.reduce(target.log_prob) - float(path.log_z_start())
    path.move_to(torch.tensor(0.0))
    twin, rng = find_compiled_kernel(sampler, path), Generator().manual_seed(0)
    log_weight = anneal(twin, path, path.draw(3000, rng), linear(25), rng).log_weight
    estimate = estimate_log_normaliser(log_weight, rng)
    assert abs(estimate.value - truth) < 5 * estimate.error


@pytest.mark.parametrize(
    "model",
    [lw.Lattice((4, 3), 0.1), lw.RBM(12, 3), lw.random_potts(12, 3, 1.0), lw.Graph([[0, 11]], 0.1)],
    ids=repr,
)
@pytest.mark.parametrize("kind", [lw.DULA, lw.DMALA])
def test_a_preconditioner_of_another_length_is_refused(kind, model):
    x = model.domain.uniform(2, Generator())
    with pytest.raises(ValueError, match="preconditioner must have 12 entries, got 2"):
        find_compiled_kernel(kind(0.3, [1.0, 2.0]), model).init(x, model)


@pytest.mark.slow
def test_a_cycle_goes_on_where_it_was():
    """After new parameters (`refresh`) and from new positions (`relocate`)."""
    model, sampler = lw.Lattice((4, 5), 0.15, 0.1), lw.ACS(2.0, 0.2, 3)
    twin = find_compiled_kernel(sampler, model)
    state, rng = start(twin, model, 5)
    state, _ = twin.advance(state, model, rng, 7)
    moved = twin.relocate(state.x.clone(), state, model)
    for later in (state, twin.refresh(state, model), moved):
        assert later.phase.item() == 7 % 3


@pytest.mark.parametrize(
    ("log_probs", "drawn", "unknown"),
    [
        ([0.0, nan, -1.0], {0, 2}, True),
        ([-inf, 3.0, -inf], {1}, False),
        ([0.0, inf, 1.0], {-1}, False),
        ([-inf, nan], {-1}, True),
        ([1e4, 1e4 + 1], {0, 1}, False),
    ],
)
def test_draws_from_values_that_are_not_finite(log_probs, drawn, unknown):
    weights = np.empty(len(log_probs), np.float32)
    results = [draw_index(np.array(log_probs), weights, (u + 0.5) / 100) for u in range(100)]
    assert {index for index, _ in results} == drawn
    assert {u for _, u in results} == {unknown}


def test_no_site_of_weight_zero_is_drawn_where_a_sum_is_rounded_up():
    weights = np.array([0.0, 2.0, 1.0, 0.0, 4.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    sums = weights.reshape(4, 3).sum(1)
    drawn = [draw_by_blocks(weights, sums, 8.0, (u + 0.5) / 800) for u in range(800)]
    np.testing.assert_array_equal(np.bincount(drawn, minlength=12), weights * 100)
    assert draw_by_blocks(weights, sums, 8.0001, 1.0) == 6
