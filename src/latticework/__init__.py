"""Samplers for discrete distributions, and the experiments that compare them.

The names of `__init__.pyi` are imported when first used, so `import latticework` imports no torch.
"""

import sys as _sys
import warnings as _warnings
from importlib import import_module as _import_module
from typing import Any as _Any

from latticework.moved import MovedModules as _MovedModules
from latticework.public_names import (
    read_public_names as _read_public_names,
)
from latticework.public_names import (
    read_version as _read_version,
)

_MODULES = _read_public_names()
_sys.meta_path.append(_MovedModules())
# Names that were public until 0.2: they work, with a warning, until the release after the next.
_MOVED = {
    "BUNDLES": "latticework.experiments.records.record",
    "Poisoned": "latticework.sampling.chain",
    "ensure_importable": "latticework.torchvision_ops",
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> _Any:
    """Import the public `name` from its module; later uses find it here."""
    if name == "__version__":
        return _read_version()
    if name == "PTDMALA":  # which warns when it is called
        return getattr(_import_module("latticework.moved_samplers"), name)
    if name in _MOVED:
        advice = f"latticework.{name} moved: import it from {_MOVED[name]}"
        _warnings.warn(advice, DeprecationWarning, stacklevel=2)
        return getattr(_import_module(_MOVED[name]), name)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _MODULES[name] == __name__:  # a module, such as `pymc`
        return _import_module(f"{__name__}.{name}")
    value = getattr(_import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
