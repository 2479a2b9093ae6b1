"""Products of pairs of sites: these may mix slower than sites, or differ where means agree.

They are judged beside the sites, so they are chosen without the draws: neighbours in the order of
the sites, which are often coupled, and pairs at random places.
"""

import numpy as np
from numpy.typing import NDArray

MAX_PAIRS = 32  # pairs that are read; all of at most 8 sites


def select_pairs(sites: int) -> NDArray[np.int64]:
    """Pairs of different sites, `[pairs, 2]`: all of them, or else `MAX_PAIRS`, always the same.

    Half of these are a site and the next one, at even distances; the others are random.
    """
    every = sites * (sites - 1) // 2
    if every <= MAX_PAIRS:
        return np.stack(np.triu_indices(sites, 1), -1)
    first = np.unique(np.linspace(0, sites - 2, MAX_PAIRS // 2).round().astype(np.int64))
    chosen = dict.fromkeys((int(site), int(site) + 1) for site in first)
    rng = np.random.default_rng(sites)
    while len(chosen) < MAX_PAIRS:
        low, high = sorted(rng.choice(sites, 2, replace=False).tolist())
        chosen[low, high] = None
    return np.array(list(chosen))


def multiply_pairs(draws: NDArray, pairs: NDArray[np.int64]) -> NDArray:
    """x_i x_j of each of `pairs` `[n, 2]` in `draws` `[chains, draws, *shape]`: `[..., n]`.

    For one-hot sites it is 1 where both have one value.
    """
    product = draws[:, :, pairs[:, 0]] * draws[:, :, pairs[:, 1]]
    return product if product.ndim == 3 else product.sum(-1)
