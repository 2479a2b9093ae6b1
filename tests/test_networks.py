"""Bayesian networks of the literature against pgmpy's elimination, with and without evidence.

asia has a table of 0 and 1 (an OR of two parents), alarm has 37 variables of two to four values.
"""

import gzip
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator

import latticework as lw

pgmpy = pytest.importorskip("pgmpy")
CHAINS = 4000


@cache
def network(name: str) -> tuple:
    """pgmpy's network, its elimination, and our model."""
    from pgmpy.inference import VariableElimination  # noqa: PLC0415
    from pgmpy.readwrite import BIFReader  # noqa: PLC0415

    file = Path(pgmpy.__file__).parent / "utils/example_models" / f"{name}.bif.gz"
    theirs = BIFReader(string=gzip.decompress(file.read_bytes()).decode()).get_model()
    return theirs, VariableElimination(theirs), lw.Factors.from_pgmpy(theirs)


def forward(theirs, labels: dict, draws: int, seed: int) -> dict[str, np.ndarray]:
    """Independent draws, parents first: the index of each variable's value."""
    rng, found = np.random.default_rng(seed), {}
    parents = {cpd.variable: cpd for cpd in theirs.get_cpds()}
    while len(found) < len(parents):
        for name, cpd in parents.items():
            others = [other for other in cpd.variables if other != name]
            if name in found or not set(others) <= set(found):
                continue
            axes = [cpd.variables.index(other) for other in (*others, name)]
            table = cpd.values.transpose(axes)
            for axis, other in enumerate((*others, name)):
                order = [cpd.state_names[other].index(label) for label in labels[other]]
                table = table.take(order, axis)
            rows = table[tuple(found[other] for other in others)]
            rows = np.broadcast_to(rows, (draws, rows.shape[-1]))
            level = rng.random((draws, 1))
            found[name] = np.minimum((rows.cumsum(1) < level).sum(1), rows.shape[1] - 1)
    return found


def posterior(infer, name: str, labels: tuple, known: dict) -> list[float]:
    table = infer.query([name], known, show_progress=False)
    return [table.get_value(**{name: label}) for label in labels]


EVIDENCE = {
    "asia": [{}, {"xray": "yes", "asia": "yes"}, {"either": "no"}],
    "sachs": [{}, {"Erk": "HIGH"}],
}


@pytest.mark.parametrize(("name", "known"), [(n, k) for n, ks in EVIDENCE.items() for k in ks])
def test_marginals_are_those_of_elimination(name, known):
    _, infer, model = network(name)
    given = model.condition_on(known)
    for variable, labels, mean in zip(given.names, given.labels, means(given), strict=True):
        expected = posterior(infer, variable, labels, known)
        np.testing.assert_allclose(mean[: len(labels)], expected, atol=1e-5)


def means(model) -> np.ndarray:
    """The probability of each value of each variable, by enumeration."""
    found = lw.exact(model).mean
    return found if found.ndim == 2 else np.stack((1 - found, found), 1)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_left_of_alarm(seed):
    """The law of eight of its variables, drawn at random, given the other 29."""
    theirs, infer, model = network("alarm")
    labels = dict(zip(model.names, model.labels, strict=True))
    draw = forward(theirs, labels, 1, seed)
    free = np.random.default_rng(seed).choice(model.names, 8, replace=False)
    known = {name: labels[name][int(draw[name][0])] for name in model.names if name not in free}
    given = model.condition_on(known)
    assert set(given.names) == set(free)
    for variable, own, mean in zip(given.names, given.labels, means(given), strict=True):
        expected = posterior(infer, variable, own, known)
        np.testing.assert_allclose(mean[: len(own)], expected, atol=1e-5)


CASES = [
    ("asia", {}),
    ("asia", {"xray": "yes"}),
    ("sachs", {"Erk": "HIGH"}),
    pytest.param("alarm", {}, marks=pytest.mark.slow),
    pytest.param("alarm", {"HRBP": "HIGH", "PRESS": "NORMAL"}, marks=pytest.mark.slow),
]


def largest_z(name: str, known: dict, sampler: lw.Sampler, steps: int) -> float:
    """Chains start from exact draws that agree with the evidence; the largest |z| of marginals."""
    theirs, infer, model = network(name)
    labels = dict(zip(model.names, model.labels, strict=True))
    found = forward(theirs, labels, 20 * CHAINS, 0)
    agree = np.ones(20 * CHAINS, bool)
    for variable, label in known.items():
        agree &= found[variable] == labels[variable].index(label)
    given = model.condition_on(known)
    codes = np.stack([found[variable][agree][:CHAINS] for variable in given.names], 1)
    x = torch.from_numpy(codes)
    most = max(map(len, given.labels))
    binary = isinstance(given.domain, lw.Binary)
    x = x.float() if binary else torch.nn.functional.one_hot(x, most).float()
    rng = Generator().manual_seed(1)
    with torch.no_grad():
        state = sampler.init(x, given)
        for _ in range(steps):
            state, _ = sampler.step(state, given, rng)
    codes, scores = (state.x if binary else state.x.argmax(-1)).long(), []
    for site, (variable, own) in enumerate(zip(given.names, given.labels, strict=True)):
        law = np.array(posterior(infer, variable, own, known))
        share = np.bincount(codes[:, site], minlength=len(own)) / len(codes)
        scores.append(np.abs(share - law) / np.sqrt(law * (1 - law) / len(codes) + 1e-12))
    return float(np.concatenate(scores).max())


@pytest.mark.parametrize(("name", "known"), CASES)
def test_blocks_of_the_tables_keep_the_law(name, known):
    assert largest_z(name, known, lw.Gibbs(2, "scopes"), 60) < 5


def test_another_law_is_noticed():
    """Control: DULA without correction, from exact draws."""
    assert largest_z("sachs", {"Erk": "HIGH"}, lw.DULA(2.0), 20) > 8
