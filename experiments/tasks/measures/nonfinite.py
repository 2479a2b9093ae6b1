"""Non-finite energies: count them while chains run, warn, and stop when no chain can move.

If a model returns NaN or infinity, an acceptance test rejects the move. A sampler without a test
leaves the site or the chain unchanged (`samplers`), or its state becomes NaN and stays so.
"""

import logging
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from latticework.experiments.runs.run import Run
from latticework.models.base import EnergyModel
from latticework.samplers.sums import Wanted
from latticework.sampling.metrics import Metric, Reference, Steps

log = logging.getLogger(__name__)
NOTE = "invalid_steps"  # in run.json, of all chains together


class StuckError(RuntimeError):
    """No chain can move, because all energies are NaN or infinite."""


class Tally(NamedTuple):
    invalid: Tensor  # [], int64: invalid steps of all chains since the last call of `watch`
    valid: Tensor  # [chains], int64: valid steps of each chain since then


@dataclass(frozen=True)
class Validity(Metric):
    """Counts steps with an energy that is NaN or infinite. `watch` reads the counts."""

    wanted = Wanted(invalid=True)

    def init(self, model: EnergyModel, state: Any, reference: Reference) -> Tally:
        zeros = torch.zeros(len(state.x), dtype=torch.long, device=state.x.device)
        return Tally(zeros.new_zeros(()), zeros)

    def update(self, carry: Tally, state: Any, sums: Steps, steps: int) -> Tally:
        invalid = sums.invalid.long()
        return Tally(carry.invalid.add_(invalid.sum()), carry.valid.add_(steps - invalid))

    def read(self, carry: Tally) -> dict[str, Tensor]:
        return {}


def watch(run: Run, tally: Tally, step: int) -> None:
    """Warn of invalid steps since the last call, and note their total in the record.

    Moves the counts to the host and resets them. Raises StuckError if steps were invalid and no
    chain made a valid one.
    """
    if invalid := int(tally.invalid):
        total = run.notes.get(NOTE, 0) + invalid
        run.note(**{NOTE: total})
        log.warning(
            "up to step %d, %d steps of chains were rejected because the energy was NaN or "
            "infinite; %d of them since the last reading",
            *(step, total, invalid),
        )
        if not tally.valid.any():
            raise StuckError(
                f"all {len(tally.valid)} chains are stuck at step {step}: since the last reading "
                "every energy was NaN or infinite. Look at the model's parameters (did its "
                "training diverge?) and at where the chains start"
            )
    tally.invalid.zero_()
    tally.valid.zero_()
