"""Samplers for discrete distributions, and the experiments that compare them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latticework.experiments.sampling.sample import sample as sample


def __getattr__(name: str) -> Any:
    """`latticework.sample`, imported when first used, so that importing the package is quick."""
    if name != "sample":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from latticework.experiments.sampling.sample import sample

    return sample
