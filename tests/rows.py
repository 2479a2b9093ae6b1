"""Rows of the table of exactness: their targets, engines and enumerated laws, and real steps."""

from collections.abc import Iterable, Iterator

import numpy as np
import pytest
import torch
from exactness import TABLE, Row, largest_z
from targets import TARGETS

import latticework as lw
from latticework.samplers.compiled.bits.sweep_lattice import LatticeSweepTwin
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, NoCompiledKernelError
from latticework.samplers.compiled.registry import find_compiled_kernel
from latticework.sampling.checking.check_case import counts
from latticework.sampling.checking.law import Law
from latticework.sampling.checking.targets import Target

LAWS: dict[tuple[str, str], Law] = {}
FEW = (lw.Gibbs, lw.DULA, lw.GWG, lw.SwendsenWang)  # whose kernels quick tests compile


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


def run(sampler: lw.Sampler, state, model, rng, steps: int):
    for _ in range(steps):
        state, _ = sampler.step(state, model, rng)
    return state


def follows(
    sampler: lw.Sampler, row: Row, name: str, target: Target, bound: float = 5, share: float = 1
) -> None:
    """In 99 of 100 cases, an outcome of probability 1/2 is seen to be off by 9 % of it.

    That is with 16 states and a `share` of 1 of the replicas; a quarter of them see twice as much.
    Where all chains of a call share its numbers, the 250 calls see 46 %.
    These rows test which block is drawn; rows with a systematic scan test the same conditionals.
    """
    law = exact_law(row, name)
    if isinstance(sampler, LatticeSweepTwin) and int(target.model.colours().max()) == 1:
        law = law._replace(after=[half_reversed(after, target.law) for after in law.after])
    replicas = 250 if row.shared else int(share * 100_000) // len(target.inner)
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


MEMORY = {"scan", "position", "phase", "root", "momentum", "guide", "turn", "age"}


def flat(state) -> list[torch.Tensor]:
    """The tensors of a state, in order."""
    return [t for field in state for t in (flat(field) if isinstance(field, tuple) else [field])]
