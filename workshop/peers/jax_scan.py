"""Kernels as a JAX user would write them: `lax.scan` under `jit`, vectorised over chains.

Each kernel is a pair of functions, `start(x)` and `step(carry, key)`, whose carry keeps what the
next step can reuse. `Scan` runs a kernel. States are float32, `[chains, sites]` in {0, 1}. Targets
are those of `models.ising.Lattice` (periodic, two-dimensional, sides of at least 3) and
`models.rbm.RBM`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax, nn, random
from numpy.typing import NDArray

LENGTHS = (4096, 256, 16, 1)  # lengths of scans: one program is compiled for each that is used


class Kernel(NamedTuple):
    """`start(x)` makes the carry, whose first item is x; `step(carry, key)` advances it."""

    start: Callable[[Array], Any]
    step: Callable[[Any, Array], Any]


class Scan:
    """Chains of a kernel, advanced by scans of a few fixed lengths."""

    def __init__(self, kernel: Kernel, x: NDArray, seed: int) -> None:
        self.carry = kernel.start(jnp.asarray(x, jnp.float32)), random.key(seed)

        def one(carry: Any, _: None) -> tuple[Any, None]:
            state, key = carry
            key, now = random.split(key)
            return (kernel.step(state, now), key), None

        def scan(length: int) -> Callable[[Any], Any]:
            return jax.jit(lambda carry: lax.scan(one, carry, length=length)[0], donate_argnums=0)

        self.scans = {length: scan(length) for length in LENGTHS}

    def burst(self, steps: int) -> None:
        """Advance all chains `steps` times, and wait for the result."""
        for length in LENGTHS:
            count, steps = divmod(steps, length)
            for _ in range(count):
                self.carry = self.scans[length](self.carry)
        jax.block_until_ready(self.carry)

    def states(self) -> NDArray[np.float32]:
        return np.asarray(self.carry[0][0])


# What the kernels share. A gain d is the change in log-probability that a flip is priced at.


def metropolis(key: Array, log_ratio: Array, proposed: Any, current: Any) -> Any:
    """For each chain, `proposed` with probability min(1, exp(log_ratio)), else `current`."""
    accepted = random.uniform(key, log_ratio.shape) < jnp.exp(log_ratio)

    def pick(new: Array, old: Array) -> Array:
        return jnp.where(accepted.reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return jax.tree.map(pick, proposed, current)


def flip(x: Array, site: Array) -> Array:
    """States `x` with one `site` of each chain flipped."""
    chain = jnp.arange(len(x))
    return x.at[chain, site].set(1 - x[chain, site])


def flip_all(key: Array, x: Array, logits: Array) -> Array:
    """States `x` with every site flipped with probability sigmoid(logits)."""
    return jnp.abs(x - (random.uniform(key, x.shape) < nn.sigmoid(logits)))


def flip_logits(gains: Array, step_size: float) -> Array:
    """Logits of Eq. (2) of Zhang et al. (2022)."""
    return gains / 2 - 1 / (2 * step_size)


def choose(key: Array, weights: Array) -> Array:
    """A site for each chain, drawn in proportion to `weights`, `[chains, sites] -> [chains]`.

    First a block of consecutive sites, then a site in it. Two short sums are several times faster
    than `random.categorical`, which draws a number for every site.
    """
    chains, sites = weights.shape
    width = math.isqrt(sites)
    blocks = jnp.pad(weights, ((0, 0), (0, -sites % width))).reshape(chains, -1, width)
    outer, inner = random.split(key)
    block = invert(outer, blocks.sum(2))
    inside = invert(inner, blocks[jnp.arange(chains), block])
    return jnp.minimum(block * width + inside, sites - 1)


def invert(key: Array, weights: Array) -> Array:
    """A draw in proportion to `weights`, by inversion of their cumulative sum."""
    total = jnp.cumsum(weights, 1)
    level = random.uniform(key, (len(weights), 1)) * total[:, -1:]
    return jnp.minimum((total <= level).sum(1), weights.shape[1] - 1)


# The periodic lattice, log pi(x) = a s'As + b's with s = 2 x - 1.


def lattice(sampler: str, sides: tuple[int, int], a: float, b: float, step_size: float) -> Kernel:
    """The kernel of `sampler`: gibbs-1, gwg-1, dula, dmala or sweep."""
    rows, columns = sides
    sites = rows * columns

    def log_odds(near: Array) -> Array:
        """Log-odds of sites with `near` neighbours at 1."""
        return 2 * b - 16 * a + 8 * a * near

    def odds(x: Array) -> Array:
        """Log-odds of every site given the others, `[chains, sites]`."""
        wide = jnp.pad(x.reshape(-1, rows, columns), ((0, 0), (1, 1), (1, 1)), "wrap")
        vertical = wide[:, :-2, 1:-1] + wide[:, 2:, 1:-1]
        return log_odds(vertical + wide[:, 1:-1, :-2] + wide[:, 1:-1, 2:]).reshape(x.shape)

    def gains(x: Array) -> Array:
        return odds(x) * (1 - 2 * x)

    def gibbs(carry: Any, key: Array) -> Any:
        x, site = carry
        i, j = site // columns, site % columns
        above, below = (i - 1) % rows * columns + j, (i + 1) % rows * columns + j
        left, right = i * columns + (j - 1) % columns, i * columns + (j + 1) % columns
        near = x[:, jnp.stack([above, below, left, right])].sum(1)
        new = random.uniform(key, near.shape) < nn.sigmoid(log_odds(near))
        return x.at[:, site].set(new.astype(x.dtype)), (site + 1) % sites

    def sweep(carry: Any, key: Array) -> Any:
        uniform = random.uniform(key, carry[0].shape)

        def resample(x: Array, mask: Array) -> tuple[Array, None]:
            new = uniform < nn.sigmoid(odds(x))
            return jnp.where(mask, new.astype(x.dtype), x), None

        return (lax.scan(resample, carry[0], masks(rows, columns))[0],)

    # Gains are exact, so that acceptance needs the sums of weights alone.
    def priced(x: Array) -> Any:
        weights = jnp.exp(gains(x) / 2)
        return x, weights, weights.sum(1)

    def gwg(carry: Any, key: Array) -> Any:
        draw, accept = random.split(key)
        x, weights, total = carry
        proposed = priced(flip(x, choose(draw, weights)))
        return metropolis(accept, jnp.log(total / proposed[2]), proposed, carry)

    # On a quadratic target, Eq. (3) is the ratio of the two normalisers.
    def at(x: Array) -> Any:
        logits = flip_logits(gains(x), step_size)
        return x, logits, nn.softplus(logits).sum(1)

    def dmala(carry: Any, key: Array) -> Any:
        draw, accept = random.split(key)
        proposed = at(flip_all(draw, *carry[:2]))
        return metropolis(accept, carry[2] - proposed[2], proposed, carry)

    def dula(carry: Any, key: Array) -> Any:
        (x,) = carry
        return (flip_all(key, x, flip_logits(gains(x), step_size)),)

    return {
        "gibbs-1": Kernel(lambda x: (x, jnp.zeros((), jnp.int32)), gibbs),
        "sweep": Kernel(lambda x: (x,), sweep),
        "gwg-1": Kernel(priced, gwg),
        "dula": Kernel(lambda x: (x,), dula),
        "dmala": Kernel(at, dmala),
    }[sampler]


def masks(rows: int, columns: int) -> Array:
    """The two colour classes of a periodic lattice, or three if a side is odd: `[classes, sites]`.

    The last site of an odd ring has a colour of its own.
    """
    along = [
        np.arange(size) % 2 + (np.arange(size) == size - 1) * (size % 2) * 2
        for size in (rows, columns)
    ]
    classes = 3 if rows % 2 or columns % 2 else 2
    colours = (along[0][:, None] + along[1]).reshape(-1) % classes
    return jnp.asarray(colours == np.arange(classes)[:, None])


# The RBM, log pi(x) = b'x + sum_j softplus(W'x + c)_j.


def rbm(sampler: str, weight: NDArray, b: NDArray, c: NDArray, step_size: float) -> Kernel:
    """The kernel of `sampler`: gibbs-1, gwg-1, dula, dmala or block-gibbs. `weight` is W."""
    w, visible, hidden = jnp.asarray(weight), jnp.asarray(b), jnp.asarray(c)
    sites = len(visible)

    def inputs(x: Array) -> Array:
        return x @ w + hidden

    def gradient(z: Array) -> Array:
        return visible + nn.sigmoid(z) @ w.T

    def log_prob(x: Array, z: Array) -> Array:
        return x @ visible + nn.softplus(z).sum(1)

    def started(x: Array) -> Any:
        z = inputs(x)
        return x, jnp.zeros((), jnp.int32), z, nn.softplus(z).sum(1)

    def gibbs(carry: Any, key: Array) -> Any:
        x, site, z, total = carry
        sign = 1 - 2 * x[:, site]
        moved = z + sign[:, None] * w[site]
        moved_total = nn.softplus(moved).sum(1)
        # The log-odds of a flip, not of 1: the new value is drawn as flipped or not.
        log_odds = moved_total - total + sign * visible[site]
        flips = random.uniform(key, sign.shape) < nn.sigmoid(log_odds)
        x = x.at[:, site].add(jnp.where(flips, sign, 0))
        z = jnp.where(flips[:, None], moved, z)
        return x, (site + 1) % sites, z, jnp.where(flips, moved_total, total)

    def priced(x: Array, z: Array) -> Any:
        logits = gradient(z) * (1 - 2 * x) / 2
        return x, z, logits, nn.logsumexp(logits, 1), log_prob(x, z)

    def gwg(carry: Any, key: Array) -> Any:
        draw, accept = random.split(key)
        x, z, logits, normaliser, value = carry
        site = choose(draw, jnp.exp(logits - normaliser[:, None]))
        chain = jnp.arange(len(x))
        sign = 1 - 2 * x[chain, site]
        proposed = priced(flip(x, site), z + sign[:, None] * w[site])
        back = proposed[2][chain, site] - proposed[3]
        log_ratio = proposed[4] - value + back - (logits[chain, site] - normaliser)
        return metropolis(accept, log_ratio, proposed, carry)

    def dula(carry: Any, key: Array) -> Any:
        (x,) = carry
        gains = gradient(inputs(x)) * (1 - 2 * x)
        return (flip_all(key, x, flip_logits(gains, step_size)),)

    def at(x: Array) -> Any:
        z = inputs(x)
        logits = flip_logits(gradient(z) * (1 - 2 * x), step_size)
        return x, logits, log_prob(x, z) - nn.softplus(logits).sum(1)

    def dmala(carry: Any, key: Array) -> Any:
        draw, accept = random.split(key)
        x, logits, balance = carry
        proposed = at(flip_all(draw, x, logits))
        flips = jnp.abs(proposed[0] - x)
        log_ratio = proposed[2] - balance + (flips * (proposed[1] - logits)).sum(1)
        return metropolis(accept, log_ratio, proposed, carry)

    def block_gibbs(carry: Any, key: Array) -> Any:
        up, down = random.split(key)
        h = random.uniform(up, (len(carry[0]), len(hidden))) < nn.sigmoid(inputs(carry[0]))
        on = nn.sigmoid(visible + h.astype(w.dtype) @ w.T)
        return ((random.uniform(down, on.shape) < on).astype(w.dtype),)

    return {
        "gibbs-1": Kernel(started, gibbs),
        "gwg-1": Kernel(lambda x: priced(x, inputs(x)), gwg),
        "dula": Kernel(lambda x: (x,), dula),
        "dmala": Kernel(at, dmala),
        "block-gibbs": Kernel(lambda x: (x,), block_gibbs),
    }[sampler]
