"""Every sampler of the table, on every target it supports, by both engines, against its law.

Seeds are fixed. With others, |z| < 5 for each of some 10^5 counts fails by chance once in some tens
of runs of the whole table, and p > 1e-4 for each of some 300 chi-square tests about as often.
"""

import ast
import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from exactness import TABLE, Row, largest_z, p_value
from rows import FEW, engines, exact_law, follows, of_rows, run, twins
from scipy.sparse.csgraph import connected_components
from targets import TARGETS, scattered
from torch import Generator

import latticework as lw
import workshop.laws.steps as step_laws
from latticework.samplers import compiled
from latticework.samplers.compiled.forms import fields
from latticework.samplers.compiled.moves import flip_lattice
from latticework.samplers.compiled.moves.one_move import OneMoveTwin
from latticework.samplers.compiled.rbm import chunks
from latticework.samplers.compiled.registry import find_compiled_kernel
from latticework.sampling.checking.check_case import CheckCase, counts
from latticework.sampling.checking.suite import follow_chains
from latticework.sampling.checking.targets import Target
from latticework.sampling.devices import find_device

SETTLING = 40  # steps; the start is forgotten by then


def stationary(matrix: np.ndarray) -> np.ndarray:
    """The law that a transition matrix leaves invariant."""
    size = len(matrix)
    equations = np.vstack([matrix.T - np.eye(size), np.ones(size)])
    law = np.linalg.lstsq(equations, np.append(np.zeros(size), 1.0), rcond=None)[0].clip(0)
    return law / law.sum()


def on_gpu(name: str) -> Target:
    """The target with a copy of its model on a GPU."""
    target = TARGETS[name]
    return Target(copy.deepcopy(target.model).to(find_device("cuda")), target.box)


# The law of a step.


@pytest.mark.slow
@of_rows(lambda row: row.law is not None)
def test_steps_follow_the_enumerated_law(row):
    """Counts and acceptance of real steps from every state, by both engines."""
    for sampler, name in engines(row, row.targets):
        follows(sampler, row, name, TARGETS[name])


@pytest.mark.slow
@of_rows(lambda row: row.law is not None)
def test_steps_follow_the_enumerated_law_where_values_tie(row):
    """A tie that is resolved wrongly is no small error."""
    for sampler, name in engines(row, row.ties):
        follows(sampler, row, name, TARGETS[name], share=0.25)


@pytest.mark.slow
@of_rows(lambda row: row.sampler in (lw.GWG(), lw.LocallyBalanced()) and "lattice" in row.targets)
def test_lattices_of_too_many_classes_follow_the_law_by_another_kernel(row, monkeypatch):
    monkeypatch.setattr(flip_lattice, "MAX_CLASSES", 0)
    for name in ("lattice", "sheet"):
        twin = find_compiled_kernel(row.sampler, TARGETS[name].model)
        assert isinstance(twin, OneMoveTwin)
        follows(twin, row, name, TARGETS[name])


@of_rows(lambda row: row.law is not None and row.sampler.exact)
def test_moves_connect_all_states_where_values_tie(row):
    """By the enumerated law. A site that changed in every step would keep its parity for ever."""
    for name in row.ties:
        joint = np.mean(exact_law(row, name).after, axis=0)
        assert is_connected(joint > 0), name


@of_rows(lambda row: row.law is None and row.sampler.exact and not row.sampler.interacting)
def test_chains_visit_all_states_where_values_tie(row):
    """What chains do in 64 steps connects every state with every other."""
    for name in row.ties:
        _, moved, _ = follow_chains(CheckCase(row.sampler, TARGETS[name], 1e-6), 1024, 64)
        assert is_connected(moved), name


def is_connected(moved: np.ndarray) -> bool:
    """Whether moves lead from every state to every other; `moved` `[states, states]` lists them."""
    return connected_components(moved, connection="strong")[0] == 1


@pytest.mark.gpu
@of_rows(lambda row: row.law is not None)
def test_steps_on_a_gpu_follow_the_enumerated_law(row):
    """The largest of some 10^5 counts exceeds 5.5 in one of some hundred runs."""
    for name in row.targets:
        follows(row.sampler, row, name, on_gpu(name), bound=5.5)


@pytest.mark.parametrize("wrong", [lw.DMALA(0.52), lw.DULA(0.5)])
def test_the_step_test_can_fail(wrong):
    """Controls: a step size 4 % off, and the correction left out."""
    target = TARGETS["binary"]
    (after,) = step_laws.dmala(lw.DMALA(0.5), target).after
    (count,), _ = counts(wrong, target, 1, 50_000)
    assert largest_z(count, 50_000, after) > 5


def invariance(sampler: lw.Sampler, target: Target, law: np.ndarray, chains: int = 10_000) -> float:
    """P-value of the law after 4 steps of chains that start from it exactly.

    10,000 chains see a relative error of 10 % (root mean square over up to 64 states) in 99 of 100
    cases; those of the controls below are 36 % or more. Where the rest of the state does not start
    from its law, the chains settle first, and are 4,000, which see 16 %.
    """
    rng, steps = Generator(target.device).manual_seed(3), 4
    if not sampler.stationary_start:
        chains, steps = 4000, SETTLING
    state = sampler.init(target.draw(law, chains, rng), target.model)
    state = run(sampler, state, target.model, rng, steps)
    return p_value(np.bincount(target.index(state.x), minlength=len(law)), law)


def stays(sampler: lw.Sampler, row: Row, name: str, target: Target) -> None:
    own = row.leaves == "own"
    law = stationary(exact_law(row, name).after[0]) if own else target.law / target.law.sum()
    alone = row.law is None and row.sampler.stationary_start  # no other test of its law
    assert invariance(sampler, target, law, 50_000 if alone else 10_000) > 1e-4, (sampler, name)


def invariant(row: Row) -> tuple[str, ...]:
    """On further targets, the counts of one step from every state are those of the law above."""
    if row.leaves == "none" or (row.leaves == "own" and row.shared):
        return ()
    return row.targets if row.law is None or row.shared else row.targets[:1]


@of_rows(invariant)
def test_invariance(row):
    for name in invariant(row):
        stays(row.sampler, row, name, TARGETS[name])


@pytest.mark.gpu
@of_rows(invariant)
def test_invariance_on_a_gpu(row):
    for name in invariant(row):
        stays(row.sampler, row, name, on_gpu(name))


@pytest.mark.parametrize("quick", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_invariance_by_compiled_steps(quick):
    for row in TABLE:
        for name in invariant(row):
            if quick == (type(row.sampler) in FEW and name == row.targets[0]):
                for twin in twins(row, name):
                    stays(twin, row, name, TARGETS[name])


@pytest.mark.parametrize("name", ["binary", "categorical", "naturals"])
def test_an_unadjusted_sampler_is_caught(name):
    assert invariance(lw.DULA(4.0), TARGETS[name], TARGETS[name].law) < 1e-4


@pytest.mark.parametrize(
    "sampler", [lw.GWG(2), lw.RMALA(0.3, 0.5), lw.DLMCf(0.5, "barker"), lw.EDLP(2.0, 0.7)], ids=str
)
def test_a_sampler_that_accepts_always_is_caught(sampler, monkeypatch):
    monkeypatch.setattr("latticework.samplers.base.acceptance", torch.ones_like)
    assert invariance(sampler, TARGETS["binary"], TARGETS["binary"].law) < 1e-4


# Kernels keep numbers that belong to the state and recompute them from time to time. Each flip
# rounds them, and the rounding errors would add up without a bound.


MEMORY_SITES = 12
BLOCKS = [lw.Gibbs(), lw.Gibbs(3, "random"), lw.HammingBall(5, 2)]
ONE_SITE = [lw.GWG(), lw.LocallyBalanced()]
DUE = 1024  # steps between renewals, on average: the power of two above 64 * 12


MODELS_WITH_MEMORY = {
    "pairs": (
        lw.erdos_renyi(MEMORY_SITES, 5, 0.37),
        [*BLOCKS, *ONE_SITE, lw.GWG(4), lw.PAFS(3), lw.RandomWalk(2), lw.DMALA(0.4)],
    ),
    "rbm": (scattered(lw.RBM(MEMORY_SITES, 7), std=0.5), [*BLOCKS, lw.RandomWalk(2)]),
    "potts": (
        lw.random_potts(MEMORY_SITES, 3, 1.0),
        [lw.Gibbs(), lw.Gibbs(2, "random"), *ONE_SITE, lw.DMALA(0.4)],
    ),
}
REMEMBERING = [
    pytest.param(model, sampler, id=f"{name}-{sampler}")
    for name, (model, samplers) in MODELS_WITH_MEMORY.items()
    for sampler in samplers
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "sampler"), REMEMBERING)
def test_an_error_in_the_memory_does_not_stay(model, sampler):
    x = model.domain.uniform(5, Generator().manual_seed(2))
    twin, rng = find_compiled_kernel(sampler, model), Generator().manual_seed(1)
    state = twin.at(x, model)
    state.fields.add_(0.25)
    assert not agrees(state, twin.at(state.x, model))
    state, _ = twin.advance(state, model, rng, 25 * DUE)
    assert agrees(state, twin.at(state.x, model))


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler",
    [lw.DULA(0.2), lw.DMALA(0.2), lw.GWG(3), lw.LocallyBalanced()],
    ids=str,
)
def test_an_error_in_the_hidden_inputs_stays_until_they_are_due(sampler, monkeypatch):
    monkeypatch.setattr(chunks, "MAX_ROWS_SHARE", 2.0)  # else products make them afresh
    model, rng = scattered(lw.RBM(MEMORY_SITES, 7), std=0.5), Generator().manual_seed(1)
    twin, x = (
        find_compiled_kernel(sampler, model),
        model.domain.uniform(5, Generator().manual_seed(2)),
    )
    state, _ = twin.advance(twin.at(x, model), model, rng, 1)
    state.inputs.add_(0.25)
    for steps, error in ((chunks.RENEWAL_STEPS - 1, 0.25), (1, 0.0)):
        state, _ = twin.advance(state, model, rng, steps)
        off = state.inputs - model.hidden_inputs(state.x)
        torch.testing.assert_close(off, torch.full_like(off, error), rtol=0, atol=1e-4)


def agrees(state, fresh) -> bool:
    """Whether two states agree up to rounding, apart from the scan, which goes its own way."""
    names = set(state._fields) - {"scan"}
    return all(
        torch.allclose(getattr(state, name), getattr(fresh, name), rtol=1e-4, atol=1e-4)
        for name in names
    )


def test_renewals_come_once_in_64_to_128_steps_a_site():
    for count in (1, 2, 12, 64, 1000):
        mask = int(fields.renewal_mask(count))
        assert mask & (mask + 1) == 0  # all ones
        assert 64 * count <= mask + 1 < 128 * count


# No random word of a compiled kernel is read for two purposes in a step. A word is named by its
# stream and its index. The test reads the source: in a function two fills of a step must have two
# streams, and two reads of a buffer two indices. Laws on small targets hardly show a shared word.


FOLDER = Path(compiled.__file__).parent
FILLS = ("fill_step", "fill_steps", "fill_lanes", "fill_words")
KERNELS = [
    str(path.relative_to(FOLDER))
    for path in sorted(FOLDER.rglob("*.py"))
    if path.stem != "philox" and any(f"{name}(" in path.read_text() for name in FILLS)
]


def shared(source: str) -> list[str]:
    """The streams and words that a function of `source` uses twice."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            fills = [node for node in ast.walk(function) if called(node, *FILLS)]
            streams = [ast.unparse(fill.args[-1]) for fill in fills]
            buffers = {ast.unparse(fill.args[0]).split("[")[0] for fill in fills}
            words = [
                ast.unparse(node)
                for node in ast.walk(function)
                if isinstance(node, ast.Subscript)
                and isinstance(node.ctx, ast.Load)
                and ast.unparse(node.value) in buffers
                and not isinstance(node.slice, ast.Slice)
            ]
            for names in (streams, words):
                found += [f"{function.name}: {n}" for n in sorted(set(names)) if names.count(n) > 1]
    return found


def called(node: ast.AST, *names: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_word_is_read_twice(kernel):
    assert shared((FOLDER / kernel).read_text()) == []


@pytest.mark.parametrize(
    ("kernel", "old", "new"),
    [
        (
            "sweeps/swendsen_wang.py",
            "fill_step(draws, keys[t], c, 1)",
            "fill_step(draws, keys[t], c, 0)",
        ),
        ("moves/several_moves.py", "unit(words[1])", "unit(words[0])"),
        ("moves/flip_lattice.py", "unit(words[2, now])", "unit(words[1, now])"),
    ],
)
def test_shared_words_are_found(kernel, old, new):
    """Control: mistakes of this kind."""
    source = (FOLDER / kernel).read_text()
    assert old in source
    assert shared(source.replace(old, new)) != []
