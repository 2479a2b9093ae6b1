"""Log pi of all states of targets that can be listed, by numba; and second ways of their sums."""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from workshop.references.answers import Codes, Floats

SHIFT = 60.0  # taken off log pi of the RBM's visible states, whose weights are summed as they come


@njit(cache=True)
def list_spin_glass(upper: Floats) -> Floats:
    """List the sums of g_ij s_i s_j over i < j, each from the one before by a flip."""
    sites = len(upper)
    both = upper + upper.T
    log_prob = np.empty(1 << sites)
    spins = -np.ones(sites)
    fields = both @ spins
    energy, number = spins @ fields / 2, 0
    log_prob[0] = energy
    for step in range(1, 1 << sites):
        site = 0
        while (step >> site) & 1 == 0:
            site += 1
        energy -= 2 * spins[site] * fields[site]
        spins[site] = -spins[site]
        number ^= 1 << site
        for other in range(sites):
            fields[other] += 2 * spins[site] * both[site, other]
        log_prob[number] = energy
    return log_prob


@njit(cache=True, fastmath=True)
def sum_visible(weight: Floats, visible_bias: Floats, hidden_bias: Floats) -> Floats:
    """Sums over the visible states of an RBM, each from the one before by a flip.

    Log Z, the mean and variance of log pi, then the means of the sites.
    """
    visible, hidden = weight.shape
    x, inputs, linear = np.zeros(visible), hidden_bias.copy(), 0.0
    total, first, second, sums = 0.0, 0.0, 0.0, np.zeros(visible)
    for step in range(1 << visible):
        if step:
            site = 0
            while (step >> site) & 1 == 0:
                site += 1
            change = 1 - 2 * x[site]
            x[site] += change
            linear += change * visible_bias[site]
            for j in range(hidden):
                inputs[j] += change * weight[site, j]
        log_prob = linear
        for j in range(hidden):
            log_prob += max(inputs[j], 0.0) + math.log1p(math.exp(-abs(inputs[j])))
        p = math.exp(log_prob - SHIFT)
        total += p
        first += p * log_prob
        second += p * log_prob * log_prob
        for i in range(visible):
            sums[i] += p * x[i]
    mean = first / total
    head = np.array([SHIFT + math.log(total), mean, second / total - mean * mean])
    return np.concatenate((head, sums / total))


@njit(cache=True)
def list_selection(gram: Floats, response: Floats, rows: int, log_odds: float) -> Floats:
    """The g-prior's log posterior of all sets of variables, by Cholesky decompositions."""
    count = len(response)
    log_prob = np.empty(1 << count)
    inside = np.empty(count, np.int64)
    factor, solved = np.zeros((count, count)), np.zeros(count)
    for number in range(1 << count):
        size = 0
        for i in range(count):
            if (number >> i) & 1:
                inside[size] = i
                size += 1
        explained = 0.0
        for a in range(size):
            for c in range(a + 1):
                term = gram[inside[a], inside[c]]
                for m in range(c):
                    term -= factor[a, m] * factor[c, m]
                factor[a, c] = math.sqrt(term) if a == c else term / factor[c, c]
            term = response[inside[a]]
            for m in range(a):
                term -= factor[a, m] * solved[m]
            solved[a] = term / factor[a, a]
            explained += solved[a] ** 2
        fit = (rows - 1) * math.log1p(rows * (1 - explained))
        spread = (rows - size - 1) * math.log1p(rows)
        log_prob[number] = (spread - fit) / 2 + size * log_odds
    return log_prob


def list_selection_by_determinants(
    gram: Floats, response: Floats, rows: int, log_odds: float
) -> Floats:
    """`list_selection` where 1 - R^2 is a ratio: of X'X bordered by the response, and of X'X."""
    count, step = len(response), 2**12
    bordered = np.block([[gram, response[:, None]], [response[None], np.ones((1, 1))]])
    log_prob = np.empty(1 << count)
    for first in range(0, 1 << count, step):
        numbers = np.arange(first, min(first + step, 1 << count))
        inside = (numbers[:, None] >> np.arange(count) & 1).astype(np.float64)
        wider = np.concatenate((inside, np.ones((len(inside), 1))), 1)
        matrix = wider[:, :, None] * bordered * wider[:, None]
        matrix += (1 - wider)[:, :, None] * np.eye(count + 1)
        whole = np.linalg.slogdet(matrix)[1]
        unexplained = np.exp(whole - np.linalg.slogdet(matrix[:, :count, :count])[1])
        size = inside.sum(1)
        fit = (rows - 1) * np.log1p(rows * unexplained)
        spread = (rows - size - 1) * math.log1p(rows)
        log_prob[first : first + step] = (spread - fit) / 2 + size * log_odds
    return log_prob


@njit(cache=True)
def list_blocks(adjacency: NDArray[np.uint8], groups: int) -> Floats:
    """The log posterior of all assignments of nodes to groups; node i is digit i of the number."""
    nodes = len(adjacency)
    table = np.zeros(nodes * nodes + 3)
    for k in range(2, len(table)):
        table[k] = table[k - 1] + math.log(k - 1)  # log (k - 1)!
    log_prob = np.empty(groups**nodes)
    group = np.zeros(nodes, np.int64)
    size, edges = np.zeros(groups, np.int64), np.zeros((groups, groups), np.int64)
    for number in range(groups**nodes):
        left = number
        size[:], edges[:] = 0, 0
        for i in range(nodes):
            group[i] = left % groups
            left //= groups
            size[group[i]] += 1
            for j in range(i):
                if adjacency[i, j]:
                    edges[min(group[i], group[j]), max(group[i], group[j])] += 1
        total = 0.0
        for a in range(groups):
            total += table[1 + size[a]]
            for b in range(a, groups):
                pairs = size[a] * size[b] if a != b else size[a] * (size[a] - 1) // 2
                count = edges[a, b]
                total += table[1 + count] + table[1 + pairs - count] - table[2 + pairs]
        log_prob[number] = total
    return log_prob


def sum_partitions(adjacency: NDArray[np.uint8], groups: int) -> float:
    """Log Z of the blocks from set partitions alone, each with the number of its labellings."""
    from scipy.special import gammaln  # noqa: PLC0415 - used here alone

    parts = list_partitions(len(adjacency), groups)
    used = parts.max(1) + 1
    labellings = np.array([0, groups, groups * (groups - 1), math.factorial(groups)])[used]
    size = np.stack([(parts == a).sum(1) for a in range(groups)], 1).astype(np.float64)
    total = gammaln(1 + size).sum(1)
    ends = np.argwhere(np.triu(adjacency))
    for a in range(groups):
        for b in range(a, groups):
            edges = np.zeros(len(parts))
            for one, other in ends:
                joined = (parts[:, one] == a) & (parts[:, other] == b)
                if a != b:
                    joined |= (parts[:, one] == b) & (parts[:, other] == a)
                edges += joined
            pairs = size[:, a] * size[:, b] if a != b else size[:, a] * (size[:, a] - 1) / 2
            total += gammaln(1 + edges) + gammaln(1 + pairs - edges) - gammaln(2 + pairs)
    top = total.max()
    return float(top + np.log(labellings @ np.exp(total - top)))


def list_partitions(nodes: int, groups: int) -> NDArray[np.int8]:
    """Set partitions into at most `groups` parts, numbered in order of appearance."""
    parts = np.zeros((1, 1), np.int8)
    for _ in range(nodes - 1):
        largest = parts.max(1)
        wider = []
        for value in range(groups):
            rows = parts[largest >= value - 1]
            wider.append(np.column_stack((rows, np.full(len(rows), value, np.int8))))
        parts = np.concatenate(wider)
    return parts


def digits_of(numbers: NDArray[np.int64], values: int, sites: int) -> Codes:
    return numbers[:, None] // values ** np.arange(sites) % values
