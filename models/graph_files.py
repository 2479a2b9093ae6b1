"""Graphs from files, and random ones: `model=graph`.

Gset   a line "sites edges", then "i j weight" an edge, with sites from 1 (weight 1 if left out).
COO    "i j value" a line, with sites from 0; "i i value" is linear. A line "# vartype=BINARY" says
       that the energy is one of x in {0, 1}, otherwise of spins.
UAI    tables of a Markov or Bayesian network, of the UAI inference competitions.
BIF    a Bayesian network with names, `*.bif`; read by pgmpy.
dimod  a binary quadratic model with names, `*.bqm` or `*.json`; read by dimod.

Gset, COO and dimod give an energy E = sum J_ij s_i s_j + sum h_i s_i, and log pi = -beta E. The
lowest energies of a graph of Gset are its largest cuts. UAI and BIF files give log pi, times beta:
a `Factors`, or a `Graph` for a UAI file of positive tables of one or two variables of two values.
"""

import json
import re
import struct
from math import prod
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator

from latticework.models.factors import Factors
from latticework.models.graph import Graph
from latticework.models.tables import Factor


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
    """The graph of a Gset, COO, UAI or dimod file, or the tables of a UAI or BIF file.

    BIF and dimod's files are told by their names (`.bif`, `.bqm`, `.json`), others by their text.
    Raises ValueError for a file of another format, one that ends early, and one whose numbers are
    not those that it declares; ImportError if the library that reads it is missing.
    """
    suffix = Path(file).suffix.lower()
    if suffix == ".bif":
        return Factors.from_bif(file, beta)
    if suffix in (".bqm", ".json"):
        return _read_bqm(file, beta)
    text = _read_text(file)
    if re.match(r"\s*(MARKOV|BAYES)\b", text):
        return _of_tables(*read_tables(file), beta)
    lines = [line for line in text.splitlines() if re.match(r"\s*[^\s#]", line)]
    try:
        numbers = [list(map(float, line.split())) for line in lines]
        first, rows = len(numbers[0]), numbers[1:]
        if first == 2 and all(len(row) in (2, 3) for row in rows):
            _require_declared(len(rows), numbers[0][1], "edges")
            edges = _sites_of(np.array([row[:2] for row in rows]).reshape(-1, 2)) - 1
            weights = np.array([row[2] if len(row) == 3 else 1.0 for row in rows])
            return Graph(edges, -beta * weights, sites=int(numbers[0][0]))
        if all(len(row) == 3 for row in numbers):
            return _of_coo(np.array(numbers), beta, _vartype(text) == "BINARY")
    except (ValueError, IndexError) as error:
        raise ValueError(f"{file}: {error}; it must be a Gset, COO or UAI file") from error
    raise ValueError(
        f"{file} must begin with MARKOV or BAYES (UAI), with a line of two numbers, the sites and "
        "the number of lines that follow (Gset), or have three numbers in each line (COO)"
    )


def read_evidence(file: str | Path) -> dict[int, int]:
    """The known values of a UAI evidence file, by variable, for `condition_on`.

    The file has the number of known variables, then pairs of a variable and its value. A leading 1,
    the number of samples in older files, is left out. Raises ValueError for any other file.
    """
    words = _read_text(file).split()
    try:
        numbers = [int(word) for word in words]
    except ValueError as error:
        raise ValueError(f"{file} is not UAI evidence: {error}") from error
    if len(numbers) % 2 == 0 and numbers[:1] == [1]:
        numbers = numbers[1:]
    if not numbers or len(numbers) != 1 + 2 * numbers[0]:
        raise ValueError(
            f"{file} is not UAI evidence: it must hold the number of known variables and a pair of "
            f"numbers, variable and value, for each, got {len(words)} numbers that begin with "
            f"{' '.join(words[:3]) or 'nothing'}"
        )
    known: dict[int, int] = {}
    for variable, value in zip(numbers[1::2], numbers[2::2], strict=True):
        if known.setdefault(variable, value) != value:
            raise ValueError(
                f"{file} gives variable {variable} the values {known[variable]} and {value}"
            )
    return known


def _read_text(file: str | Path) -> str:
    """Raises ValueError for an empty file, and for one that is not text."""
    try:
        text = Path(file).read_text()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{file} is not a text file; it must be a Gset, COO or UAI file"
        ) from error
    if not text.strip():
        raise ValueError(f"{file} is empty; it must be a Gset, COO or UAI file")
    return text


def _read_bqm(file: str | Path, beta: float) -> Graph:
    """The binary quadratic model that dimod wrote as `.bqm` or as JSON."""
    try:
        from dimod import BinaryQuadraticModel  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError(f"{file}: such a file is read by dimod; pip install dimod") from error
    try:
        if Path(file).suffix.lower() == ".bqm":
            with Path(file).open("rb") as opened:
                bqm = BinaryQuadraticModel.from_file(opened)
        else:
            bqm = BinaryQuadraticModel.from_serializable(json.loads(_read_text(file)))
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, struct.error) as error:
        raise ValueError(
            f"{file} is not a binary quadratic model that dimod wrote ({error})"
        ) from error
    return Graph.from_bqm(bqm, beta)


def _vartype(text: str) -> str:
    """SPIN or BINARY, as the header of a COO file says; SPIN without a header.

    dimod writes `# vartype=SPIN`. Raises ValueError for another word, and for two that differ.
    """
    kinds = set(re.findall(r"^[ \t\f]*#.*?vartype[:=][ \t]*(\S*)", text, re.MULTILINE))
    if not kinds <= {"SPIN", "BINARY"} or len(kinds) > 1:
        raise ValueError(
            f"the header must say vartype=SPIN or vartype=BINARY, got {' and '.join(sorted(kinds))}"
        )
    return kinds.pop() if kinds else "SPIN"


def _require_declared(count: int, declared: float, what: str) -> None:
    """Raise ValueError unless a file has as many lines or numbers as it declares."""
    if count != declared:
        raise ValueError(f"it declares {declared:g} {what} and has {count}")


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
    """The numbers of values of all variables, and the tables of a UAI file.

    Raises ValueError for a file that ends early, goes on after its tables, or has tables of another
    size than their variables, negative entries or NaN.
    """
    words = iter(_read_text(file).split()[1:])
    try:
        values = [int(next(words)) for _ in range(int(next(words)))]
        scopes = []
        for _ in range(int(next(words))):
            size = int(next(words))
            scopes.append(tuple(int(next(words)) for _ in range(size)))
        tables = []
        for scope in scopes:
            shape = [values[i] for i in scope]
            declared = int(next(words))
            if declared != prod(shape):
                raise ValueError(
                    f"a table of the variables {list(scope)} has {prod(shape)} entries, and it "
                    f"declares {declared}"
                )
            entries = np.array([float(next(words)) for _ in range(declared)])
            if not (entries >= 0).all() or np.isinf(entries).any():
                raise ValueError(f"the table of the variables {list(scope)} has invalid entries")
            with np.errstate(divide="ignore"):
                tables.append(Factor(scope, np.log(entries.reshape(shape))))
        if more := len(list(words)):
            raise ValueError(f"{more} numbers follow its {len(tables)} tables")
    except StopIteration as error:
        raise ValueError(f"{file} is not a complete UAI file: it ends early") from error
    except IndexError as error:
        raise ValueError(
            f"{file} is not a complete UAI file: a scope has a variable that it does not declare"
        ) from error
    except ValueError as error:
        raise ValueError(f"{file} is not a complete UAI file: {error}") from error
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
