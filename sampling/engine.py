"""Engines: how the steps of a chain are executed.

    eager      PyTorch operations; a CUDA graph on a GPU
    compiled   numba kernels on the CPU (`samplers.compiled`), many steps in one call
    auto       compiled where sampler, model and metrics allow it, else eager

Both engines sample the same law. Their random numbers differ, so the engine belongs to the identity
of a run.
"""

from collections.abc import Sequence
from typing import Literal, get_args

from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.metrics import Metric

Engine = Literal["auto", "eager", "compiled"]


class NotCompiledError(ValueError):
    """engine=compiled cannot run this sampler, model or metric."""


def served(
    sampler: Sampler, model: EnergyModel, engine: str, metrics: Sequence[Metric] = ()
) -> tuple[Sampler, str]:
    """The kernel for an engine, and why it is not compiled ("" if it is).

    Raises NotCompiledError for `engine="compiled"` if there is no compiled kernel.
    """
    if engine not in get_args(Engine):
        raise ValueError(f"engine must be one of {', '.join(get_args(Engine))}, got {engine!r}")
    if engine == "eager":
        return sampler, "engine=eager"
    # Importing numba takes a second, so eager runs do not.
    from latticework.samplers.compiled.choose import twin_of
    from latticework.samplers.compiled.twin import NoTwinError

    why = ""
    for metric in metrics:
        if metric.wanted is None:
            why = f"the metric {type(metric).__name__} has to see every step"
    if not why:
        try:
            return twin_of(sampler, model), ""
        except NoTwinError as error:
            why = str(error)
    if engine == "compiled":
        raise NotCompiledError(f"engine=compiled is not possible: {why}; use engine=auto")
    return sampler, why
