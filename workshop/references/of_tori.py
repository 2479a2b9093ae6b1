"""What is known of the Ising and Potts models on the torus."""

import math

import numpy as np

from latticework.models.references.catalogue import DEFINITIONS
from latticework.sampling.perfect import couple_from_the_past
from workshop.references.answers import DRAWS, SEED, Answer, Arrays, Codes, Floats, moment_errors
from workshop.references.random_cluster import count_equal, draw_potts
from workshop.references.tori import TorusMoments, as_ising, dense_trace, kaufman, sum_rows

BOND, EQUAL = "E s s' of a bond", "P(equal ends of a bond)"
SYMMETRY, ROWS, CFTP = "symmetry", "sums over rows", "coupling from the past"
MAX_SWEEPS = 2**16  # of coupling from the past, fixed before any draw was made


def answer_ising(name: str, arrays: Arrays) -> Answer:
    """16 x 16. Without a field by Kaufman's formula too."""
    coupling, field, side = float(arrays["coupling"]), float(arrays["field"]), 16
    answer = Answer()
    rows = as_ising(sum_rows(2, side, 2 * coupling, 2 * field), side**2, coupling, field)
    if field:
        spins = 2 * rows.sites_at_zero - side**2
        _add(answer, ROWS, rows)
        answer.moments["E sum s"] = {ROWS: spins}
        answer.mean[ROWS] = np.full(side**2, rows.sites_at_zero / side**2)
    else:
        for method, moments in (("Kaufman", kaufman(side, side, coupling)), (ROWS, rows)):
            _add(answer, method, moments)
            energy = moments.energy / (2 * side**2 * coupling)
            answer.moments.setdefault(BOND, {})[method] = energy
        answer.mean[SYMMETRY] = np.full(side**2, 0.5)
    if name == "ising16_cold":
        answer.codes, sweeps = draw_potts(side, 2, 2 * coupling, DRAWS, SEED)
        answer.drawn = f"{CFTP} on the bonds of the random-cluster model"
    else:
        model = DEFINITIONS[name].build(arrays)
        x, sweeps = couple_from_the_past(model, DRAWS, SEED, MAX_SWEEPS)
        answer.codes = x.numpy().astype(np.int64)
        answer.drawn = f"{CFTP} on the sites: latticework.perfect, max_sweeps={MAX_SWEEPS}"
    answer.log_prob = evaluate_ising(answer.codes, side, coupling, field)
    answer.statistics["most sweeps"] = float(sweeps.max())
    _compare_draws(answer)
    return answer


def answer_potts(side: int, values: int, arrays: Arrays) -> Answer:
    coupling, answer = float(arrays["coupling"]), Answer()
    bonds = 2 * side**2
    moments = sum_rows(values, side, coupling)
    _add(answer, ROWS, moments)
    answer.moments[EQUAL] = {ROWS: moments.energy / (bonds * coupling)}
    if values == 3:
        answer.log_z["powers of the dense transfer matrix"] = dense_trace(values, side, coupling)
    _draw_potts(answer, side, values, coupling)
    _compare_draws(answer)
    return answer


def answer_large_potts(arrays: Arrays) -> Answer:
    """16 x 16 with three values: no exact method reaches it; draws and their means only."""
    coupling, answer, side = float(arrays["coupling"]), Answer(), 16
    _draw_potts(answer, side, 3, coupling)
    many, _ = draw_potts(side, 3, coupling, 8_000, SEED + 1)
    log_prob = (coupling * count_equal(many, side)).astype(np.float64)
    method = f"{CFTP}, 8,000 draws"
    answer.energy[method], answer.variance[method] = float(log_prob.mean()), float(log_prob.var())
    answer.moments[EQUAL] = {method: float(log_prob.mean()) / (2 * side**2 * coupling)}
    answer.errors = moment_errors(log_prob)
    answer.errors[EQUAL] = answer.errors["energy"] / (2 * side**2 * coupling)
    return answer


def _add(answer: Answer, method: str, moments: TorusMoments) -> None:
    answer.log_z[method] = float(moments.log_z)
    answer.energy[method], answer.variance[method] = float(moments.energy), float(moments.variance)


def _draw_potts(answer: Answer, side: int, values: int, coupling: float) -> None:
    answer.codes, sweeps = draw_potts(side, values, coupling, DRAWS, SEED)
    answer.log_prob = (coupling * count_equal(answer.codes, side)).astype(np.float64)
    answer.drawn = f"{CFTP} on the bonds of the random-cluster model"
    answer.statistics["most sweeps"] = float(sweeps.max())
    answer.mean[SYMMETRY] = np.full((side**2, values), 1 / values)


def _compare_draws(answer: Answer) -> None:
    """How far the mean energy of the draws is from the exact one, in standard errors."""
    assert answer.log_prob is not None
    truth = next(iter(answer.energy.values()))
    error = answer.log_prob.std() / math.sqrt(len(answer.log_prob))
    answer.statistics["z of the draws' energy"] = float((answer.log_prob.mean() - truth) / error)


def evaluate_ising(codes: Codes, side: int, coupling: float, field: float) -> Floats:
    spins = 2 * codes - 1
    bonds = 2 * count_equal(codes, side) - 2 * side**2
    return coupling * bonds + field * spins.sum(1)
