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
    FEW,
    GROUP,
    LANE,
    break_ties,
    compare,
    find_ties,
    find_words,
    key_lanes,
    look_up,
    look_up_few,
    number_lanes,
    split,
)
from latticework.samplers.compiled.jit import kernel, lean, over_chains, reordered
from latticework.samplers.compiled.lattice import ALONE, BLOCK, classify, copy_bytes, tile_of
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
    base: NDArray[np.uint64]  # [sites]
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
    limit, fraction = split(np.exp(-np.logaddexp(0, -logits.ravel())))
    return Tables(
        values=logits.shape[2],
        few=few,
        first=first.astype(np.uint8),
        base=(0 * start if few else start).astype(np.uint64),
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
    total, trace, accepted, changed = sums.total, sums.trace, sums.accept, sums.changed
    tile = tile_of(sites, last - first, firsts, shifts, joins)
    padded, margin, row, size, firsts, joins = tile
    rows, block, ahead = max(1, size // row), min(size, BLOCK), max(1, min(AHEAD, BLOCK // size))
    lanes = block // LANE

    now = padded[margin : margin + size]
    flips, classes, proposed, limit = bytes_of(size), bytes_of(size), bytes_of(size), bytes_of(size)
    flipped, seen = bytes_of(size), bytes_of(size)
    drawn, lane_keys = bytes_of(ahead * block), words_of(ahead * lanes)
    counters = words_of(ahead * size // LANE)
    found, tied = words_of(block), words_of(block)
    tie_words, tie_keys, tie_counters = words_of(2 * block), words_of(block), words_of(block)
    now_words, flip_words, class_words = words(now), words(flips), words(classes)
    proposed_words, flipped_words, seen_words = words(proposed), words(flipped), words(seen)
    drawn_words, totals = words(drawn), np.empty(rows)

    for start in range(first, last, rows):
        chains = min(rows, last - start)
        load(now, row, x, start, chains)
        number_lanes(counters, row, size, start)
        for t in range(steps):
            if t % ahead == 0:
                key_lanes(lane_keys, keys, t, ahead)
                if size == block:
                    fill_lanes(drawn_words, lane_keys, counters, ahead * lanes, BYTES)
            at = t % ahead * size
            for turn in range(passes):
                if t == 0 or not adjusted:
                    for left in range(0, size, BLOCK):
                        right = min(left + BLOCK, size)
                        classify(
                            classes,
                            padded,
                            margin,
                            firsts,
                            turn,
                            joins,
                            shifts,
                            values,
                            left,
                            right,
                        )
                if t == 0 and adjusted:
                    add_tables(totals, softplus, base, classes, row)
                for left in range(0, size, BLOCK):
                    right = min(left + BLOCK, size)
                    if size > block:
                        part = counters[left // LANE :]
                        fill_lanes(drawn_words, lane_keys, part, (right - left) // LANE, BYTES)
                    if few:
                        look_up_few(limit, limits, classes, left, right)
                    else:
                        look_up(limit, limits, base, classes, row, left, right)
                    compare(flips, limit, drawn, left, right, at)
                    hits = find_words(found, flip_words, left, right)
                    if hits:
                        ties = find_ties(tied, flips, found, hits, classes)
                        break_ties(
                            flips,
                            tied,
                            ties,
                            tie_words,
                            tie_keys,
                            tie_counters,
                            classes,
                            fraction,
                            base,
                            row,
                            start,
                            keys[t],
                        )
                apply(now_words, flipped_words, flip_words)
            if adjusted:
                for left in range(0, size, BLOCK):
                    right = min(left + BLOCK, size)
                    classify(
                        proposed, padded, margin, firsts, 0, joins, shifts, values, left, right
                    )
                # The acceptance words are the ends of the rows, in the last block.
                ends = at - (size - 1) // BLOCK * BLOCK
                judge(
                    totals,
                    softplus,
                    excess,
                    base,
                    classes,
                    proposed,
                    flips,
                    drawn_words,
                    ends,
                    row,
                    class_words,
                    proposed_words,
                    now_words,
                    flipped_words,
                    flip_words,
                    accepted[start : start + chains],
                )
            if total.shape[0]:
                add_words(seen_words, now_words)
            if (t + 1) % LONGEST == 0 or t == steps - 1:
                flush(changed, total, flipped, seen, row, start, chains)
            if t >= steps - trace.shape[0]:
                for r in range(min(chains, trace.shape[1] - start)):
                    state = now[r * row : r * row + sites]
                    copy_bytes(trace[t - (steps - trace.shape[0]), start + r], state)
        if not adjusted:
            accepted[start : start + chains] += steps
        store(x, start, chains, now, row)


@kernel
def bytes_of(size):
    return np.zeros(size, np.uint8)


@kernel
def words_of(size):
    return np.zeros(size, np.uint64)


@kernel
def words(x):
    """The memory of some bytes, in words of eight."""
    return x.view(np.uint64)


@lean
def judge(
    totals, softplus, excess, base, classes, proposed, flips, drawn, ends, row,
    class_words, proposed_words, now_words, flipped_words, flip_words, accepted,
):  # fmt: skip
    """Accept the proposals of some chains or take them back.

    The target is quadratic, so log pi(y) - log pi(x) is half the sum over the flips of the gain at
    x minus that at y. It cancels against the halved gains in logits.
    """
    for r in range(accepted.shape[0]):
        start, stop = r * row, (r + 1) * row
        normaliser = table_sum(softplus, base, proposed, start)
        log_ratio = totals[r] - normaliser
        if excess.shape[0]:
            log_ratio += change(excess, base, proposed, classes, flips, start)
        probability = np.exp(min(log_ratio, 0.0))
        accepted[r] += probability
        if unit(drawn[(ends + stop) // 8 - 1] >> HALF) < probability:
            totals[r] = normaliser
            for j in range(np.uint64(start // 8), np.uint64(stop // 8)):
                class_words[j] = proposed_words[j]
        else:
            for j in range(np.uint64(start // 8), np.uint64(stop // 8)):
                now_words[j] ^= flip_words[j]
                flipped_words[j] -= flip_words[j]


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
def apply(x, flipped, flips):
    for j in range(flips.shape[0]):
        x[j] ^= flips[j]
        flipped[j] += flips[j]


@lean
def add_words(total, x):
    for j in range(x.shape[0]):
        total[j] += x[j]


@lean
def add_tables(totals, table, base, classes, row):
    for r in range(totals.shape[0]):
        totals[r] = table_sum(table, base, classes, r * row)


@reordered
def table_sum(table, base, classes, start):
    """The sum of `table` over the sites of the row that begins at `start`."""
    total, start = 0.0, np.uint64(start)
    for i in range(np.uint64(base.shape[0])):
        total += table[base[i] + np.uint64(classes[start + i])]
    return total


@reordered
def change(table, base, new, old, flips, start):
    """The sum of `table` over the sites that flip, at the new classes minus at the old ones."""
    total, start = 0.0, np.uint64(start)
    for i in range(np.uint64(base.shape[0])):
        after, before = base[i] + np.uint64(new[start + i]), base[i] + np.uint64(old[start + i])
        total += flips[start + i] * (table[after] - table[before])
    return total


@lean
def flush(changed, total, flipped, seen, row, start, chains):
    """Add the bytes to the sums, and set them to 0."""
    for r in range(chains):
        for i in range(r * row, (r + 1) * row):
            changed[start + r] += flipped[i]
        if total.shape[0]:
            for i in range(total.shape[1]):
                total[start + r, i] += np.float32(seen[r * row + i])
    flipped[:] = 0
    seen[:] = 0
