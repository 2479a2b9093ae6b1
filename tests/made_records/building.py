"""How made-up records of a claim are written down.

A `Made` is a function that returns records on which the claim is true, and arguments of it with
which the claim is false. Each of them breaks one part of the claim: one pair of samplers, one side
of an interval, one column. Where a claim does not ask for something, other arguments keep it true.
Where the runs cannot tell, because they are too short or too few, it is not decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from fakes import fake, noise

from latticework.experiments.records.record import Record

SEEDS = range(1, 4)  # seed 0 chose the settings of some claims


class Made(NamedTuple):
    """`make()` makes the claim true, as `make(**change)` does for each change of `true`.

    For each change of `false` it makes the claim false, and for those of `undecided` neither.
    Changes are named by what they change.
    """

    make: Callable[..., list[Record]]
    false: Mapping[str, Mapping[str, Any]]
    true: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
    undecided: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


def each(names: Iterable[str], value: Any) -> dict[str, dict[str, Any]]:
    """Changes that give `value` to one of `names` at a time."""
    return {f"{name} is {value}": {name: value} for name in names}


def ends(column: str, levels: Mapping[str, float], size: float = 1.0, **parts: Any) -> list[Record]:
    """For each sampler and seed, a record whose only reading of `column` is the sampler's level.

    Levels differ between seeds by about a hundredth of `size`.
    """
    return [
        fake({"step": [100], column: [level + size * noise(seed, place)]},
             sampler=name, seed=seed, **parts)
        for (place, (name, level)), seed in product(enumerate(levels.items()), SEEDS)
    ]  # fmt: skip


def curves(
    column: str,
    levels: Mapping[str, float],
    seconds: Mapping[str, float] | None = None,
    **parts: Any,
) -> list[Record]:
    """For each sampler and seed, a curve that goes from 0 to the sampler's level in 100 steps.

    These take `seconds`, which are 1 for a sampler that is not named.
    """
    share = np.array([0.0, 0.5, 1.0])
    return [
        fake(
            {
                "step": 100 * share,
                "seconds": share * (seconds or {}).get(name, 1.0),
                column: share * (level + noise(seed, place)),
            },
            sampler=name,
            seed=seed,
            **parts,
        )
        for (place, (name, level)), seed in product(enumerate(levels.items()), SEEDS)
    ]


def facts(name: str, values: Mapping[str, float], **parts: Any) -> list[Record]:
    """For each sampler and seed, a record with the entry `name` of run.json, up to 1 %."""
    return [
        fake(sampler=sampler, seed=seed, **{name: value * (1 + noise(seed, place))}, **parts)
        for (place, (sampler, value)), seed in product(enumerate(values.items()), SEEDS)
    ]
