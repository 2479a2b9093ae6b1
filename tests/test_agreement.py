"""Samplers of a race that disagree about the target: who is found, and who is left in peace."""

import dataclasses
import math
import re

import numpy as np
import pytest
import torch

import latticework as lw
from latticework.sampling.tuning.agreement import ChainSummary, disagreements
from latticework.sampling.tuning.race import Race, rank_entrants
from latticework.sampling.tuning.setup import Allowance

NAMES = ["the log-probability", "x[0]", "x[1]", "x[2]"]


def seen(name, rng, *, chains=12, shift=(0, 0, 0, 0), mixed=True, last=0.0, effective=1000):
    means = rng.standard_normal((chains, 4)) + shift
    ends = rng.standard_normal(chains) + last
    return ChainSummary(name, mixed, means, ends, 3.2, effective)


def test_samplers_of_one_law_agree():
    """In 300 races of four, at a level of one in a thousand: three or more have p = 0.004."""
    rng = np.random.default_rng(0)
    found = [
        disagreements([seen(name, rng, mixed=name != "d") for name in "abcd"], NAMES)
        for _ in range(300)
    ]
    assert sum(map(bool, found)) < 3


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"shift": (0, 0, 4, 0)}, r"the mean of x\[1\] is \S+ ± \S+ by a and \S+ ± \S+ by b"),
        ({"shift": (0, 0, 4, -5)}, r"the mean of x\[2\] is .*, and those of x\[1\] differ too"),
        ({"shift": (4, 0, 0, 0), "mixed": False}, "the mean of the log-probability is .* by a and"),
        ({"last": 9, "mixed": False}, "12 of the 12 chains of b ended at a log-probability above"),
        ({"shift": (-9, 9, 9, 9), "mixed": False}, None),  # on its way up
        ({"shift": (0, 0.5, 0.5, 0.5)}, None),  # within the errors
    ],
)
def test_who_disagrees_and_on_what(other, told):
    rng = np.random.default_rng(1)
    found = disagreements([seen("a", rng), seen("b", rng, **other)], NAMES)
    if told is None:
        assert found == []
    else:
        (line,) = found
        assert re.search(told, line)


def test_chains_that_never_left_a_given_start_are_no_evidence():
    rng = np.random.default_rng(2)
    a, b = seen("a", rng), seen("b", rng, shift=(9, 0, 0, 0), last=9, mixed=False)
    assert disagreements([a, b], NAMES)
    assert not disagreements([a, dataclasses.replace(b, start=30.0)], NAMES)


def test_a_needle_that_chains_stay_in_is_seen_by_the_others():
    """16 sites, the state of ones holds half of the mass. A random walk that is there does not
    leave; its R-hat refuses it, and it shows that DMALA has missed the needle."""

    def needle(x):
        return x.prod(-1).detach() * math.log(2**16 - 1) + 0 * x.sum(-1)

    model, budget = lw.Function(needle, lw.Binary(16)), Allowance(1200, "evaluations")
    half = torch.cat((torch.ones(4, 16), torch.zeros(4, 16)))
    race = Race(model, budget, 8, range(3))
    blind = race.enter("dmala", lw.DMALA(1.0), {})
    found = dataclasses.replace(race, x=half).enter("walk", lw.RandomWalk(8), {})
    finder = dataclasses.replace(found, seen=dataclasses.replace(found.seen, start=0.0))
    assert blind.mixed
    assert not finder.mixed
    (told,) = race.disagreements([blind, finder])
    assert told.startswith("the mean of the log-probability is 0 ± 0 by dmala and 5.5")
    places = rank_entrants([blind, finder], "evaluations", withheld=True)
    assert [place for place, _ in places] == ["-", "-"]
