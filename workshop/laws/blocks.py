"""The exact law of one step of samplers that draw blocks from their conditional, enumerated.

The laws are written from the papers in NumPy and float64, over lists of states, and share nothing
with `samplers` and `latticework.models.domains`.
"""

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

import latticework as lw
from latticework.sampling.checking.law import (
    Law,
    Matrix,
    normalise_rows,
)
from latticework.sampling.checking.targets import Target


def over_scans(sampler: Any, target: Target, kernel: Callable[..., Matrix]) -> Law:
    """Mean over the equally likely orders of the blocks, of the product of their kernels."""
    dim, sites = target.domain.dim, sampler.sites
    orders: list = getattr(sampler, "orders", [])
    if sampler.scan == "systematic":
        starts = range(0, sites * dim, sites)
        orders = [[tuple((start + i) % dim for i in range(sites)) for start in starts]]
    elif sampler.scan == "random":
        orders = [[block] for block in itertools.combinations(range(dim), sites)]
    elif sampler.scan == "shuffled":
        firsts = range(0, dim - sites + 1, sites)
        orders = [
            [order[i : i + sites] for i in firsts] for order in itertools.permutations(range(dim))
        ]
    elif sampler.scan == "scopes":
        scopes = target.model.scopes(sites)
        assert scopes is not None  # else the sampler refuses the model
        orders = [[tuple(block)] for block in scopes.tolist()]
    kernels = {block: kernel(block) for block in {block for order in orders for block in order}}
    products = [
        list(itertools.accumulate((kernels[b] for b in order), np.matmul)) for order in orders
    ]
    return Law([np.mean(after, axis=0) for after in zip(*products, strict=True)])


def gibbs(sampler: Any, target: Target) -> Law:
    def kernel(block: tuple[int, ...]) -> Matrix:
        weights = np.zeros((len(target.z), len(target.z)))
        for x, y in itertools.product(range(len(target.z)), repeat=2):
            if set(target.sites_changed(x, y)) <= set(block):
                weights[x, y] = target.law[y]
        return normalised_or_stay(weights)

    return over_scans(sampler, target, kernel)


def normalised_or_stay(weights: Matrix) -> Matrix:
    """The transitions with these weights; an impossible state stays if all within reach are so."""
    stays = weights.sum(-1) == 0
    return normalise_rows(weights + np.diag(stays))


def sites_by_colour(target: Target) -> list[int]:
    """The sites, class of colour by class."""
    colours = target.model.colours()
    assert colours is not None  # else the sampler refuses the model
    return colours.argsort(stable=True).tolist()


def gibbs_sweep(sampler: lw.GibbsSweep, target: Target) -> Law:
    """One site after the other, class by class; sites of a class may have any order."""
    order = sites_by_colour(target)
    blocks = SimpleNamespace(sites=1, scan="given", orders=[[(site,) for site in order]])
    return Law(gibbs(blocks, target).after[-1:])


def metropolis_sweep(sampler: lw.MetropolisSweep, target: Target) -> Law:
    """Liu (1996): a site moves from v to w with p(w) / max(1 - p(v), 1 - p(w)), site by site.

    Where 1 - p(v) and 1 - p(w) are equal to within one per cent, 7/8 as often.
    """
    after = np.eye(len(target.z))
    for site in sites_by_colour(target):
        given = np.zeros_like(after)
        for x, y in itertools.product(range(len(target.z)), repeat=2):
            if set(target.sites_changed(x, y)) <= {site}:
                given[x, y] = target.law[y]
        given = normalised_or_stay(given)
        here = given.diagonal()
        here = here.clip(max=1 - 1e-15)  # with one value that is possible, no other has a share
        moves = given * np.minimum(1 / (1 - here)[:, None], 1 / (1 - here))
        tie = np.abs(np.log((1 - here) / (1 - here)[:, None])) <= 0.01
        moves[tie] *= 7 / 8
        np.fill_diagonal(moves, 0)
        after = after @ (moves + np.diag(1 - moves.sum(1)))
    return Law([after])


def hamming_ball(sampler: lw.HammingBall, target: Target) -> Law:
    """Titsias and Yau: u uniform in the ball of x, then x from pi restricted to the ball of u."""

    def kernel(block: tuple[int, ...]) -> Matrix:
        ball = np.zeros((len(target.z), len(target.z)))
        for x, u in itertools.product(range(len(target.z)), repeat=2):
            changed = target.sites_changed(x, u)
            ball[x, u] = set(changed) <= set(block) and len(changed) <= sampler.radius
        return normalise_rows(ball) @ normalise_rows(ball * target.law)

    return over_scans(sampler, target, kernel)


def block_gibbs(sampler: lw.BlockGibbs, target: Target) -> Law:
    """p(h|x), then p(x|h), from the joint law of an RBM, `steps` times."""
    weight, b, c = (p.double().numpy() for p in target.model.parameters())
    hidden = np.array(list(itertools.product([0.0, 1.0], repeat=len(c))))
    joint = np.exp(target.z @ weight @ hidden.T + (target.z @ b)[:, None] + hidden @ c)
    once = normalise_rows(joint) @ normalise_rows(joint.T)
    return Law([np.linalg.matrix_power(once, sampler.steps)])


def swendsen_wang(sampler: lw.SwendsenWang, target: Target) -> Law:
    """Fortuin and Kasteleyn: bonds between equal neighbours, then a value for each cluster.

    The prices K of edges and the fields b are second and first differences of log pi.
    """
    size, dim = len(target.z), target.domain.dim
    parts = target.z.reshape(size, dim, -1)
    codes = (parts.argmax(-1) if parts.shape[-1] > 1 else parts[..., 0]).astype(int)
    log_prob = {tuple(code): value for code, value in zip(codes, target.log_prob, strict=True)}
    count = codes.max() + 1

    def at(**values: int) -> float:
        return log_prob[tuple(values.get(f"site{i}", 0) for i in range(dim))]

    price = np.zeros((dim, dim))
    for i, j in itertools.combinations(range(dim), 2):
        one, other = {f"site{i}": 1}, {f"site{j}": 1}
        price[i, j] = price[j, i] = (at(**one, **other) - at(**one) - at(**other) + at()) / 2
    field = np.array([[at(**{f"site{i}": v}) - at() for v in range(count)] for i in range(dim)])
    field[:, 1:] += price.sum(-1, keepdims=True)  # all neighbours had the value 0

    matrix = np.zeros((size, size))
    edges = [pair for pair in itertools.combinations(range(dim), 2) if price[pair] > 1e-9]
    for x, code in enumerate(codes):
        equal = [(i, j) for i, j in edges if code[i] == code[j]]
        for chosen in itertools.product([False, True], repeat=len(equal)):
            share, label = 1.0, np.arange(dim)
            for (i, j), bond in zip(equal, chosen, strict=True):
                share *= -np.expm1(-price[i, j]) if bond else np.exp(-price[i, j])
                if bond:
                    label[label == label[i]] = label[j]
            reached = np.full(size, share)
            for root in np.unique(label):
                sites = np.flatnonzero(label == root)
                weights = np.exp(field[sites].sum(0))
                alike = (codes[:, sites] == codes[:, sites[:1]]).all(-1)
                reached *= alike * (weights / weights.sum())[codes[:, sites[0]]]
            matrix[x] += reached
    return Law([matrix])
