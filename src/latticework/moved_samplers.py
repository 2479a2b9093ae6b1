"""Samplers that became settings of others: their old names work with a warning for a release."""

import warnings
from collections.abc import Sequence
from typing import Any

from latticework.samplers.langevin import DMALA
from latticework.samplers.tempered import Tempered


def PTDMALA(  # noqa: N802 - the name of a class until 0.2
    step_size: float = 0.2,
    ladder: Sequence[float] = (1.0, 0.8, 0.6, 0.4),
    burn_in: int = 0,
) -> Any:
    """Return the same sampler as `Tempered`. `burn_in` no longer spaces the ladder."""
    schedule = [float(b) for b in reversed(ladder)]
    advice = f"PTDMALA goes: write Tempered(DMALA({step_size}), schedule={schedule})"
    if burn_in:
        advice += "; burn_in has no effect, but without schedule Tempered learns one from b = 0 on"
    warnings.warn(advice, DeprecationWarning, stacklevel=2)
    return Tempered(DMALA(step_size), schedule=schedule)
