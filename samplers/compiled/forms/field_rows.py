"""The rows of chains that the functions of `fields` read, made from states and forms."""

from typing import Any

import torch
from torch import Tensor

from latticework.models.forms import Form, GraphForm, PairForm, PottsPairForm, RBMForm
from latticework.models.matmul import affine
from latticework.samplers.compiled.forms.fields import renew_fields
from latticework.samplers.compiled.forms.pairwise import PairwiseForm, PottsLists
from latticework.samplers.compiled.jit import kernel, over_chains, products_on_one_thread


def numbers_of(x: Tensor) -> Tensor:
    """The numbers of one-hot values `[chains, sites]`; no columns if x is binary."""
    return x.argmax(-1).int() if x.ndim == 3 else x.new_empty(len(x), 0)


def fields_of(form: PairwiseForm, x: Tensor) -> Tensor:
    """The fields of all chains at `x`, in double precision where sums may have very many terms."""
    if isinstance(form, PairForm):
        return dense_fields_of(form, x)
    chains, values = len(x), x if x.ndim == 2 else numbers_of(x)
    double = isinstance(form, GraphForm) or (isinstance(form, PottsLists) and form.hubs)
    fields = x.new_empty(chains, x[0].numel(), dtype=torch.float64 if double else x.dtype)
    over_chains(renew_all, chains, 9.0 * x.numel(), form, values.numpy(), fields.numpy())
    return fields


def dense_fields_of(form: Form, x: Tensor) -> Tensor:
    """The fields of samplers that visit one site at a time: none where neighbours are listed."""
    with products_on_one_thread():
        if isinstance(form, PairForm):
            return affine(torch.from_numpy(form.offset), x, torch.from_numpy(form.matrix))
        if isinstance(form, RBMForm):
            weight, bias = torch.from_numpy(form.weight), torch.from_numpy(form.hidden_bias)
            inputs = affine(bias, x, weight)
            return torch.cat((inputs, inputs.sigmoid(), (-inputs).sigmoid()), 1)
        if isinstance(form, PottsPairForm):
            bias, coupling = torch.from_numpy(form.bias), torch.from_numpy(form.coupling)
            return affine(bias.flatten(), x.flatten(1), coupling)
    return x.new_empty(len(x), 0)


def rows_of(state: Any) -> Any:
    """The state as arrays that share its memory, for which the values of binary sites are x."""
    x = state.x.view(len(state.x), -1).numpy()
    values = x if state.x.ndim == 2 else state.values.numpy()
    return type(state)(x, values, *(part.numpy() for part in state[2:]))


@kernel
def renew_all(first, last, form, values, fields):
    for c in range(first, last):
        renew_fields(form, values[c], fields[c])
