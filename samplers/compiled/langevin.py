"""DULA and DMALA: the twins of `samplers.langevin`, chosen by the form of the model."""

from latticework.models.forms import Form, LatticeForm, PairForm, RBMForm
from latticework.samplers.compiled.langevin_lattice import LangevinLatticeTwin
from latticework.samplers.compiled.langevin_pair import LangevinPairTwin
from latticework.samplers.compiled.langevin_potts import LangevinPottsTwin
from latticework.samplers.compiled.rbm_langevin import RBMDMALATwin, RBMDULATwin
from latticework.samplers.compiled.twin import Twin
from latticework.samplers.langevin import DMALA, DULA


def twin(sampler: DULA | DMALA, form: Form) -> Twin:
    if isinstance(form, LatticeForm):
        return LangevinLatticeTwin(sampler)
    if isinstance(form, PairForm):
        return LangevinPairTwin(sampler)
    if isinstance(form, RBMForm):
        return (RBMDMALATwin if isinstance(sampler, DMALA) else RBMDULATwin)(sampler)
    return LangevinPottsTwin(sampler)
