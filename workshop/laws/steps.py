"""The exact law of one step of samplers that propose sites or move all of them, enumerated.

The laws are written from the papers in NumPy and float64, over lists of states, and share nothing
with `samplers` and `latticework.models.domains`.
"""

import itertools
from collections.abc import Callable, Iterable
from math import inf, isinf
from typing import Any

import numpy as np
import torch

import latticework as lw
from latticework.sampling.checking.law import (
    Law,
    Matrix,
    metropolis_law,
    normalise_rows,
    one_site_proposal,
    one_site_weights,
)
from latticework.sampling.checking.targets import Target
from workshop.laws.blocks import normalised_or_stay

# Proposals and their correction.


def langevin_proposal(sampler: lw.DULA | lw.DMALA, target: Target) -> Matrix:
    """Eq. (1) of Zhang et al.: a Gaussian at x + alpha/2 grad, restricted to the domain.

    Site by site alpha is multiplied by g (Section 6) or g^2 (Appendix H). Without the distance term
    (Appendix D) it is exp(grad'(y - x) / 2).
    """
    sites, width = target.domain.dim, target.z.shape[1] // target.domain.dim
    scale = np.ones(sites)
    if sampler.preconditioner is not None:
        scale = np.array(sampler.preconditioner) ** sampler.preconditioner_power
    alpha = sampler.step_size * np.repeat(scale, width)
    weights = np.zeros((len(target.z), len(target.z)))
    for x, (here, grad) in enumerate(zip(target.z, target.grad, strict=True)):
        if isinf(sampler.step_size):
            exponent = (target.z - here) @ grad / 2
        else:
            exponent = -((target.z - here - alpha / 2 * grad) ** 2 / (2 * alpha)).sum(-1)
        weights[x] = np.exp(exponent - exponent.max())
        if hasattr(target.domain, "window"):  # Appendix C
            weights[x, np.abs(target.z - here).max(-1) > target.domain.window] = 0
    return normalise_rows(weights)


def dula(sampler: lw.DULA, target: Target) -> Law:
    return Law([langevin_proposal(sampler, target)], np.ones(len(target.z)))


def stochastic_dula(sampler: lw.StochasticDULA, target: Target) -> Law:
    """The mean of DULA's law over all minibatches, each with the gradient of its own rows."""
    model: Any = target.model
    plain = lw.DULA(sampler.step_size)
    parts = [
        dula(plain, Target(model.minibatch(torch.tensor(batch)))).after[0]
        for batch in itertools.combinations(range(model.rows), sampler.batch or model.rows)
    ]
    return Law([np.mean(parts, axis=0)], np.ones(len(target.z)))


def dmala(sampler: lw.DMALA, target: Target) -> Law:
    return metropolis_law(langevin_proposal(sampler, target), target)


def gains_of(target: Target) -> Matrix:
    """The first-order change of log pi from x to y, summed over the sites that differ."""
    return np.einsum("xyd,xd->xy", target.z - target.z[:, None], target.grad)


def locally_balanced(sampler: lw.LocallyBalanced, target: Target) -> Law:
    """Eq. (4) of Zhang et al. with g = sqrt: the exact change of log pi."""
    here = np.where(np.isfinite(target.log_prob), target.log_prob, 0)  # no chain is elsewhere
    weights = one_site_weights(target.log_prob - here[:, None], target)
    return metropolis_law(normalised_or_stay(weights), target)


def gwg(sampler: lw.GWG, target: Target) -> Law:
    """Grathwohl et al.: the first-order change; with several flips, a sum over ordered draws."""
    single = one_site_proposal(gains_of(target), target)
    if sampler.flips == 1:
        return metropolis_law(single, target)

    size, dim = len(target.z), target.domain.dim
    flipped = np.zeros((size, dim), dtype=int)  # the state after flipping one site
    for x, y in itertools.permutations(range(size), 2):
        changed = target.sites_changed(x, y)
        if len(changed) == 1:
            flipped[x, changed[0]] = y

    def paths() -> Iterable[tuple[int, int, float, float]]:
        draws = list(itertools.product(range(dim), repeat=sampler.flips))
        for x, sites in itertools.product(range(size), draws):
            y = x
            for site in set(sites):
                y = flipped[y, site]
            there, back = (np.prod([single[z, flipped[z, site]] for site in sites]) for z in (x, y))
            yield x, y, there, back

    return accepted_paths(paths(), target)


# Several sites, or all of them.


def replacing(target: Target, x: int, other: int, sites: Iterable[int]) -> int:
    """The index of the state `x` with the values of `other` at `sites`."""
    z = target.z[x].reshape(target.domain.dim, -1).copy()
    z[list(sites)] = target.z[other].reshape(target.domain.dim, -1)[list(sites)]
    return int(np.flatnonzero((target.z == z.ravel()).all(-1))[0])


def lengths(sampler: lw.RandomWalk | lw.PAFS, target: Target) -> range:
    most = min(2 * sampler.length - 1, target.domain.dim)
    if isinstance(target.domain, lw.Subset):
        most = min(most, target.domain.ones, target.domain.dim - target.domain.ones)
    return range(1, most + 1)


def values_of(target: Target, site: int) -> int:
    """The number of values of a site."""
    return len(np.unique(target.z.reshape(len(target.z), target.domain.dim, -1)[:, site], axis=0))


def random_walk(sampler: lw.RandomWalk, target: Target) -> Law:
    """Other values, uniform, of R uniform sites, R uniform; or R uniform swaps."""
    every, sites = range(len(target.z)), range(target.domain.dim)
    others = [values_of(target, i) - 1 for i in sites]
    changed = [[target.sites_changed(x, y) for y in every] for x in every]
    count = np.array([[len(sites) // target.sites_per_move for sites in row] for row in changed])
    share = np.array(
        [[1 / np.prod([others[i] for i in sites]) for sites in row] for row in changed]
    )
    shares = [normalise_rows((count == number) * share) for number in lengths(sampler, target)]
    return metropolis_law(np.mean(shares, axis=0), target)


def accepted_paths(paths: Iterable[tuple[int, int, float, float]], target: Target) -> Law:
    """The law of steps that accept each path (x, y, its probability, that of the path back)."""
    size, law = len(target.z), target.law
    matrix, acceptance = np.zeros((size, size)), np.zeros(size)
    for x, y, forward, backward in paths:
        accepted = forward * min(1.0, law[y] * backward / (law[x] * forward))
        matrix[x, y] += accepted
        matrix[x, x] += forward - accepted
        acceptance[x] += accepted
    return Law([matrix], acceptance)


def pafs(sampler: lw.PAFS, target: Target) -> Law:
    """Sun et al. without replacement: a Plackett-Luce order of the sites, then a value of each."""
    size, dim = len(target.z), target.domain.dim
    weights = one_site_weights(gains_of(target), target)
    site = np.full((size, size), -1)
    for x, y in zip(*np.nonzero(weights), strict=True):
        (site[x, y],) = target.sites_changed(x, y)
    of_sites = np.array([[weights[x, site[x] == i].sum() for i in range(dim)] for x in range(size)])

    def probability(x: int, moves: list[int]) -> float:
        found, left = 1.0, of_sites[x].sum()
        for y in moves:
            found *= weights[x, y] / left
            left -= of_sites[x, site[x, y]]
        return found

    def paths() -> Iterable[tuple[int, int, float, float]]:
        numbers = lengths(sampler, target)
        for x in range(size):
            for number in numbers:
                for moves in itertools.permutations(np.flatnonzero(weights[x]).tolist(), number):
                    sites = [site[x, y] for y in moves]
                    if len(set(sites)) < number:
                        continue
                    end = x
                    for y, i in zip(moves, sites, strict=True):
                        end = replacing(target, end, y, [i])
                    back = [replacing(target, end, x, [i]) for i in reversed(sites)]
                    forward = probability(x, list(moves)) / len(numbers)
                    yield x, end, forward, probability(end, back) / len(numbers)

    return accepted_paths(paths(), target)


def pafs_with_replacement(sampler: lw.PAFSWithReplacement, target: Target) -> Law:
    """Sun et al. with replacement: gains along the path use the gradient at its start."""
    steps = range(2 * sampler.length - 1)
    size, numbers = len(target.z), len(steps)
    under = []  # under[s][x, y]: the one-move law with the gradient at s
    for s in range(size):
        change = (target.z - target.z[:, None]) @ target.grad[s]
        under.append(one_site_proposal(change, target))

    def onward(path: list[int]) -> Iterable[list[int]]:
        yield path
        if len(path) <= numbers:
            for y in np.flatnonzero(under[path[0]][path[-1]]):
                yield from onward([*path, int(y)])

    def paths() -> Iterable[tuple[int, int, float, float]]:
        for x in range(size):
            for path in onward([x]):
                moves = list(itertools.pairwise(path))
                if moves:
                    forward = np.prod([under[x][a, b] for a, b in moves])
                    backward = np.prod([under[path[-1]][b, a] for a, b in moves])
                    yield x, path[-1], forward / numbers, backward / numbers

    return accepted_paths(paths(), target)


def independent_sites(target: Target, of_site: Callable[[np.ndarray, int], np.ndarray]) -> Matrix:
    """The proposal whose sites move on their own.

    `of_site(gains, here)` is the law of a site's value, given the first-order gains of all values
    and the index of the current one; a gain is -inf where a value is out of reach.
    """
    size, dim = len(target.z), target.domain.dim
    z, grad = (a.reshape(size, dim, -1) for a in (target.z, target.grad))
    values = np.unique(z.reshape(size * dim, -1), axis=0)
    place = np.array([[int(np.flatnonzero((values == v).all(-1))[0]) for v in row] for row in z])
    proposal = np.ones((size, size))
    for x, i in itertools.product(range(size), range(dim)):
        gains = (values - z[x, i]) @ grad[x, i]
        gains[np.abs(values - z[x, i]).max(-1) > getattr(target.domain, "window", inf)] = -inf
        gains[np.setdiff1d(place, place[:, i])] = -inf  # values that other sites have
        proposal[x] *= of_site(gains, place[x, i])[place[:, i]]
    return proposal


def dlmc(sampler: lw.DLMC | lw.DLMCf, target: Target) -> Law:
    """Sun et al. 2023: nu_v (1 - exp(-tau w_v / nu_v)) or min(tau w_v, nu_v) for every other v."""

    def of_site(gains: np.ndarray, here: int) -> np.ndarray:
        odds = np.exp(gains)  # of a value to the current one
        nu = odds / odds.sum()
        w = np.sqrt(odds) if sampler.balancing == "sqrt" else odds / (1 + odds)
        if isinstance(sampler, lw.DLMC):
            with np.errstate(divide="ignore", invalid="ignore"):
                law = np.where(nu > 0, nu * (1 - np.exp(-sampler.time * w / nu)), 0)
        else:
            law = np.minimum(sampler.time * w, nu)
        law[here] = 0
        law[here] = 1 - law.sum()
        return law

    return metropolis_law(independent_sites(target, of_site), target)


def acs(sampler: lw.ACS, target: Target) -> Law:
    """Pynadath et al.: step k has the step size a_k and the balance b_k."""
    cosines = (np.cos(np.pi * np.arange(sampler.period) / sampler.period) + 1) / 2
    steps = np.maximum(sampler.smallest_step, sampler.largest_step * cosines)
    balances = sampler.balances or 0.5 + (sampler.largest_balance - 0.5) * cosines
    distances = ((target.z - target.z[:, None]) ** 2).sum(-1)
    near = np.abs(target.z - target.z[:, None]).max(-1) <= getattr(target.domain, "window", inf)
    gains = gains_of(target)
    kernels = []
    for a, b in zip(steps, balances, strict=True):
        proposal = normalise_rows(np.exp(b * gains - distances / (2 * a)) * near)
        kernels.append(metropolis_law(proposal, target))
    after = list(itertools.accumulate((kernel.after[0] for kernel in kernels), np.matmul))
    return Law(after, kernels[0].acceptance)


# Moves of all sites that are driven by Gaussian noise, integrated over it.

GRID = {1: 201, 2: 41, 3: 21}  # points of an axis, by the number of axes; from -5 to 5
Noise = np.ndarray  # [points, dim]


def driven(
    target: Target,
    logits: Callable[[int, Noise], np.ndarray],
    shift: Callable[[int, int], np.ndarray],
) -> Law:
    """One step from x with noise n ~ N(0, I), corrected on the joint law of x and n.

    `logits(x, n)` `[points, states]` are those of the proposals from x, and `shift(x, y)` is what
    the reverse move subtracts from n. With n = m + shift / 2 both directions are sums over the same
    points m, so the matrix is reversible exactly, whatever the error of the sums.
    """
    size, dim = target.z.shape
    axis = np.linspace(-5, 5, GRID[dim])
    middle = np.stack(np.meshgrid(*[axis] * dim, indexing="ij"), -1).reshape(-1, dim)
    cell = (axis[1] - axis[0]) ** dim

    def density(x: int, y: int) -> np.ndarray:
        noise = middle + shift(x, y) / 2
        gaussian = np.exp(-(noise**2).sum(-1) / 2) * cell / (2 * np.pi) ** (dim / 2)
        exponent = logits(x, noise)
        if hasattr(target.domain, "window"):
            far = np.abs(target.z - target.z[x]).max(-1) > target.domain.window
            exponent = np.where(far, -inf, exponent)
        return gaussian * normalise_rows(np.exp(exponent - exponent.max(-1, keepdims=True)))[:, y]

    matrix, stays = np.zeros((size, size)), np.zeros(size)
    for x, y in itertools.combinations(range(size), 2):
        flows = target.law[x] * density(x, y), target.law[y] * density(y, x)
        matrix[x, y] = matrix[y, x] = np.minimum(*flows).sum()
    matrix /= target.law[:, None]
    for x in range(size):
        stays[x] = density(x, x).sum()
        matrix[x, x] = 1 - matrix[x].sum()
    return Law([matrix], matrix.sum(-1) - matrix.diagonal() + stays)


def auxiliary(sampler: lw.AVG | lw.PAVG | lw.DHAMS, target: Target) -> Law:
    """Z ~ N(R x, I), then y by exp((grad - M x + R z)'y - delta / 2 |y|^2).

    Rhodes and Gutmann: R^2 = M + delta I, where M is 0 for AVG and near the Hessian for PAVG. Zhou
    and Tan: M = 0, and the noise is a momentum that the gradients at both ends turn.
    """
    size, turn = target.z.shape[1], getattr(sampler, "correction", 0)
    matrix = np.array(getattr(sampler, "matrix", None) or np.zeros((size, size)))
    values, vectors = np.linalg.eigh(matrix)
    delta = 2 / sampler.step_size - min(0, values[0])
    if isinstance(sampler, lw.DHAMS):
        delta = 1 / sampler.step_size**2
    root = vectors @ np.diag(np.sqrt(values + delta)) @ vectors.T

    def logits(x: int, noise: Noise) -> np.ndarray:
        z = root @ target.z[x] + noise
        linear = target.grad[x] - matrix @ target.z[x] + z @ root
        return linear @ target.z.T - delta / 2 * (target.z**2).sum(-1)

    def shift(x: int, y: int) -> np.ndarray:
        turned = turn * (target.grad[y] - target.grad[x])
        return root @ (target.z[y] - target.z[x]) + turned

    return driven(target, logits, shift)


def edlp(sampler: lw.EDLP, target: Target) -> Law:
    """Mohanty et al., Gibbs-like: a ~ N(x, eta I), then DMALA with grad - (x - a) / eta."""
    spread, alpha = np.sqrt(sampler.variance), sampler.step_size

    def logits(x: int, noise: Noise) -> np.ndarray:
        guide = target.z[x] + spread * noise
        slope = target.grad[x] - (target.z[x] - guide) / sampler.variance
        mean = target.z[x] + alpha / 2 * slope
        return -((target.z - mean[:, None]) ** 2).sum(-1) / (2 * alpha)

    return driven(target, logits, lambda x, y: (target.z[y] - target.z[x]) / spread)
