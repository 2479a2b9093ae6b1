"""Targets of `workshop.bench`: graphs, and functions for PyTorch and JAX as a user writes them."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from latticework.models.graph import Graph

KINDS = ("readme", "field", "mlp", "categories")
GRAPHS = ("torus", "signs", "regular", "gnm", "power", "sk")
COUPLING, BIAS = 0.1, 0.2  # parameters of lattices


def function_of(kind: str, sizes: tuple[int, ...], lib: Any) -> Callable[[Any], Any]:
    """The log-probability of states `[chains, ...]`; `lib` is torch or jax.numpy.

    readme-SITES is README's example; field-SITES has a random field and random couplings;
    mlp-PIXELSxHIDDEN is a network with a hidden layer; categories-SITESxVALUES has random biases
    and random couplings of one-hot sites.
    """
    rng = np.random.default_rng(0)

    def normal(scale: float, *shape: int) -> Any:
        return lib.asarray(rng.normal(0, scale, shape).astype(np.float32))

    if kind == "readme":
        (sites,) = sizes
        ramp = lib.asarray(np.linspace(-2, 2, sites, dtype=np.float32))
        return lambda x: x @ ramp - (x.sum(-1) - sites // 4) ** 2 / 4
    if kind == "mlp":
        pixels, hidden = sizes
        first, bias, last = normal(0.05, pixels, hidden), normal(1, hidden), normal(1, hidden)
        return lambda x: lib.tanh(x @ first + bias) @ last
    entries = sizes[0] * (sizes[1] if kind == "categories" else 1)
    field, coupling = normal(1, entries), normal(0.5 / entries**0.5, entries, entries)

    def pairs(x: Any) -> Any:
        flat = x.reshape(len(x), entries)
        return flat @ field + ((flat @ coupling) * flat).sum(-1)

    return pairs


@lru_cache(1)
def graph_of(kind: str, sizes: tuple[int, ...]) -> "Graph":
    """A graph with weights of one size, by networkx.

    torus-ROWSxCOLUMNS is the lattice of these sides. The others are spin glasses, with the weights
    +-1 / sqrt(mean degree): signs-ROWSxCOLUMNS, such a lattice; regular-SITESxDEGREE;
    gnm-SITESxEDGES, all pairs as likely; power-SITESxEDGES, where a new site has so many edges, to
    sites in proportion to their degrees (A.-L. Barabasi and R. Albert, 1999); sk-SITES, the
    complete graph (D. Sherrington and S. Kirkpatrick, 1975).
    """
    import networkx

    from latticework.models.graph import Graph

    def torus(*sides: int) -> Any:
        return networkx.convert_node_labels_to_integers(networkx.grid_2d_graph(*sides, True))

    makers: dict[str, Callable[..., Any]] = {
        "torus": torus,
        "signs": torus,
        "regular": lambda sites, degree: networkx.random_regular_graph(degree, sites, seed=0),
        "gnm": lambda sites, edges: networkx.gnm_random_graph(sites, edges, seed=0),
        "power": lambda sites, edges: networkx.barabasi_albert_graph(sites, edges, seed=0),
        "sk": networkx.complete_graph,
    }
    made = makers[kind](*sizes)
    edges = np.array(made.edges)
    if kind == "torus":
        return Graph(edges, 2 * COUPLING, BIAS, len(made))
    size = (2 * len(edges) / len(made)) ** -0.5
    signs = np.random.default_rng(0).choice((-1, 1), len(edges))
    return Graph(edges, signs * size, sites=len(made))
