"""Forms: what a compiled kernel needs to know of a model, as plain arrays.

A form is a NamedTuple of NumPy arrays that share memory with the model's tensors where they can.
`EnergyModel.form()` returns one, or None. Models of one kind share a form, so a kernel is written
for a form and serves all of them. States x are in the model's own coordinates.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

FORBIDDEN = -1e30  # stands for a coupling or bias of -inf, as -inf times 0 is NaN
IMPOSSIBLE = FORBIDDEN / 2  # sums below it hold a FORBIDDEN


class LatticeForm(NamedTuple):
    """Binary sites on a regular lattice, all edges with one coupling.

    The log-odds of site i given the rest are `odds[kind[i], n]`, n the number of its neighbours at
    1. Sites of one kind have the same bias and number of neighbours.
    """

    shifts: NDArray[np.int64]  # [axes, 2], distance to the next site and to the other end
    joins: NDArray[np.uint8]  # [axes, sites], which of these are neighbours (`lattice.joins`)
    neighbours: NDArray[np.int32]  # [sites, most neighbours], the first `degree` of each row
    degree: NDArray[np.int32]  # [sites]
    colours: NDArray[np.int32]  # [sites], classes of independent sites
    kind: NDArray[np.int32]  # [sites]
    odds: NDArray[np.float64]  # [kinds, most neighbours + 1]
    high: NDArray[np.float64]  # the same as probabilities of 1
    # With s = 2x - 1, log pi is the sum of s_i (coupling * (sum of neighbours' s) + bias_i).
    coupling: float
    bias: NDArray[np.float32]  # [sites]


class PairForm(NamedTuple):
    """Binary sites with a dense quadratic log-probability; the gradient is offset + matrix x.

    A flip of site i by c = y_i - x_i changes log pi by gradient_i c + diagonal_i c^2.
    """

    matrix: NDArray[np.float32]  # [sites, sites], symmetric
    offset: NDArray[np.float32]  # [sites]
    diagonal: NDArray[np.float32]  # [sites], half of the matrix's diagonal
    low: float
    high: float


class GraphForm(NamedTuple):
    """Binary sites on any graph; the log-odds of site i given the rest are linear in x.

    They are offset[i] + the sum of slope[k] x[neighbours[k]] over starts[i] <= k < starts[i + 1].
    """

    starts: NDArray[np.int64]  # [sites + 1]
    neighbours: NDArray[np.int32]  # [2 edges], those of site 0, of site 1, ...
    slope: NDArray[np.float32]  # [2 edges]
    offset: NDArray[np.float64]  # [sites]; a sum over a hub's edges, of which little may be left
    order: NDArray[np.int32]  # [sites], class after class of independent sites
    classes: NDArray[np.int64]  # [classes + 1], where each begins in `order`
    edges: NDArray[np.int32]  # [edges, 2]
    price: NDArray[np.float64]  # [edges], what unequal ends cost
    bias: NDArray[np.float32]  # [sites], b in b's


class PottsLatticeForm(NamedTuple):
    """One-hot sites on a lattice. The field of site i is bias[i] + coupling * (neighbours at v).

    Values whose field is below `IMPOSSIBLE` have probability 0, here and in `PottsGraphForm`.
    """

    neighbours: NDArray[np.int32]  # as in LatticeForm
    degree: NDArray[np.int32]
    coupling: float
    bias: NDArray[np.float32]  # [sites, values]
    colours: NDArray[np.int64]  # [sites], classes of independent sites


class PottsGraphForm(NamedTuple):
    """One-hot sites on any graph; the field of site i is that of its `bias` and its neighbours.

    A neighbour neighbours[k] at value v adds coupling[k] to it there, for the k of `GraphForm`.
    """

    starts: NDArray[np.int64]  # as in GraphForm
    neighbours: NDArray[np.int32]
    coupling: NDArray[np.float32]  # [2 edges]
    bias: NDArray[np.float32]  # [sites, values]
    order: NDArray[np.int32]
    classes: NDArray[np.int64]


class PottsPairForm(NamedTuple):
    """One-hot sites with a dense coupling. The field is bias + coupling x, x flattened."""

    coupling: NDArray[np.float32]  # [sites * values, sites * values], symmetric
    bias: NDArray[np.float32]  # [sites, values]


class RBMForm(NamedTuple):
    """A restricted Boltzmann machine: log p(x) = b'x + sum_j softplus(W'x + c)_j."""

    weight: NDArray[np.float32]  # W, [visible, hidden]
    visible_bias: NDArray[np.float32]
    hidden_bias: NDArray[np.float32]


PottsForm = PottsLatticeForm | PottsPairForm
Form = LatticeForm | PairForm | GraphForm | PottsForm | PottsGraphForm | RBMForm


def change(form: Form, x: Tensor, y: Tensor, site: int) -> float:
    """Log pi(y) - log pi(x) by the form, for states `[*domain.shape]` that differ at one site."""
    here, there = x.double().numpy(), y.double().numpy()
    step = there[site] - here[site]
    match form:
        case LatticeForm():
            near = form.neighbours[site, : form.degree[site]]
            return float(form.odds[form.kind[site], int(here[near].sum())] * step)
        case PairForm():
            slope = form.offset[site] + form.matrix[site] @ here
            return float(slope * step + form.diagonal[site] * step**2)
        case GraphForm():
            row = slice(*form.starts[site : site + 2])
            odds = form.offset[site] + form.slope[row] @ here[form.neighbours[row]]
            return float(odds * step)
        case PottsLatticeForm():
            near = form.neighbours[site, : form.degree[site]]
            return float((form.bias[site] + form.coupling * here[near].sum(0)) @ step)
        case PottsGraphForm():
            row = slice(*form.starts[site : site + 2])
            pairs = form.coupling[row] @ here[form.neighbours[row]]
            return float((form.bias[site] + pairs) @ step)
        case PottsPairForm():
            rows = form.coupling.reshape(*here.shape, -1)[site]
            return float((form.bias[site] + rows @ here.ravel()) @ step)
        case RBMForm():
            inputs = np.stack((here, there)) @ form.weight + form.hidden_bias
            hidden = np.logaddexp(0, inputs).sum(1)
            return float(hidden[1] - hidden[0] + form.visible_bias[site] * step)


def temper_form(form: Form, b: float) -> Form:
    """The form of the target pi^b. Raises ValueError for an RBM's, which no form describes."""
    if isinstance(form, RBMForm):
        raise ValueError("no RBM has the law of a power of an RBM")
    if isinstance(form, LatticeForm):
        odds = form.odds * b
        with np.errstate(over="ignore"):
            high = 1 / (1 + np.exp(-odds))
        coupling, bias = form.coupling * b, form.bias * np.float32(b)
        return form._replace(odds=odds, high=high, coupling=coupling, bias=bias)
    scaled = ("matrix", "offset", "diagonal", "coupling", "bias", "slope", "price")
    fields = form._asdict()
    return form._replace(**{name: fields[name] * b for name in scaled if name in fields})


def forbids(form: Form) -> bool:
    """Whether a Potts form gives some states probability 0."""
    if not isinstance(form, PottsLatticeForm | PottsGraphForm):
        return False
    return bool(np.less(form.coupling, IMPOSSIBLE).any() or (form.bias < IMPOSSIBLE).any())


def array(tensor: Tensor) -> NDArray[Any]:
    """The tensor's memory as a contiguous array; a copy if it is not contiguous."""
    return tensor.detach().contiguous().numpy()


def neighbour_lists(neighbours: Tensor, exists: Tensor) -> tuple[NDArray, NDArray]:
    """The table of `lattice.neighbour_table` with existing neighbours first, and their number."""
    order = (1 - exists).argsort(stable=True, dim=1)
    lists = neighbours.gather(1, order).int()
    return array(lists), array(exists.sum(1).int())
