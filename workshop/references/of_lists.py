"""What is known of targets whose states, or hidden states, can be listed."""

import itertools
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from workshop.references import listing
from workshop.references.answers import (
    DRAWS,
    SEED,
    Answer,
    Arrays,
    Codes,
    Floats,
    Listing,
    Statistic,
    binary_codes,
    list_binary,
    list_codes,
    moment_errors,
)
from workshop.references.of_tables import TREE, decompose, spin_marginals

LISTED = "all states listed"
HIDDEN = "hidden states listed"
PROGRAMME = "dynamic programme"


def fill(
    answer: Answer,
    states: Listing,
    method: str,
    moments: Mapping[str, Statistic],
) -> None:
    states.fill(answer, method, SEED)
    for name, moment in moments.items():
        answer.moments.setdefault(name, {})[method] = float(states.average(moment))


def answer_sk_20(arrays: Arrays) -> Answer:
    answer, upper = Answer(), arrays["upper"].astype(float)
    states = list_binary(listing.list_spin_glass(upper), 20)
    fill(
        answer,
        states,
        LISTED,
        {
            "E s1 s4": lambda codes: (2 * codes[:, 1] - 1.0) * (2 * codes[:, 4] - 1),
            "E (sum s)^2": lambda codes: (2 * codes.sum(1) - 20.0) ** 2,
        },
    )
    edges = np.argwhere(np.triu(np.ones((20, 20)), 1))
    info, _ = decompose(edges, upper[tuple(edges.T)], np.zeros(20), 1)
    answer.log_z[TREE] = info["log_partition_function"]
    answer.mean[TREE] = spin_marginals(info, 20)
    return answer


def answer_rbm(arrays: Arrays) -> Answer:
    """24 visible and 16 hidden units: both layers are listed."""
    weight, b, c = (arrays[n].astype(float) for n in ("weight", "visible_bias", "hidden_bias"))
    answer, visible = Answer(), listing.sum_visible(weight, b, c)
    hidden = binary_codes(16)(slice(0, 2**16))
    inputs = hidden @ weight.T + b
    log_prob = hidden @ c + np.logaddexp(0, inputs).sum(1)
    top = log_prob.max()
    p = np.exp(log_prob - top)
    log_z, p = float(top + math.log(p.sum())), p / p.sum()
    active = 1 / (1 + np.exp(-inputs))
    answer.log_z = {HIDDEN: log_z, LISTED: float(visible[0])}
    answer.energy[LISTED], answer.variance[LISTED] = float(visible[1]), float(visible[2])
    answer.mean = {HIDDEN: p @ active, LISTED: visible[3:]}
    answer.moments["E sum x"] = {
        HIDDEN: float(p @ active.sum(1)),
        LISTED: float(visible[3:].sum()),
    }
    answer.moments["E x8 x20"] = {HIDDEN: float(p @ (active[:, 8] * active[:, 20]))}
    rng = np.random.default_rng(SEED)
    drawn = rng.choice(2**16, DRAWS, p=p)
    answer.codes = (rng.random((DRAWS, 24)) < active[drawn]).astype(np.int64)
    answer.log_prob = evaluate_rbm(answer.codes, weight, b, c)
    answer.drawn = "a hidden state drawn from their list, then the visible units given it"
    return answer


def answer_digits(arrays: Arrays) -> Answer:
    """784 visible and 20 hidden units: 2^20 hidden states, a thousand at a time."""
    weight, b, c = (arrays[n].astype(float) for n in ("weight", "visible_bias", "hidden_bias"))
    answer, half = Answer(), binary_codes(10)(slice(0, 1024)).astype(float)
    low, high = half @ weight[:, :10].T, half @ weight[:, 10:].T + b
    log_prob = np.empty(2**20)
    for k in range(1024):
        inputs = low + high[k]
        # log(1 + e^z) = max(z, 0) + log(1 + e^-|z|); the sum of logarithms is one of a product
        exponent = np.exp(-np.abs(inputs)) + 1
        soft = np.log(exponent.reshape(1024, 49, 16).prod(-1)).sum(-1)
        linear = half @ c[:10] + half[k] @ c[10:]
        log_prob[k * 1024 : (k + 1) * 1024] = np.maximum(inputs, 0).sum(-1) + soft + linear
    top = log_prob.max()
    p = np.exp(log_prob - top)
    answer.log_z[HIDDEN], p = float(top + math.log(p.sum())), p / p.sum()
    mean = np.zeros(784)
    for k in range(1024):
        part = p[k * 1024 : (k + 1) * 1024]
        likely = part > 1e-18
        mean += part[likely] @ (1 / (1 + np.exp(-low[likely] - high[k])))
    answer.mean[HIDDEN] = mean
    answer.moments["E sum x"] = {HIDDEN: float(mean.sum())}
    answer.statistics["largest probability of a hidden state"] = float(p.max())
    count = 40_000
    rng = np.random.default_rng(SEED)
    drawn = rng.choice(2**20, count, p=p)
    parts = []
    codes = np.empty((0, 784), np.int64)
    for first in range(0, count, 2000):
        hidden = drawn[first : first + 2000, None] >> np.arange(20) & 1
        active = 1 / (1 + np.exp(-(hidden @ weight.T + b)))
        x = (rng.random(active.shape) < active).astype(np.int64)
        codes = x if first == 0 else codes
        parts.append(evaluate_rbm(x, weight, b, c))
    every = np.concatenate(parts)
    method = f"{count:,} exact draws"
    answer.energy[method], answer.variance[method] = float(every.mean()), float(every.var())
    answer.errors = moment_errors(every)
    answer.codes, answer.log_prob = codes, parts[0]
    answer.drawn = "a hidden state drawn from their list, then the visible units given it"
    return answer


def evaluate_rbm(codes: Codes, weight: Floats, b: Floats, c: Floats) -> Floats:
    return codes @ b + np.logaddexp(0, codes @ weight + c).sum(1)


def answer_subset(arrays: Arrays) -> Answer:
    answer, n, ones = Answer(), 30, 5
    bias, w = arrays["bias"].astype(float), float(arrays["weight"])
    chosen = np.array(list(itertools.combinations(range(n), ones)))
    codes = np.zeros((len(chosen), n), np.int64)
    codes[np.arange(len(chosen))[:, None], chosen] = 1
    log_prob = codes @ bias + w * (codes * np.roll(codes, 1, 1)).sum(1)
    states = list_codes(log_prob, codes, 2)
    fill(answer, states, LISTED, {"E x0 x29": lambda x: x[:, 0] * x[:, 29]})
    total = []
    for first in (0, 1):
        sums = {(first, first): bias[0] * first}  # of the last site and the number of ones
        for site in range(1, n):
            after: dict[tuple[int, int], float] = {}
            for (last, count), value in sums.items():
                for x in (0, 1):
                    key = x, count + x
                    if key[1] <= ones:
                        more = value + bias[site] * x + w * x * last
                        after[key] = np.logaddexp(after.get(key, -np.inf), more)
            sums = after
        total += [sums[last, ones] + w * last * first for last in (0, 1)]
    answer.log_z[PROGRAMME] = float(np.logaddexp.reduce(total))
    return answer


def answer_knapsack(arrays: Arrays) -> Answer:
    answer, capacity = Answer(), 24
    values, weights = arrays["values"].astype(float), arrays["weights"]
    codes = np.array(list(itertools.product(range(4), repeat=8)))
    weight = weights[np.arange(8), codes].sum(1)
    codes, weight = codes[weight <= capacity], weight[weight <= capacity]
    log_prob = values[np.arange(8), codes].sum(1)

    def is_full(x: Codes) -> Floats:
        return (weights[np.arange(8), x].sum(1) == capacity).astype(float)

    states = list_codes(log_prob, codes, 4)
    name = f"P(weight = {capacity})"
    fill(answer, states, LISTED, {name: is_full})
    answer.notes.append(f"{len(codes):,} states")
    sums = {0: 0.0}
    for group in range(8):
        after: dict[int, float] = {}
        for used, value in sums.items():
            for choice in range(4):
                key = used + int(weights[group, choice])
                if key <= capacity:
                    more = value + values[group, choice]
                    after[key] = float(np.logaddexp(after.get(key, -np.inf), more))
        sums = after
    log_z = float(np.logaddexp.reduce(list(sums.values())))
    answer.log_z[PROGRAMME] = log_z
    answer.moments[name][PROGRAMME] = math.exp(sums[capacity] - log_z)
    return answer


def answer_selection(arrays: Arrays) -> Answer:
    answer, best = Answer(), arrays["best"]
    gram, response = arrays["gram"].astype(float), arrays["response"].astype(float)
    sums = gram, response, int(arrays["rows"]), float(arrays["log_odds"])
    for method, log_prob in (
        ("listed by determinants", listing.list_selection_by_determinants(*sums)),
        ("listed by Cholesky", listing.list_selection(*sums)),
    ):
        fill(
            answer,
            list_binary(log_prob, len(response)),
            method,
            {
                "E sum x": lambda x: x.sum(1),
                "P(best model)": lambda x: (x == best).all(1),
                "E x4 x6": lambda x: x[:, 4] * x[:, 6],
            },
        )
    return answer


def answer_two_modes(arrays: Arrays) -> Answer:
    answer, weight, high = Answer(), float(arrays["weight"]), float(arrays["high"])
    ones = binary_codes(20)(slice(0, 2**20)).sum(1)
    first = math.log(weight) + ones * math.log(high) + (20 - ones) * math.log(1 - high)
    second = math.log(1 - weight) + ones * math.log(1 - high) + (20 - ones) * math.log(high)
    states = list_binary(np.logaddexp(first, second), 20)
    fill(answer, states, LISTED, {"E x0 x1": lambda x: x[:, 0] * x[:, 1]})
    closed = "closed form"
    answer.log_z[closed] = 0.0
    answer.mean[closed] = np.full(20, weight * high + (1 - weight) * (1 - high))
    answer.moments["E x0 x1"][closed] = weight * high**2 + (1 - weight) * (1 - high) ** 2
    return answer


def answer_blocks(arrays: Arrays) -> Answer:
    answer, groups, nodes = Answer(), 3, 15
    log_prob = listing.list_blocks(arrays["adjacency"], groups)

    def codes(part: slice) -> Codes:
        return listing.digits_of(np.arange(part.start, min(part.stop, groups**nodes)), 3, nodes)

    states = Listing(log_prob, codes, groups, nodes, chunk=2**18)
    states.fill(answer, LISTED, SEED)
    pairs = {"P(Pazzi = Salviati)": (9, 12), "P(Bischeri = Medici)": (3, 8)}

    def equal(x: Codes) -> NDArray[np.bool_]:
        return np.stack([x[:, one] == x[:, other] for one, other in pairs.values()], 1)

    for name, value in zip(pairs, states.average(equal), strict=True):
        answer.moments[name] = {LISTED: float(value)}
    answer.mean["symmetry"] = np.full((nodes, groups), 1 / groups)
    answer.log_z["set partitions listed"] = listing.sum_partitions(arrays["adjacency"], groups)
    return answer
