"""Steps that decide about every site, on lattices with one coupling.

In a step, all sites flip independently, with probabilities that depend on their class only
(`compiled.lattice`) and are read from tables. Then the whole step may be rejected.
`samplers.compiled.lattice_twins` fills the tables. The steps of a cycle have a row of the tables
each.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import LatticeForm
from latticework.samplers.compiled.byte_decisions import (
    BYTES,
    LANE,
    break_ties,
    compare,
    find_ties,
    find_words,
    key_lanes,
    look_up,
    look_up_few,
    number_lanes,
    ties_of,
)
from latticework.samplers.compiled.compiled_sampler import GroupTwin, Keys, Position, Sums
from latticework.samplers.compiled.jit import SHORT, inlined, kernel, lean, over_chains, reordered
from latticework.samplers.compiled.lattice import BLOCK, classify, copy_bytes, tile_of
from latticework.samplers.compiled.lattice_tables import Tables, join_rows
from latticework.samplers.compiled.philox import AHEAD, HALF, fill_lanes, unit

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
LONGEST = 255  # steps whose sums of zeros and ones fit into a byte


@dataclass(frozen=True)
class AllSitesLatticeTwin(GroupTwin):
    adjusted = False  # whether a step may be rejected

    def start(self, x: Tensor, form: LatticeForm) -> Any:
        _tables_of_forms(_Same(self, (form,)))  # checks the settings
        return Position(x)

    @abstractmethod
    def tables(self, form: LatticeForm) -> Tables:
        """The tables that the kernel reads."""

    def run(self, state: Any, form: LatticeForm, keys: Keys, sums: Sums) -> Any:
        self.flip(state.x.numpy(), form, 0, keys, sums)
        return state

    def flip(
        self, x: NDArray[np.float32], form: LatticeForm, phase: int, keys: Keys, sums: Sums
    ) -> None:
        """Overwrite `x`. The first step reads row `phase` of the tables."""
        self.run_groups(x, np.arange(len(x))[None], (form,), keys, sums, phase)

    def run_groups(
        self,
        x: NDArray[np.float32],
        rows: NDArray[np.int64],
        forms: tuple[LatticeForm, ...],
        keys: Keys,
        sums: Sums,
        phase: int = 0,
    ) -> None:
        groups, size = rows.shape
        tables, lattice = _tables_of_forms(_Same(self, forms)), (forms[0].shifts, forms[0].joins)
        period, work = len(tables.limit) // groups, 0.5 * x.size * len(keys)
        args = *lattice, tables, period, phase, size, rows.ravel(), x, keys, sums
        fewest = SHORT if x.shape[1] < BLOCK else 1
        over_chains(flip_all, rows.size, work, self.adjusted, *args, fewest=fewest)


@dataclass(frozen=True, eq=False)
class _Same:
    """A twin and forms, equal to a pair of these objects only."""

    twin: AllSitesLatticeTwin
    forms: tuple[LatticeForm, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.ids() == other.ids()

    def __hash__(self) -> int:
        return hash(self.ids())

    def ids(self) -> tuple[int, ...]:
        return id(self.twin), *map(id, self.forms)


@lru_cache(maxsize=16)
def _tables_of_forms(of: _Same) -> Tables:
    return join_rows([of.twin.tables(form) for form in of.forms])


class Work(NamedTuple):
    """Memory that a step writes: bytes `[size of the tile]`, and the same in words of eight."""

    now: Bytes  # states, inside of `Tile.x`
    flips: Bytes
    classes: Bytes  # classes of the present states
    proposed: Bytes  # classes of the proposed states
    limit: Bytes
    flipped: Bytes  # sums of flips since they were last added to `Sums`
    seen: Bytes  # sums of states
    drawn: Bytes  # random bytes of a block, or of several steps of a small tile
    now_words: Words
    flip_words: Words
    class_words: Words
    proposed_words: Words
    flipped_words: Words
    seen_words: Words
    drawn_words: Words
    keys: Words  # [lanes], of Philox, which fill `drawn`
    counters: Words
    totals: NDArray[np.float64]  # [chains], sum of `Tables.softplus` at the present states


@kernel
def work_of(tile, ahead):
    size, block = tile.size, min(tile.size, BLOCK)
    now = tile.x[tile.margin : tile.margin + size].view(np.uint64)
    flips, classes, proposed = words_of(size), words_of(size), words_of(size)
    limit, flipped, seen = words_of(size), words_of(size), words_of(size)
    drawn = np.empty(ahead * block // 8, np.uint64)
    keys = np.empty(ahead * block // LANE, np.uint64)
    counters = np.empty(ahead * size // LANE, np.uint64)
    return Work(
        now.view(np.uint8),
        flips.view(np.uint8),
        classes.view(np.uint8),
        proposed.view(np.uint8),
        limit.view(np.uint8),
        flipped.view(np.uint8),
        seen.view(np.uint8),
        drawn.view(np.uint8),
        now,
        flips,
        classes,
        proposed,
        flipped,
        seen,
        drawn,
        keys,
        counters,
        np.empty(max(1, size // tile.row)),
    )


@kernel
def words_of(size):
    return np.zeros(size // 8, np.uint64)


@kernel
def flip_all(
    first, last, adjusted, shifts, joins, all_tables, period, phase, group, rows, x, keys, sums
):
    """Advance the chains `first <= c < last`, as many together as a tile holds.

    Chain c is row `rows[c]` of `x`. `group` chains in turn share `period` rows of the tables.
    """
    sites, steps, tables = x.shape[1], keys.shape[0], row_of(all_tables, 0)
    total, trace, accepted, changed = sums.total, sums.trace, sums.accept, sums.changed
    tile = tile_of(sites, min(last - first, group), tables.first, shifts, joins)
    size, row, most = tile.size, tile.row, max(1, tile.size // tile.row)
    ahead = max(1, min(AHEAD, BLOCK // size))
    work, ties = work_of(tile, ahead), ties_of(size)
    now, seen, now_words = work.now, work.seen_words, work.now_words
    start = first
    while start < last:
        chains = min(most, last - start, group - start % group)
        load(now, row, x, rows[start : start + chains])
        number_lanes(work.counters, row, size, start)
        table = start // group * period
        tables = row_of(all_tables, table)
        for t in range(steps):
            if t % ahead == 0:
                draw_ahead(work, size, keys, t, ahead)
            at = t % ahead * size
            if period > 1:
                tables = row_of(all_tables, table + (phase + t) % period)
            if adjusted:
                if t == 0:
                    classify_all(work.classes, tile, shifts, tables.values)
                if t == 0 or period > 1:
                    add_tables(work.totals, tables, work.classes, row)
                decide(work, ties, tile, tables, start, keys[t], at)
                classify_all(work.proposed, tile, shifts, tables.values)
                # The acceptance words are the ends of the rows, in the last block.
                ends = at - (size - 1) // BLOCK * BLOCK
                judge(work, tables, row, ends, accepted[start : start + chains])
            else:
                classify_all(work.classes, tile, shifts, tables.values)
                decide(work, ties, tile, tables, start, keys[t], at)
            if total.shape[0]:
                add_words(seen, now_words)
            if (t + 1) % LONGEST == 0 or t == steps - 1:
                flush(changed, total, work, row, start, chains)
            if t >= steps - trace.shape[0]:
                for r in range(min(chains, trace.shape[1] - start)):
                    state = now[r * row : r * row + sites]
                    copy_bytes(trace[t - (steps - trace.shape[0]), start + r], state)
        if not adjusted:
            for c in range(start, start + chains):
                accepted[c] += steps
        store(x, rows[start : start + chains], now, row)
        start += chains


@inlined
def row_of(tables, k):
    """Row `k` of the tables, without the axis of rows."""
    sites = tables.values, tables.few, tables.first, tables.base
    return Tables(*sites, tables.limit[k], tables.fraction[k], tables.softplus[k], tables.excess[k])


@lean
def draw_ahead(work, size, keys, t, ahead):
    """The keys of the steps from `t` on; also their bytes, if the tile is one block."""
    key_lanes(work.keys, keys, t, ahead)
    if size <= BLOCK:
        fill_lanes(work.drawn_words, work.keys, work.counters, work.keys.shape[0], BYTES)


@lean
def classify_all(classes, tile, shifts, values):
    for start in range(0, tile.size, BLOCK):
        classify(classes, tile, shifts, values, start, min(start + BLOCK, tile.size))


@lean
def decide(work, ties, tile, tables, chain, key, at):
    """Flip the sites, block by block. The bytes of a tile of one block are drawn, from `at` on."""
    flips, classes, limit, size, row = work.flips, work.classes, work.limit, tile.size, tile.row
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        if size > BLOCK:
            counters, lanes = work.counters[start // LANE :], (stop - start) // LANE
            fill_lanes(work.drawn_words, work.keys, counters, lanes, BYTES)
        if tables.few:
            look_up_few(limit, tables.limit, classes, start, stop)
        else:
            look_up(limit, tables.limit, tables.base, classes, row, start, stop)
        compare(flips, limit, work.drawn, start, stop, at)
        hits = find_words(ties.found, work.flip_words, start, stop)
        if hits:
            count = find_ties(ties, flips, hits, classes)
            break_ties(ties, count, flips, classes, tables, row, chain, key)
    apply(work.now_words, work.flipped_words, work.flip_words)


@lean
def judge(work, tables, row, ends, accepted):
    """Accept the proposals of some chains or take them back.

    The target is quadratic, so log pi(y) - log pi(x) is half the sum over the flips of the gain at
    x minus that at y. It cancels against the halved gains in logits.
    """
    for r in range(accepted.shape[0]):
        start, stop = r * row, (r + 1) * row
        normaliser = table_sum(tables.softplus, tables.base, work.proposed, start)
        log_ratio = work.totals[r] - normaliser
        if tables.excess.shape[0]:
            log_ratio += change(tables, work.proposed, work.classes, work.flips, start)
        probability = np.exp(min(log_ratio, 0.0))
        accepted[r] += probability
        words = range(np.uint64(start // 8), np.uint64(stop // 8))
        if unit(work.drawn_words[(ends + stop) // 8 - 1] >> HALF) < probability:
            work.totals[r] = normaliser
            for j in words:
                work.class_words[j] = work.proposed_words[j]
        else:
            for j in words:
                work.now_words[j] ^= work.flip_words[j]
                work.flipped_words[j] -= work.flip_words[j]


@lean
def load(here, row, x, rows):
    for r in range(rows.shape[0]):
        source, start = x[rows[r]], np.uint64(r * row)
        for i in range(np.uint64(x.shape[1])):
            here[start + i] = np.uint8(source[i])


@lean
def store(x, rows, here, row):
    for r in range(rows.shape[0]):
        target, start = x[rows[r]], np.uint64(r * row)
        for i in range(np.uint64(x.shape[1])):
            target[i] = here[start + i]


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
def add_tables(totals, tables, classes, row):
    for r in range(totals.shape[0]):
        totals[r] = table_sum(tables.softplus, tables.base, classes, r * row)


@reordered
def table_sum(table, base, classes, start):
    """The sum of `table` over the sites of the row that begins at `start`."""
    total, start = 0.0, np.uint64(start)
    for i in range(np.uint64(base.shape[0])):
        total += table[base[i] + np.uint64(classes[start + i])]
    return total


@lean
def change(tables, new, old, flips, start):
    """The sum of `excess` over the sites that flip, at the new classes minus at the old ones."""
    table, base = tables.excess, tables.base
    total, start = 0.0, np.uint64(start)
    for i in range(np.uint64(base.shape[0])):
        after, before = base[i] + np.uint64(new[start + i]), base[i] + np.uint64(old[start + i])
        total += flips[start + i] * (table[after] - table[before])
    return total


@lean
def flush(changed, total, work, row, start, chains):
    """Add the bytes to the sums, and set them to 0."""
    flipped, seen = work.flipped, work.seen
    for r in range(chains):
        count = np.int64(0)
        for i in range(np.uint64(r * row), np.uint64((r + 1) * row)):
            count += flipped[i]
        changed[start + r] += count
        if total.shape[0]:
            for i in range(total.shape[1]):
                total[start + r, i] += np.float32(seen[r * row + i])
    flipped[:] = 0
    seen[:] = 0
