"""The parameters of the reference targets, in single precision, as the package holds them."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from workshop.references.answers import Arrays
from workshop.references.listing import list_selection
from workshop.references.sources import read_network, read_uai, stored_rbm

Made = dict[str, NDArray[Any]]


def single(value: Any) -> NDArray[np.float32]:
    return np.asarray(value, np.float32)


def grid_edges(side: int) -> NDArray[np.int64]:
    """The bonds of an open square, row by row, then column by column."""
    sites = np.arange(side * side).reshape(side, side)
    along = np.stack((sites[:, :-1].ravel(), sites[:, 1:].ravel()), 1)
    down = np.stack((sites[:-1].ravel(), sites[1:].ravel()), 1)
    return np.concatenate((along, down))


def ising(coupling: float, field: float = 0.0) -> Made:
    return {"coupling": single(coupling), "field": single(field)}


def potts(coupling: float) -> Made:
    return {"coupling": single(coupling)}


def pmj_cubic_60() -> Made:
    graph = nx.random_regular_graph(3, 60, seed=1)
    edges = np.array(sorted(tuple(sorted(edge)) for edge in graph.edges()))
    return {"edges": edges, "weights": single(np.random.default_rng(1).choice([-1, 1], len(edges)))}


def spin_glass(sites: int, beta: float) -> Made:
    normals = np.random.default_rng(sites).standard_normal((sites, sites))
    return {"upper": single(beta * np.triu(normals, 1) / math.sqrt(sites))}


def rbm_24x16() -> Made:
    rng = np.random.default_rng(16)
    weight = single(rng.standard_normal((24, 16)) * 0.6)
    visible_bias = single(rng.standard_normal(24) * 0.3)
    hidden_bias = single(rng.standard_normal(16) * 0.3)
    return {"weight": weight, "visible_bias": visible_bias, "hidden_bias": hidden_bias}


def hardcore_6x6() -> Made:
    return {"edges": grid_edges(6), "log_activity": single(math.log(1.5))}


def colourings_6x6() -> Made:
    return {"edges": grid_edges(6)}


def subset_30_5() -> Made:
    return {"bias": single(np.linspace(-1.5, 1.5, 30)), "weight": single(1.2)}


def knapsack_8x4() -> Made:
    rng = np.random.default_rng(8)
    values = rng.integers(1, 10, (8, 4))
    return {"values": single(0.3 * values), "weights": rng.integers(1, 8, (8, 4))}


def asia() -> Made:
    return read_network("asia", {"xray": "yes", "dysp": "yes"})


def alarm() -> Made:
    return read_network("alarm", {"HRBP": "HIGH", "PRESS": "HIGH"})


def fhmm_zeros() -> Made:
    """Two chains, weather (3 values) and machine (2), whose joint state emits one of 5 symbols."""
    rng, steps = np.random.default_rng(3), 25
    first, second = np.array([0.8, 0.2, 0.0]), np.array([0.5, 0.5])
    weather = np.array([[0.85, 0.15, 0.0], [0.0, 0.9, 0.1], [0.05, 0.0, 0.95]])
    machine = np.array([[0.9, 0.1], [0.2, 0.8]])
    emission = rng.dirichlet([0.7] * 5, (3, 2))
    w = m = 0
    seen = []
    for t in range(steps):
        w = rng.choice(3, p=weather[w] if t else first)
        m = rng.choice(2, p=machine[m] if t else second)
        seen.append(int(rng.choice(5, p=emission[w, m])))
    tables: list[tuple[Sequence[int], NDArray]] = [((0,), first), ((steps,), second)]
    for t in range(1, steps):
        tables.append(((t - 1, t), weather))
        tables.append(((steps + t - 1, steps + t), machine))
    for t in range(steps):
        tables.append(((t, steps + t), emission[:, :, seen[t]]))
    return pack_tables(tables, [3] * steps + [2] * steps)


def grids_11() -> Made:
    return read_uai("Grids_11.uai")


def crf_8x8_q3() -> Made:
    rng, edges = np.random.default_rng(33), grid_edges(8)
    weights = single(rng.standard_normal(len(edges)))
    return {
        "edges": edges,
        "weights": weights,
        "fields": single(rng.standard_normal((64, 3)) * 0.5),
    }


def pack_tables(tables: Sequence[tuple[Sequence[int], NDArray]], sizes: Sequence[int]) -> Made:
    """Scopes padded with -1, and the logarithms of all tables end to end."""
    longest = max(len(scope) for scope, _ in tables)
    scopes = np.full((len(tables), longest), -1)
    for row, (scope, _) in enumerate(tables):
        scopes[row, : len(scope)] = scope
    with np.errstate(divide="ignore"):
        logs = np.log(np.concatenate([np.ravel(table) for _, table in tables]))
    return {"sizes": np.array(sizes), "scopes": scopes, "logs": single(logs)}


def unpack_tables(arrays: Arrays) -> list[tuple[tuple[int, ...], NDArray[np.float64]]]:
    first, tables = 0, []
    for row in arrays["scopes"]:
        scope = tuple(row[row >= 0].tolist())
        shape = arrays["sizes"][list(scope)]
        last = first + int(np.prod(shape))
        tables.append((scope, arrays["logs"][first:last].astype(np.float64).reshape(shape)))
        first = last
    return tables


def select(squares: bool, share: float) -> Made:
    """Centred diabetes data (Efron et al. 2004), with the squares of the variables but sex."""
    from sklearn.datasets import load_diabetes  # noqa: PLC0415 - takes seconds to import

    data = load_diabetes()
    columns = (data.data - data.data.mean(0)) / data.data.std(0)
    response = data.target - data.target.mean()
    if squares:
        more = np.delete(columns**2, 1, axis=1)
        columns = np.concatenate((columns, (more - more.mean(0)) / more.std(0)), 1)
    scale = math.sqrt(response @ response)
    columns = columns / math.sqrt(len(response))  # a common scale does not change R^2
    gram, slope = single(columns.T @ columns), single(columns.T @ response / scale)
    log_odds = single(math.log(share / (1 - share)))
    numbers = gram.astype(float), slope.astype(float), len(response), float(log_odds)
    best = int(list_selection(*numbers).argmax())
    return {
        "gram": gram,
        "response": slope,
        "rows": np.asarray(len(response)),
        "log_odds": log_odds,
        "best": (best >> np.arange(len(slope)) & 1).astype(np.uint8),
    }


def two_modes_20() -> Made:
    return {"weight": single(0.3), "high": single(0.95)}


def sbm_florentine() -> Made:
    graph = nx.florentine_families_graph()
    adjacency = nx.to_numpy_array(graph, nodelist=sorted(graph.nodes()))
    return {"adjacency": (adjacency > 0).astype(np.uint8)}


def poisson_ring_10() -> Made:
    rates = [2, 3, 5, 8, 12, 12, 8, 5, 3, 2]
    return {"log_rates": single(np.log(rates)), "smoothness": single(0.05)}


PARAMETERS: dict[str, Callable[[], Made]] = {
    "ising16_crit": lambda: ising(0.4407),
    "ising16_cold": lambda: ising(0.6),
    "ising16_field": lambda: ising(0.4407, 0.02),
    "potts3_8": lambda: potts(1.005),
    "potts4_8": lambda: potts(math.log(3)),
    "potts3_16": lambda: potts(1.005),
    "crf_8x8_q3": crf_8x8_q3,
    "pmj_cubic_60": pmj_cubic_60,
    "sk_20": lambda: spin_glass(20, 1.5),
    "sk_200": lambda: spin_glass(200, 1.0),
    "grids_11": grids_11,
    "asia": asia,
    "alarm": alarm,
    "fhmm_zeros": fhmm_zeros,
    "rbm_24x16": rbm_24x16,
    "rbm_digits_20": stored_rbm,
    "hardcore_6x6": hardcore_6x6,
    "colourings_6x6": colourings_6x6,
    "subset_30_5": subset_30_5,
    "knapsack_8x4": knapsack_8x4,
    "select_10": lambda: select(False, 0.5),
    "select_19": lambda: select(True, 0.1),
    "two_modes_20": two_modes_20,
    "sbm_florentine": sbm_florentine,
    "poisson_ring_10": poisson_ring_10,
}
