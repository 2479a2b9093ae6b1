"""Graphs from files, and random ones: `model=graph`.

Gset   a line "sites edges", then "i j weight" an edge, with sites from 1 (weight 1 if left out).
COO    "i j value" a line, with sites from 0; "i i value" is linear. A line "# vartype=BINARY" says
       that the energy is one of x in {0, 1}, otherwise of spins.
UAI    tables of a Markov or Bayesian network, of the UAI inference competitions.
BIF    a Bayesian network with names, `*.bif`; read by pgmpy.

Gset and COO give an energy E = sum J_ij s_i s_j + sum h_i s_i, and log pi = -beta E. The lowest
energies of a graph of Gset are its largest cuts. UAI and BIF files give log pi, times beta: a
`Factors`, or a `Graph` for a UAI file of positive tables of one or two variables of two values.
"""

import re
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator

from latticework.models.factors import Factor, Factors
from latticework.models.graph import Graph


def graph(
    file: str | None = None, beta: float = 1.0, dim: int = 1000, degree: int = 3, seed: int = 0
) -> Graph | Factors:
    """The graph in a file (`read_graph`), or a random one (`regular_graph`) without a file."""
    if file is not None:
        return read_graph(file, beta)
    return regular_graph(dim, degree, beta, seed)


def regular_graph(dim: int, degree: int, coupling: float, seed: int = 0) -> Graph:
    """A spin glass on a random graph of about this degree; weights are +-coupling at random.

    Sites are paired at random `degree` times over (the configuration model). A site that is paired
    with itself has an edge less, and the weights of a pair that comes twice are added.
    """
    if dim < 2 or not 0 < degree < dim or dim * degree % 2:
        raise ValueError(
            f"dim * degree must be even and degree from 1 to dim - 1, got {dim} and {degree}"
        )
    rng = Generator().manual_seed(seed)
    ends = torch.arange(dim).repeat(degree)[torch.randperm(dim * degree, generator=rng)]
    edges = ends.view(-1, 2)
    edges = edges[edges[:, 0] != edges[:, 1]]
    signs = torch.randint(2, (len(edges),), generator=rng) * 2 - 1
    return Graph(edges, signs * coupling, sites=dim)


def read_graph(file: str | Path, beta: float = 1.0) -> Graph | Factors:
    """The graph of a Gset, COO or UAI file, or the tables of a UAI or BIF file.

    They are told apart by their text, BIF by the name. Raises ValueError for a file of another
    format.
    """
    if Path(file).suffix == ".bif":
        return Factors.from_bif(file, beta)
    text = Path(file).read_text()
    if re.match(r"\s*(MARKOV|BAYES)\b", text):
        return _of_tables(*read_tables(file), beta)
    lines = [line for line in text.splitlines() if re.match(r"\s*[^\s#]", line)]
    try:
        numbers = [[float(word) for word in line.split()] for line in lines]
        first, rest = len(numbers[0]), numbers[1:]
        if first == 2 and all(len(row) in (2, 3) for row in rest) and len(rest) == numbers[0][1]:
            edges = _sites_of(np.array([row[:2] for row in rest]).reshape(-1, 2)) - 1
            weights = np.array([row[2] if len(row) == 3 else 1.0 for row in rest])
            return Graph(edges, -beta * weights, sites=int(numbers[0][0]))
        if all(len(row) == 3 for row in numbers):
            return _of_coo(np.array(numbers), beta, "BINARY" in text)
    except (ValueError, IndexError) as error:
        raise ValueError(f"{file}: {error}; it must be a Gset, COO or UAI file") from error
    raise ValueError(
        f"{file} must begin with MARKOV or BAYES (UAI), with a line of two numbers, the sites and "
        "the number of lines that follow (Gset), or have three numbers in each line (COO)"
    )


def _sites_of(pairs: NDArray) -> NDArray[np.int64]:
    """Raises ValueError unless they are whole numbers from 0 on."""
    sites = pairs.astype(np.int64)
    if (odd := ((sites != pairs) | (sites < 0)).any(1)).any():
        raise ValueError(f"sites must be whole numbers from 0 on, got {pairs[odd][0].tolist()}")
    return sites


def _of_coo(rows: NDArray, beta: float, binary: bool) -> Graph:
    pairs, values = _sites_of(rows[:, :2]), rows[:, 2]
    linear = pairs[:, 0] == pairs[:, 1]
    edges, weights = pairs[~linear], values[~linear]
    bias, offset = np.zeros(pairs.max() + 1), 0.0
    np.add.at(bias, pairs[linear, 0], values[linear])
    if binary:  # x = (1 + s) / 2
        offset, bias, weights = bias.sum() / 2 + weights.sum() / 4, bias / 2, weights / 4
        for side in edges.T:
            np.add.at(bias, side, weights)
    return Graph(edges, -beta * weights, -beta * bias, len(bias), -beta * offset)


def read_tables(file: str | Path) -> tuple[list[int], list[Factor]]:
    """The numbers of values of all variables, and the tables of a UAI file."""
    words = iter(Path(file).read_text().split()[1:])
    try:
        values = [int(next(words)) for _ in range(int(next(words)))]
        scopes = [
            tuple(int(next(words)) for _ in range(int(next(words))))
            for _ in range(int(next(words)))
        ]
        tables = []
        for scope in scopes:
            shape = [values[i] for i in scope]
            entries = [float(next(words)) for _ in range(int(next(words)))]
            with np.errstate(divide="ignore"):
                tables.append(Factor(scope, np.log(np.array(entries).reshape(shape))))
    except (StopIteration, IndexError, ValueError) as error:
        raise ValueError(f"{file} is no complete UAI file ({error or 'it ends early'})") from error
    return values, tables


def _of_tables(values: list[int], tables: list[Factor], beta: float) -> Graph | Factors:
    """Each positive table over two spins is c + a s_i + b s_j + w s_i s_j."""
    pairs = set(values) == {2} and all(len(scope) in (1, 2) for scope, _ in tables)
    if not pairs or not all(np.isfinite(log).all() for _, log in tables):
        return Factors([(scope, beta * log) for scope, log in tables], values)
    bias, offset, edges, weights = np.zeros(len(values)), 0.0, [], []
    for scope, log in tables:
        offset += float(log.mean())
        for axis, site in enumerate(scope):
            low, high = np.moveaxis(log, axis, 0)
            bias[site] += np.mean(high - low) / 2
        if len(scope) == 2:
            edges.append(scope)
            weights.append((log[0, 0] + log[1, 1] - log[0, 1] - log[1, 0]) / 4)
    return Graph(edges, beta * np.array(weights), beta * bias, len(values), beta * offset)
