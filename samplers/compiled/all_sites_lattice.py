"""Steps that decide about every site, on lattices with one coupling.

A step makes one pass or more over the sites. In a pass, some sites flip independently, with
probabilities that depend on their class only (`compiled.lattice`) and are read from tables. A sweep
has a pass for each colour of the lattice; proposals that flip all sites have a single pass, after
which the whole step may be rejected. `samplers.compiled.langevin_lattice`, `dlmc` and `sweep` fill
the tables.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import LatticeForm
from latticework.samplers.compiled.decisions import (
    BYTES,
    LANE,
    break_ties,
    compare,
    find_ties,
    find_words,
    key_lanes,
    number_lanes,
    split,
)
from latticework.samplers.compiled.jit import kernel, lean, over_chains, reordered
from latticework.samplers.compiled.lattice import (
    ALONE,
    BLOCK,
    FEW,
    GROUP,
    classify,
    copy_bytes,
    look_up,
    look_up_any,
    tile_of,
)
from latticework.samplers.compiled.philox import AHEAD, HALF, fill_lanes, unit
from latticework.samplers.compiled.twin import Position, Sums, Twin

LONGEST = 255  # steps whose sums of zeros and ones fit into a byte


class Tables(NamedTuple):
    """What a step reads for each class of sites.

    Site i of kind k has the classes from `base[i] + first[., i]` on. These are bytes, so `base` is
    0 only if there are few classes.
    """

    values: int  # numbers of neighbours at 1
    few: bool
    first: NDArray[np.uint8]  # [passes, sites]; ALONE for the sites of other passes
    base: NDArray[np.int64]  # [sites]
    limit: NDArray[np.uint8]  # [classes], of the probability of a flip, as by `decisions.split`
    fraction: NDArray[np.uint64]  # [classes]
    softplus: NDArray[np.float64]  # [classes], log(1 + exp(logit of the flip))
    excess: NDArray[np.float64]  # [classes], logit - gain / 2; empty if it is a constant


def gains_of(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The gain of a flip, `[kinds, value, neighbours at 1]`, from the log-odds of each kind."""
    return np.stack((odds, -odds), 1)


def tables_of(
    kind: NDArray,
    logits: NDArray[np.float64],
    excess: NDArray[np.float64],
    passes: NDArray[np.integer] | None = None,
) -> Tables:
    """The tables for the flips with these `logits`, `[kinds, value, neighbours at 1]`.

    `passes` `[sites]` numbers the pass of each site; by default there is one.
    """
    passes = np.zeros_like(kind) if passes is None else passes
    start = kind * logits[0].size
    few = logits.size <= FEW
    first = np.where(passes == np.arange(passes.max() + 1)[:, None], start if few else 0, ALONE)
    limit, fraction = split(1 / (1 + np.exp(-logits.ravel())))
    return Tables(
        values=logits.shape[2],
        few=few,
        first=first.astype(np.uint8),
        base=np.zeros(len(kind), np.int64) if few else start.astype(np.int64),
        limit=np.pad(limit, (0, -len(limit) % GROUP)),
        fraction=fraction,
        softplus=np.logaddexp(0, logits).ravel(),
        excess=excess.ravel(),
    )


@dataclass(frozen=True)
class AllSitesLatticeTwin(Twin):
    adjusted = False  # whether a step may be rejected

    def start(self, x: Tensor, form: LatticeForm) -> Position:
        self.tables(form)  # checks the settings
        return Position(x)

    @abstractmethod
    def tables(self, form: LatticeForm) -> Tables:
        """What the kernel reads."""

    def run(
        self, state: Position, form: LatticeForm, keys: NDArray[np.int64], sums: Sums
    ) -> Position:
        x, tables = state.x.numpy(), self.tables(form)
        work, lattice = 0.5 * x.size * len(keys), (form.shifts, form.joins)
        over_chains(flip_all, len(x), work, self.adjusted, *lattice, tables, x, keys, sums)
        return state


@kernel
def flip_all(first, last, adjusted, shifts, joins, tables, x, keys, sums):
    """Advance the chains `first <= c < last`, as many together as a tile holds."""
    sites, steps, passes = x.shape[1], keys.shape[0], tables.first.shape[0]
    values, few, firsts, base, limits, fraction, softplus, excess = tables
    padded, margin, row, size, firsts, joined = tile_of(sites, last - first, firsts, shifts, joins)
    now = padded[margin : margin + size]
    now_words = now.view(np.uint64)
    rows, block = max(1, size // row), min(size, BLOCK)
    ahead = max(1, min(AHEAD, BLOCK // size))
    lanes = block // LANE
    drawn_words, lane_keys = np.empty(ahead * block // 8, np.uint64), np.empty(ahead * lanes, np.uint64)
    drawn, counters = drawn_words.view(np.uint8), np.empty(ahead * size // LANE, np.uint64)
    found, tied, tie_words = np.empty(block, np.uint64), np.empty(block, np.uint64), np.empty(2 * block, np.uint64)
    tie_keys, tie_counters = np.empty(block, np.uint64), np.empty(block, np.uint64)
    flip_words = np.empty(size // 8, np.uint64)
    class_words, proposed_words = np.empty(size // 8, np.uint64), np.empty(size // 8, np.uint64)
    limit_words, new_limit_words = np.empty(size // 8, np.uint64), np.empty(size // 8, np.uint64)
    changed_words, seen_words = np.zeros(size // 8, np.uint64), np.zeros(size // 8, np.uint64)
    flips = flip_words.view(np.uint8)
    classes, proposed = class_words.view(np.uint8), proposed_words.view(np.uint8)
    limit, new_limit = limit_words.view(np.uint8), new_limit_words.view(np.uint8)
    changed, seen = changed_words.view(np.uint8), seen_words.view(np.uint8)
    totals = np.empty(rows)
    for start in range(first, last, rows):
        chains = min(rows, last - start)
        load(now, row, x, start, chains)
        number_lanes(counters, row, size, start)
        if adjusted:
            prepare(classes, limit, padded, margin, firsts, 0, joined, shifts, values, few, limits, base, row, size)
            for r in range(chains):
                totals[r] = table_sum(softplus, base, classes, r * row)
        for t in range(steps):
            if t % ahead == 0:
                key_lanes(lane_keys, keys, t, ahead)
                if size <= BLOCK:
                    fill_lanes(drawn_words, lane_keys, counters, ahead * lanes, BYTES)
            at = t % ahead * size
            for turn in range(passes):
                if not adjusted:
                    prepare(classes, limit, padded, margin, firsts, turn, joined, shifts, values, few, limits, base, row, size)
                for left in range(0, size, BLOCK):
                    right = min(left + BLOCK, size)
                    if size > BLOCK:
                        fill_lanes(drawn_words, lane_keys, counters[left // LANE:], (right - left) // LANE, BYTES)
                        at = 0
                    compare(flips, drawn, limit, left, right, at)
                    hits = find_words(found, flip_words, left, right)
                    if hits:
                        ties = find_ties(tied, flips, found, hits, classes)
                        break_ties(flips, tied, ties, tie_words, tie_keys, tie_counters, classes, fraction, base, row, start, keys[t])
                    end = at - left
                exclusive(now_words, flip_words, 0, size)
                if not adjusted:
                    add_words(changed_words, flip_words, 0, size)
            if adjusted:
                # The target is quadratic, so log pi(y) - log pi(x) is half the sum over the flips
                # of the gain at x minus that at y. It cancels against the halved gains in logits.
                prepare(proposed, new_limit, padded, margin, firsts, 0, joined, shifts, values, few, limits, base, row, size)
                for r in range(chains):
                    c, i = start + r, r * row
                    normaliser = table_sum(softplus, base, proposed, i)
                    log_ratio = totals[r] - normaliser
                    if excess.shape[0]:
                        log_ratio += change(excess, base, proposed, classes, flips, i)
                    probability = np.exp(min(log_ratio, 0.0))
                    word = drawn_words[(end + i + row) // 8 - 1] >> HALF
                    sums.accept[c] += probability
                    if unit(word) < probability:
                        totals[r] = normaliser
                        copy_words(class_words, proposed_words, i, i + row)
                        copy_words(limit_words, new_limit_words, i, i + row)
                        add_words(changed_words, flip_words, i, i + row)
                    else:
                        exclusive(now_words, flip_words, i, i + row)
            if sums.total.shape[0]:
                add_words(seen_words, now_words, 0, size)
            if (t + 1) % LONGEST == 0 or t == steps - 1:
                flush(sums, changed, seen, row, start, chains)
            if t >= steps - sums.trace.shape[0]:
                for r in range(min(chains, sums.trace.shape[1] - start)):
                    copy_bytes(
                        sums.trace[t - (steps - sums.trace.shape[0]), start + r],
                        now[r * row : r * row + sites],
                    )
        if not adjusted:
            sums.accept[start : start + chains] += steps
        store(x, start, chains, now, row)


@lean
def load(here, row, x, start, chains):
    for r in range(chains):
        for i in range(x.shape[1]):
            here[r * row + i] = np.uint8(x[start + r, i])


@lean
def store(x, start, chains, here, row):
    for r in range(chains):
        for i in range(x.shape[1]):
            x[start + r, i] = here[r * row + i]


@lean
def prepare(classes, limit, x, margin, firsts, turn, joins, shifts, values, few, limits, base, row, size):
    """The classes and the limits of all sites, block by block."""
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        classify(classes, x, margin, firsts, turn, joins, shifts, values, start, stop)
        if few:
            look_up(limit, limits, classes, start, stop)
        else:
            look_up_any(limit, limits, base, classes, row, start, stop)


@lean
def exclusive(x, y, start, stop):
    """x ^= y, eight bytes at a time."""
    for j in range(np.uint64(start // 8), np.uint64(stop // 8)):
        x[j] ^= y[j]


@lean
def add_words(x, y, start, stop):
    for j in range(np.uint64(start // 8), np.uint64(stop // 8)):
        x[j] += y[j]


@lean
def copy_words(x, y, start, stop):
    for j in range(np.uint64(start // 8), np.uint64(stop // 8)):
        x[j] = y[j]


@reordered
def table_sum(table, base, classes, start):
    """The sum of `table` over the sites of the row that begins at `start`."""
    total = 0.0
    for i in range(base.shape[0]):
        total += table[np.uint64(base[i]) + np.uint64(classes[start + i])]
    return total


@reordered
def change(table, base, new, old, flips, start):
    """The sum of `table` over the sites that flip, at the new classes minus at the old ones."""
    total = 0.0
    for i in range(base.shape[0]):
        first = np.uint64(base[i])
        after, before = np.uint64(new[start + i]), np.uint64(old[start + i])
        total += flips[start + i] * (table[first + after] - table[first + before])
    return total


@lean
def flush(sums, flipped, seen, row, start, chains):
    """Add the bytes to the sums, and set them to 0."""
    for r in range(chains):
        changed = 0
        for i in range(r * row, (r + 1) * row):
            changed += flipped[i]
        sums.changed[start + r] += changed
        if sums.total.shape[0]:
            for i in range(sums.total.shape[1]):
                sums.total[start + r, i] += np.float32(seen[r * row + i])
    flipped[:] = 0
    seen[:] = 0
