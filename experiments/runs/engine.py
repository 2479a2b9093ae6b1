"""The kernel of a run."""

import logging
from collections.abc import Sequence

from latticework.experiments.runs.run import Run
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.engine import served
from latticework.sampling.metrics import Metric

log = logging.getLogger(__name__)


def for_engine(
    sampler: Sampler, model: EnergyModel, run: Run, metrics: Sequence[Metric] = ()
) -> Sampler:
    """The kernel that `run.engine` chooses; the record notes which engine it is, and why.

    Pass it to whatever runs chains in place of `sampler`. Raises NotCompiledError for
    `engine=compiled` if there is no compiled kernel.
    """
    chosen, why = served(sampler, model, run.engine, metrics)
    run.note(engine="eager" if why else "compiled")
    if why and run.engine == "auto":
        run.note(engine_reason=why)
        log.info("engine: eager, because %s", why)
    return chosen
