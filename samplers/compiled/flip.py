"""GWG-1 and the locally balanced sampler: their twins, chosen by the form of the model."""

from latticework.models.forms import Form, LatticeForm, PairForm
from latticework.samplers.compiled.flip_lattice import MOST_CLASSES, LatticeFlipTwin
from latticework.samplers.compiled.flip_pairs import PairFlipTwin
from latticework.samplers.compiled.twin import Twin
from latticework.samplers.gwg import GWG
from latticework.samplers.locally_balanced import LocallyBalanced


def twin(sampler: GWG | LocallyBalanced, form: Form) -> Twin | str:
    if sampler.flips > 1:
        return "for more than one flip a step"
    if isinstance(form, LatticeForm) and 2 * form.odds.size <= MOST_CLASSES:
        return LatticeFlipTwin(sampler)
    if isinstance(form, LatticeForm):
        return f"on lattices with more than {MOST_CLASSES} classes of sites (biases that differ)"
    if isinstance(form, PairForm):
        return PairFlipTwin(sampler)
    return f"on models with a {type(form).__name__}"
