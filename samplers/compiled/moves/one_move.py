"""GWG-1 and LB-1 on pairwise forms: `samplers.gwg` and `samplers.locally_balanced`.

A move is drawn by its weight exp(gain / 2), and accepted with probability min(1, Z(x) / Z(y)), Z
the sum of the weights. The gain is first-order in GWG-1 and exact in LB-1: they differ by the
diagonal of a dense coupling. Where a gain is NaN, LB-1 never proposes the move, and GWG-1 rejects.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from latticework.models.forms import PairForm, forbids
from latticework.samplers.compiled.compiled_sampler import CompiledSampler, Keys, Sums
from latticework.samplers.compiled.draws import accepts, draw_by_blocks, sum_of
from latticework.samplers.compiled.forms.field_rows import rows_of
from latticework.samplers.compiled.forms.fields import (
    add_held_site,
    put_value,
    renew_fields,
    renewal_mask,
    target,
)
from latticework.samplers.compiled.forms.pairwise import PairwiseForm, pairwise
from latticework.samplers.compiled.jit import kernel, over_chains
from latticework.samplers.compiled.moves.move_weights import (
    MoveRule,
    MovesState,
    adopt_proposal,
    follow_changes,
    has_lost_range,
    make_room,
    rows_of_chain,
    spare_rows,
    undo_changes,
    weigh_moves,
    weighed_state,
)
from latticework.samplers.compiled.philox import STEPS_AHEAD, fill_steps, unit
from latticework.samplers.compiled.running_sums import add_last_values, record_chain, start_since
from latticework.samplers.locally_balanced import LocallyBalanced

MAX_LOG_RATIO = 700.0  # logarithm; a larger ratio of Z would be infinite, and accepts as well


@dataclass(frozen=True)
class OneMoveTwin(CompiledSampler):
    def refuses(self, form: Any) -> str:
        if forbids(form):
            return "a model with forbidden values, as it holds the weights of all moves"
        return ""

    def rule(self, form: PairwiseForm) -> MoveRule:
        balanced = isinstance(self.sampler, LocallyBalanced)
        unknown = 0.0 if balanced else np.nan
        if not isinstance(form, PairForm):
            return MoveRule(unknown, np.zeros(0, np.float32))
        beyond = form.diagonal * np.float32((form.high - form.low) ** 2)
        return MoveRule(unknown, beyond if balanced else np.zeros_like(beyond))

    def start(self, x: Tensor, form: Any) -> MovesState:
        form = pairwise(form)
        return weighed_state(x, form, self.rule(form), double=False)

    def run(self, state: MovesState, form: Any, keys: Keys, sums: Sums) -> MovesState:
        form, chains = pairwise(form), len(state.x)
        args = form, self.rule(form), rows_of(state), keys, sums
        over_chains(move_once, chains, 400.0 * chains * len(keys), *args)
        return state


@kernel
def move_once(first, last, form, rule, state, keys, out):
    """Propose a move of each chain in each step."""
    x, values, tops = state.x, state.values, state.top
    steps, mask = keys.shape[0], renewal_mask(values.shape[1])
    words, since = np.empty((4, STEPS_AHEAD), np.uint32), start_since(out, first, last, x.shape[1])
    room = make_room(form, state.fields.shape[1])
    spare = spare_rows(state, room)
    site, (old, new) = np.empty(1, np.int64), np.empty((2, 1), values.dtype)
    for c in range(first, last):
        now, rows, top = values[c], rows_of_chain(state, c, room), tops[c]
        here = sum_of(rows[2])
        for t in range(steps):
            ahead = t % STEPS_AHEAD
            if ahead == 0:
                fill_steps(words, keys[t : t + STEPS_AHEAD], c, 0)
            if keys[t] & mask == 0:
                renew_fields(form, now, rows[0])
            if keys[t] & mask == 0 or has_lost_range(form, here):
                top = weigh_moves(form, rule, now, rows)
                here = sum_of(rows[2])
            m = draw_by_blocks(rows[1], rows[2], here, unit(words[0, ahead]))
            site[0], new[0] = target(form, now, m)
            old[0] = now[site[0]]
            put_value(form, x[c], now, site[0], new[0])
            there, new_top = follow_changes(form, rule, now, rows, spare, top, site, old, new)
            log_ratio = min(math.log(here) - math.log(there) + (top - new_top), MAX_LOG_RATIO)
            if accepts(c, log_ratio, unit(words[1, ahead]), out.accept, out.invalid):
                adopt_proposal(form, rows, spare)
                here, top = there, new_top
                out.changed[c] += 1
                add_held_site(form, out.total, since, first, c, site[0], old[0], new[0], t)
            else:
                put_value(form, x[c], now, site[0], old[0])
                undo_changes(form, rule, now, rows, top, site, old, new)
            record_chain(out.trace, x, c, t - steps)
        tops[c] = top
    add_last_values(out, since, first, x, steps)
