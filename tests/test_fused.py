"""Steps compiled by PyTorch: the decisions of eager steps, their law, and what is refused."""

import copy
from functools import partial

import exactness
import numpy as np
import pytest
import torch
from exactness import TABLE, largest_z
from rows import follows
from tapes import OnTape
from targets import TARGETS
from torch import Generator, nn

import latticework as lw
from latticework.models.distributions import Tape, normal_like, random_integers
from latticework.samplers import fused_block
from latticework.samplers.compiled.philox import fill_units, step_keys
from latticework.samplers.fused import Fused
from latticework.samplers.fused_recording import record_step
from latticework.samplers.inductor import NotFusedError
from latticework.samplers.sums import SumRequest
from latticework.sampling.checking.check_case import counts
from latticework.sampling.engine import (
    MIN_STEPS_TO_FUSE,
    EngineWarning,
    NotCompiledError,
    select_kernel,
)
from latticework.sampling.naming import parse_sampler

CHAINS = 8
FIELD, WAVE = torch.linspace(-2, 2, 20), torch.linspace(-1, 1, 18)


@pytest.fixture(autouse=True, scope="module")
def short_blocks():
    """Blocks of two steps, which compile sooner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused_block, "BLOCK_STEPS", 2)
        yield


def bumpy(x):
    return x @ FIELD.to(x) - (x.sum(-1) - 5).square() / 4 + (x[:, 1:] * x[:, :-1]).sum(-1).sin()


class Perceptron(nn.Module):
    def __init__(self, sites=20):
        super().__init__()
        self.one = nn.Linear(sites, 5)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x):
        return self.scale * self.one(x.flatten(1)).tanh().sum(-1)


def categories(x):
    return (x.flatten(1) @ WAVE.to(x)).sin() * 3


def started(model, double=True):
    x = model.domain.uniform(CHAINS, Generator().manual_seed(1))
    return x.double() if double else x


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
    x, kernel = started(model), Fused(sampler)
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


# The numbers of a run.


@pytest.fixture
def interpreted(uncompiled, monkeypatch):
    """Blocks of two steps that PyTorch interprets, for what is done with them."""
    monkeypatch.setattr(fused_block, "BLOCK_STEPS", 2)


@pytest.mark.slow
def test_numbers_depend_on_the_seed_alone(monkeypatch):
    """Not on how steps are divided into readings, on threads, or on a stop in mid-block."""
    monkeypatch.setattr(fused_block, "MAX_BLOCKS_AT_ONCE", 4)
    model = lw.Function(bumpy, lw.Binary(20))
    kernel, metrics = Fused(lw.DMALA()), [lw.Acceptance(), lw.Changed()]
    x = started(model, double=False)

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
    kernel, x = Fused(lw.DMALA()), started(model, double=False)
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


def test_a_model_that_changes_is_read_anew_without_compilation(interpreted):
    """A parameter that is updated, a buffer that is replaced, and a tensor of another module."""
    module, outside = Perceptron(), Perceptron()

    def both(x):
        return module(x) + outside(x)

    model = lw.Function(both, lw.Binary(20))
    model.inside = module  # and `outside` is no module of the model
    kernel, x = Fused(lw.DMALA(0.3)), started(model, double=False)
    with torch.no_grad():
        state = kernel.at(x, model)
        state, _ = kernel.advance(state, model, Generator().manual_seed(1), 4)
        for inner in (module, outside):
            inner.one.weight.mul_(-3)
            inner.one.bias.data = torch.ones(5)
        module.scale = torch.tensor(2.0)
        state = kernel.refresh(state, model)
        new, _ = kernel.advance(state, model, Generator().manual_seed(1), 20)
        fresh = Fused(lw.DMALA(0.3))
        expected, _ = fresh.advance(fresh.at(state.x, model), model, Generator().manual_seed(1), 20)
    assert torch.equal(new.x, expected.x)
    assert len(kernel.compiled) == 1


class Holder:
    """An object with a number and a tensor, as a plain attribute, in a list or in a dictionary."""

    def __init__(self, **parts):
        self.__dict__.update(parts)


NUMBER, TENSOR = 1.0, torch.linspace(-1, 1, 6)
OTHER = -TENSOR


def by_globals():
    def target(x):
        return NUMBER * (x @ TENSOR)

    def change():
        globals().update(NUMBER=-2.0)

    return target, change, lambda: globals().update(NUMBER=1.0)


def by_global_tensor():
    def target(x):
        return x @ TENSOR

    before = TENSOR
    return target, lambda: globals().update(TENSOR=OTHER), lambda: globals().update(TENSOR=before)


def by_closure(first, second):
    held = first

    def target(x):
        return x @ (held * torch.ones(6))

    def change():
        nonlocal held
        held = second

    return target, change, lambda: None


def by_attribute(first, second):
    """An object that the function names holds it."""
    holder = Holder(part=first)
    return (
        lambda x: x @ (holder.part * torch.ones(6)),
        lambda: setattr(holder, "part", second),
        lambda: None,
    )


def by_container(first, second):
    holder = {"parts": [first]}
    return (
        lambda x: x @ (holder["parts"][0] * torch.ones(6)),
        lambda: holder["parts"].__setitem__(0, second),
        lambda: None,
    )


def by_module(first, second):
    """A plain attribute of a module, which is no buffer."""
    module = Plain()
    module.part = first
    return module, lambda: setattr(module, "part", second), lambda: None


def by_method(first, second):
    module = Plain()
    module.part = first
    return module.forward, lambda: setattr(module, "part", second), lambda: None


def by_defaults(first, second):
    def target(x, part=first):
        return x @ (part * torch.ones(6))

    return target, lambda: setattr(target, "__defaults__", (second,)), lambda: None


def by_partial(first, second):
    holder = Holder(part=first)
    return (
        partial(lambda held, x: x @ (held.part * torch.ones(6)), holder),
        lambda: setattr(holder, "part", second),
        lambda: None,
    )


class Plain(nn.Module):
    def forward(self, x):
        return x @ (self.part * torch.ones(6))


KINDS = [by_closure, by_attribute, by_container, by_module, by_method, by_defaults, by_partial]
HELD = {
    "global number": by_globals,
    "global tensor": by_global_tensor,
    **{f"{kind.__name__}, number": partial(kind, 1.0, -2.0) for kind in KINDS},
    **{f"{kind.__name__}, tensor": partial(kind, TENSOR, OTHER) for kind in KINDS},
}


@pytest.mark.parametrize("refresh", [True, False])
@pytest.mark.parametrize("make", HELD.values(), ids=HELD)
def test_what_a_function_holds_is_read_anew(make, refresh, uncompiled):
    """The steps after a change are those of a kernel that is made then."""
    target, change, restore = make()
    model = lw.Function(target, lw.Binary(6))
    kernel, rng = Fused(lw.RandomWalk()), Generator().manual_seed(1)
    with torch.no_grad():
        state = kernel.at(model.domain.uniform(200, rng), model)
        state, _ = kernel.advance(state, model, rng, 4)
        blocks = list(kernel.compiled.values())
        kernel.compile(state, model)
        assert list(kernel.compiled.values()) == blocks  # nothing has changed yet
        try:
            change()
            if refresh:
                state = kernel.refresh(state, model)
            new, _ = kernel.advance(state, model, Generator().manual_seed(1), 20)
            fresh = Fused(lw.RandomWalk())
            expected, _ = fresh.advance(state, model, Generator().manual_seed(1), 20)
        finally:
            restore()
    assert torch.equal(new.x, expected.x)
    assert list(kernel.compiled.values()) != blocks


def test_a_function_that_counts_its_calls_is_compiled_once(uncompiled):
    holder = Holder(calls=0)

    def target(x):
        holder.calls += 1
        return x @ TENSOR

    model, kernel, rng = lw.Function(target, lw.Binary(6)), Fused(lw.RandomWalk()), Generator()
    with torch.no_grad():
        state = kernel.at(model.domain.uniform(20, rng), model)
        state, _ = kernel.advance(state, model, rng, 4)
        blocks = list(kernel.compiled.values())
        model.log_prob(state.x)
        kernel.advance(state, model, rng, 4)
    assert list(kernel.compiled.values()) == blocks


def test_other_shapes_are_compiled_once_and_told(uncompiled, caplog):
    """Another number of chains, and a parameter of another shape."""
    module = Perceptron()
    model, kernel, rng = lw.Function(module, lw.Binary(20)), Fused(lw.DMALA(0.3)), Generator()
    caplog.set_level("INFO", "latticework.samplers.fused")

    def told(chains):
        before = len(caplog.messages)
        with torch.no_grad():
            state = kernel.at(model.domain.uniform(chains, rng), model)
            kernel.advance(state, model, rng, 2)
        return caplog.messages[before:]

    assert told(8) == ["compiling DMALA for states [8, 20]"]
    assert told(6) == ["compiling DMALA for states [6, 20]"]
    assert not told(8)
    module.one = nn.Linear(20, 7)
    assert told(8) == ["compiling DMALA for states [8, 20]"]
    assert not told(8)


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


# What cannot be compiled.


def branching(x):
    return x.sum(-1) if x.sum() > 3 else 2 * x.sum(-1)


def by_numpy(x):
    return x.sum(-1) + torch.as_tensor(x.detach().numpy().sum(-1))


class Counting:
    calls = 0
    kept = torch.zeros(())

    def number(self, x):
        self.calls += 1
        return x.sum(-1) + 1e-9 * self.calls

    def tensor(self, x):
        self.kept = self.kept + 1e-9
        return x.sum(-1) + self.kept

    def in_place(self, x):
        self.kept.add_(1e-9)
        return x.sum(-1) + self.kept


def noisy(x):
    return x.sum(-1) + 1e-9 * torch.rand(())


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (branching, r"test_fused.py, line \d+: return x.sum\(-1\) if x.sum\(\) > 3"),
        (by_numpy, r"test_fused.py, line \d+: .*numpy\(\)"),
        (Counting().number, "keeps a state"),
        (Counting().tensor, "keeps a state"),
        (Counting().in_place, "writes to a tensor"),
        (noisy, "draws numbers without the generator"),
    ],
)
def test_what_cannot_be_compiled_is_named_and_runs_eagerly(function, why):
    model = lw.Function(function, lw.Binary(6))
    x = started(model, double=False)
    with pytest.raises(NotCompiledError, match=f"engine=fused is not possible: .*{why}"):
        select_kernel(lw.DMALA(), model, "fused", x=x)
    kernel, reason = select_kernel(lw.DMALA(), model, "auto", x=x, steps=MIN_STEPS_TO_FUSE)
    assert type(kernel) is lw.DMALA
    assert reason
    state = kernel.init(x, model)
    kernel.step(state, model, Generator().manual_seed(0))  # nothing of the attempt is left behind


def test_a_fault_of_the_compiler_is_named(monkeypatch):
    def none(*_, **__):
        raise RuntimeError("an internal error")

    monkeypatch.setattr("torch._inductor.compile", none)
    model = lw.Function(bumpy, lw.Binary(20))
    kernel, reason = select_kernel(
        lw.DMALA(), model, "auto", x=started(model), steps=MIN_STEPS_TO_FUSE
    )
    assert type(kernel) is lw.DMALA
    assert "an internal error" in reason


def test_without_a_compiler_a_line_says_what_to_install(monkeypatch):
    from torch._inductor import config

    monkeypatch.setattr("latticework.sampling.engine.MIN_STEPS_TO_FUSE", 10)
    given = {"sites": 20, "chains": CHAINS, "steps": 20, "diagnose": False}
    with config.patch({"cpp.cxx": (None, "no-such-compiler")}):
        with pytest.raises(NotCompiledError, match="no C\\+\\+ compiler.*install g\\+\\+"):
            lw.sample(bumpy, "dmala", engine="fused", **given)
        with pytest.warns(EngineWarning, match="install g") as told:
            found = lw.sample(bumpy, "dmala", engine="auto", **given)
    assert len(told) == 1
    assert told[0].filename == __file__
    assert torch.equal(found.draws, lw.sample(bumpy, "dmala", engine="eager", **given).draws)


def test_auto_compiles_where_the_steps_asked_for_pay(interpreted):
    model = lw.Function(bumpy, lw.Binary(20))
    x = started(model, double=False)
    assert (
        select_kernel(lw.DMALA(), model, "auto", x=x, steps=MIN_STEPS_TO_FUSE - 1)[0] == lw.DMALA()
    )
    assert isinstance(
        select_kernel(lw.DMALA(), model, "auto", x=x, steps=MIN_STEPS_TO_FUSE)[0], Fused
    )
    assert not isinstance(
        select_kernel(lw.DMALA(), lw.Lattice((4, 5), 0.2), "auto", x=x, steps=MIN_STEPS_TO_FUSE)[0],
        Fused,
    )


def test_a_model_that_remembers_is_refused():
    path = lw.GeometricPath(lw.Lattice((3, 3), 0.2))
    with pytest.raises(NotFusedError, match="remembers"):
        Fused(lw.DMALA()).compile(Fused(lw.DMALA()).at(started(path, False), path), path)


def test_sample_uses_it(interpreted):
    given = {"sites": 20, "chains": CHAINS, "engine": "fused", "diagnose": False, "steps": 60}
    one, two = (lw.sample(bumpy, "dmala", thin=thin, **given) for thin in (1, 3))
    assert torch.equal(one.draws[:, 2::3], two.draws)
    torch.testing.assert_close(
        one.log_prob, bumpy(one.draws.flatten(0, 1)).view(CHAINS, -1), rtol=1e-4, atol=1e-4
    )
    model, kernel = lw.Function(bumpy, lw.Binary(20)), Fused(lw.DMALA())
    chain, visited = kernel.at(started(model, double=False), model), []
    found = kernel.draw(chain, model, Generator().manual_seed(2), 30, 3, model)
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
