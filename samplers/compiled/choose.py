"""The twin of a sampler on a model, if there is one.

`TWINS` lists the samplers that have compiled kernels. A module named there has a function
`twin(sampler, form)` that returns the twin or a sentence that says why there is none. Modules are
imported when they are needed, because numba takes a second to import.
"""

from importlib import import_module

from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.samplers.compiled.twin import NoTwinError, Twin, form_of

TWINS = {
    "latticework.samplers.acs.ACS": "acs",
    "latticework.samplers.block_gibbs.BlockGibbs": "block_gibbs",
    "latticework.samplers.dlmc.DLMC": "dlmc",
    "latticework.samplers.dlmc.DLMCf": "dlmc",
    "latticework.samplers.gibbs.Gibbs": "blocks",
    "latticework.samplers.gwg.GWG": "gwg",
    "latticework.samplers.hamming.HammingBall": "blocks",
    "latticework.samplers.langevin.DMALA": "langevin",
    "latticework.samplers.langevin.DULA": "langevin",
    "latticework.samplers.locally_balanced.LocallyBalanced": "gwg",
    "latticework.samplers.path_auxiliary.PAFS": "path_auxiliary",
    "latticework.samplers.random_walk.RandomWalk": "random_walk",
    "latticework.samplers.rates.RatesFPCD": "rates",
    "latticework.samplers.rates.RatesHerding": "rates",
    "latticework.samplers.rates.SamplePenalization": "rates",
    "latticework.samplers.sweep.GibbsSweep": "sweep",
    "latticework.samplers.swendsen_wang.SwendsenWang": "swendsen_wang",
}


def twin_of(sampler: Sampler, model: EnergyModel) -> Twin:
    """The compiled kernel of `sampler` on `model`.

    Raises NoTwinError, which says why, if there is none. A subclass of a sampler has none: it may
    define another law.
    """
    kind = type(sampler)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name not in TWINS:
        raise NoTwinError(f"{kind.__name__} has no compiled kernel")
    form = form_of(model)
    module = import_module(f"latticework.samplers.compiled.{TWINS[name]}")
    twin = module.twin(sampler, form)
    if isinstance(twin, str):
        raise NoTwinError(f"{kind.__name__} has no compiled kernel {twin}")
    return twin
