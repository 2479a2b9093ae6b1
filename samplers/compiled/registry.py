"""The twin of a sampler on a model, if there is one."""

from importlib import import_module
from itertools import product

from latticework.models.base import EnergyModel
from latticework.models.forms import (
    GraphForm,
    LatticeForm,
    PairForm,
    PottsGraphForm,
    PottsLatticeForm,
    PottsPairForm,
    RBMForm,
)
from latticework.samplers.acs import ACS
from latticework.samplers.base import Sampler
from latticework.samplers.compiled.compiled_sampler import NoCompiledKernelError, form_of
from latticework.samplers.compiled.folders import switched_off
from latticework.samplers.compiled.tempered import tempered_twin
from latticework.samplers.dlmc import DLMC, DLMCf
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.gwg import GWG
from latticework.samplers.hamming import HammingBall
from latticework.samplers.langevin import DMALA, DULA
from latticework.samplers.locally_balanced import LocallyBalanced
from latticework.samplers.path_auxiliary import PAFS
from latticework.samplers.random_walk import RandomWalk
from latticework.samplers.rates import RatesFPCD, RatesHerding, SamplePenalization
from latticework.samplers.sums import MultiStepSampler
from latticework.samplers.sweep import GibbsSweep, MetropolisSweep
from latticework.samplers.swendsen_wang import SwendsenWang
from latticework.samplers.tempered import Tempered

BINARY = (GraphForm, LatticeForm, PairForm, RBMForm)
POTTS = (PottsLatticeForm, PottsPairForm)
FIELDS = (GraphForm, PairForm, PottsGraphForm, *POTTS)
SWEPT = (PottsLatticeForm, PottsGraphForm)
CLUSTERS = (GraphForm, LatticeForm, PottsLatticeForm)
# Samplers, forms, and the module and class of their twin. If several are listed, a later one serves
# where those before it refuse. A module is imported when it is needed: all of them together
# take half a second.
ROWS: list[tuple[tuple[type, ...], tuple[type, ...], str]] = [
    ((ACS,), (LatticeForm,), "bits.all_sites_lattice.ACSLatticeTwin"),
    ((DLMC, DLMCf), (LatticeForm,), "bits.all_sites_lattice.DLMCLatticeTwin"),
    ((DMALA, DULA), (LatticeForm,), "bits.all_sites_lattice.LangevinLatticeTwin"),
    ((ACS, DMALA, DULA), (LatticeForm, *FIELDS), "all_sites.twin.AllSitesTwin"),
    ((DLMC, DLMCf), (GraphForm, LatticeForm, PairForm), "all_sites.twin.AllSitesTwin"),
    ((DMALA,), (RBMForm,), "rbm.langevin.RBMDMALATwin"),
    ((DULA,), (RBMForm,), "rbm.langevin.RBMDULATwin"),
    ((Gibbs,), (*BINARY, *POTTS, PottsGraphForm), "resampling.gibbs.GibbsTwin"),
    ((GibbsSweep, MetropolisSweep), (GraphForm,), "sweeps.sweep_graph.GraphSweepTwin"),
    ((GibbsSweep, MetropolisSweep), (LatticeForm,), "bits.sweep_lattice.LatticeSweepTwin"),
    ((GibbsSweep, MetropolisSweep), SWEPT, "sweeps.sweep_potts.PottsSweepTwin"),
    ((GWG, LocallyBalanced), (LatticeForm,), "moves.flip_lattice.LatticeFlipTwin"),
    ((GWG, LocallyBalanced), (LatticeForm, *FIELDS), "moves.one_move.OneMoveTwin"),
    ((GWG,), (RBMForm,), "rbm.gwg.RBMGWGTwin"),
    ((HammingBall,), BINARY, "resampling.gibbs_blocks.BlockTwin"),
    ((LocallyBalanced,), (RBMForm,), "rbm.balanced.RBMBalancedTwin"),
    ((PAFS,), (GraphForm, LatticeForm, PairForm), "moves.several_moves.PathTwin"),
    ((RandomWalk,), BINARY, "moves.random_walk.RandomWalkTwin"),
    ((RatesFPCD, SamplePenalization), (RBMForm,), "rbm.rates.RatesTwin"),
    ((RatesHerding,), (RBMForm,), "rbm.rates.HerdingTwin"),
    ((SwendsenWang,), CLUSTERS, "sweeps.swendsen_wang.SwendsenWangTwin"),
]
TWINS: dict[tuple[type, type], list[str]] = {}
for _kinds, _forms, _twin in ROWS:
    for _cell in product(_kinds, _forms):
        TWINS.setdefault(_cell, []).append(_twin)
# Twins where a setting asks for several sites a step (Gibbs-X, GWG-X).
SEVERAL: dict[tuple[type, type], list[str]] = {
    **{
        (Gibbs, form): ["resampling.gibbs_blocks.BlockTwin"]
        for form in (*BINARY, *POTTS, PottsGraphForm)
    },
    (GWG, GraphForm): ["moves.several_moves.SeveralMovesTwin"],
    (GWG, LatticeForm): ["moves.several_moves.SeveralMovesTwin"],
    (GWG, PairForm): ["moves.several_moves.SeveralMovesTwin"],
    (GWG, RBMForm): ["rbm.gwg.RBMGWGTwin"],
}


def find_compiled_kernel(sampler: Sampler, model: EnergyModel) -> MultiStepSampler:
    """The compiled kernel of `sampler` on `model`.

    Raises NoCompiledKernelError, which says why, if there is none. A subclass of a sampler has
    none: it may define another law.
    """
    kind = type(sampler)
    if switched_off():
        raise NoCompiledKernelError("NUMBA_DISABLE_JIT=1 switches compiled kernels off")
    if isinstance(sampler, Tempered):
        return tempered_twin(sampler, find_compiled_kernel(sampler.inner, model), model)
    if not any(kind is known for known, _ in TWINS):
        raise NoCompiledKernelError(f"{kind.__name__} has no compiled kernel")
    form = form_of(model)
    several = isinstance(sampler, Gibbs) and sampler.sites > 1
    several |= isinstance(sampler, GWG) and sampler.flips > 1
    paths = (SEVERAL if several else TWINS).get((kind, type(form)))
    if paths is None:
        raise NoCompiledKernelError(f"{sampler} has no compiled kernel for a {type(form).__name__}")
    for path in paths:
        module, _, name = path.rpartition(".")
        twin = getattr(import_module(f"latticework.samplers.compiled.{module}"), name)(sampler)
        why = twin.refuses(form)
        if not why:
            return twin
    raise NoCompiledKernelError(f"{kind.__name__} has no compiled kernel for {why}")
