"""The log-probability of a PyMC model and its changes at the values of discrete variables.

PyMC's discrete variables are integers, and `switch(x, a, b)` and `p[z]` have no derivative there.
So the graph is followed from each variable for as long as an entry depends on one site at most,
through elementwise operations and indexing. There the graph is evaluated at the other values of the
sites too, which gives exact changes. What comes after, such as sums and products of matrices, is
differentiated as PyTensor does. Thus

    number      slope between the values below and above; a binary site's is f(1) - f(0)
    category    f(k) - f(z) for each value k

Where likelihoods of different sites are separate terms, as in a mixture, the changes are those of
the log-probability itself. The gradient only steers proposals: the log-probability comes from
PyMC's own graph.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.basic import ScalarFromTensor
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Prod, Sum
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from latticework.sampling.pymc_steps.sites import NumberSites, Sites

Axes = tuple[Any, ...]  # whole numbers, or "x" for axes along which no site varies

ONE_INDEX = "AdvancedSubtensor1"  # p[i], an operation of its own before PyTensor 3
# An infinite change, to or from an impossible value, is this large: finite in sums and products.
INFINITE_CHANGE = 1e6


@dataclass
class Leaf:
    """A variable, or entries of one, whose sites the graph uses one by one.

    `weight` `[K, *shape]` is zero, and the gradient with respect to it is the result. `levels`
    `[values, *shape]` are the values at which the graph is evaluated.
    """

    variable: Any
    weight: Any
    levels: Any
    sites: Sites
    region: dict[Any, Axes] = field(init=False)  # sitewise results, and which axis of the leaf
    #                                              each of their axes is
    tables: dict[Any, Any] = field(init=False)  # sitewise results at all levels

    def __post_init__(self) -> None:
        self.region = {self.variable: tuple(range(self.variable.ndim))}
        self.tables = {self.variable: self.levels}


def compile_logp_and_gradient(
    model: Any, variables: Sequence[Any], sites: Sequence[Sites], compile_kwargs: dict[str, Any]
) -> tuple[Any, list[str]]:
    """Return a function of the values, and the names of the other variables that it reads.

    The function takes the values of `variables`, then those of the other variables. It returns the
    log-probability up to terms that no variable changes, and a gradient for each variable:
    `[1, *shape]` for numbers, `[values, *shape]` for categories.
    """
    terms = [t for t in model.logp(sum=False) if not set(variables).isdisjoint(ancestors([t]))]
    if not terms:
        raise ValueError("no term of the model depends on the variables")
    read = set(ancestors(terms))
    other_variables = [v for v in model.value_vars if v in read and v not in variables]
    leaves = [make_leaf(v, s) for v, s in zip(variables, sites, strict=True)]
    weights = [leaf.weight for leaf in leaves]
    relaxed = add_changes(terms, leaves)
    gradients = pytensor.grad(
        add_terms(relaxed), weights, disconnected_inputs="ignore", null_gradients="return",
        return_disconnected="zero",
    )  # fmt: skip
    outputs = [add_terms(terms)]
    for gradient, weight in zip(gradients, weights, strict=True):
        known = isinstance(gradient.type, pt.TensorType)  # else no derivative is defined
        outputs.append(gradient if known else pt.zeros_like(weight))
    function = model.compile_fn(
        outputs, inputs=[*variables, *other_variables], point_fn=False, on_unused_input="ignore",
        **compile_kwargs,
    )  # fmt: skip
    return function, [v.name for v in other_variables]


def add_terms(terms: Iterable[Any]) -> Any:
    """Return the sum of all entries, in double precision."""
    return pt.add(pt.constant(0.0, dtype="float64"), *[t.astype("float64").sum() for t in terms])


def make_leaf(variable: Any, sites: Sites) -> Leaf:
    """The leaf of a whole variable."""
    if isinstance(sites, NumberSites):
        low, high = (
            bound.reshape(sites.shape).astype(variable.dtype) for bound in (sites.low, sites.high)
        )
        levels = pt.stack([pt.minimum(variable + 1, high), pt.maximum(variable - 1, low)])
        levels = levels.astype(variable.dtype)
        weight = pt.zeros((1, *variable.shape), dtype="float64")
    else:
        values = np.arange(sites.values.shape[1]).reshape(-1, *[1] * variable.ndim)
        levels = pt.zeros_like(variable)[None] + values.astype(variable.dtype)
        weight = pt.zeros(levels.shape, dtype="float64")
    return Leaf(variable, weight, levels, sites)


def add_changes(terms: Sequence[Any], leaves: list[Leaf]) -> list[Any]:
    """Return `terms` plus the weights of all leaves times the changes of the graph."""
    reached = {leaf.variable for leaf in leaves}
    nodes = []
    for node in toposort(terms):
        if not reached.isdisjoint(node.inputs):
            nodes.append(node)
            reached.update(node.outputs)
    leaves = [*leaves, *follow_sites(nodes, leaves)]
    made = {leaf.variable for leaf in leaves}
    changes: dict[tuple[Any, Any], Any] = {}
    replaced: dict[Any, Any] = {}

    def add_changes_to(variable: Any, client: Any) -> Any:
        """`variable` as the node with the result `client` reads it."""
        result = replaced.get(variable, variable)
        if not isinstance(variable.type, pt.TensorType):
            return result
        for leaf in leaves:
            if variable in leaf.region and client not in leaf.region:
                key = (leaf.variable, variable)
                if key not in changes:
                    changes[key] = change_of(variable, leaf)
                result = result + changes[key]
        return result

    for node in nodes:
        if node.outputs[0] in made:
            continue
        inputs = [add_changes_to(variable, node.outputs[0]) for variable in node.inputs]
        if any(new is not old for new, old in zip(inputs, node.inputs, strict=True)):
            for old, new in zip(node.outputs, apply_again(node, inputs), strict=True):
                replaced[old] = new
    return [add_changes_to(term, None) for term in terms]


def apply_again(node: Any, inputs: list[Any]) -> list[Any]:
    """Return the results of a node for other inputs; its own where it needs whole numbers.

    The gradient then lacks what comes after the node, which makes proposals worse, not wrong.
    """
    if isinstance(node.op, Sum | Prod):  # their type of number was chosen for the old inputs
        return [type(node.op)(axis=node.op.axis)(inputs[0])]
    try:
        return list(node.op.make_node(*inputs).outputs)
    except (IndexError, NotImplementedError, TypeError, ValueError):
        return list(node.outputs)


def change_of(variable: Any, leaf: Leaf) -> Any:
    """Return the sum of the weights times the changes of a sitewise result."""
    differences = table_of(variable, leaf).astype("float64") - variable.astype("float64")
    limit = INFINITE_CHANGE if leaf.sites.jumps else np.inf
    differences = pt.clip(differences, -limit, limit)
    differences = pt.switch(pt.isnan(differences) | pt.isinf(differences), 0.0, differences)
    if isinstance(leaf.sites, NumberSites):
        differences = (differences[0] - differences[1])[None]
    weight = leaf.weight.dimshuffle(*shift_axes(leaf.region[variable]))
    return (weight * disconnected_grad(differences)).sum(0)


def table_of(variable: Any, leaf: Leaf) -> Any:
    """Return a sitewise result at all levels of its leaf, `[values, *shape]`.

    What depends on the leaf in another way, such as a sum over sites, keeps its value.
    """
    if variable not in leaf.tables:
        node = variable.owner
        inside = [table_of(i, leaf) if i in leaf.region else i for i in node.inputs]
        if isinstance(node.op, Elemwise):
            inputs = [i if i.ndim > variable.ndim else i[None] for i in inside]
            leaf.tables[variable] = node.op.make_node(*inputs).outputs[0]
        elif isinstance(node.op, DimShuffle):
            leaf.tables[variable] = inside[0].dimshuffle(*shift_axes(node.op.new_order))
        elif isinstance(node.op, ScalarFromTensor):
            leaf.tables[variable] = inside[0]
        else:
            leaf.tables[variable] = index_at_levels(node, inside)
    return leaf.tables[variable]


def index_at_levels(node: Any, inputs: list[Any]) -> Any:
    """Return p[i, j, ...], where some of the indices have a first axis of levels."""
    if isinstance(node.op, Subtensor):
        return inputs[0][inputs[1]]
    most = max(index.ndim for index in node.inputs[1:])
    indices = []
    for old, new in zip(node.inputs[1:], inputs[1:], strict=True):
        if new is not old:  # its own axes are the last ones
            new = pt.expand_dims(new, tuple(range(1, 1 + most - old.ndim)))
        indices.append(new)
    return inputs[0][tuple(indices)]


def shift_axes(order: Sequence[Any]) -> list[Any]:
    """The order of axes behind a new first one."""
    return [0, *[axis if axis == "x" else axis + 1 for axis in order]]


def follow_sites(nodes: Sequence[Any], leaves: Sequence[Leaf]) -> list[Leaf]:
    """Fill the regions of the leaves, and return new leaves: entries of others, such as x[1:]."""
    gathered: list[Leaf] = []
    for node in nodes:
        result = node.outputs[0]
        source = {leaf.variable: leaf for leaf in [*leaves, *gathered]}.get(node.inputs[0])
        if source and isinstance(node.op, Subtensor | Reshape):
            weight = vectorize_graph(result, {source.variable: source.weight})
            levels = vectorize_graph(result, {source.variable: source.levels})
            gathered.append(Leaf(result, weight, levels, source.sites))
            continue
        for leaf in [*leaves, *gathered]:
            axes = follow_node(node, leaf.region)
            if axes is not None:
                leaf.region[result] = axes
    return gathered


def follow_node(node: Any, region: dict[Any, Axes]) -> Axes | None:
    """Return the axes of a result whose entries depend on a site each; None if it is not so."""
    inside = [variable for variable in node.inputs if variable in region]
    if len({region[variable] for variable in inside}) != 1:
        return None
    axes = region[inside[0]]
    if isinstance(node.op, Elemwise):
        return axes
    if isinstance(node.op, DimShuffle):
        order = node.op.new_order
        if any(axes[n] != "x" for n in set(range(len(axes))).difference(order)):
            return None
        return tuple("x" if n == "x" else axes[n] for n in order)
    if isinstance(node.op, ScalarFromTensor):
        return ()
    if node.inputs[0] in region:
        return None
    if isinstance(node.op, Subtensor) and len(node.op.idx_list) == 1 and len(node.inputs) == 2:
        sliced = isinstance(node.op.idx_list[0], slice)  # else it is p[k] of a single site k
        return None if sliced else ("x",) * node.outputs[0].ndim
    if indexes_first(node):
        indices = node.inputs[1:]
        before = max(index.ndim for index in indices) - inside[0].ndim
        after = node.inputs[0].ndim - len(indices)
        return ("x",) * before + axes + ("x",) * after
    return None


def indexes_first(node: Any) -> bool:
    """Whether the node is p[i, j, ...] with whole numbers for the first axes, and no slices."""
    if not (isinstance(node.op, AdvancedSubtensor) or type(node.op).__name__ == ONE_INDEX):
        return False
    places = getattr(node.op, "idx_list", ())  # from PyTensor 3 on, slices are there
    if not all(isinstance(place, int) for place in places):
        return False
    return all(
        isinstance(index.type, pt.TensorType) and index.dtype.startswith(("int", "uint"))
        for index in node.inputs[1:]
    )
