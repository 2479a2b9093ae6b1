"""Modules and names that moved: the old ones work with a warning until the release after next."""

import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULES = {
    "latticework.experiments.records.numbers": "latticework.experiments.records.estimates",
    "latticework.models.domain": "latticework.models.domains",
    "latticework.samplers.pt_dmala": "latticework.moved",
    "latticework.sampling.memory": "latticework.sampling.loop_state",
}
NAMES = {  # of the modules above
    "Memory": "LoopState",
    "last": "last_reading",
    "noted": "fact_number",
    "readings": "last_readings",
}


def PTDMALA(  # noqa: N802 - the name of a class until 0.2
    step_size: float = 0.2,
    ladder: Sequence[float] = (1.0, 0.8, 0.6, 0.4),
    burn_in: int = 0,
) -> Any:
    """Return the same sampler as `Tempered`. `burn_in` no longer spaces the ladder."""
    from latticework.samplers.langevin import DMALA
    from latticework.samplers.tempered import Tempered

    schedule = [float(b) for b in reversed(ladder)]
    advice = f"PTDMALA goes: write Tempered(DMALA({step_size}), schedule={schedule})"
    if burn_in:
        advice += "; burn_in has no effect, but without schedule Tempered learns one from b = 0 on"
    warnings.warn(advice, DeprecationWarning, stacklevel=2)
    return Tempered(DMALA(step_size), schedule=schedule)


def find_moved(name: str, module: str, place: str, names: Sequence[str]) -> Any:
    """The value of one of `names`, which moved from `module` to `place` beside it.

    For the `__getattr__` of a module. Raises AttributeError for another name.
    """
    if name not in names:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    new = f"{module.rpartition('.')[0]}.{place}"
    warnings.warn(f"{module}.{name} moved to {new}", DeprecationWarning, stacklevel=3)
    return getattr(import_module(new), name)


class MovedModules(MetaPathFinder, Loader):
    """Finds modules under their old names, after all other finders have failed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        """Let the old module give the names of the new one."""
        place = MODULES[module.__name__]
        advice = f"{module.__name__} moved to {place}, where some names are others"
        warnings.warn(advice, DeprecationWarning, stacklevel=2)
        new = import_module(place)

        def find_name(name: str) -> Any:
            if not hasattr(new, name) and name in NAMES:
                return getattr(new, NAMES[name])
            return getattr(new, name)

        module.__dict__["__getattr__"] = find_name
