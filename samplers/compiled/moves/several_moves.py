"""GWG-X and PAFS on pairwise forms of binary sites: several flips a step.

GWG-X (`samplers.gwg`) draws X sites by their weights exp(gain / 2), and flips those that it drew.
On a quadratic target log pi(y) - log pi(x) is half the sum over the flipped sites of the gain at x
minus that of the flip back at y. It cancels against the weights of the first draw of each site, so
with Z the total weight

    log ratio = X log(Z(x) / Z(y)) + half the sum over repeated draws of (gain at y - gain at x)

PAFS (`samplers.path_auxiliary`, without replacement) sets the weight of a site that is drawn to
zero, so the next one is drawn among those that are left. With Z_k their total weight at move k, on
the path and on the path back,

    log ratio = sum_k log(Z_k(x) / Z_k(y))

All totals are sums of weights: nothing is subtracted, and a total is right to the last digits after
the sites have gone that carried nearly all of it.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from latticework.models.forms import LatticeForm
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Keys, Sums, too_large
from latticework.samplers.compiled.draws import accepts, draw_by_blocks, sum_of
from latticework.samplers.compiled.forms.field_rows import rows_of
from latticework.samplers.compiled.forms.fields import (
    add_held_site,
    gain,
    renew_fields,
    renewal_mask,
    target,
)
from latticework.samplers.compiled.forms.pairwise import PairwiseForm, pairwise
from latticework.samplers.compiled.jit import copy, kernel, lean, over_chains
from latticework.samplers.compiled.moves.move_weights import (
    MoveRule,
    MovesState,
    adopt_proposal,
    follow_changes,
    has_lost_range,
    make_room,
    rows_of_chain,
    rows_of_proposal,
    spare_rows,
    undo_changes,
    weigh_moves,
    weighed_state,
)
from latticework.samplers.compiled.philox import fill_step, unit
from latticework.samplers.compiled.running_sums import add_last_values, record_chain, start_since


@dataclass(frozen=True)
class SeveralMovesTwin(CompiledSampler):
    """GWG-X."""

    def refuses(self, form: Any) -> str:
        if not isinstance(form, LatticeForm):
            return ""
        degree = np.zeros(len(form.odds), np.int64)
        degree[form.kind] = form.degree
        met = np.arange(form.odds.shape[1]) <= degree[:, None]  # other entries no site has
        return too_large(np.abs(form.odds[met]).max())

    def rule(self, form: PairwiseForm) -> MoveRule:
        return MoveRule(np.nan, np.zeros(len(getattr(form, "diagonal", ())), np.float32))

    def start(self, x: Tensor, form: Any) -> MovesState:
        form = pairwise(form)
        return weighed_state(x, form, self.rule(form), double=False)

    def run(self, state: MovesState, form: Any, keys: Keys, sums: Sums) -> MovesState:
        form, chains, flips = pairwise(form), len(state.x), self.sampler.flips
        args = form, self.rule(form), flips, rows_of(state), keys, sums
        over_chains(flip_drawn_sites, chains, 150.0 * chains * len(keys) * flips, *args)
        return state


@dataclass(frozen=True)
class PathTwin(SeveralMovesTwin):
    """PAFS."""

    def start(self, x: Tensor, form: Any) -> MovesState:
        form = pairwise(form)
        return weighed_state(x, form, self.rule(form), double=True)

    def run(self, state: MovesState, form: Any, keys: Keys, sums: Sums) -> MovesState:
        form, (chains, sites) = pairwise(form), state.x.shape
        longest = min(2 * self.sampler.length - 1, sites)
        args = form, self.rule(form), longest, rows_of(state), keys, sums
        over_chains(flip_paths, chains, 200.0 * chains * len(keys) * longest, *args)
        return state


@kernel
def move_repeats_last(drawn):
    """Move each different entry to the front, in order, and repeated ones behind them.

    Returns how many there are at the front.
    """
    count = 0
    for k in range(drawn.shape[0]):
        new = True
        for m in range(count):
            new &= drawn[m] != drawn[k]
        if new:
            drawn[count], drawn[k] = drawn[k], drawn[count]
            count += 1
    return count


@lean
def sum_of_gains(form, now, fields, sites):
    """The first-order gains of the flips of some sites."""
    total = 0.0
    for k in range(sites.shape[0]):
        i, new = target(form, now, sites[k])
        total += np.float64(gain(form, now, fields, i, new))
    return total


@lean
def flip_in_turn(form, now, sites, old, new):
    """Flip sites one after another, and list their values before and after."""
    for k in range(sites.shape[0]):
        i, new[k] = target(form, now, sites[k])
        old[k] = now[i]
        now[i] = new[k]


@lean
def flip_back(now, sites, old):
    for k in range(sites.shape[0] - 1, -1, -1):  # without finite weights a site may occur twice
        now[sites[k]] = old[k]


@kernel
def flip_drawn_sites(first, last, form, rule, flips, state, keys, out):
    """Draw `flips` sites of each chain in each step, and flip those that are drawn."""
    x, tops = state.x, state.top
    steps, mask = keys.shape[0], renewal_mask(x.shape[1])
    words, drawn = np.empty(flips // 4 * 4 + 4, np.uint32), np.empty(flips, np.int64)
    olds, news = np.empty((2, flips), np.float32)
    room = make_room(form, state.fields.shape[1])
    spare = spare_rows(state, room)
    since = start_since(out, first, last, x.shape[1])
    for c in range(first, last):
        now, rows, top = x[c], rows_of_chain(state, c, room), tops[c]
        here = sum_of(rows[2])
        for t in range(steps):
            fill_step(words, keys[t], c, 0)
            if keys[t] & mask == 0:
                renew_fields(form, now, rows[0])
            if keys[t] & mask == 0 or has_lost_range(form, here):
                top = weigh_moves(form, rule, now, rows)
                here = sum_of(rows[2])
            for k in range(flips):
                drawn[k] = draw_by_blocks(rows[1], rows[2], here, unit(words[k]))
            count = move_repeats_last(drawn)
            sites, again, old, new = drawn[:count], drawn[count:], olds[:count], news[:count]
            gains = sum_of_gains(form, now, rows[0], again)
            flip_in_turn(form, now, sites, old, new)
            there, new_top = follow_changes(form, rule, now, rows, spare, top, sites, old, new)
            gains_back = sum_of_gains(form, now, rows_of_proposal(form, rows, spare)[0], again)
            log_ratio = flips * (math.log(here) - math.log(there) + (top - new_top))
            log_ratio += (gains_back - gains) / 2
            if accepts(c, log_ratio, unit(words[flips]), out.accept, out.invalid):
                adopt_proposal(form, rows, spare)
                here, top = there, new_top
                out.changed[c] += count
                for k in range(count):
                    add_held_site(form, out.total, since, first, c, sites[k], old[k], new[k], t)
            else:
                flip_back(now, sites, old)
                undo_changes(form, rule, now, rows, top, sites, old, new)
            record_chain(out.trace, x, c, t - steps)
        tops[c] = top
    add_last_values(out, since, first, x, steps)


@kernel
def flip_paths(first, last, form, rule, longest, state, keys, out):
    """Draw a path of at most `longest` sites of each chain in each step, and flip them."""
    x, tops = state.x, state.top
    steps, mask = keys.shape[0], renewal_mask(x.shape[1])
    words, drawn = np.empty((longest + 5) // 4 * 4, np.uint32), np.empty(longest, np.int64)
    olds, news = np.empty((2, longest), np.float32)
    totals, taken, before = np.empty(longest), np.empty(longest), np.empty(state.sums.shape[1])
    room = make_room(form, state.fields.shape[1])
    spare = spare_rows(state, room)
    since = start_since(out, first, last, x.shape[1])
    for c in range(first, last):
        now, rows, top = x[c], rows_of_chain(state, c, room), tops[c]
        for t in range(steps):
            fill_step(words, keys[t], c, 0)
            if keys[t] & mask == 0:
                renew_fields(form, now, rows[0])
            if keys[t] & mask == 0 or has_lost_range(form, sum_of(rows[2])):
                top = weigh_moves(form, rule, now, rows)
            count = 1 + np.int64(unit(words[0]) * longest)
            path, old, new = drawn[:count], olds[:count], news[:count]
            copy(before, rows[2])
            draw_path(rows[1], rows[2], words[2:], path, taken, totals)
            restore_weights(rows[1], rows[2], path, taken, before)
            flip_in_turn(form, now, path, old, new)
            _, new_top = follow_changes(form, rule, now, rows, spare, top, path, old, new)
            _, back, back_sums, _ = rows_of_proposal(form, rows, spare)
            log_ratio = log_ratio_of(back, back_sums, path, totals, taken, before)
            log_ratio += count * (top - new_top)
            if accepts(c, log_ratio, unit(words[1]), out.accept, out.invalid):
                adopt_proposal(form, rows, spare)
                top = new_top
                out.changed[c] += count
                for k in range(count):
                    add_held_site(form, out.total, since, first, c, path[k], old[k], new[k], t)
            else:
                flip_back(now, path, old)
                undo_changes(form, rule, now, rows, top, path, old, new)
            record_chain(out.trace, x, c, t - steps)
        tops[c] = top
    add_last_values(out, since, first, x, steps)


@lean
def draw_path(weights, sums, words, path, taken, totals):
    """Draw the sites of `path` in order, and set their weights to zero.

    `taken` becomes these weights, and `totals` the sum of all weights before each draw.
    """
    for k in range(path.shape[0]):
        totals[k] = sum_of(sums)
        i = draw_by_blocks(weights, sums, totals[k], unit(words[k]))
        path[k], taken[k] = i, weights[i]
        weights[i] = 0
        sum_block(weights, sums, i)


@lean
def log_ratio_of(weights, sums, path, totals, taken, before):
    """The sum of log(totals[k] / total weight at y of the sites left at move k of the path back).

    The path back takes the sites of `path` from the last to the first. `weights` and `sums` are
    those at y; `taken` and `before` are overwritten.
    """
    count, result = path.shape[0], 0.0
    copy(before, sums)
    for k in range(count):
        taken[k] = weights[path[k]]
        weights[path[k]] = 0
    for k in range(count):
        sum_block(weights, sums, path[k])
    left = sum_of(sums)
    for k in range(count):
        left += taken[k]
        result += math.log(totals[k] / left)
    restore_weights(weights, sums, path, taken, before)
    return result


@lean
def sum_block(weights, sums, i):
    """Compute the sum of the block of site `i` afresh."""
    width = weights.shape[0] // sums.shape[0]
    b = i // width
    sums[b] = sum_of(weights[b * width : (b + 1) * width])


@lean
def restore_weights(weights, sums, path, taken, before):
    """Undo what set the weights of `path` to zero; `before` are the sums then."""
    for k in range(path.shape[0] - 1, -1, -1):  # without finite weights a site may occur twice
        weights[path[k]] = taken[k]
    copy(sums, before)
