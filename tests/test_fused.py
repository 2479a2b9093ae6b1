"""Steps compiled by PyTorch: the decisions of eager steps, their law, and what is refused."""

import copy
from typing import NamedTuple

import exactness
import numpy as np
import pytest
import torch
from exactness import TABLE, largest_z
from fused_steps import CHAINS, bumpy, categories, start_states
from rows import follows
from tapes import OnTape
from targets import TARGETS
from torch import Generator

import latticework as lw
from latticework.models.distributions import Tape, normal_like, random_integers
from latticework.samplers import fused_block, inductor
from latticework.samplers.compiled.philox import fill_units, step_keys
from latticework.samplers.fused import Fused
from latticework.samplers.fused_recording import record_step
from latticework.samplers.sums import SumRequest
from latticework.sampling.checking.check_case import counts
from latticework.sampling.naming import parse_sampler

pytestmark = pytest.mark.usefixtures("short_blocks")

# The tape.


def test_a_tape_gives_the_laws_of_a_generator():
    def tape():
        return Tape(torch.rand(200_000, generator=Generator().manual_seed(0), dtype=torch.float64))

    normal = normal_like(torch.zeros(100_001, dtype=torch.float64), tape())
    assert abs(float(normal.mean())) < 5 / 100_001**0.5
    assert abs(float(normal.var()) - 1) < 5 * (2 / 100_001) ** 0.5
    assert abs(float((normal.abs() > 2).double().mean()) - 0.0455) < 5 * (0.0434 / 100_001) ** 0.5
    assert abs(float((normal[:50_000] * normal[50_001:]).mean())) < 5 / 50_000**0.5
    dice = random_integers(1, 7, (100_000,), tape())
    assert exactness.p_value(dice.bincount(minlength=7)[1:].numpy(), np.full(6, 1 / 6)) > 1e-4
    assert random_integers(
        0, 3, (2,), Tape(torch.tensor([0.0, 1 - 2.0**-53]).double())
    ).tolist() == [0, 2]


# The decisions.


def rbm():
    model = lw.RatedRBM(8, 5)
    rng = Generator().manual_seed(2)
    model.weight.normal_(0, 0.5, generator=rng)
    model.set_rates([torch.rand(50, 8, generator=rng).round()])
    return model.double()


BITS, SPINS = lw.Function(bumpy, lw.Binary(20)), lw.Function(bumpy, lw.Binary(20, -1, 1))
VALUES = lw.Function(categories, lw.Categorical(6, 3))
LATTICE = lw.Lattice((3, 4), 0.2).double()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model"),
    [
        *[(name, BITS) for name in ("gwg4", "hamming_ball", "acs")],
        ("dhams", SPINS),
        *[(name, VALUES) for name in ("gibbs", "pafs", "pt_dmala")],
        ("stochastic_dula(batch=5)", lw.synthetic_bayes_net(2, 3, rows=20).double()),
        ("swendsen_wang", LATTICE),
        ("rates_fpcd", rbm()),
    ],
)
def test_compiled_steps_make_the_decisions_of_eager_ones(name, model, monkeypatch):
    """One of each kind of step. Blocks of one step compile sooner."""
    monkeypatch.setattr(fused_block, "BLOCK_STEPS", 1)
    follow(parse_sampler(name), model)


RECORDED = {  # other kinds of domain, and samplers that are like one of those above
    "dmala": "binary categorical ordinal integers mixed",
    "dula(step_size=0.5)": "categorical mixed",
    "gwg": "binary categorical ordinal integers mixed subset",
    "locally_balanced": "binary categorical mixed subset",
    "random_walk": "binary categorical mixed subset",
    "pafs": "binary integers mixed",
    "pafs_with_replacement": "categorical",
    "dlmc": "binary categorical integers mixed",
    "dlmcf": "categorical ordinal",
    "acs": "naturals mixed",
    "avg": "binary ordinal integers",
    "pavg": "categorical",
    "rmala": "binary",
    "dhams": "ordinal integers",
    "edlp": "binary categorical integers",
    "gibbs": "binary ordinal mixed",
    "gibbs(sites=2, scan=random)": "subset",
    "gibbs_sweep": "lattice lattice_potts ragged",
    "metropolis_sweep": "lattice ragged",
    "swendsen_wang": "lattice_potts",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_steps_make_the_decisions_of_eager_ones(name, uncompiled):
    """Without the compiler, which takes up to a minute for some."""
    for target in RECORDED[name].split():
        follow(parse_sampler(name), copy.deepcopy(TARGETS[target].model).double())


@pytest.mark.parametrize("name", ["sample_penalization", "block_gibbs"])
def test_steps_of_an_rbm_are_recorded(name, uncompiled):
    follow(parse_sampler(name), rbm())


def follow(sampler, model):
    """On one tape, in double precision: rounding errors decide once in some 10^13 numbers."""
    x, kernel = start_states(model), Fused(sampler)
    with torch.no_grad():
        state, other = sampler.init(x, model), kernel.init(x, model)
        block = kernel.compile(other, model)
        one, two = Generator().manual_seed(3), Generator().manual_seed(3)
        moved = 0
        for step in range(60):
            before, row = state.x.clone(), step % block.steps
            if row == 0:  # compiled steps may overwrite their own tape
                tape = torch.empty_like(block.tape[0])
                fill_units(tape.numpy(), step_keys(1, one))
            other, found = kernel.step(other, model, two)
            numbers = tape[row * block.numbers :][: block.numbers]
            state, info = sampler.step(state, model, Tape(numbers))
            assert torch.equal(state.x, other.x)
            torch.testing.assert_close(info.accept_prob, found.accept_prob, rtol=1e-9, atol=1e-12)
            moved += int((before != state.x).sum())
    assert moved > CHAINS


@pytest.mark.parametrize("use", [True, False])
def test_products_of_a_step_can_be_compiled(use, monkeypatch):
    """Inductor refuses oneDNN's product, which the model takes on some processors."""
    monkeypatch.setattr("latticework.models.matmul.mkl_is_slow", lambda: use)
    model = lw.sherrington_kirkpatrick(100, 0.5)
    with torch.no_grad():
        state = lw.DMALA().at(model.domain.uniform(100, Generator().manual_seed(0)), model)
        graph, *_ = record_step(lw.DMALA(), model, state)
    names = {str(node.target) for node in graph.graph.nodes}
    assert "aten.addmm.default" in names
    assert not any("mkldnn" in name for name in names)


class Product(NamedTuple):
    """A product of 60 rows, 50 terms and 40 columns, and whether oneDNN takes it."""

    taken: bool
    bias: tuple[int, ...] = (40,)  # the shape
    alpha: float = 1.0
    dtype: torch.dtype = torch.float32
    least: int = 2000
    slow: bool = True


PRODUCTS = {
    "a bias a column": Product(True),
    "a bias for all entries": Product(False, bias=(60, 40)),
    "a multiple": Product(False, alpha=2.0),
    "double precision": Product(False, dtype=torch.float64),
    "few multiplications": Product(False, least=10**9),
    "a processor whose AVX-512 MKL uses": Product(False, slow=False),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_large_products_of_compiled_steps_are_those_of_onednn(case, monkeypatch):
    product = PRODUCTS[case]
    monkeypatch.setattr(inductor, "MIN_MULTIPLICATIONS", product.least)
    monkeypatch.setattr(inductor, "mkl_is_slow", lambda: product.slow)
    rng = Generator().manual_seed(5)
    bias, x, weight = (
        torch.randn(*shape, generator=rng, dtype=product.dtype)
        for shape in (product.bias, (60, 50), (50, 40))
    )
    rule = inductor.PRODUCTS[torch.ops.aten.addmm.default]
    made = rule(bias, x, weight, alpha=product.alpha)
    assert (made is not NotImplemented) == product.taken
    if product.taken:
        torch.testing.assert_close(made, torch.addmm(bias, x, weight))
        without_bias = inductor.PRODUCTS[torch.ops.aten.mm.default](x, weight)
        torch.testing.assert_close(without_bias, x @ weight)


@pytest.mark.slow
def test_compiled_steps_with_products_of_onednn_make_the_decisions_of_eager_ones(monkeypatch):
    """Both products of block Gibbs, where their weights change between two blocks."""
    monkeypatch.setattr(inductor, "MIN_MULTIPLICATIONS", 100_000)
    monkeypatch.setattr(inductor, "mkl_is_slow", lambda: True)
    torch.manual_seed(0)
    model = lw.RBM(96, 64)
    kernel, rng = Fused(lw.BlockGibbs()), Generator().manual_seed(7)
    with torch.no_grad():
        x = model.domain.uniform(100, Generator().manual_seed(6))
        state = kernel.init(x, model)
        block = kernel.compile(state, model)
        assert block.steps < 10
        for _ in range(10):
            x = state.x.clone()
            if int(state.made) == len(state.infos[0]):
                model.weight.add_(0.01)
            state, _ = kernel.step(state, model, rng)
            row = (int(state.made) - 1) % block.steps
            tape = block.tape[0][row * block.numbers :][: block.numbers].clone()
            eager, _ = lw.BlockGibbs().step(lw.BlockGibbs().at(x, model), model, Tape(tape))
            assert (eager.x == state.x).float().mean() > 0.999  # rounding may turn a decision


# The law.


def first_of_each_domain():
    """Rows and targets by class of samplers, one for each kind of domain."""
    found = {}
    for row in TABLE:
        for name in row.targets if row.law else ():
            pairs = found.setdefault(type(row.sampler).__name__, {})
            pairs.setdefault(type(TARGETS[name].domain), (row, name))
    return {kind: list(pairs.values()) for kind, pairs in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("pairs", first_of_each_domain().values(), ids=first_of_each_domain())
def test_steps_on_a_tape_follow_the_enumerated_law(pairs):
    """Those that recorded and compiled steps repeat, decision by decision."""
    for row, name in pairs:
        follows(OnTape(row.sampler), row, name, TARGETS[name])


@pytest.mark.slow
def test_compiled_steps_follow_the_enumerated_law():
    """Many chains. Those of other samplers make the decisions of eager steps, see above."""
    row = next(row for row in TABLE if row.sampler == lw.DMALA(0.5))
    follows(Fused(row.sampler), row, "binary", TARGETS["binary"])


@pytest.mark.parametrize("wrong", [lw.DMALA(0.55), lw.DULA(0.5)])
def test_another_law_is_noticed(wrong):
    """Controls: a step size that is a tenth larger, and a correction that is left out."""
    target = TARGETS["binary"]
    (after,) = exactness.dmala(lw.DMALA(0.5), target).after
    (count,), _ = counts(OnTape(wrong), target, 1, 20_000)
    assert largest_z(count, 20_000, after) > 5


@pytest.mark.slow
def test_numbers_depend_on_the_seed_alone(monkeypatch):
    """Not on how steps are divided into readings, on threads, or on a stop in mid-block."""
    monkeypatch.setattr(fused_block, "MAX_BLOCKS_AT_ONCE", 4)
    model = lw.Function(bumpy, lw.Binary(20))
    kernel, metrics = Fused(lw.DMALA()), [lw.Acceptance(), lw.Changed()]
    x = start_states(model, double=False)

    def after(every, steps=42):
        rng = Generator().manual_seed(5)
        *_, last = lw.run_chain(kernel, model, x, rng, steps=steps, every=every, metrics=metrics)
        return last

    one, several = after(1), after(7)
    assert torch.equal(one.state.x, several.state.x)
    assert one.values.keys() == several.values.keys()
    for name, value in one.values.items():
        torch.testing.assert_close(value, several.values[name])
    torch.set_num_threads(2)
    assert torch.equal(one.state.x, after(42).state.x)
    assert len(kernel.compiled) == 1


def test_sums_are_those_of_single_steps(interpreted):
    model = lw.Function(bumpy, lw.Binary(20))
    kernel, x = Fused(lw.DMALA()), start_states(model, double=False)
    wanted = SumRequest(total=True, draws=3, traced=5, changed=True)
    with torch.no_grad():
        state = kernel.init(x, model)
        _, sums = kernel.advance(state, model, Generator().manual_seed(2), 7, wanted)
        rng, visited, accept = Generator().manual_seed(2), [x], 0
        for _ in range(7):
            state, info = kernel.step(state, model, rng)
            visited.append(state.x)
            accept += info.accept_prob.double()
    visited = torch.stack(visited)
    assert torch.equal(torch.from_numpy(sums.total), visited[1:].sum(0))
    assert torch.equal(torch.from_numpy(sums.trace), visited[-3:, :5].to(torch.int8))
    changed = (visited[1:] != visited[:-1]).sum((0, 2))
    assert torch.equal(torch.from_numpy(sums.changed), changed)
    torch.testing.assert_close(torch.from_numpy(sums.accept), accept)
    assert not sums.invalid.any()


def holes(x):
    """Not a number where the number of ones is a multiple of three."""
    return torch.where(x.sum(-1) % 3 == 0, torch.nan, bumpy(x))


@pytest.mark.slow
def test_states_without_a_number_are_never_entered():
    model = lw.Function(holes, lw.Binary(20))
    kernel, x = Fused(lw.DMALA(0.5)), torch.zeros(CHAINS, 20)
    x[:, :4] = 1
    with torch.no_grad():
        state = kernel.at(x, model)
        rng, wanted = Generator().manual_seed(0), SumRequest(draws=200, traced=CHAINS)
        _, sums = kernel.advance(state, model, rng, 200, wanted)
    ones = sums.trace.sum(-1)
    assert (ones % 3 != 0).all()
    assert len(np.unique(ones)) > 2
    assert (sums.invalid > 0).all()


def test_sample_uses_it(interpreted):
    given = {"sites": 20, "chains": CHAINS, "engine": "fused", "diagnose": False, "steps": 60}
    one, two = (lw.sample(bumpy, "dmala", thin=thin, **given) for thin in (1, 3))
    assert torch.equal(one.draws[:, 2::3], two.draws)
    torch.testing.assert_close(
        one.log_prob, bumpy(one.draws.flatten(0, 1)).view(CHAINS, -1), rtol=1e-4, atol=1e-4
    )
    model, kernel = lw.Function(bumpy, lw.Binary(20)), Fused(lw.DMALA())
    chain, visited = kernel.at(start_states(model, double=False), model), []
    _, found = kernel.draw(chain, model, Generator().manual_seed(2), 30, 3, model)
    with torch.no_grad():
        rng, accept = Generator().manual_seed(2), 0
        for _ in range(30):
            chain, info = kernel.step(chain, model, rng)
            visited.append(chain.x)
            accept += info.accept_prob.double()
    assert torch.equal(found.x, torch.stack(visited)[2::3])
    torch.testing.assert_close(found.accept, accept)
    eager = lw.sample(bumpy, "dmala", **{**given, "engine": "eager"})
    assert abs(one.evaluations - eager.evaluations) <= 3 * CHAINS  # of the start
