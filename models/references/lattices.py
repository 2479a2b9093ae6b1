"""Ising and Potts models on the torus, and a Potts model with random couplings on a grid."""

from functools import partial

import torch
from torch import Tensor

from latticework.models.graph_potts import GraphPotts
from latticework.models.ising import Lattice
from latticework.models.lattice import neighbour_sum
from latticework.models.potts import LatticePotts
from latticework.models.references.definition import Arrays, Definition


def build_ising(arrays: Arrays) -> Lattice:
    """Log pi = K sum s s' over the bonds + h sum s. `Lattice` counts each bond twice."""
    return Lattice([16, 16], float(arrays["coupling"]) / 2, float(arrays["field"]))


def build_potts(side: int, values: int, arrays: Arrays) -> LatticePotts:
    """Log pi = K times the number of bonds with equal ends."""
    return LatticePotts([side, side], values, float(arrays["coupling"]))


def build_random_field(arrays: Arrays) -> GraphPotts:
    weights, fields = torch.from_numpy(arrays["weights"]), torch.from_numpy(arrays["fields"])
    return GraphPotts(arrays["edges"], weights, 3, fields)


def bond(x: Tensor, _: Arrays) -> Tensor:
    """The mean of s s' over the bonds of the 16 x 16 torus."""
    spins = 2 * x - 1
    return (spins * neighbour_sum(spins, (16, 16), periodic=True)).sum(-1) / 1024


def sum_of_spins(x: Tensor, _: Arrays) -> Tensor:
    return (2 * x - 1).sum(-1)


def equal_bonds(side: int, x: Tensor, _: Arrays) -> Tensor:
    """The share of the bonds of a torus whose ends are equal."""
    near = neighbour_sum(x, (side, side), periodic=True)
    return (x * near).sum((-2, -1)) / (4 * side * side)


BOND, EQUAL = "E s s' of a bond", "P(equal ends of a bond)"
LATTICES = {
    "ising16_crit": Definition(build_ising, {BOND: bond}),
    "ising16_cold": Definition(build_ising, {BOND: bond}),
    "ising16_field": Definition(build_ising, {"E sum s": sum_of_spins}),
    "potts3_8": Definition(partial(build_potts, 8, 3), {EQUAL: partial(equal_bonds, 8)}),
    "potts4_8": Definition(partial(build_potts, 8, 4), {EQUAL: partial(equal_bonds, 8)}),
    "potts3_16": Definition(partial(build_potts, 16, 3), {EQUAL: partial(equal_bonds, 16)}),
    "crf_8x8_q3": Definition(build_random_field),
}
