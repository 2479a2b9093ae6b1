"""THE TABLE of samplers and targets, and the tests of counts.

A new sampler joins by one line in TABLE, and by a function in workshop/laws that
enumerates its step if it is of a new kind.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

import numpy as np
from scipy.stats import chi2, norm
from targets import BINARY, EVERY, FINITE, FORBIDDING, INTEGER, TARGETS, TIES

import latticework as lw
from latticework.sampling.checking.check_case import tails
from latticework.sampling.checking.law import Law
from latticework.sampling.targets import why_unsupported
from workshop.laws.blocks import (
    block_gibbs,
    gibbs,
    gibbs_sweep,
    hamming_ball,
    metropolis_sweep,
    swendsen_wang,
)
from workshop.laws.steps import (
    GRID,
    acs,
    auxiliary,
    dlmc,
    dmala,
    dula,
    edlp,
    gwg,
    locally_balanced,
    pafs,
    pafs_with_replacement,
    random_walk,
    stochastic_dula,
)

# Tests of counts.


def largest_z(count: np.ndarray, trials: int, probability: np.ndarray) -> float:
    """The largest deviation of binomial counts, as the z-score of its exact tail probability."""
    return float(norm.isf(tails(count, trials, probability).min()))


def p_value(count: np.ndarray, law: np.ndarray) -> float:
    """Chi-square test; states expected fewer than 5 times are pooled."""
    expected = law * count.sum()
    few = expected < 5
    if few.any():
        count = np.append(count[~few], count[few].sum())
        expected = np.append(expected[~few], max(expected[few].sum(), 1e-9))
    return float(chi2.sf(((count - expected) ** 2 / expected).sum(), len(count) - 1))


# The table.


@dataclass(frozen=True)
class Row:
    """A sampler and the targets it must serve.

    `law` enumerates its step (None where it moves in a continuum). `leaves` says which law it
    keeps: the target, the target once the rest of its state has settled (`stationary_start` is
    False), its own, or none. `shared`: chains share random numbers, so the replicas of one call
    are not independent.
    """

    sampler: lw.Sampler
    targets: tuple[str, ...]
    law: Callable[..., Law] | None
    leaves: Literal["target", "settled", "own", "none"] = "target"
    reversible: bool = True
    shared: bool = False

    @property
    def ties(self) -> tuple[str, ...]:
        """The targets with ties that the sampler supports, of the size that its settings need."""
        sizes = {
            len(getattr(self.sampler, name, None) or []) for name in ("preconditioner", "matrix")
        }
        fitting = [name for name in TIES if sizes <= {0, TARGETS[name].domain.dim}]
        if self.law in (auxiliary, edlp):  # integrals over as many axes as x has numbers
            fitting = [name for name in fitting if TARGETS[name].z.shape[1] in GRID]
        return tuple(
            name for name in fitting if not why_unsupported(self.sampler, TARGETS[name].model)
        )


FEW_SITES = ("binary", "spins", "rbm", "categorical", "mixed")
MATRIX = [[0.3, -0.4, 0.0], [-0.4, 0.0, 0.5], [0.0, 0.5, -0.2]]
SCALES = [0.5, 3.0, 1.5]  # of a preconditioner
OWN: Any = {"leaves": "own", "reversible": False}
ORDERED: Any = {"reversible": False}
RANDOM: Any = {"shared": True}
SHUFFLED: Any = {"shared": True, "reversible": False}
TABLE = [
    Row(lw.DMALA(0.5), (*EVERY, "bayes_net"), dmala),
    Row(lw.DMALA(0.5), ("network", "tables", "given", "mixed", "ragged"), dmala),
    Row(lw.DMALA(4.0), EVERY, dmala),
    Row(lw.DMALA(inf), EVERY, dmala),
    Row(lw.DMALA(0.4, preconditioner=SCALES[:2]), ("categorical", "ordinal", "naturals"), dmala),
    Row(lw.DMALA(0.4, SCALES, 2), ("binary", "spins", "quadratic", "lattice_potts"), dmala),
    Row(lw.DMALA(0.4, [*SCALES, 1.0], 2), ("rbm",), dmala),
    Row(lw.DULA(0.4), (*EVERY, "mixed"), dula, **OWN),
    Row(lw.DMALA(0.5), ("graph_potts",), dmala),
    Row(lw.DULA(0.4), ("graph_potts",), dula, **OWN),
    Row(lw.DULA(0.4, preconditioner=SCALES), ("binary", "quadratic"), dula, **OWN),
    Row(lw.DULA(0.4, [*SCALES, 1.0]), ("rbm",), dula, **OWN),
    Row(lw.StochasticDULA(1.5, batch=2), ("regression",), stochastic_dula, shared=True, **OWN),
    Row(lw.GWG(), (*EVERY, "bayes_net", "mixed", "subset"), gwg),
    Row(lw.GWG(), ("graph_potts",), gwg),
    Row(lw.GWG(2), (*BINARY, "given"), gwg),
    Row(lw.GWG(4), ("binary", "dense_ising", "rbm"), gwg),
    Row(lw.LocallyBalanced(), (*EVERY, "bayes_net"), locally_balanced),
    Row(lw.LocallyBalanced(), ("network", "tables", "given", "mixed"), locally_balanced),
    Row(lw.LocallyBalanced(), ("subset", "with_ones", "graph_potts"), locally_balanced),
    Row(lw.RandomWalk(2), ("binary", "spins", "categorical", "ordinal", "lattice"), random_walk),
    Row(lw.RandomWalk(2), ("rbm", "ring", "dense_ising", "quadratic", "graph"), random_walk),
    Row(lw.RandomWalk(2), ("mixed", "subset", "with_ones"), random_walk),
    Row(lw.PAFS(1), INTEGER, pafs),
    Row(lw.PAFS(2), (*FEW_SITES, "naturals", "ordinal", "lattice"), pafs),
    Row(lw.PAFS(2), ("ring", "dense_ising", "quadratic", "graph"), pafs),
    Row(lw.PAFSWithReplacement(1), ("integers",), pafs_with_replacement),
    Row(
        lw.PAFSWithReplacement(2),
        (*FEW_SITES, "ordinal", "dense_ising", "graph"),
        pafs_with_replacement,
    ),
    Row(lw.DLMC(0.5), (*FEW_SITES, *INTEGER, "ordinal", "lattice", "dense_potts"), dlmc),
    Row(lw.DLMC(0.5), ("graph", "quadratic"), dlmc),
    Row(lw.DLMC(0.5, "barker"), (*FEW_SITES, "ordinal", "naturals", "sheet"), dlmc),
    Row(lw.DLMC(0.02), ("graph", "ferromagnet"), dlmc),
    Row(lw.DLMC(0.5, "barker"), ("graph",), dlmc),
    Row(lw.DLMCf(0.5), ("graph",), dlmc),
    Row(lw.DLMCf(0.2, "barker"), ("graph", "ferromagnet", "quadratic"), dlmc),
    Row(lw.DLMCf(0.5), (*FEW_SITES, "ordinal", "integers", "ring"), dlmc),
    Row(lw.DLMCf(0.5, "barker"), (*FEW_SITES, "ordinal", "naturals"), dlmc),
    Row(lw.ACS(2.0, 0.2, 4), (*FEW_SITES, "ordinal", "naturals", "lattice"), acs, **ORDERED),
    Row(lw.ACS(2.0, 0.2, 4), ("ring", "sheet", "graph"), acs, **ORDERED),
    Row(lw.ACS(2.0, 0.2, 4), ("quadratic", "dense_potts", "graph_potts"), acs, **ORDERED),
    Row(lw.ACS(2.0, 0.2, 3, balances=[0.9, 0.6, 0.8]), ("binary", "integers"), acs, **ORDERED),
    Row(lw.AVG(0.8), ("binary", "spins", "ordinal", "integers"), auxiliary),
    Row(lw.AVG(2.0), ("categorical", "naturals", "rbm", "quadratic", "lattice_potts"), None),
    Row(lw.AVG(2.0), ("mixed", "graph"), None),
    Row(lw.PAVG(0.8, matrix=MATRIX), ("binary", "spins"), auxiliary),
    Row(lw.PAVG(1.0, 20), ("binary", "ordinal", "naturals", "rbm", "quadratic"), None),
    Row(lw.PAVG(1.0, 20), ("categorical", "mixed", "graph"), None),
    Row(lw.DHAMS(0.7, 0.8, 0.3), ("binary", "spins", "ordinal", "integers"), auxiliary),
    Row(lw.DHAMS(1.0, 0.5), ("categorical", "mixed", "naturals", "rbm", "graph"), None),
    Row(lw.EDLP(0.6, 0.7), ("binary", "spins", "ordinal", "integers"), edlp),
    Row(lw.EDLP(0.6, 0.7, 0.5), ("binary", "categorical", "mixed", "naturals", "graph"), None),
    Row(
        lw.Tempered(lw.DMALA(0.5), schedule=[0.4, 1.0]),
        ("binary", "mixed", "categorical", "ordinal", "graph"),
        None,
        "settled",
    ),
    Row(lw.Tempered(lw.DMALA(0.5), schedule=[0.2, 0.7, 1.0]), ("naturals",), None, "settled"),
    Row(lw.Tempered(lw.DMALA(0.5), schedule=[0, 0.4, 1]), ("binary", "ordinal"), None, "settled"),
    Row(lw.Tempered(lw.GWG(), schedule=[0.3, 1]), ("spins", "mixed", "naturals"), None, "settled"),
    Row(lw.Tempered(lw.GWG(), schedule=[0, 0.4, 1]), ("subset", "with_ones"), None, "settled"),
    Row(
        lw.Tempered(lw.GibbsSweep(), 4),
        ("lattice", "sheet", "graph", "graph_potts"),
        None,
        "settled",
    ),
    Row(lw.SwendsenWang(), ("lattice", "sheet", "ferromagnet", "lattice_potts"), swendsen_wang),
    Row(lw.Gibbs(), (*FINITE, "bayes_net"), gibbs, **ORDERED),
    Row(lw.Gibbs(), ("network", "tables", "given", "mixed", "ragged"), gibbs, **ORDERED),
    Row(lw.Gibbs(2, "random"), ("either",), gibbs, **RANDOM),
    Row(lw.Gibbs(2, "scopes"), ("network", "ragged", "either"), gibbs, **RANDOM),
    Row(lw.Gibbs(2), (*FINITE, "mixed"), gibbs, **ORDERED),
    Row(lw.Gibbs(2, "random"), ("ragged", "subset", "with_ones"), gibbs, **RANDOM),
    Row(lw.Gibbs(3, "shuffled"), ("subset",), gibbs, **SHUFFLED),
    Row(lw.Gibbs(1, "random"), ("binary", "rbm", "sheet"), gibbs, **RANDOM),
    Row(lw.Gibbs(1, "random"), ("ordinal", "lattice_potts"), gibbs, **RANDOM),
    Row(lw.Gibbs(2, "random"), ("rbm", "ring", "dense_potts"), gibbs, **RANDOM),
    Row(lw.Gibbs(1, "shuffled"), ("binary", "rbm", "ordinal"), gibbs, **SHUFFLED),
    Row(lw.Gibbs(2, "shuffled"), ("rbm", "lattice"), gibbs, **SHUFFLED),
    Row(lw.GibbsSweep(), ("lattice", "ring", "sheet"), gibbs_sweep, **ORDERED),
    Row(lw.GibbsSweep(), ("graph", "network", "ferromagnet"), gibbs_sweep, **ORDERED),
    Row(
        lw.GibbsSweep(),
        ("lattice_potts", "tables", "ragged", "graph_potts"),
        gibbs_sweep,
        **ORDERED,
    ),
    Row(lw.MetropolisSweep(), ("lattice", "ring", "sheet"), metropolis_sweep, **ORDERED),
    Row(lw.MetropolisSweep(), ("graph", "lattice_potts", "ragged"), metropolis_sweep, **ORDERED),
    Row(lw.MetropolisSweep(), ("ferromagnet", "graph_potts"), metropolis_sweep, **ORDERED),
    Row(lw.Gibbs(), ("graph_potts",), gibbs, **ORDERED),
    Row(lw.Gibbs(2), ("graph_potts",), gibbs, **ORDERED),
    Row(lw.Gibbs(), FORBIDDING, gibbs, **ORDERED),
    Row(lw.Gibbs(2), FORBIDDING, gibbs, **ORDERED),
    Row(lw.Gibbs(2, "random"), FORBIDDING, gibbs, **RANDOM),
    Row(lw.Gibbs(1, "shuffled"), FORBIDDING, gibbs, **SHUFFLED),
    Row(lw.GibbsSweep(), FORBIDDING, gibbs_sweep, **ORDERED),
    Row(lw.MetropolisSweep(), FORBIDDING, metropolis_sweep, **ORDERED),
    Row(lw.RandomWalk(2), FORBIDDING, random_walk),
    Row(lw.LocallyBalanced(), FORBIDDING, locally_balanced),
    Row(lw.Tempered(lw.GibbsSweep(), 4), FORBIDDING, None, "settled"),
    Row(lw.HammingBall(3, 1, "systematic"), BINARY, hamming_ball, **ORDERED),
    Row(lw.HammingBall(3, 2, "random"), ("binary", "ring"), hamming_ball, **RANDOM),
    Row(lw.HammingBall(2, 1, "shuffled"), ("lattice",), hamming_ball, **SHUFFLED),
    Row(lw.BlockGibbs(), ("rbm",), block_gibbs),
    Row(lw.BlockGibbs(2), ("rbm",), block_gibbs),
    Row(lw.RMALA(0.3, 0.5), BINARY, None, "settled"),
    Row(lw.RMALA(0.3, 0.5, "relaxation"), BINARY, None, "none"),
    Row(lw.DiscreteSVGD(0.1, 0.5), BINARY, None, "none"),
]
