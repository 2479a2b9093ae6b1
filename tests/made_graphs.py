"""Random graphs, and exact draws and marginals of a graph by tree decomposition."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator

import latticework as lw

DATA = Path(os.environ.get("LATTICEWORK_DATA", "data"))


def random_graph(sites: int, edges: int, scale: float = 0.4) -> lw.Graph:
    """Weights of both signs; some pairs come twice, and some sites may have no edge."""
    rng = Generator().manual_seed(1)
    pairs = torch.randint(sites, (edges, 2), generator=rng)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    weights = torch.randn(len(pairs), generator=rng) * scale
    return lw.Graph(pairs, weights, torch.randn(sites, generator=rng))


def matrix_of(graph: lw.Graph) -> torch.Tensor:
    """w_ij at (i, j) and (j, i)."""
    found = torch.zeros(graph.domain.dim, graph.domain.dim)
    for (i, j), weight in zip(graph.edges.tolist(), graph.weights.tolist(), strict=True):
        found[i, j] = found[j, i] = weight
    return found


def some_states(model, chains=5):
    return model.domain.uniform(chains, Generator().manual_seed(2))


def draw_by_tree(graph: lw.Graph, draws: int = 1) -> tuple[torch.Tensor, dict]:
    """Exact draws `[draws, sites]`; log Z and the marginals of sites and edges."""
    samplers = pytest.importorskip("dwave.samplers")
    bqm = graph.to_bqm()
    found = samplers.TreeDecompositionSampler().sample(bqm, beta=1.0, num_reads=draws, seed=1)
    columns = found.record.sample[:, np.argsort(list(found.variables))]
    return torch.from_numpy((columns > 0).astype(np.float32)), found.info


def largest_z(graph: lw.Graph, x: torch.Tensor, known: dict) -> float:
    """The largest |z| of means of sites and of products of ends of edges, rows independent."""
    s, moments = (2 * x - 1).numpy(), known["variable_marginals"]
    means = [2 * moments[i] - 1 for i in range(graph.domain.dim)]
    found = [s, s[:, graph.edges[:, 0]] * s[:, graph.edges[:, 1]]]
    pairs = known["interaction_marginals"]
    for i, j in graph.edges.tolist():
        law = pairs[i, j] if (i, j) in pairs else pairs[j, i]
        means.append(law[1, 1] + law[-1, -1] - law[1, -1] - law[-1, 1])
    means, found = np.array(means), np.concatenate(found, 1).mean(0)
    return float((np.abs(found - means) / np.sqrt((1 - means**2) / len(x) + 1e-5)).max())
