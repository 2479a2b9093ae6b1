"""Parameters that others published: Bayesian networks, a UAI file, and a trained RBM."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latticework.models.references.catalogue import load_arrays, parameters_of

UAI = "uai"  # a folder of LATTICEWORK_DATA


def read_network(name: str, evidence: Mapping[str, str]) -> dict[str, NDArray[Any]]:
    """A network of bnlearn's repository, as pgmpy ships it, and known values."""
    from pgmpy.utils import get_example_model  # noqa: PLC0415 - takes seconds to import

    from workshop.references.parameters import pack_tables  # noqa: PLC0415 - imports this module

    network = get_example_model(name)
    names = list(network.nodes())
    labels = {node: list(network.get_cpds(node).state_names[node]) for node in names}
    tables, sizes = [], [len(labels[node]) for node in names]
    for node in names:
        table = network.get_cpds(node)
        scope = [names.index(variable) for variable in table.variables]
        shape = [sizes[site] for site in scope]
        tables.append((scope, np.asarray(table.values).reshape(shape)))
    words = [label for node in names for label in labels[node]]
    return pack_tables(tables, sizes) | {
        "names": np.array(names),
        "labels": np.array(words),
        "known": np.array(list(evidence)),
        "evidence": np.array(list(evidence.values())),
    }


def read_uai(name: str) -> dict[str, NDArray[Any]]:
    """The spin form of a file of positive tables over one or two variables of two values.

    log pi = sum w_ij s_i s_j + sum b_i s_i + offset.
    """
    text = (Path(os.environ["LATTICEWORK_DATA"]) / UAI / name).read_text()
    words = iter(text.split()[1:])
    sites = int(next(words))
    for _ in range(sites):
        next(words)
    scopes = []
    for _ in range(int(next(words))):
        size = int(next(words))
        scopes.append([int(next(words)) for _ in range(size)])
    bias, offset, edges, weights = np.zeros(sites), 0.0, [], []
    for scope in scopes:
        size = int(next(words))
        log = np.log([float(next(words)) for _ in range(size)]).reshape([2] * len(scope))
        offset += log.mean()
        for axis, site in enumerate(scope):
            low, high = np.moveaxis(log, axis, 0)
            bias[site] += np.mean(high - low) / 2
        if len(scope) == 2:
            edges.append(scope)
            weights.append((log[0, 0] + log[1, 1] - log[0, 1] - log[1, 0]) / 4)
    return {
        "edges": np.array(edges),
        "weights": np.array(weights, np.float32),
        "bias": bias.astype(np.float32),
        "offset": np.asarray(offset),
    }


def stored_rbm() -> dict[str, NDArray[Any]]:
    """The weights of the card itself: training again would give others in the last digits."""
    return parameters_of(load_arrays("rbm_digits_20"))
