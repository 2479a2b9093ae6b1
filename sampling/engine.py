"""Engines: how the steps of a chain are executed.

    eager      PyTorch operations; a CUDA graph on a GPU
    compiled   numba kernels on the CPU (`samplers.compiled`), many steps in one call
    fused      any sampler and model on the CPU, compiled by PyTorch (`samplers.fused`)
    auto       compiled where sampler, model and metrics allow it; else fused if there are so many
               steps that compilation pays; else eager

All engines sample the same law. Their random numbers differ, so the engine belongs to the identity
of a run.
"""

import warnings
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.metrics import Metric

Engine = Literal["auto", "eager", "compiled", "fused"]
# Where `auto` compiles a step: from so many steps on, in which eager ones take longer than the
# compiler; for states of at most so many entries, where the calls of operations take the most time.
MIN_STEPS_TO_FUSE, MAX_ENTRIES_TO_FUSE = 200_000, 2**14


class EngineWarning(UserWarning):
    """Steps that run eagerly and would be faster if something were installed."""


class NotCompiledError(ValueError):
    """engine=compiled or fused cannot run this sampler, model or metric."""


def select_kernel(
    sampler: Sampler,
    model: EnergyModel,
    engine: str,
    metrics: Sequence[Metric] = (),
    x: Tensor | None = None,
    steps: int = 0,
    call: int = 0,
) -> tuple[Sampler, str]:
    """The kernel for an engine, and why it is not compiled ("" if it is).

    A fused kernel is compiled for chains at `x` `[chains, *domain.shape]`; without it there is
    none. `auto` chooses one by their number and by `steps`, the steps that chains will make, and
    so by nothing that differs from one call to the next. `call` is the number of steps between
    two updates of a model that learns.

    Raises NotCompiledError for `engine="compiled"` or `"fused"` if there is no such kernel. Warns
    (EngineWarning) if `auto` would compile the steps and there is no compiler.
    """
    if engine not in get_args(Engine):
        raise ValueError(f"engine must be one of {', '.join(get_args(Engine))}, got {engine!r}")
    if engine == "eager":
        return sampler, "engine=eager"
    if engine == "fused":
        kernel, why, _ = _compile_fused(sampler, model, metrics, x, call)
        if why:
            raise NotCompiledError(f"engine=fused is not possible: {why}; use engine=auto")
        return kernel, ""
    compiled, why = _find_compiled(sampler, model, metrics)
    if compiled is not None:
        return compiled, ""
    if engine == "compiled":
        raise NotCompiledError(f"engine=compiled is not possible: {why}; use engine=auto")
    if x is not None and steps >= MIN_STEPS_TO_FUSE and x.numel() <= MAX_ENTRIES_TO_FUSE:
        kernel, why, installable = _compile_fused(sampler, model, metrics, x, call)
        if installable:
            warnings.warn(why, EngineWarning, stacklevel=5)  # warns the caller of `sample`
        return kernel, why
    return sampler, why


def _find_compiled(
    sampler: Sampler, model: EnergyModel, metrics: Sequence[Metric]
) -> tuple[Sampler | None, str]:
    """The kernel of numba, or None and why there is none."""
    # Importing numba takes a second, so eager runs do not.
    from latticework.samplers.compiled.compiled_sampler import NoCompiledKernelError
    from latticework.samplers.compiled.registry import find_compiled_kernel

    for metric in metrics:
        if metric.wanted is None:
            return None, f"the metric {type(metric).__name__} has to see every step"
    try:
        return find_compiled_kernel(sampler, model), ""
    except NoCompiledKernelError as error:
        return None, str(error)


def engine_for_adaptation(engine: str) -> str:
    """The engine that adapts or learns what a sampler needs beforehand.

    A fused kernel would be compiled for each value that this tries.
    """
    return "eager" if engine == "fused" else engine


def _compile_fused(
    sampler: Sampler, model: EnergyModel, metrics: Sequence[Metric], x: Tensor | None, call: int
) -> tuple[Sampler, str, bool]:
    """The fused kernel, or the sampler, why there is none, and whether to install helps."""
    from latticework.samplers.fused import Fused
    from latticework.samplers.inductor import NoCompilerError, NotFusedError

    why = ""
    if any(metric.wanted is None for metric in metrics):
        why = "a metric has to see every step"
    elif x is None:
        why = "it is for chains of a known number, which this task does not say"
    if why or x is None:
        return sampler, why, False
    try:
        with torch.no_grad():
            kernel = Fused(sampler, call)
            kernel.compile(kernel.at(x, model), model)
    except NotFusedError as error:
        return sampler, str(error), isinstance(error, NoCompilerError)
    return kernel, "", False
