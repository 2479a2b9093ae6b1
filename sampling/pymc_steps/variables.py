"""Sites of the discrete variables of a PyMC model, from their distributions."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.traversal import ancestors

from latticework.sampling.pymc_steps.sites import CategorySites, NumberSites, Sites

Bounds = tuple[Any, Any]

# The smallest and the largest value, from the parameters of a distribution.
BOUNDS: dict[str, Callable[..., Bounds]] = {
    "BernoulliRV": lambda p: (0, 1),
    "BetaBinomialRV": lambda n, alpha, beta: (0, n),
    "BinomialRV": lambda n, p: (0, n),
    "DiscreteUniformRV": lambda lower, upper: (lower, upper),
    "HyperGeometricRV": lambda good, bad, n: (pt.maximum(0, n - bad), pt.minimum(n, good)),
}
# The smallest value of distributions without a largest one.
LOWEST = {
    "DiscreteWeibullRV": 0,
    "GeometricRV": 1,
    "NegativeBinomialRV": 0,
    "NegBinomialRV": 0,
    "PoissonRV": 0,
}
SUPPORTED = "Bernoulli, Categorical, DiscreteUniform, Binomial, BetaBinomial and HyperGeometric"


def find_sites(variable: Any, model: Any) -> Sites:
    """Return the sites of a value variable. Raises ValueError for one that DMALA cannot move."""
    rv = model.values_to_rvs[variable]
    name, operation = rv.name, rv.owner.op
    kind = type(operation).__name__
    if rv.type.dtype.startswith("float"):
        raise ValueError(
            f"DMALA moves discrete variables, and {name} is continuous ({name_kind(kind)}): give "
            f"it to another step, such as pm.NUTS([{name}])"
        )
    if model.rvs_to_transforms.get(rv) is not None:
        raise ValueError(f"{name} is transformed, which DMALA does not support")
    shape = variable.type.shape
    if None in shape:
        shape = model.eval_rv_shapes()[name]
    if kind == "CategoricalRV":
        (probabilities,) = operation.dist_params(rv.owner)
        return CategorySites(shape, int(evaluate([probabilities.shape[-1]])[0]))
    bounds = find_bounds(rv, name)
    if not set(model.basic_RVs).isdisjoint(ancestors(bounds)):
        raise ValueError(
            f"the bounds of {name} depend on other variables of the model: DMALA needs fixed ones; "
            f"give it to another step, such as pm.Metropolis([{name}])"
        )
    low, high = (np.broadcast_to(b, shape).ravel().astype(np.int64) for b in evaluate(bounds))
    return NumberSites(shape, low, high)


def find_bounds(rv: Any, name: str) -> list[Any]:
    """Return the smallest and the largest value of a variable, as graphs."""
    operation = rv.owner.op
    kind = type(operation).__name__
    if kind in BOUNDS:
        bounds = BOUNDS[kind](*operation.dist_params(rv.owner))
        return [pt.as_tensor(bound) for bound in bounds]
    if kind == "TruncatedRV":
        return find_truncated_bounds(rv, name)
    advice = f"give it to another step, such as pm.Metropolis([{name}])"
    if kind in LOWEST:
        example = f'pm.Truncated("{name}", pm.{name_kind(kind)}.dist(...), upper=100)'
        raise ValueError(
            f"{name} has no largest value ({name_kind(kind)}): DMALA needs bounded variables; use "
            f"{example} with a bound that is never reached, or {advice}"
        )
    raise ValueError(
        f"DMALA does not know the values of {name} ({name_kind(kind)}): it moves {SUPPORTED} "
        f"variables, and truncated ones; {advice}"
    )


def find_truncated_bounds(rv: Any, name: str) -> list[Any]:
    """Return the bounds of pm.Truncated, within those of its distribution."""
    base = rv.owner.op.base_rv_op
    kind = type(base).__name__
    *parameters, lower, upper = rv.owner.inputs
    low, high = evaluate([lower, upper]) if is_fixed([lower, upper]) else (lower, upper)
    if kind in BOUNDS:
        count = base.ndims_params and len(base.ndims_params)
        limits = BOUNDS[kind](*parameters[-count:])
    elif kind in LOWEST:
        limits = (LOWEST[kind], np.inf)
    else:
        limits = (-np.inf, np.inf)
    bounds = [pt.ceil(pt.maximum(low, limits[0])), pt.floor(pt.minimum(high, limits[1]))]
    if is_fixed(bounds) and not np.isfinite(np.sum(evaluate(bounds))):
        raise ValueError(
            f"{name} has no smallest or no largest value: DMALA needs bounded variables; give "
            "pm.Truncated both lower= and upper="
        )
    return bounds


def is_fixed(graphs: Sequence[Any]) -> bool:
    """Whether the graphs draw no random variable."""
    return not any(hasattr(v.owner.op, "rng_param") for v in ancestors(graphs) if v.owner)


def evaluate(graphs: Sequence[Any]) -> list[np.ndarray]:
    """Return the values of graphs without inputs, without compiling them."""
    return list(pytensor.function([], list(graphs), mode="FAST_COMPILE")())


def name_kind(kind: str) -> str:
    """The name of a distribution in PyMC."""
    return {"NegBinomialRV": "NegativeBinomial"}.get(kind, kind.removesuffix("RV"))
