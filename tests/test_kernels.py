"""Every sampler of the table, on every target it supports, by both engines, against its law.

Seeds are fixed. With others, |z| < 5 for each of some 10^5 counts fails by chance once in some tens
of runs of the whole table, and p > 1e-4 for each of some 300 chi-square tests about as often.
"""

import ast
import copy
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import exactness
import numpy as np
import pytest
import torch
from exactness import TABLE, Row, largest_z, p_value
from scipy.sparse.csgraph import connected_components
from targets import TARGETS, scattered
from torch import Generator

import latticework as lw
from latticework.samplers import compiled
from latticework.samplers.compiled import rbm, sites
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, NoCompiledKernelError
from latticework.samplers.compiled.registry import find_compiled_kernel
from latticework.samplers.compiled.sweep_lattice import LatticeSweepTwin
from latticework.samplers.sums import MultiStepSampler
from latticework.sampling.checking import variations
from latticework.sampling.checking.check_case import CheckCase, counts
from latticework.sampling.checking.host_reads import NoHostReads
from latticework.sampling.checking.law import Law
from latticework.sampling.checking.suite import CHECKS, follow_chains
from latticework.sampling.checking.targets import Target
from latticework.sampling.devices import find_device

LAWS: dict[tuple[str, str], Law] = {}
FEW = (lw.Gibbs, lw.BlockGibbs, lw.GWG, lw.SwendsenWang)  # whose kernels quick tests compile
SETTLING = 40  # steps; the start is forgotten by then


def of_rows(keep=lambda row: True):
    """Parameters (row), for the rows that `keep` chooses; a test goes through its targets."""
    rows = [pytest.param(row, id=str(row.sampler)) for row in filter(keep, TABLE)]
    return pytest.mark.parametrize("row", rows)


def twins(row: Row, name: str) -> list[CompiledSampler]:
    """The compiled kernel of a row on a target, if there is one."""
    try:
        return [find_compiled_kernel(row.sampler, TARGETS[name].model)]
    except NoCompiledKernelError:
        return []


def engines(row: Row, names: Iterable[str]) -> Iterator[tuple[lw.Sampler, str]]:
    """The row's sampler, and its compiled kernel, on each of its targets with these names."""
    for name in names:
        yield from ((sampler, name) for sampler in (row.sampler, *twins(row, name)))


def distinct(row: Row) -> list[str]:
    """The targets of a row without those whose model and domain an earlier row of its class has.

    The first is kept, because another setting may be another code.
    """

    def code(of: Row, name: str) -> tuple[type, ...]:
        return type(of.sampler), type(TARGETS[name].domain), type(TARGETS[name].model)

    seen = {code(of, name) for of in TABLE[: TABLE.index(row)] for name in of.targets}
    first: dict[tuple[type, ...], str] = {}
    for name in row.targets:
        first.setdefault(code(row, name), name)
    return [name for kind, name in first.items() if kind not in seen or name == row.targets[0]]


def exact_law(row: Row, name: str) -> Law:
    """The enumerated law; it leaves the target invariant, as the papers prove."""
    key, target = (str(row.sampler), name), TARGETS[name]
    if key in LAWS:
        return LAWS[key]
    law = LAWS[key] = row.law(row.sampler, target)
    np.testing.assert_allclose(law.after[0].sum(-1), 1, rtol=1e-12)
    if row.leaves == "target":
        for after in law.after:
            np.testing.assert_allclose(target.law @ after, target.law, atol=1e-12)
        if row.reversible:
            flow = target.law[:, None] * law.after[0]
            np.testing.assert_allclose(flow, flow.T, atol=1e-14)
    return law


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


def run(sampler: lw.Sampler, state, model, rng, steps: int):
    for _ in range(steps):
        state, _ = sampler.step(state, model, rng)
    return state


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
    for sampler, name in engines(row, row.ties):
        follows(sampler, row, name, TARGETS[name])


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


def follows(sampler: lw.Sampler, row: Row, name: str, target: Target, bound: float = 5) -> None:
    """In 99 of 100 cases, an outcome of probability 1/2 is seen to be off by 9 % of it.

    That is with 16 states. Where all chains of a call share its numbers, the 250 calls see 46 %.
    These rows test which block is drawn; rows with a systematic scan test the same conditionals.
    """
    law = exact_law(row, name)
    if isinstance(sampler, LatticeSweepTwin) and int(target.model.colours().max()) == 1:
        law = law._replace(after=[half_reversed(after, target.law) for after in law.after])
    replicas = 250 if row.shared else 100_000 // len(target.inner)
    found, info = counts(sampler, target, len(law.after), replicas, row.shared)
    for count, after in zip(found, law.after, strict=True):
        assert largest_z(count, replicas, after[target.inner]) < bound, (sampler, name)
    if law.acceptance is None:
        assert (info.accept_prob == 1).all(), (sampler, name)
    else:
        accept = info.accept_prob.double()
        error = (accept.var() / len(accept)).sqrt() + 1e-6
        off = abs(accept.mean() - law.acceptance[target.inner].mean())
        assert off < 5 * error, (sampler, name)


def half_reversed(after: np.ndarray, law: np.ndarray) -> np.ndarray:
    """The mean of a sweep and of one by the other order of both colours, its reversal in time.

    Compiled sweeps of lattices make these in turn, chain by chain, and replicas are in a row.
    """
    return (after + (law[:, None] * after).T / law[:, None]) / 2


@pytest.mark.parametrize("wrong", [lw.DMALA(0.52), lw.DULA(0.5)])
def test_the_step_test_can_fail(wrong):
    """Controls: a step size 4 % off, and the correction left out."""
    target = TARGETS["binary"]
    (after,) = exactness.dmala(lw.DMALA(0.5), target).after
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


# The rules of a step.

RULES = ["valid states", "states not aliased", "chance from rng", "resumes exactly"]
EAGER = ["cached values", "no host reads"]
MEMORY = {"scan", "position", "phase", "root", "momentum", "guide", "turn", "age"}


@pytest.mark.slow
@of_rows()
def test_rules(row):
    for sampler, name in engines(row, distinct(row)):
        case = CheckCase(sampler, TARGETS[name], 1e-6)
        for rule in RULES if isinstance(sampler, MultiStepSampler) else RULES + EAGER:
            with torch.no_grad():
                outcome = CHECKS[rule](case)
            assert outcome.status == "ok", f"{sampler} on {name}, {rule}: {outcome.detail}"


@pytest.mark.slow
@of_rows(lambda row: row.sampler.exact)
def test_states_without_probability_are_never_entered(row, monkeypatch):
    """Targets that are -inf, or NaN, in two states; of twins see test_same_law.py.

    4,000 chains of 8 steps enter a state that has a share of 10^-3 of the moves.
    """
    monkeypatch.setattr(variations, "MASKED_CHAINS_AND_STEPS", (4000, 8))
    case = CheckCase(row.sampler, TARGETS[row.targets[0]], 1e-9)
    for name in ("impossible states", "unknown states"):
        outcome = CHECKS[name](case)
        assert outcome.status in ("ok", "-"), (name, outcome.detail)


def flat(state) -> list[torch.Tensor]:
    """The tensors of a state, in order."""
    return [t for field in state for t in (flat(field) if isinstance(field, tuple) else [field])]


@pytest.mark.slow
@of_rows()
def test_refresh_reads_the_new_target(row):
    """The rest of the state is that of a new one; memory is kept."""
    for sampler, name in engines(row, distinct(row)):
        refreshes(sampler, TARGETS[name])


def refreshes(sampler: lw.Sampler, target: Target) -> None:
    rng = Generator().manual_seed(1)
    state = sampler.init(target.draw(target.law, 64, rng), target.model)
    state = run(sampler, state, target.model, rng, 3)
    names = MEMORY & set(state._fields)
    kept = {name: [t.clone() for t in flat([getattr(state, name)])] for name in names}
    other = copy.deepcopy(target.model)
    next(chain(other.parameters(), other.buffers())).neg_()
    fresh = sampler.init(state.x, other)
    state = sampler.refresh(state, other)
    for name in names - {"age"}:
        assert all(map(torch.equal, flat([getattr(state, name)]), kept[name]))
    if isinstance(
        sampler, MultiStepSampler
    ):  # whose state has room for values that are computed when due
        names |= set(sampler.memory)
        fresh = fresh._replace(**copy.deepcopy({name: getattr(state, name) for name in names}))
        states = (
            sampler.advance(s, other, Generator().manual_seed(9), 5)[0] for s in (state, fresh)
        )
        assert torch.equal(*(state.x for state in states))
        return
    for name in set(state._fields) - set(sampler.memory):
        found, expected = (flat([getattr(s, name)]) for s in (state, fresh))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x[0].item(),
        lambda x: bool(x.sum() > 0),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: torch.multinomial(x.abs(), 1),
        lambda x: torch.tensor([1.0, 2.0]),
        lambda x: x.masked_select(x > 0),
    ],
)
def test_the_guard_catches_host_reads(read):
    x = torch.randn(4, generator=Generator().manual_seed(0))
    with pytest.raises(AssertionError, match="on the host"), NoHostReads():
        read(x)


UNSUPPORTED = [
    (lw.BlockGibbs(), "lattice categorical"),
    (lw.Gibbs(), "integers"),
    (lw.GWG(2), "categorical naturals"),
    (lw.HammingBall(2, 1), "ordinal categorical"),
    (lw.RandomWalk(), "integers"),
    (lw.RMALA(0.3, 0.5), "categorical naturals"),
    (lw.DiscreteSVGD(0.1, 0.5), "ordinal categorical"),
    (lw.SwendsenWang(), "ring dense_ising"),
    (lw.GibbsSweep(), "dense_ising"),
]


@pytest.mark.parametrize(("sampler", "names"), UNSUPPORTED, ids=str)
def test_unsupported_models_are_refused(sampler, names):
    for target in map(TARGETS.get, names.split()):
        with pytest.raises(lw.UnsupportedModelError, match=f"{type(sampler).__name__} needs .*got"):
            sampler.init(target.states[:2], target.model)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lw.RMALA(1, 0.0), "temperature must be positive"),
        (lambda: lw.RMALA(1, 0.5, "both"), "accept must be"),
        (lambda: lw.DiscreteSVGD(0.1, 1.0, -2.0), "bandwidth must be positive"),
        (lambda: lw.RatesFPCD(-1.0), "fast_step_size must be 0 or more, got -1"),
        (lambda: lw.RatesHerding(0.1, 1.5), r"decay must be in \[0, 1\], got 1.5"),
        (lambda: lw.RatesFPCD(statistics="both"), "statistics must be one of"),
        (lambda: lw.SamplePenalization(coding="sign"), "coding must be None or spin"),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Kernels keep numbers that belong to the state and recompute them from time to time. Each flip
# rounds them, and the rounding errors would add up without a bound.


MEMORY_SITES = 12
BLOCKS = [lw.Gibbs(), lw.Gibbs(3, "random"), lw.HammingBall(5, 2)]
ONE_SITE = [lw.GWG(), lw.LocallyBalanced()]
DUE = 1024  # steps between renewals, on average: the power of two above 64 * 12


MODELS_WITH_MEMORY = {
    "pairs": (
        lw.erdos_renyi(MEMORY_SITES, 5, 0.37),
        [*BLOCKS, *ONE_SITE, lw.GWG(4), lw.PAFS(3), lw.RandomWalk(2)],
    ),
    "rbm": (scattered(lw.RBM(MEMORY_SITES, 7), std=0.5), [*BLOCKS, lw.RandomWalk(2)]),
    "potts": (
        lw.random_potts(MEMORY_SITES, 3, 1.0),
        [lw.Gibbs(), lw.Gibbs(2, "random"), *ONE_SITE],
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
    memory = getattr(state, "memory", getattr(state, "gradient", None))
    memory += 0.25
    assert not agrees(state, twin.at(state.x, model))
    state, _ = twin.advance(state, model, rng, 25 * DUE)
    assert agrees(state, twin.at(state.x, model))


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler",
    [lw.DULA(0.2), lw.DMALA(0.2), lw.BlockGibbs(), lw.GWG(3), lw.LocallyBalanced()],
    ids=str,
)
def test_an_error_in_the_hidden_inputs_stays_until_they_are_due(sampler, monkeypatch):
    monkeypatch.setattr(rbm, "ROWS", 2.0)  # else products make them afresh
    model, rng = scattered(lw.RBM(MEMORY_SITES, 7), std=0.5), Generator().manual_seed(1)
    twin, x = (
        find_compiled_kernel(sampler, model),
        model.domain.uniform(5, Generator().manual_seed(2)),
    )
    state, _ = twin.advance(twin.at(x, model), model, rng, 1)
    state.inputs.add_(0.25)
    for steps, error in ((rbm.FRESH - 1, 0.25), (1, 0.0)):
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
        mask = int(sites.renewals(count))
        assert mask & (mask + 1) == 0  # all ones
        assert 64 * count <= mask + 1 < 128 * count


# No random word of a compiled kernel is read for two purposes in a step. A word is named by its
# stream and its index. The test reads the source: in a function two fills of a step must have two
# streams, and two reads of a buffer two indices. Laws on small targets hardly show a shared word.


FOLDER = Path(compiled.__file__).parent
FILLS = ("fill", "fill_ahead", "fill_steps", "fill_lanes")
KERNELS = [
    path.stem
    for path in sorted(FOLDER.glob("*.py"))
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
    assert shared((FOLDER / f"{kernel}.py").read_text()) == []


@pytest.mark.parametrize(
    ("kernel", "old", "new"),
    [
        ("swendsen_wang", "fill(draws, keys[t], c, 1)", "fill(draws, keys[t], c, 0)"),
        ("path_auxiliary", "unit(words[1])", "unit(words[0])"),
        ("flip_lattice", "unit(words[2, now])", "unit(words[1, now])"),
    ],
)
def test_shared_words_are_found(kernel, old, new):
    """Control: mistakes of this kind."""
    source = (FOLDER / f"{kernel}.py").read_text()
    assert old in source
    assert shared(source.replace(old, new)) != []
