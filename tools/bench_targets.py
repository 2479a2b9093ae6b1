"""Targets of `tools.bench` that a user would write as functions, for PyTorch and for JAX alike."""

from collections.abc import Callable
from typing import Any

import numpy as np

KINDS = ("readme", "field", "mlp", "categories")


def function_of(kind: str, sizes: tuple[int, ...], lib: Any) -> Callable[[Any], Any]:
    """The log-probability of states `[chains, ...]`; `lib` is torch or jax.numpy.

    readme-SITES is README's example; field-SITES has a random field and random couplings;
    mlp-PIXELSxHIDDEN is a network with a hidden layer; categories-SITESxVALUES has random biases
    and random couplings of one-hot sites.
    """
    rng = np.random.default_rng(0)

    def normal(scale: float, *shape: int) -> Any:
        return lib.asarray(rng.normal(0, scale, shape).astype(np.float32))

    if kind == "readme":
        (sites,) = sizes
        ramp = lib.asarray(np.linspace(-2, 2, sites, dtype=np.float32))
        return lambda x: x @ ramp - (x.sum(-1) - sites // 4) ** 2 / 4
    if kind == "mlp":
        pixels, hidden = sizes
        first, bias, last = normal(0.05, pixels, hidden), normal(1, hidden), normal(1, hidden)
        return lambda x: lib.tanh(x @ first + bias) @ last
    entries = sizes[0] * (sizes[1] if kind == "categories" else 1)
    field, coupling = normal(1, entries), normal(0.5 / entries**0.5, entries, entries)

    def pairs(x: Any) -> Any:
        flat = x.reshape(len(x), entries)
        return flat @ field + ((flat @ coupling) * flat).sum(-1)

    return pairs
