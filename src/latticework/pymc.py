"""Step methods for PyMC: `pm.sample(step=latticework.pymc.DMALA([z]))`.

They need PyMC, which is imported when the first of them is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latticework.sampling.pymc_steps.dmala import DMALAStep

    DMALA = DMALAStep

__all__ = ["DMALA"]


def __getattr__(name: str) -> Any:
    """Import the step method `name`."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import_module("pymc")
    except ModuleNotFoundError as error:
        if error.name != "pymc":
            raise
        raise ModuleNotFoundError(
            'latticework.pymc needs PyMC: pip install "latticework[pymc]"', name="pymc"
        ) from error
    return getattr(import_module("latticework.sampling.pymc_steps.dmala"), f"{name}Step")


def __dir__() -> list[str]:
    return __all__
