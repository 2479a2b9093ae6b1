"""Samplers for discrete distributions, and the experiments that compare them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latticework.experiments.sampling.sample import ConvergenceWarning as ConvergenceWarning
    from latticework.experiments.sampling.sample import sample as sample

PUBLIC = ("sample", "ConvergenceWarning")


def __getattr__(name: str) -> Any:
    """A name of PUBLIC, imported when first used, so that importing the package is quick."""
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from latticework.experiments.sampling import sample as module

    return getattr(module, name)
