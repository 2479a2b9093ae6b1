"""Which function answers for which target."""

from collections.abc import Callable
from functools import partial

from workshop.references import of_lists, of_samplers, of_tables, of_tori
from workshop.references.answers import Answer, Arrays

ANSWERS: dict[str, Callable[[Arrays], Answer]] = {
    "ising16_crit": partial(of_tori.answer_ising, "ising16_crit"),
    "ising16_cold": partial(of_tori.answer_ising, "ising16_cold"),
    "ising16_field": partial(of_tori.answer_ising, "ising16_field"),
    "potts3_8": partial(of_tori.answer_potts, 8, 3),
    "potts4_8": partial(of_tori.answer_potts, 8, 4),
    "potts3_16": of_tori.answer_large_potts,
    "crf_8x8_q3": of_tables.answer_crf,
    "pmj_cubic_60": of_tables.answer_pmj,
    "sk_20": of_lists.answer_sk_20,
    "sk_200": of_samplers.answer_sk_200,
    "grids_11": of_tables.answer_grids_11,
    "asia": partial(of_tables.answer_network, "asia"),
    "alarm": partial(of_tables.answer_network, "alarm"),
    "fhmm_zeros": of_tables.answer_fhmm,
    "rbm_24x16": of_lists.answer_rbm,
    "rbm_digits_20": of_lists.answer_digits,
    "hardcore_6x6": of_tables.answer_hardcore,
    "colourings_6x6": of_tables.answer_colourings,
    "subset_30_5": of_lists.answer_subset,
    "knapsack_8x4": of_lists.answer_knapsack,
    "select_10": of_lists.answer_selection,
    "select_19": of_lists.answer_selection,
    "two_modes_20": of_lists.answer_two_modes,
    "sbm_florentine": of_lists.answer_blocks,
    "poisson_ring_10": of_tables.answer_poisson_ring,
}


def answer(name: str, parameters: Arrays) -> Answer:
    return ANSWERS[name](parameters)
