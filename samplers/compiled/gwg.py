"""GWG and LB-1: the twins of `samplers.gwg` and `samplers.locally_balanced`, chosen by the form."""

from latticework.models.forms import (
    Form,
    LatticeForm,
    PairForm,
    PottsLatticeForm,
    PottsPairForm,
    RBMForm,
)
from latticework.samplers.compiled import flip_lattice, flip_pairs, gwg_several, one_site_potts
from latticework.samplers.compiled.rbm_balanced import RBMBalancedTwin
from latticework.samplers.compiled.rbm_gwg import RBMGWGTwin
from latticework.samplers.compiled.twin import Twin
from latticework.samplers.gwg import GWG
from latticework.samplers.locally_balanced import LocallyBalanced

MOST_CLASSES = 64  # of sites on a lattice; a step looks at all of them
ONE_FLIP: dict[type, type[Twin]] = {
    LatticeForm: flip_lattice.LatticeFlipTwin,
    PairForm: flip_pairs.PairFlipTwin,
    PottsLatticeForm: one_site_potts.OneSiteLatticeTwin,
    PottsPairForm: one_site_potts.OneSitePairTwin,
}
SEVERAL: dict[type, type[Twin]] = {
    LatticeForm: gwg_several.SeveralLatticeTwin,
    PairForm: gwg_several.SeveralPairTwin,
}


def twin(sampler: GWG | LocallyBalanced, form: Form) -> Twin | str:
    if isinstance(form, RBMForm):
        return (RBMGWGTwin if isinstance(sampler, GWG) else RBMBalancedTwin)(sampler)
    one = sampler.flips == 1
    if one and isinstance(form, LatticeForm) and 2 * form.odds.size > MOST_CLASSES:
        return f"on lattices with more than {MOST_CLASSES} classes of sites (biases that differ)"
    kinds = ONE_FLIP if one else SEVERAL
    if type(form) not in kinds:
        return f"with flips={sampler.flips} on models with a {type(form).__name__}"
    return kinds[type(form)](sampler)
