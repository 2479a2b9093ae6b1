"""Gibbs-1 with chains side by side: `gibbs` for calls of many steps, with the same numbers.

All chains visit the same site, whose values are in a row of a tile (`tile_values`). Loading it
costs a pass over the states. In a step one site changes, so a trace is copied from that of the
step before.
"""

import numpy as np

from latticework.samplers.compiled.jit import copy, inlined, kernel
from latticework.samplers.compiled.resampling.scans import next_row
from latticework.samplers.compiled.resampling.tile_values import (
    LINE_SITES,
    count_flips,
    entries_of,
    entry,
    load_tile,
    store_value,
    visit_site,
    widest,
    words_of,
)
from latticework.samplers.compiled.run_words import BLOCK_STEPS, fill_words
from latticework.samplers.compiled.sweeps.packed_chains import LANES


@kernel
def resample_tiles(first, last, form, x, values, run, sites, sums):
    """Resample a site of each chain in each step: one of `sites` after the other, in rounds.

    `values` are x itself unless that is one-hot.
    """
    steps, size, draws = run.steps, x.shape[1], sums.trace.shape[0]
    seen, most, entries = sums.total.shape[0] > 0, widest(form, last - first), entries_of(form)
    changed = np.empty(min(most, max(LANES, last - first)), np.uint32)
    word_room = np.empty(BLOCK_STEPS, np.uint32)
    for start in range(first, last, most):
        chains = min(most, last - start)
        width = np.uint64(chains)
        words = np.zeros((BLOCK_STEPS, words_of(form, chains)), np.uint32)
        flat, apart = words.reshape(words.size), np.uint64(words.shape[1])
        now, room = load_tile(form, values, start, chains)
        total = np.zeros((size, chains) if seen else (0, 0), np.float32)
        since = np.zeros(values.shape[1] if seen else 0, np.int64)
        changed[:], turn = 0, 0
        for t in range(steps):
            step = run.first + t
            row = np.uint64(step % BLOCK_STEPS)
            if t == 0 or row == 0:
                fill_words(words, word_room, run.key, step, run.first + steps, start, 0)
                count_flips(form, width, changed, room)
            i, turn = np.uint64(sites[turn]), next_row(turn, sites)
            if seen:
                for v in range(entries):
                    held, at = np.float32(t - since[i]), i * entries + v
                    for c in range(width):
                        total[at, c] += held * entry(form, now, width, i, v, c)
                since[i] = t
            visit_site(form, now, width, i, flat, row * apart, changed, room)
            if t >= steps - draws:
                trace_tile(form, sums.trace, t - (steps - draws), now, width, i, start, entries)
        count_flips(form, width, changed, room)
        for c in range(width):
            sums.changed[start + c] += np.int64(changed[c])
        for begin in range(0, values.shape[1], LINE_SITES):
            end = np.uint64(min(begin + LINE_SITES, values.shape[1]))
            for c in range(width):
                for i in range(np.uint64(begin), end):
                    store_value(form, values, start + c, now, width, i, c)
                    for v in range(entries):
                        here, at = entry(form, now, width, i, v, c), i * entries + v
                        x[start + c, at] = here
                        if seen:
                            held = np.float32(steps - since[i]) * here
                            sums.total[start + c, at] += total[at, c] + held


@inlined
def trace_tile(form, trace, row, now, width, i, start, entries):
    """Store the states after a step, which set site `i`, as row `row` of the trace."""
    traced = np.uint64(max(0, min(np.int64(width), trace.shape[1] - start)))
    for c in range(traced):
        here = trace[row, start + c]
        if row == 0:
            for j in range(np.uint64(here.shape[0]) // entries):
                for v in range(entries):
                    here[j * entries + v] = entry(form, now, width, j, v, c)
        else:
            copy(here, trace[row - 1, start + c])
            for v in range(entries):
                here[i * entries + v] = entry(form, now, width, i, v, c)
