"""THE TABLE of samplers and targets, and the exact law of one step of each, enumerated.

The laws are written from the papers in NumPy and float64, over lists of states, and share nothing
with `samplers` and `latticework.models.domains`. A new sampler joins by one line in TABLE, and by a
function here that enumerates its step if it is of a new kind. The tests of counts are here too.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf, isinf
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch
from scipy.stats import chi2, norm
from targets import BINARY, EVERY, FINITE, FORBIDDING, INTEGER, TARGETS, TIES

import latticework as lw
from latticework.sampling.checking.check_case import tails
from latticework.sampling.checking.law import (
    Law,
    Matrix,
    metropolis_law,
    normalise,
    one_site_proposal,
    one_site_weights,
)
from latticework.sampling.checking.targets import Target
from latticework.sampling.targets import why_unsupported

# Tests of counts.


def largest_z(count: np.ndarray, trials: int, probability: np.ndarray) -> float:
    """The largest deviation of binomial counts, as the z-score of its exact tail probability."""
    return float(norm.isf(tails(count, trials, probability).min()))


def p_value(count: np.ndarray, law: np.ndarray) -> float:
    """Chi-square test; states expected fewer than 5 times are pooled."""
    expected = law * count.sum()
    few = expected < 5
    if few.any():
        count = np.append(count[~few], count[few].sum())
        expected = np.append(expected[~few], max(expected[few].sum(), 1e-9))
    return float(chi2.sf(((count - expected) ** 2 / expected).sum(), len(count) - 1))


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
    return normalise(weights)


def dula(sampler: lw.DULA, target: Target) -> Law:
    return Law([langevin_proposal(sampler, target)], np.ones(len(target.z)))


def stochastic_dula(sampler: lw.StochasticDULA, target: Target) -> Law:
    """The mean of DULA's law over all minibatches, each with the gradient of its own rows."""
    rows, plain = target.model.rows, lw.DULA(sampler.step_size)
    parts = [
        dula(plain, Target(target.model.minibatch(torch.tensor(batch)))).after[0]
        for batch in itertools.combinations(range(rows), sampler.batch)
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
    shares = [normalise((count == number) * share) for number in lengths(sampler, target)]
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
                for moves in itertools.permutations(np.flatnonzero(weights[x]), number):
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
        proposal = normalise(np.exp(b * gains - distances / (2 * a)) * near)
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
        return gaussian * normalise(np.exp(exponent - exponent.max(-1, keepdims=True)))[:, y]

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
    """z ~ N(R x, I), then y by exp((grad - M x + R z)'y - delta / 2 |y|^2).

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


# Blocks resampled from their conditional.


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
        orders = [[tuple(block)] for block in target.model.scopes(sites).tolist()]
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
    return normalise(weights + np.diag(stays))


def gibbs_sweep(sampler: lw.GibbsSweep, target: Target) -> Law:
    """One site after the other, class by class; sites of a class may have any order."""
    order = target.model.colours().argsort(stable=True).tolist()
    blocks = SimpleNamespace(sites=1, scan="given", orders=[[(site,) for site in order]])
    return Law(gibbs(blocks, target).after[-1:])


def metropolis_sweep(sampler: lw.MetropolisSweep, target: Target) -> Law:
    """Liu (1996): a site moves from v to w with p(w) / max(1 - p(v), 1 - p(w)), site by site.

    Where 1 - p(v) and 1 - p(w) are equal to within one per cent, 7/8 as often.
    """
    after = np.eye(len(target.z))
    for site in target.model.colours().argsort(stable=True).tolist():
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
        return normalise(ball) @ normalise(ball * target.law)

    return over_scans(sampler, target, kernel)


def block_gibbs(sampler: lw.BlockGibbs, target: Target) -> Law:
    """p(h|x), then p(x|h), from the joint law of an RBM, `steps` times."""
    weight, b, c = (p.double().numpy() for p in target.model.parameters())
    hidden = np.array(list(itertools.product([0.0, 1.0], repeat=len(c))))
    joint = np.exp(target.z @ weight @ hidden.T + (target.z @ b)[:, None] + hidden @ c)
    once = normalise(joint) @ normalise(joint.T)
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


# The table.


@dataclass(frozen=True)
class Row:
    """A sampler and the targets it must serve.

    `law` enumerates its step (None where it moves in a continuum). `leaves` says which law it
    keeps: the target, the target once the rest of its state has settled (`stationary_start` is
    False), its own, or none. `shared`: chains share random numbers, so the replicas of one call
    are not independent.
    """

    sampler: lw.Sampler
    targets: tuple[str, ...]
    law: Callable[..., Law] | None
    leaves: Literal["target", "settled", "own", "none"] = "target"
    reversible: bool = True
    shared: bool = False

    @property
    def ties(self) -> tuple[str, ...]:
        """The targets with ties that the sampler supports, of the size that its settings need."""
        sizes = {
            len(getattr(self.sampler, name, None) or []) for name in ("preconditioner", "matrix")
        }
        fitting = [name for name in TIES if sizes <= {0, TARGETS[name].domain.dim}]
        if self.law in (auxiliary, edlp):  # integrals over as many axes as x has numbers
            fitting = [name for name in fitting if TARGETS[name].z.shape[1] in GRID]
        return tuple(
            name for name in fitting if not why_unsupported(self.sampler, TARGETS[name].model)
        )


FEW_SITES = ("binary", "spins", "rbm", "categorical", "mixed")
MATRIX = [[0.3, -0.4, 0.0], [-0.4, 0.0, 0.5], [0.0, 0.5, -0.2]]
SCALES = [0.5, 3.0, 1.5]  # of a preconditioner
OWN: Any = {"leaves": "own", "reversible": False}
ORDERED: Any = {"reversible": False}
RANDOM: Any = {"shared": True}
SHUFFLED: Any = {"shared": True, "reversible": False}
TABLE = [
    Row(lw.DMALA(0.5), (*EVERY, "bayes_net"), dmala),
    Row(lw.DMALA(0.5), ("network", "tables", "given", "mixed", "ragged"), dmala),
    Row(lw.DMALA(4.0), EVERY, dmala),
    Row(lw.DMALA(inf), EVERY, dmala),
    Row(lw.DMALA(0.4, preconditioner=SCALES[:2]), ("categorical", "ordinal", "naturals"), dmala),
    Row(lw.DMALA(0.4, SCALES, 2), ("binary", "spins", "quadratic", "lattice_potts"), dmala),
    Row(lw.DMALA(0.4, [*SCALES, 1.0], 2), ("rbm",), dmala),
    Row(lw.DULA(0.4), (*EVERY, "mixed"), dula, **OWN),
    Row(lw.DMALA(0.5), ("graph_potts",), dmala),
    Row(lw.DULA(0.4), ("graph_potts",), dula, **OWN),
    Row(lw.DULA(0.4, preconditioner=SCALES), ("binary", "quadratic"), dula, **OWN),
    Row(lw.DULA(0.4, [*SCALES, 1.0]), ("rbm",), dula, **OWN),
    Row(lw.StochasticDULA(1.5, batch=2), ("regression",), stochastic_dula, shared=True, **OWN),
    Row(lw.GWG(), (*EVERY, "bayes_net", "mixed", "subset"), gwg),
    Row(lw.GWG(), ("graph_potts",), gwg),
    Row(lw.GWG(2), (*BINARY, "given"), gwg),
    Row(lw.GWG(4), ("binary", "dense_ising", "rbm"), gwg),
    Row(lw.LocallyBalanced(), (*EVERY, "bayes_net"), locally_balanced),
    Row(lw.LocallyBalanced(), ("network", "tables", "given", "mixed"), locally_balanced),
    Row(lw.LocallyBalanced(), ("subset", "with_ones", "graph_potts"), locally_balanced),
    Row(lw.RandomWalk(2), ("binary", "spins", "categorical", "ordinal", "lattice"), random_walk),
    Row(lw.RandomWalk(2), ("rbm", "ring", "dense_ising", "quadratic", "graph"), random_walk),
    Row(lw.RandomWalk(2), ("mixed", "subset", "with_ones"), random_walk),
    Row(lw.PAFS(1), INTEGER, pafs),
    Row(lw.PAFS(2), (*FEW_SITES, "naturals", "ordinal", "lattice"), pafs),
    Row(lw.PAFS(2), ("ring", "dense_ising", "quadratic", "graph"), pafs),
    Row(lw.PAFSWithReplacement(1), ("integers",), pafs_with_replacement),
    Row(
        lw.PAFSWithReplacement(2),
        (*FEW_SITES, "ordinal", "dense_ising", "graph"),
        pafs_with_replacement,
    ),
    Row(lw.DLMC(0.5), (*FEW_SITES, *INTEGER, "ordinal", "lattice", "dense_potts"), dlmc),
    Row(lw.DLMC(0.5), ("graph", "quadratic"), dlmc),
    Row(lw.DLMC(0.5, "barker"), (*FEW_SITES, "ordinal", "naturals", "sheet"), dlmc),
    Row(lw.DLMC(0.02), ("graph", "ferromagnet"), dlmc),
    Row(lw.DLMC(0.5, "barker"), ("graph",), dlmc),
    Row(lw.DLMCf(0.5), ("graph",), dlmc),
    Row(lw.DLMCf(0.2, "barker"), ("graph", "ferromagnet", "quadratic"), dlmc),
    Row(lw.DLMCf(0.5), (*FEW_SITES, "ordinal", "integers", "ring"), dlmc),
    Row(lw.DLMCf(0.5, "barker"), (*FEW_SITES, "ordinal", "naturals"), dlmc),
    Row(lw.ACS(2.0, 0.2, 4), (*FEW_SITES, "ordinal", "naturals", "lattice"), acs, **ORDERED),
    Row(lw.ACS(2.0, 0.2, 4), ("ring", "sheet", "graph"), acs, **ORDERED),
    Row(lw.ACS(2.0, 0.2, 4), ("quadratic", "dense_potts", "graph_potts"), acs, **ORDERED),
    Row(lw.ACS(2.0, 0.2, 3, balances=[0.9, 0.6, 0.8]), ("binary", "integers"), acs, **ORDERED),
    Row(lw.AVG(0.8), ("binary", "spins", "ordinal", "integers"), auxiliary),
    Row(lw.AVG(2.0), ("categorical", "naturals", "rbm", "quadratic", "lattice_potts"), None),
    Row(lw.AVG(2.0), ("mixed", "graph"), None),
    Row(lw.PAVG(0.8, matrix=MATRIX), ("binary", "spins"), auxiliary),
    Row(lw.PAVG(1.0, 20), ("binary", "ordinal", "naturals", "rbm", "quadratic"), None),
    Row(lw.PAVG(1.0, 20), ("categorical", "mixed", "graph"), None),
    Row(lw.DHAMS(0.7, 0.8, 0.3), ("binary", "spins", "ordinal", "integers"), auxiliary),
    Row(lw.DHAMS(1.0, 0.5), ("categorical", "mixed", "naturals", "rbm", "graph"), None),
    Row(lw.EDLP(0.6, 0.7), ("binary", "spins", "ordinal", "integers"), edlp),
    Row(lw.EDLP(0.6, 0.7, 0.5), ("binary", "categorical", "mixed", "naturals", "graph"), None),
    Row(
        lw.Tempered(lw.DMALA(0.5), schedule=[0.4, 1.0]),
        ("binary", "mixed", "categorical", "ordinal", "graph"),
        None,
        "settled",
    ),
    Row(lw.Tempered(lw.DMALA(0.5), schedule=[0.2, 0.7, 1.0]), ("naturals",), None, "settled"),
    Row(lw.Tempered(lw.DMALA(0.5), schedule=[0, 0.4, 1]), ("binary", "ordinal"), None, "settled"),
    Row(lw.Tempered(lw.GWG(), schedule=[0.3, 1]), ("spins", "mixed", "naturals"), None, "settled"),
    Row(lw.Tempered(lw.GWG(), schedule=[0, 0.4, 1]), ("subset", "with_ones"), None, "settled"),
    Row(
        lw.Tempered(lw.GibbsSweep(), 4),
        ("lattice", "sheet", "graph", "graph_potts"),
        None,
        "settled",
    ),
    Row(lw.SwendsenWang(), ("lattice", "sheet", "ferromagnet", "lattice_potts"), swendsen_wang),
    Row(lw.Gibbs(), (*FINITE, "bayes_net"), gibbs, **ORDERED),
    Row(lw.Gibbs(), ("network", "tables", "given", "mixed", "ragged"), gibbs, **ORDERED),
    Row(lw.Gibbs(2, "random"), ("either",), gibbs, **RANDOM),
    Row(lw.Gibbs(2, "scopes"), ("network", "ragged", "either"), gibbs, **RANDOM),
    Row(lw.Gibbs(2), (*FINITE, "mixed"), gibbs, **ORDERED),
    Row(lw.Gibbs(2, "random"), ("ragged", "subset", "with_ones"), gibbs, **RANDOM),
    Row(lw.Gibbs(3, "shuffled"), ("subset",), gibbs, **SHUFFLED),
    Row(lw.Gibbs(1, "random"), ("binary", "rbm", "sheet"), gibbs, **RANDOM),
    Row(lw.Gibbs(1, "random"), ("ordinal", "lattice_potts"), gibbs, **RANDOM),
    Row(lw.Gibbs(2, "random"), ("rbm", "ring", "dense_potts"), gibbs, **RANDOM),
    Row(lw.Gibbs(1, "shuffled"), ("binary", "rbm", "ordinal"), gibbs, **SHUFFLED),
    Row(lw.Gibbs(2, "shuffled"), ("rbm", "lattice"), gibbs, **SHUFFLED),
    Row(lw.GibbsSweep(), ("lattice", "ring", "sheet"), gibbs_sweep, **ORDERED),
    Row(lw.GibbsSweep(), ("graph", "network", "ferromagnet"), gibbs_sweep, **ORDERED),
    Row(
        lw.GibbsSweep(),
        ("lattice_potts", "tables", "ragged", "graph_potts"),
        gibbs_sweep,
        **ORDERED,
    ),
    Row(lw.MetropolisSweep(), ("lattice", "ring", "sheet"), metropolis_sweep, **ORDERED),
    Row(lw.MetropolisSweep(), ("graph", "lattice_potts", "ragged"), metropolis_sweep, **ORDERED),
    Row(lw.MetropolisSweep(), ("ferromagnet", "graph_potts"), metropolis_sweep, **ORDERED),
    Row(lw.Gibbs(), ("graph_potts",), gibbs, **ORDERED),
    Row(lw.Gibbs(2), ("graph_potts",), gibbs, **ORDERED),
    Row(lw.Gibbs(), FORBIDDING, gibbs, **ORDERED),
    Row(lw.Gibbs(2), FORBIDDING, gibbs, **ORDERED),
    Row(lw.Gibbs(2, "random"), FORBIDDING, gibbs, **RANDOM),
    Row(lw.Gibbs(1, "shuffled"), FORBIDDING, gibbs, **SHUFFLED),
    Row(lw.GibbsSweep(), FORBIDDING, gibbs_sweep, **ORDERED),
    Row(lw.MetropolisSweep(), FORBIDDING, metropolis_sweep, **ORDERED),
    Row(lw.RandomWalk(2), FORBIDDING, random_walk),
    Row(lw.LocallyBalanced(), FORBIDDING, locally_balanced),
    Row(lw.Tempered(lw.GibbsSweep(), 4), FORBIDDING, None, "settled"),
    Row(lw.HammingBall(3, 1, "systematic"), BINARY, hamming_ball, **ORDERED),
    Row(lw.HammingBall(3, 2, "random"), ("binary", "ring"), hamming_ball, **RANDOM),
    Row(lw.HammingBall(2, 1, "shuffled"), ("lattice",), hamming_ball, **SHUFFLED),
    Row(lw.BlockGibbs(), ("rbm",), block_gibbs),
    Row(lw.BlockGibbs(2), ("rbm",), block_gibbs),
    Row(lw.RMALA(0.3, 0.5), BINARY, None, "settled"),
    Row(lw.RMALA(0.3, 0.5, "relaxation"), BINARY, None, "none"),
    Row(lw.DiscreteSVGD(0.1, 0.5), BINARY, None, "none"),
]
