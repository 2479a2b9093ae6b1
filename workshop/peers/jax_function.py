"""DMALA, DULA, GWG-1 and Gibbs-1 in JAX on a user's function, with its gradient by `jax.grad`.

States are `[chains, sites]` in {0, 1}, or one-hot `[chains, sites, values]`. A site has one move,
the flip, or a move to each of its values. The carry keeps what the next step can reuse.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, nn, random

from workshop.peers.jax_scan import Kernel, choose, flip_all, metropolis


def kernel(
    sampler: str, log_prob: Callable[[Array], Array], one_hot: bool, step_size: float
) -> Kernel:
    """The kernel of `sampler`: gibbs-1, gwg-1, dula or dmala."""

    def valued(x: Array) -> tuple[Array, Array]:
        """Log-probability `[chains]` and the gain of each move at first order."""
        values, back = jax.vjp(log_prob, x)
        (grad,) = back(jnp.ones_like(values))
        if one_hot:
            return values, grad - (grad * x).sum(-1, keepdims=True)
        return values, grad * (1 - 2 * x)

    def total(terms: Array) -> Array:
        return terms.reshape(len(terms), -1).sum(1)

    # All sites move at once, by Eq. (2) and (3) of Zhang et al. (2022).
    def moves(x: Array) -> tuple[Array, Array]:
        """Log-probability and the logits of Eq. (2)."""
        values, gains = valued(x)
        distances = 2 * (1 - x) if one_hot else 1.0
        return values, gains / 2 - distances / (2 * step_size)

    def move_all(key: Array, x: Array, logits: Array) -> Array:
        if not one_hot:
            return flip_all(key, x, logits)
        below = jnp.cumsum(nn.softmax(logits), -1)
        level = random.uniform(key, (*x.shape[:2], 1)) * below[..., -1:]
        return nn.one_hot((below <= level).sum(-1), x.shape[-1], dtype=x.dtype)

    def unadjusted(x: Array) -> Any:
        return x, moves(x)[1]

    def dula(carry: Any, key: Array) -> Any:
        return unadjusted(move_all(key, *carry))

    def at(x: Array) -> Any:
        values, logits = moves(x)
        normaliser = nn.logsumexp(logits, -1) if one_hot else nn.softplus(logits)
        return x, logits, values - total(normaliser)

    def dmala(carry: Any, key: Array) -> Any:
        draw, accept = random.split(key)
        x, logits, balance = carry
        y = move_all(draw, x, logits)
        proposed = at(y)
        back, there = (x, y) if one_hot else (jnp.abs(y - x),) * 2
        log_ratio = proposed[2] - balance + total(proposed[1] * back - logits * there)
        return metropolis(accept, log_ratio, proposed, carry)

    # One site moves.
    def moved(x: Array, index: Array) -> Array:
        chain = jnp.arange(len(x))
        if not one_hot:
            return x.at[chain, index].set(1 - x[chain, index])
        site, value = index // x.shape[2], index % x.shape[2]
        return x.at[chain, site].set(nn.one_hot(value, x.shape[2], dtype=x.dtype))

    def priced(x: Array) -> Any:
        values, gains = valued(x)
        logits = jnp.where(x == 1, -jnp.inf, gains / 2) if one_hot else gains / 2
        logits = logits.reshape(len(x), -1)
        return x, values, logits, nn.logsumexp(logits, 1)

    def gwg(carry: Any, key: Array) -> Any:
        draw, accept = random.split(key)
        x, values, logits, normaliser = carry
        index = choose(draw, jnp.exp(logits - normaliser[:, None]))
        proposed = priced(moved(x, index))
        chain, reverse = jnp.arange(len(x)), index
        if one_hot:
            site = index // x.shape[2]
            reverse = site * x.shape[2] + x[chain, site].argmax(1)
        log_ratio = proposed[1] - values + proposed[2][chain, reverse] - proposed[3]
        return metropolis(accept, log_ratio - logits[chain, index] + normaliser, proposed, carry)

    def gibbs(carry: Any, key: Array) -> Any:
        x, site = carry
        values = jnp.eye(x.shape[2], dtype=x.dtype) if one_hot else jnp.array([0.0, 1.0])
        each = jnp.stack([x.at[:, site].set(value) for value in values])
        known = log_prob(each.reshape(-1, *x.shape[1:])).reshape(len(each), -1)
        chosen = random.categorical(key, known, 0)
        return each[chosen, jnp.arange(len(x))], (site + 1) % x.shape[1]

    return {
        "gibbs-1": Kernel(lambda x: (x, jnp.zeros((), jnp.int32)), gibbs),
        "gwg-1": Kernel(priced, gwg),
        "dula": Kernel(unadjusted, dula),
        "dmala": Kernel(at, dmala),
    }[sampler]
