"""Bayesian networks with evidence, a factorial HMM with zeros, and Boltzmann machines."""

import torch
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.models.factors import Factors
from latticework.models.rbm import RBM
from latticework.models.references.definition import (
    Arrays,
    Definition,
    product_of_sites,
    sum_of_sites,
)


def tables_of(arrays: Arrays) -> list[tuple[list[int], Tensor]]:
    """Scopes and logarithms of tables, from `scopes` padded by -1 and the tables end to end."""
    sizes, first, tables = arrays["sizes"], 0, []
    for padded in arrays["scopes"]:
        scope = padded[padded >= 0]
        shape = tuple(sizes[scope].tolist())
        last = first + int(sizes[scope].prod())
        tables.append((scope.tolist(), torch.from_numpy(arrays["logs"][first:last]).view(shape)))
        first = last
    return tables


def build_factors(arrays: Arrays) -> Factors:
    return Factors(tables_of(arrays), arrays["sizes"].tolist())


def build_network(arrays: Arrays) -> EnergyModel:
    """A network given its evidence; log Z is the logarithm of the evidence's probability."""
    sizes, names, labels = arrays["sizes"].tolist(), arrays["names"].tolist(), []
    words = iter(arrays["labels"].tolist())
    for size in sizes:
        labels.append([next(words) for _ in range(size)])
    network = Factors(tables_of(arrays), sizes, names, labels)
    return network.condition_on(
        dict(zip(arrays["known"].tolist(), arrays["evidence"].tolist(), strict=True))
    )


def build_rbm(arrays: Arrays) -> RBM:
    with torch.random.fork_rng(devices=[]):  # for weights that are replaced
        model = RBM(*arrays["weight"].shape)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    return model


NETWORKS = {
    "asia": Definition(build_network),
    "alarm": Definition(build_network),
    "fhmm_zeros": Definition(build_factors),
    "rbm_24x16": Definition(
        build_rbm, {"E sum x": sum_of_sites, "E x8 x20": product_of_sites(8, 20)}
    ),
    "rbm_digits_20": Definition(build_rbm, {"E sum x": sum_of_sites}),
}
