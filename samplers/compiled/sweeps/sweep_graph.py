"""Sweeps on any graph: the twin of both samplers of `samplers.sweep`.

Sites of a class are independent: the fields of some of them are found, then their words, then their
new values. Up to 32 chains advance side by side: a site has a word with a bit for each, so all of
them read a neighbour at once (`compiled.sweeps.packed_chains`). A chain alone keeps the fields of
all sites, and a flip changes those of its neighbours.

Where couplings are equal up to their signs and a site has at most seven, eight chains or more
advance in bits instead, 64 of them together (`compiled.bits.columns`).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import GraphForm
from latticework.samplers.compiled.arithmetic import F, exp32
from latticework.samplers.compiled.bits.columns import BLOCK_CHAINS, GraphColumns
from latticework.samplers.compiled.bits.signed_graphs import find_columns
from latticework.samplers.compiled.bits.sweep_columns import sweep_columns
from latticework.samplers.compiled.compiled_sampler import GroupTwin, Keys, SameObjects, Sums
from latticework.samplers.compiled.draws import draw_bit
from latticework.samplers.compiled.forms.field_rows import fields_of
from latticework.samplers.compiled.forms.fields import add_change, renew_fields, renewal_mask
from latticework.samplers.compiled.jit import inlined, kernel, lean, over_chains
from latticework.samplers.compiled.philox import fill_sites, is_below, philox
from latticework.samplers.compiled.running_sums import add_chain
from latticework.samplers.compiled.sweeps.packed_chains import LANES, find_odds, pack_word
from latticework.samplers.sweep import TIE_NATS, TIE_SHARE, MetropolisSweep

CHUNK_SITES = 64  # sites, a multiple of 4, whose fields and words stay in the cache
VECTOR_CHAINS = 4  # words of random numbers are drawn for a multiple of so many chains
MAX_BYTE_STEPS = 255  # steps whose sum of states fits into a byte
NANOSECONDS = 0.1  # for a site of a chain, by `compiled.bits.columns`, roughly
MIN_CHAINS = 8  # for `compiled.bits.columns`: of fewer, most bits of a word would be idle


class GraphSweepState(NamedTuple):
    x: Tensor  # [chains, sites]
    fields: Tensor  # [1, sites], the log-odds of all sites, float64; [chains, 0] for several chains


@dataclass(frozen=True)
class GraphSweepTwin(GroupTwin):
    def start(self, x: Tensor, form: GraphForm) -> GraphSweepState:
        alone = len(x) == 1
        fields = fields_of(form, x) if alone else x.new_empty(len(x), 0, dtype=torch.float64)
        return GraphSweepState(x, fields)

    def run(
        self, state: GraphSweepState, form: GraphForm, keys: Keys, sums: Sums
    ) -> GraphSweepState:
        x, fields = state.x.numpy(), state.fields.numpy()
        metropolis = isinstance(self.sampler, MetropolisSweep)
        if self.prefers_columns((form,), len(x)):
            return super().run(state, form, keys, sums)
        if len(x) == 1:
            sweep_alone(metropolis, form, x, fields[0], keys, sums)
        else:
            work = len(keys) * len(x) * (5.0 * x.shape[1] + len(form.neighbours))
            over_chains(sweep_graphs, len(x), work, metropolis, form, x, keys, sums, fewest=LANES)
        sums.accept[:] += len(keys)
        return state

    def columns(self, forms: tuple[GraphForm, ...], chains: int) -> GraphColumns | None:
        """The arrays of sweeps in bits of so many chains on each of the forms, if there are any."""
        metropolis = isinstance(self.sampler, MetropolisSweep)
        return find_columns(SameObjects(forms), metropolis, chains)

    def prefers_columns(self, forms: tuple[GraphForm, ...], chains: int) -> bool:
        many = len(forms) * chains >= MIN_CHAINS
        return many and self.columns(forms, chains) is not None

    def serves_groups(
        self, state: GraphSweepState, forms: tuple[GraphForm, ...], chains: int
    ) -> bool:
        return self.prefers_columns(forms, chains)

    def run_groups(
        self,
        x: NDArray[np.float32],
        rows: NDArray[np.int64],
        forms: tuple[GraphForm, ...],
        keys: Keys,
        sums: Sums,
    ) -> None:
        columns = self.columns(forms, rows.shape[1])
        assert columns is not None
        flips, blocks = isinstance(self.sampler, MetropolisSweep), -(-rows.size // BLOCK_CHAINS)
        work = NANOSECONDS * blocks * BLOCK_CHAINS * len(keys) * x.shape[1]
        over_chains(sweep_columns, blocks, work, columns, flips, rows.ravel(), x, keys, sums)
        sums.accept[:] += len(keys)


# Chains side by side.


@kernel
def sweep_graphs(first, last, metropolis, form, x, keys, sums):
    """Advance the chains `first <= c < last`, as many together as a tile holds."""
    sites, steps, draws = x.shape[1], keys.shape[0], sums.trace.shape[0]
    classes, order = form.classes, form.order
    for start in range(first, last, LANES):
        chains = min(LANES, last - start)
        width = (chains + VECTOR_CHAINS - 1) // VECTOR_CHAINS * VECTOR_CHAINS
        now = np.zeros(sites, np.uint32)
        seen = np.zeros(sites * LANES if sums.total.shape[0] else 0, np.uint8)
        fields, total = np.empty(CHUNK_SITES * LANES, np.float32), np.empty(LANES)
        words = np.zeros(CHUNK_SITES * LANES, np.uint32)
        rises = np.empty(CHUNK_SITES * LANES, np.uint8)
        stays = np.empty_like(rises)
        changed = np.zeros(LANES, np.uint32)
        for c in range(chains):
            for i in range(sites):
                now[i] |= np.uint32(x[start + c, i]) << np.uint32(c)
        for t in range(steps):
            chunk = 0
            changed[:] = 0
            for k in range(classes.shape[0] - 1):
                for begin in range(classes[k], classes[k + 1], CHUNK_SITES):
                    rows = min(CHUNK_SITES, classes[k + 1] - begin)
                    fill_sites(words, LANES, width, rows, chunk * CHUNK_SITES // 4, start, keys[t])
                    for m in range(rows):
                        i = np.uint64(order[begin + m])
                        find_odds(fields, m * LANES, total, form, now, i)
                    if metropolis:
                        for m in range(np.uint64(rows * LANES)):
                            rare = is_move_proposed(words[m], fields[m])
                            usual = is_tie_kept(words[m], fields[m])
                            rises[m] = np.uint8(usual if fields[m] > 0 else rare)
                            stays[m] = np.uint8(not (rare if fields[m] > 0 else usual))
                        update_sites(now, rises, stays, changed, order, begin, rows)
                    else:
                        for m in range(np.uint64(rows * LANES)):
                            rises[m] = np.uint8(draw_bit(words[m], fields[m]))
                        update_sites(now, rises, rises, changed, order, begin, rows)
                    chunk += 1
            for c in range(chains):
                sums.changed[start + c] += np.int64(changed[c])
            if seen.shape[0]:
                add_seen(seen, now)
            if seen.shape[0] and ((t + 1) % MAX_BYTE_STEPS == 0 or t == steps - 1):
                for c in range(chains):
                    for i in range(sites):
                        sums.total[start + c, i] += np.float32(seen[i * LANES + c])
                seen[:] = 0
            if t >= steps - draws:
                for c in range(min(chains, sums.trace.shape[1] - start)):
                    for i in range(sites):
                        sums.trace[t - steps + draws, start + c, i] = (now[i] >> np.uint32(c)) & 1
        for c in range(chains):
            for i in range(sites):
                x[start + c, i] = np.float32((now[i] >> np.uint32(c)) & 1)


@inlined
def is_move_proposed(word, odds):
    """Whether a site at its likely value flips by the rule of `samplers.sweep`."""
    share = exp32(-abs(odds))
    return is_below(word, F(TIE_SHARE) * share if abs(odds) <= F(TIE_NATS) else share)


@inlined
def is_tie_kept(word, odds):
    """Whether a site at its unlikely value flips: always, unless it is a tie."""
    return (abs(odds) > F(TIE_NATS)) | is_below(word, F(TIE_SHARE))


@lean
def update_sites(now, rises, stays, changed, order, begin, rows):
    """Set sites to 1 in the chains at 0 where they rise, and in those at 1 where they stay."""
    for m in range(np.uint64(rows)):
        i, at = np.uint64(order[np.uint64(begin) + m]), m * np.uint64(LANES)
        word = (pack_word(rises, at) & ~now[i]) | (pack_word(stays, at) & now[i])
        flips = now[i] ^ word
        now[i] = word
        for c in range(np.uint64(LANES)):
            changed[c] += (flips >> np.uint32(c)) & np.uint32(1)


@lean
def add_seen(seen, now):
    """Add the states of all chains to bytes."""
    for i in range(np.uint64(now.shape[0])):
        row = i * np.uint64(LANES)
        for c in range(np.uint64(LANES)):
            seen[row + c] += np.uint8((now[i] >> np.uint32(c)) & np.uint32(1))


# A chain alone.


@kernel
def sweep_alone(metropolis, form, x, fields, keys, sums):
    """Advance chain 0. Its words are those that it would have among others."""
    classes, order, mask = form.classes, form.order, renewal_mask(1)
    now, fours = x[0], np.empty(order.shape[0], np.uint32)
    count = number_fours(fours, classes)
    words = np.empty(4 * count, np.uint32)
    numbers, flipped = np.empty((2, CHUNK_SITES), np.float32), np.empty(CHUNK_SITES, np.uint64)
    for t in range(keys.shape[0]):
        if keys[t] & mask == 0:
            renew_fields(form, now, fields)
        for f in range(np.uint64(count)):
            a, b, c, d = philox(fours[f], np.uint32(0), np.uint32(0), np.uint64(keys[t]))
            at = np.uint64(4) * f
            words[at], words[at + np.uint64(1)] = a, b
            words[at + np.uint64(2)], words[at + np.uint64(3)] = c, d
        four = 0
        for k in range(classes.shape[0] - 1):
            for begin in range(classes[k], classes[k + 1], CHUNK_SITES):
                size = min(CHUNK_SITES, classes[k + 1] - begin)
                flips = list_flips(
                    flipped, numbers, metropolis, now, fields, words, order, begin, size, four
                )
                for f in range(flips):
                    i = flipped[f]
                    add_change(form, fields, i, now[i], np.float32(1) - now[i])
                    now[i] = np.float32(1) - now[i]
                sums.changed[0] += flips
                four += (size + 3) // 4
        add_chain(sums, x, 0, t - keys.shape[0])


@kernel
def number_fours(fours, classes):
    """The counters of a sweep's calls of Philox, as `sweep_graphs` counts; returns how many."""
    count, chunk = 0, 0
    for k in range(classes.shape[0] - 1):
        for begin in range(classes[k], classes[k + 1], CHUNK_SITES):
            for four in range((min(CHUNK_SITES, classes[k + 1] - begin) + 3) // 4):
                fours[count] = chunk * CHUNK_SITES // 4 + four
                count += 1
            chunk += 1
    return count


@lean
def list_flips(flipped, room, metropolis, now, fields, words, order, begin, rows, four):
    """List the sites of a chunk that flip; returns how many. Nothing branches on them.

    `room` are two rows that are overwritten.
    """
    odds, value = room
    for m in range(np.uint64(rows)):
        i = order[np.uint64(begin) + m]
        odds[m], value[m] = fields[i], now[i]
    for m in range(np.uint64(rows)):
        word, likely = words[np.uint64(4 * four) + m], np.float32(odds[m] > 0)
        if metropolis:
            rare, usual = is_move_proposed(word, odds[m]), is_tie_kept(word, odds[m])
            odds[m] = np.float32(rare if likely == value[m] else usual)
        else:
            odds[m] = np.float32(np.float32(draw_bit(word, odds[m])) != value[m])
    count = np.uint64(0)
    for m in range(np.uint64(rows)):
        flipped[count] = np.uint64(order[np.uint64(begin) + m])
        count += np.uint64(odds[m])
    return count
