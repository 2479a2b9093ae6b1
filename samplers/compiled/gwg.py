"""Gibbs with gradients: the twins of `samplers.gwg`, chosen by the form of the model."""

from latticework.models.forms import Form, LatticeForm, PairForm
from latticework.samplers.compiled.gwg_several import LatticeTwin, PairTwin
from latticework.samplers.compiled.twin import Twin
from latticework.samplers.gwg import GWG


def twin(sampler: GWG, form: Form) -> Twin | str:
    if sampler.flips > 1 and isinstance(form, LatticeForm):
        return LatticeTwin(sampler)
    if sampler.flips > 1 and isinstance(form, PairForm):
        return PairTwin(sampler)
    return f"with flips={sampler.flips} on models with a {type(form).__name__}"
