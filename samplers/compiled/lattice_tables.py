"""Tables that a step on a lattice reads, by classes of sites."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.samplers.compiled.byte_decisions import FEW, GROUP, split


class Tables(NamedTuple):
    """The numbers that a step reads for each class of sites.

    Site i of kind k has the classes from `base[i] + first[i]` on. These are bytes, so `base` is
    0 only if there are few classes.
    """

    values: int  # numbers of neighbours at 1
    few: bool
    first: NDArray[np.uint8]  # [sites]
    base: NDArray[np.uint64]  # [sites]
    limit: NDArray[np.uint8]  # [rows, classes], of the probability of a flip, as by `split`
    fraction: NDArray[np.uint64]  # [rows, classes]
    softplus: NDArray[np.float64]  # [rows, classes], log(1 + exp(logit of the flip))
    excess: NDArray[np.float64]  # [rows, classes], logit - gain / 2; empty if it is a constant


def gains_of(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The gain of a flip, `[kinds, value, neighbours at 1]`, from the log-odds of each kind."""
    return np.stack((odds, -odds), 1)


def tables_of(kind: NDArray, logits: NDArray[np.float64], excess: NDArray[np.float64]) -> Tables:
    """The tables for the flips with these `logits`, `[kinds, value, neighbours at 1]`."""
    start = kind * logits[0].size
    few = logits.size <= FEW
    limit, fraction = split(np.exp(-np.logaddexp(0, -logits.ravel())))
    return Tables(
        values=logits.shape[2],
        few=few,
        first=(start if few else np.zeros_like(start)).astype(np.uint8),
        base=np.zeros(len(kind), np.uint64) if few else start.astype(np.uint64),
        limit=np.pad(limit, (0, -len(limit) % GROUP))[None],
        fraction=fraction[None],
        softplus=np.logaddexp(0, logits).reshape(1, -1),
        excess=excess.reshape(1, -1),
    )


def join_rows(tables: list[Tables]) -> Tables:
    """The rows of all `tables`, one after another. These differ in nothing else."""
    rows: dict[str, Any] = {}
    for name in ("limit", "fraction", "softplus", "excess"):
        rows[name] = np.concatenate([getattr(each, name) for each in tables])
    return tables[0]._replace(**rows)
