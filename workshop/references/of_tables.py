"""What is known of targets that are products of small tables: by elimination and a second way."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from workshop.references.answers import DRAWS, SEED, Answer, Arrays, Floats
from workshop.references.elimination import (
    Elimination,
    Factor,
    equal_table,
    evaluate,
    padded_means,
    restrict,
)
from workshop.references.parameters import unpack_tables

ELIMINATION, ROWS = "elimination", "row by row"
TREE = "D-Wave's tree decomposition"
TRUNCATED = 50  # values of a site of the Poisson ring; 70 gives the same


def eliminate(answer: Answer, factors: Sequence[Factor], sizes: Sequence[int]) -> Elimination:
    """Add what elimination tells, and the draws."""
    whole = Elimination(factors, sizes)
    answer.log_z[ELIMINATION] = whole.log_z
    answer.energy[ELIMINATION], answer.variance[ELIMINATION] = whole.energy, whole.variance
    answer.mean[ELIMINATION] = padded_means(whole.marginals())
    answer.codes = whole.draw(DRAWS, SEED)
    answer.log_prob = evaluate(factors, answer.codes)
    answer.drawn = "drawn backwards along the order of elimination"
    return whole


def spin_factors(edges: Any, weights: Any, bias: Any) -> list[Factor]:
    factors: list[Factor] = []
    for (one, other), w in zip(edges.tolist(), weights.astype(float), strict=True):
        factors.append(((one, other), np.array([[w, -w], [-w, w]])))
    for site, b in enumerate(bias.astype(float)):
        factors.append(((site,), np.array([-b, b])))
    return factors


def decompose(edges: Any, weights: Any, bias: Any, count: int) -> tuple[dict[str, Any], Any]:
    """What D-Wave's solver tells of log pi = sum w s s' + sum b s, and its draws as bits."""
    import dimod  # noqa: PLC0415 - an extra
    from dwave.samplers import TreeDecompositionSampler  # noqa: PLC0415

    problem = dimod.BinaryQuadraticModel("SPIN")
    for site, b in enumerate(bias.astype(float)):
        problem.add_variable(site, -b)
    for (one, other), w in zip(edges.tolist(), weights.astype(float), strict=True):
        problem.add_interaction(one, other, -w)
    sampled = TreeDecompositionSampler().sample(
        problem, beta=1.0, num_reads=count, marginals=True, seed=SEED
    )
    order = np.argsort(list(sampled.variables))
    states = np.repeat(sampled.record.sample, sampled.record.num_occurrences, axis=0)
    return sampled.info, (states[:, order] > 0).astype(np.int64)


def answer_pmj(arrays: Arrays) -> Answer:
    answer, edges, weights = Answer(), arrays["edges"], arrays["weights"]
    bias = np.zeros(60)
    factors = spin_factors(edges, weights, bias)
    whole = eliminate(answer, factors, [2] * 60)
    info, _ = decompose(edges, weights, bias, 1)
    answer.log_z[TREE] = info["log_partition_function"]
    answer.mean[TREE] = spin_marginals(info, 60)
    equal = ((0, 7), equal_table(2))
    agree = math.exp(Elimination([*factors, equal], [2] * 60, keep=False).log_z - whole.log_z)
    answer.moments["E s0 s7"] = {ELIMINATION: 2 * agree - 1}
    return answer


def spin_marginals(info: dict[str, Any], sites: int) -> Floats:
    return np.array([info["variable_marginals"][site] for site in range(sites)])


def answer_grids_11(arrays: Arrays) -> Answer:
    """Width 23: elimination without marginals; these, and draws, by D-Wave's solver."""
    answer, edges = Answer(), arrays["edges"]
    weights, bias, offset = arrays["weights"], arrays["bias"], float(arrays["offset"])
    factors = spin_factors(edges, weights, bias)
    whole = Elimination(factors, [2] * 100, keep=False)
    info, codes = decompose(edges, weights, bias, DRAWS)
    answer.log_z = {
        ELIMINATION: whole.log_z + offset,
        TREE: info["log_partition_function"] + offset,
    }
    answer.energy[ELIMINATION] = whole.energy + offset
    answer.variance[ELIMINATION] = whole.variance
    answer.mean[TREE] = spin_marginals(info, 100)
    answer.moments["E sum x"] = {TREE: float(answer.mean[TREE].sum())}
    one = math.exp(restrict(factors, [2] * 100, {0: 1}).log_z - whole.log_z)
    answer.statistics["E x0 by elimination less D-Wave's"] = one - float(answer.mean[TREE][0])
    answer.codes, answer.log_prob = codes, evaluate(factors, codes) + offset
    answer.drawn = f"{TREE}, seed {SEED}"
    return answer


def answer_crf(arrays: Arrays) -> Answer:
    answer, edges = Answer(), arrays["edges"]
    weights, fields = arrays["weights"].astype(float), arrays["fields"].astype(float)
    factors: list[Factor] = []
    for edge, w in zip(edges.tolist(), weights, strict=True):
        factors.append((tuple(edge), w * np.eye(3)))
    for site in range(64):
        factors.append(((site,), fields[site]))
    eliminate(answer, factors, [3] * 64)
    coupled = {tuple(edge): w for edge, w in zip(edges.tolist(), weights, strict=True)}
    answer.log_z["site by site"] = _scan_grid(coupled, fields)
    return answer


def _scan_grid(weights: dict[tuple[int, ...], float], fields: Floats) -> float:
    """Log Z of an 8 x 8 grid: the axes of an array are the last eight sites."""
    table, log_scale = np.array(1.0), 0.0
    for site in range(64):
        table = table[..., None] * np.exp(fields[site])
        if site % 8:
            pair = np.exp(weights[site - 1, site] * np.eye(3))
            table = table * pair.reshape([1] * (table.ndim - 2) + [3, 3])
        if site >= 8:
            pair = np.exp(weights[site - 8, site] * np.eye(3))
            table = (table * pair.reshape([3, *[1] * (table.ndim - 2), 3])).sum(0)
        top = table.max()
        table, log_scale = table / top, log_scale + math.log(top)
    return log_scale + math.log(table.sum())


def answer_hardcore(arrays: Arrays) -> Answer:
    answer, activity = Answer(), math.exp(float(arrays["log_activity"]))
    apart = np.array([[0.0, 0.0], [0.0, -np.inf]])
    factors: list[Factor] = [(tuple(edge), apart) for edge in arrays["edges"].tolist()]
    for site in range(36):
        factors.append(((site,), np.array([0.0, math.log(activity)])))
    whole = eliminate(answer, factors, [2] * 36)
    answer.moments["E sum x"] = {ELIMINATION: whole.energy / math.log(activity)}
    rows = np.arange(64)
    rows = rows[rows & rows >> 1 == 0]
    fits = (rows[:, None] & rows == 0).astype(float)
    weight = activity ** (rows[:, None] >> np.arange(6) & 1).sum(1)
    answer.log_z[ROWS] = _sum_rows(fits, weight)
    answer.notes.append(f"{round(math.exp(_sum_rows(fits, np.ones(len(rows))))):,} states")
    return answer


def _sum_rows(fits: Floats, weight: Floats) -> float:
    """Log Z of six rows, whose neighbours must fit."""
    total = weight
    for _ in range(5):
        total = total @ fits * weight
    return math.log(total.sum())


def answer_colourings(arrays: Arrays) -> Answer:
    answer, sizes = Answer(), [3] * 36
    unequal = np.where(np.eye(3) > 0, -np.inf, 0.0)
    factors: list[Factor] = [(tuple(edge), unequal) for edge in arrays["edges"].tolist()]
    whole = eliminate(answer, factors, sizes)
    for other in (7, 35):
        equal = Elimination([*factors, ((0, other), equal_table(3))], sizes, keep=False)
        answer.moments[f"P(x0 = x{other})"] = {ELIMINATION: math.exp(equal.log_z - whole.log_z)}
    rows = []
    for row in itertools.product(range(3), repeat=6):
        if all(one != other for one, other in itertools.pairwise(row)):
            rows.append(row)
    each = np.array(rows)
    fits = (each[:, None] != each).all(2).astype(float)
    answer.log_z[ROWS] = _sum_rows(fits, np.ones(len(rows)))
    answer.notes.append(f"{round(math.exp(answer.log_z[ROWS])):,} states")
    return answer


def answer_network(name: str, arrays: Arrays) -> Answer:
    """A Bayesian network given evidence; log Z is the logarithm of its probability."""
    answer, names = Answer(), arrays["names"].tolist()
    sizes, words, labels = arrays["sizes"].tolist(), iter(arrays["labels"].tolist()), []
    for size in sizes:
        labels.append([next(words) for _ in range(size)])
    known = {}
    evidence = dict(zip(arrays["known"].tolist(), arrays["evidence"].tolist(), strict=True))
    for variable, word in evidence.items():
        known[names.index(variable)] = labels[names.index(variable)].index(word)
    free = [site for site in range(len(names)) if site not in known]
    factors, constant = [], 0.0
    for scope, log in unpack_tables(arrays):
        log = log[tuple(known.get(site, slice(None)) for site in scope)]
        scope = tuple(free.index(site) for site in scope if site not in known)
        if scope:
            factors.append((scope, log))
        else:
            constant += float(log)
    eliminate(answer, factors, [sizes[site] for site in free])
    for sums in (answer.log_z, answer.energy):
        sums[ELIMINATION] += constant
    assert answer.log_prob is not None
    answer.log_prob += constant
    answer.log_z["pgmpy"] = _ask_pgmpy(name, evidence)
    answer.notes.append("pgmpy has its tables in double precision, ours are rounded to single")
    return answer


def _ask_pgmpy(name: str, evidence: dict[str, str]) -> float:
    from pgmpy.inference import VariableElimination  # noqa: PLC0415 - takes seconds to import
    from pgmpy.utils import get_example_model  # noqa: PLC0415

    solver = VariableElimination(get_example_model(name))
    joint = solver.query(list(evidence), show_progress=False)
    return math.log(joint.get_value(**evidence))


def answer_fhmm(arrays: Arrays) -> Answer:
    answer, factors = Answer(), unpack_tables(arrays)
    steps = len(arrays["sizes"]) // 2
    eliminate(answer, factors, arrays["sizes"].tolist())
    tables = {scope: np.exp(log) for scope, log in factors}
    start = np.multiply.outer(tables[0,], tables[steps,])
    forward, log_scale = (start * tables[0, steps]).ravel(), 0.0
    for t in range(1, steps):
        step = np.einsum("ab,cd->acbd", tables[t - 1, t], tables[steps + t - 1, steps + t])
        forward = forward @ step.reshape(6, 6) * tables[t, steps + t].ravel()
        total = forward.sum()
        forward, log_scale = forward / total, log_scale + math.log(total)
    answer.log_z["forward pass"] = log_scale + math.log(forward.sum())
    return answer


def answer_poisson_ring(arrays: Arrays) -> Answer:
    answer, sites = Answer(), 10
    log_rates, g = arrays["log_rates"].astype(float), float(arrays["smoothness"])
    factors = ring_factors(log_rates, g, TRUNCATED)
    eliminate(answer, factors, [TRUNCATED] * sites)
    laws = answer.mean.pop(ELIMINATION)
    answer.mean[ELIMINATION] = laws @ np.arange(TRUNCATED)
    longer = ring_factors(log_rates, g, 70)
    z, first, second = np.eye(70), np.zeros((70, 70)), np.zeros((70, 70))
    for site in range(sites):
        log = longer[site][1][:, None] + longer[sites + 1][1]
        p, pf, pff = np.exp(log), np.exp(log) * log, np.exp(log) * log**2
        second = z @ pff + 2 * first @ pf + second @ p
        z, first = z @ p, z @ pf + first @ p
    total, mean = np.trace(z), np.trace(first) / np.trace(z)
    method = "trace of a product of matrices, cut at 70"
    answer.log_z[method], answer.energy[method] = math.log(total), float(mean)
    answer.variance[method] = float(np.trace(second) / total - mean**2)
    answer.notes.append(f"elimination cuts the values of a site at {TRUNCATED}")
    return answer


def ring_factors(log_rates: Floats, g: float, values: int) -> list[Factor]:
    """One table a site, then one a bond. The last bond has its scope in order."""
    x = np.arange(values)
    factorial = np.array([math.lgamma(k + 1) for k in range(values)])
    factors: list[Factor] = []
    for site, log_rate in enumerate(log_rates):
        factors.append(((site,), log_rate * x - factorial))
    for site in range(len(log_rates)):
        factors.append(
            ((site, (site + 1) % len(log_rates)), (-g * (x[:, None] - x) ** 2).astype(np.float64))
        )
    return factors
