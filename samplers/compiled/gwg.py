"""GWG and LB-1: the twins of `samplers.gwg` and `samplers.locally_balanced`, chosen by the form."""

from latticework.models.forms import Form, LatticeForm, PairForm, PottsLatticeForm, PottsPairForm
from latticework.samplers.compiled import gwg_several, one_site_potts
from latticework.samplers.compiled.twin import Twin
from latticework.samplers.gwg import GWG
from latticework.samplers.locally_balanced import LocallyBalanced


def twin(sampler: GWG | LocallyBalanced, form: Form) -> Twin | str:
    if sampler.flips == 1 and isinstance(form, PottsLatticeForm):
        return one_site_potts.OneSiteLatticeTwin(sampler)
    if sampler.flips == 1 and isinstance(form, PottsPairForm):
        return one_site_potts.OneSitePairTwin(sampler)
    if sampler.flips > 1 and isinstance(form, LatticeForm):
        return gwg_several.SeveralLatticeTwin(sampler)
    if sampler.flips > 1 and isinstance(form, PairForm):
        return gwg_several.SeveralPairTwin(sampler)
    return f"with flips={sampler.flips} on models with a {type(form).__name__}"
