"""DULA and DMALA: the twins of `samplers.langevin`, chosen by the form of the model."""

from latticework.models.forms import Form, LatticeForm, PairForm
from latticework.samplers.compiled.langevin_lattice import LatticeTwin
from latticework.samplers.compiled.langevin_pair import LangevinPairTwin
from latticework.samplers.compiled.langevin_potts import LangevinPottsTwin
from latticework.samplers.compiled.potts import POTTS
from latticework.samplers.compiled.twin import Twin
from latticework.samplers.langevin import DMALA, DULA


def twin(sampler: DULA | DMALA, form: Form) -> Twin | str:
    if isinstance(form, LatticeForm):
        return LatticeTwin(sampler)
    if isinstance(form, PairForm):
        return LangevinPairTwin(sampler)
    if isinstance(form, POTTS):
        return LangevinPottsTwin(sampler)
    return f"on models with a {type(form).__name__}"
