"""Compiled kernels against their eager samplers on targets that cannot be enumerated.

Independent chains from uniform states make some steps with each. Means over chains of the energy,
of the states, of the acceptance and of the changed sites are compared by z-tests.
"""

from math import inf

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.domain import Binary
from latticework.models.ising import Lattice, erdos_renyi
from latticework.models.potts import LatticePotts, random_potts
from latticework.models.quadratic import LogQuadratic
from latticework.models.rbm import RBM
from latticework.samplers.base import Sampler
from latticework.samplers.compiled import blocks, gwg_several, langevin_pair, langevin_potts
from latticework.samplers.compiled import one_site_potts as one_site
from latticework.samplers.compiled import random_walk as walk
from latticework.samplers.compiled.choose import twin_of
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.gwg import GWG
from latticework.samplers.hamming import HammingBall
from latticework.samplers.langevin import DMALA, DULA
from latticework.samplers.locally_balanced import LocallyBalanced
from latticework.samplers.path_auxiliary import PAFS
from latticework.samplers.random_walk import RandomWalk
from latticework.samplers.swendsen_wang import SwendsenWang

CHAINS = 2000


def _rbm() -> RBM:
    model, rng = RBM(30, 40), Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.normal_(std=0.3, generator=rng)
    return model


def _spins() -> LogQuadratic:
    weight = torch.randn(40, 40, generator=Generator().manual_seed(0)) / 25
    return LogQuadratic(weight + weight.T, 0.1, domain=Binary(40, -1, 1))


MODELS = {
    "lattice": Lattice((12, 12), 0.18, 0.05),
    "graph": erdos_renyi(60, 4, 0.15),
    "spins": _spins(),
    "rbm": _rbm(),
    "potts": LatticePotts((8, 8), 4, 0.8, [0.2, 0.0, -0.1, 0.1]),
    "dense potts": random_potts(25, 4, 1.5),
}
PRECONDITIONER = [0.5 + i / 40 for i in range(40)]
CASES = [
    *[(Gibbs(3), name, 60) for name in MODELS],
    *[(Gibbs(), name, 60) for name in ("potts", "dense potts")],
    *[(HammingBall(6, 2, "systematic"), name, 40) for name in ("lattice", "graph", "spins", "rbm")],
    *[(DULA(0.4), name, 15) for name in ("graph", "potts", "dense potts")],
    *[(DMALA(0.3), name, 15) for name in ("graph", "potts", "dense potts")],
    *[(DMALA(inf), name, 15) for name in ("spins", "potts")],
    (DMALA(0.6, PRECONDITIONER, 2), "spins", 15),
    *[(SwendsenWang(), name, 4) for name in ("lattice", "potts")],
    *[(RandomWalk(3), name, 60) for name in ("lattice", "graph", "spins", "rbm")],
    *[(GWG(3), name, 40) for name in ("lattice", "graph", "spins")],
    *[(PAFS(5), name, 20) for name in ("lattice", "graph", "spins")],
    *[(kind, name, 60) for kind in (GWG(), LocallyBalanced()) for name in ("potts", "dense potts")],
]


def values(model: EnergyModel, sampler: Sampler, start: Tensor, steps: int, seed: int) -> Tensor:
    """What is compared, of each chain: `[chains, 4]`."""
    state, rng = sampler.at(start, model), Generator().manual_seed(seed)
    accept, changed = torch.zeros(len(start)), torch.zeros(len(start))
    for _ in range(steps):
        before = state.x.clone()
        state, info = sampler.step(state, model, rng)
        accept += info.accept_prob
        changed += (state.x != before).flatten(1).sum(1)
    x = state.x.flatten(1)
    return torch.stack((model.log_prob(state.x), x[:, ::3].sum(1), accept, changed), 1)


def largest_z(sampler: Sampler, name: str, steps: int) -> float:
    model = MODELS[name]
    rng = Generator().manual_seed(0)
    with torch.no_grad():
        eager, compiled = (
            values(model, kind, model.domain.uniform(CHAINS, rng), steps, seed).double()
            for kind, seed in ((sampler, 1), (twin_of(sampler, model), 2))
        )
    error = ((eager.var(0) + compiled.var(0)) / CHAINS).sqrt().clamp(min=1e-3)
    return float(((eager.mean(0) - compiled.mean(0)) / error).abs().max())


@pytest.mark.parametrize(("sampler", "name", "steps"), CASES, ids=str)
def test_the_law_is_that_of_the_eager_sampler(sampler, name, steps):
    assert largest_z(sampler, name, steps) < 4.5


@pytest.mark.parametrize(
    ("sampler", "name", "steps"),
    [(DMALA(0.3), "graph", 15), (DMALA(0.3), "dense potts", 15), (DULA(0.4), "graph", 15)],
    ids=str,
)
def test_matrix_products_have_the_same_law(sampler, name, steps, monkeypatch):
    """The code path of large models."""
    monkeypatch.setattr(langevin_pair, "SMALL", 0)
    monkeypatch.setattr(langevin_potts, "SMALL", 0)
    assert largest_z(sampler, name, steps) < 4.5


def _without_last_set(sites: int, radius: int) -> blocks.Ball:
    return blocks.Ball(*(field[:-1].copy() for field in WHOLE_BALL(sites, radius)))


def _dearer(self: object, form: object) -> np.ndarray:
    return PRICES(self, form) * np.float32(1.1)


def _colder(self: object, form: object) -> np.ndarray:
    return TABLE(self, form) ** 1.1


def _with_less_coupling(self: object, form: object) -> one_site.PottsTables:
    tables = TABLES(self, form)
    return tables._replace(near=tables.near**0.9)


def _louder(form: object, x: Tensor) -> Tensor:
    return MEMORY(form, x) * 1.2


def _without_last_neighbour(form: object) -> object:
    form = BY_VALUE(form)
    form.neighbours[-1] = len(form.degree)
    return form


WHOLE_BALL = blocks.ball
PAIRS, SEVERAL = langevin_pair.LangevinPairTwin, gwg_several.SeveralLatticeTwin
ONE_SITE = one_site.OneSiteLatticeTwin
PRICES, BY_VALUE = PAIRS.prices, langevin_potts.by_value
MEMORY = walk.memory_of
TABLE, TABLES = SEVERAL.table, ONE_SITE.tables
BROKEN = {
    "a pattern left out": (blocks, "ball", _without_last_set, Gibbs(3), "lattice", 60),
    "a pattern left out, RBM": (blocks, "ball", _without_last_set, Gibbs(3), "rbm", 60),
    "a step size 10 % off": (PAIRS, "prices", _dearer, DMALA(0.3), "graph", 15),
    "a neighbour left out": (
        langevin_potts, "by_value", _without_last_neighbour, DMALA(0.3), "potts", 15
    ),
    "gradients 20 % off": (walk, "memory_of", _louder, RandomWalk(3), "graph", 60),
    "weights to the power 1.1": (SEVERAL, "table", _colder, GWG(3), "lattice", 40),
    "weights of paths to the power 1.1": (SEVERAL, "table", _colder, PAFS(5), "lattice", 20),
    "a coupling 10 % off": (ONE_SITE, "tables", _with_less_coupling, GWG(), "potts", 60),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_kernel_is_caught(name, monkeypatch):
    owner, part, wrong, *case = BROKEN[name]
    monkeypatch.setattr(owner, part, wrong)
    assert largest_z(*case) > 6
