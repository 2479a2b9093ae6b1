"""GWG and the locally balanced sampler: their twins, chosen by the form of the model."""

from latticework.models.forms import Form, RBMForm
from latticework.samplers.compiled.rbm_balanced import RBMBalancedTwin
from latticework.samplers.compiled.rbm_gwg import RBMGWGTwin
from latticework.samplers.compiled.twin import Twin
from latticework.samplers.gwg import GWG
from latticework.samplers.locally_balanced import LocallyBalanced


def twin(sampler: GWG | LocallyBalanced, form: Form) -> Twin | str:
    if isinstance(form, RBMForm):
        return (RBMGWGTwin if isinstance(sampler, GWG) else RBMBalancedTwin)(sampler)
    return f"on models with a {type(form).__name__}"
