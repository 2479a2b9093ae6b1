"""Gibbs sweeps on any graph: the twin of `samplers.sweep.GibbsSweep`.

Chains advance side by side. A tile has a row of bytes for each site, one for each of its chains, so
all of them read the row of a neighbour at once, and a vector register holds their fields. Sites of
a class are independent: the fields of some of them are computed, then their words, then their new
values. A chain alone has the same steps with rows of one byte.
"""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from latticework.models.forms import GraphForm
from latticework.samplers.compiled.draws import happens
from latticework.samplers.compiled.jit import kernel, lean, over_chains
from latticework.samplers.compiled.philox import philox
from latticework.samplers.compiled.twin import Keys, Position, Sums, Twin

CHUNK = 64  # sites, a multiple of 4, whose fields and words stay in the cache
VECTOR, WIDE = 4, 32  # chains of a tile: a multiple, at most
LONGEST = 255  # steps whose sum of states fits into a byte


@dataclass(frozen=True)
class GraphSweepTwin(Twin):
    def start(self, x: Tensor, form: GraphForm) -> Position:
        return Position(x)

    def run(self, state: Position, form: GraphForm, keys: Keys, sums: Sums) -> Position:
        x = state.x.numpy()
        work = len(keys) * len(x) * (5.0 * x.shape[1] + len(form.neighbours))
        over_chains(sweep, len(x), work, form, x, keys, sums)
        sums.accept[:] += len(keys)
        return state


@kernel
def sweep(first, last, form, x, keys, sums):
    """Advance the chains `first <= c < last`, as many together as a tile holds."""
    sites, steps, draws = x.shape[1], keys.shape[0], sums.trace.shape[0]
    for start in range(first, last, WIDE):
        chains = min(WIDE, last - start)
        width = 1 if chains == 1 else (chains + VECTOR - 1) // VECTOR * VECTOR
        now = np.zeros(sites * width, np.uint8)
        seen = np.zeros(now.shape[0] if sums.total.shape[0] else 0, np.uint8)
        fields = np.empty(CHUNK * width, np.float32)
        words, new = np.empty(CHUNK * width, np.uint32), np.empty(CHUNK * width, np.uint8)
        changed = np.zeros(width, np.int64)
        for c in range(chains):
            for i in range(sites):
                now[i * width + c] = np.uint8(x[start + c, i])
        for t in range(steps):
            chunk = 0
            for k in range(form.classes.shape[0] - 1):
                for begin in range(form.classes[k], form.classes[k + 1], CHUNK):
                    block = form.order[begin : min(begin + CHUNK, form.classes[k + 1])]
                    draw_words(words, width, block.shape[0], chunk, start, keys[t])
                    if width == 1:
                        fields_alone(fields, form, now, block)
                    else:
                        fields_together(fields, form, now, width, block)
                    for m in range(np.uint64(block.shape[0] * width)):
                        new[m] = np.uint8(happens(words[m], fields[m]))
                    replace(now, new, changed, width, block)
                    chunk += 1
            for m in range(seen.shape[0]):
                seen[m] += now[m]
            if seen.shape[0] and ((t + 1) % LONGEST == 0 or t == steps - 1):
                for c in range(chains):
                    for i in range(sites):
                        sums.total[start + c, i] += np.float32(seen[i * width + c])
                seen[:] = 0
            if t >= steps - draws:
                for c in range(min(chains, sums.trace.shape[1] - start)):
                    for i in range(sites):
                        sums.trace[t - steps + draws, start + c, i] = np.int8(now[i * width + c])
        for c in range(chains):
            sums.changed[start + c] += changed[c]
            for i in range(sites):
                x[start + c, i] = np.float32(now[i * width + c])


@lean
def draw_words(words, width, rows, chunk, chain, key):
    """A word for each site and chain; four sites of a chain share a call of Philox."""
    key, first, width = np.uint64(key), np.uint64(chunk * CHUNK // 4), np.uint64(width)
    for four in range(np.uint64((rows + 3) // 4)):
        row = np.uint64(4) * four * width
        for c in range(width):
            a, b, e, d = philox(first + four, np.uint64(chain) + c, np.uint32(0), key)
            words[row + c], words[row + width + c] = a, b
            words[row + np.uint64(2) * width + c], words[row + np.uint64(3) * width + c] = e, d


# Four neighbours at a time: sums of their own do not wait for each other, and fields are loaded and
# stored once for the four.


@lean
def fields_alone(fields, form, now, block):
    near, slope = form.neighbours, form.slope
    for m in range(block.shape[0]):
        start, stop = np.uint64(form.starts[block[m]]), np.uint64(form.starts[block[m] + 1])
        fours = (stop - start) // np.uint64(4)
        one = two = three = np.float32(0)
        field = form.offset[block[m]]
        for f in range(fours):
            k = start + np.uint64(4) * f
            field += slope[k] * np.float32(now[near[k]])
            one += slope[k + np.uint64(1)] * np.float32(now[near[k + np.uint64(1)]])
            two += slope[k + np.uint64(2)] * np.float32(now[near[k + np.uint64(2)]])
            three += slope[k + np.uint64(3)] * np.float32(now[near[k + np.uint64(3)]])
        for k in range(start + np.uint64(4) * fours, stop):
            field += slope[k] * np.float32(now[near[k]])
        fields[m] = field + one + (two + three)


@lean
def fields_together(fields, form, now, width, block):
    near, slope, width = form.neighbours, form.slope, np.uint64(width)
    for m in range(np.uint64(block.shape[0])):
        row = m * width
        start, stop = np.uint64(form.starts[block[m]]), np.uint64(form.starts[block[m] + 1])
        fours = (stop - start) // np.uint64(4)
        for c in range(width):
            fields[row + c] = form.offset[block[m]]
        for f in range(fours):
            k = start + np.uint64(4) * f
            w0, at0 = slope[k], np.uint64(near[k]) * width
            w1, at1 = slope[k + np.uint64(1)], np.uint64(near[k + np.uint64(1)]) * width
            w2, at2 = slope[k + np.uint64(2)], np.uint64(near[k + np.uint64(2)]) * width
            w3, at3 = slope[k + np.uint64(3)], np.uint64(near[k + np.uint64(3)]) * width
            for c in range(width):
                one = w0 * np.float32(now[at0 + c]) + w1 * np.float32(now[at1 + c])
                two = w2 * np.float32(now[at2 + c]) + w3 * np.float32(now[at3 + c])
                fields[row + c] += one + two
        for k in range(start + np.uint64(4) * fours, stop):
            at, w = np.uint64(near[k]) * width, slope[k]
            for c in range(width):
                fields[row + c] += w * np.float32(now[at + c])


@lean
def replace(now, new, changed, width, block):
    """Write the new values of some sites, and count those that differ."""
    width = np.uint64(width)
    for m in range(np.uint64(block.shape[0])):
        at, row = np.uint64(block[m]) * width, m * width
        for c in range(width):
            changed[c] += np.int64(now[at + c] ^ new[row + c])
            now[at + c] = new[row + c]
