"""Steps whose log-probability is NaN or +infinity: a run warns of them, and stops if stuck.

A proposal of log-probability -inf is impossible, and rejected as any other. If a model returns NaN
or +infinity, an acceptance test rejects the move too. A sampler without a test leaves the site or
the chain unchanged (`samplers`), or its state becomes NaN and stays so.
"""

import logging
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from latticework.experiments.runs.run import Run
from latticework.models.base import EnergyModel
from latticework.samplers.sums import SumRequest
from latticework.sampling.metrics import Metric, Reference, Steps

log = logging.getLogger(__name__)
INVALID_STEPS_KEY = "invalid_steps"  # in run.json, of all chains together


class StuckError(RuntimeError):
    """No chain can move, because all log-probabilities or gradients are NaN or +infinite."""


class ValidityCounts(NamedTuple):
    invalid: Tensor  # [], int64: invalid steps of all chains since the last warning
    valid: Tensor  # [chains], int64: valid steps of each chain since then


@dataclass(frozen=True)
class Validity(Metric):
    """Counts steps with a log-probability of NaN or +infinity, for `warn_of_invalid_steps`."""

    wanted = SumRequest(invalid=True)

    def init(self, model: EnergyModel, state: Any, reference: Reference) -> ValidityCounts:
        zeros = torch.zeros(len(state.x), dtype=torch.long, device=state.x.device)
        return ValidityCounts(zeros.new_zeros(()), zeros)

    def update(self, carry: ValidityCounts, state: Any, sums: Steps, steps: int) -> ValidityCounts:
        invalid = sums.invalid.long()
        return ValidityCounts(carry.invalid.add_(invalid.sum()), carry.valid.add_(steps - invalid))

    def read(self, carry: ValidityCounts) -> dict[str, Tensor]:
        return {}


def warn_of_invalid_steps(run: Run, tally: ValidityCounts, step: int) -> None:
    """Warn of invalid steps since the last call, and note their total in the record.

    Moves the counts to the host and resets them. Raises StuckError if steps were invalid and no
    chain made a valid one.
    """
    if invalid := int(tally.invalid):
        total = run.notes.get(INVALID_STEPS_KEY, 0) + invalid
        run.note(**{INVALID_STEPS_KEY: total})
        log.warning(
            "up to step %d, %d steps of chains were rejected because the log-probability or its "
            "gradient was NaN or +inf; %d of them since the last reading",
            *(step, total, invalid),
        )
        if not tally.valid.any():
            raise StuckError(
                f"all {len(tally.valid)} chains are stuck at step {step}: since the last reading "
                "every log-probability or gradient was NaN or +inf. Look at the model's "
                "parameters (did its training "
                "diverge?) and at where the chains start"
            )
    tally.invalid.zero_()
    tally.valid.zero_()
