"""Modules, names and methods that moved: the old ones work with a warning for a release."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial, wraps
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ClassVar

MODULES = {
    "latticework.experiments.records.numbers": "latticework.experiments.records.estimates",
    "latticework.experiments.tasks.learning.negatives": "latticework.sampling.learning.negatives",
    "latticework.models.domain": "latticework.models.domains",
    "latticework.samplers.pt_dmala": "latticework.moved_samplers",
    "latticework.sampling.memory": "latticework.sampling.loop_state",
}
NAMES = {  # names in the modules above
    "Memory": "LoopState",
    "last": "last_reading",
    "noted": "fact_number",
    "readings": "last_readings",
}

# Names that moved from modules that are still there, which end with `offer_moved_names`.
PLACES = {
    "latticework.experiments.tasks.ebm_learning": {
        "CouplingError": "latticework.experiments.tasks.measures.learning_progress",
        "Gap": "latticework.experiments.tasks.measures.learning_progress",
        "examples": "latticework.experiments.tasks.examples",
    },
    "latticework.experiments.tasks.target": {
        "averaged": "latticework.experiments.tasks.truths",
        "exact": "latticework.experiments.tasks.truths",
        "sampled": "latticework.experiments.tasks.truths",
        "stored": "latticework.experiments.tasks.stored_models",
        "symmetric": "latticework.experiments.tasks.truths",
    },
    "latticework.models.annealed": {
        "ScaledRBM": "latticework.models.scaled_rbm",
        "path_of": "latticework.models.paths",
    },
    "latticework.models.base": {
        "CarriesRates": "latticework.models.abilities",
        "DataModel": "latticework.models.abilities",
        "FillsBlanks": "latticework.models.abilities",
        "NearQuadratic": "latticework.models.abilities",
        "Predictor": "latticework.models.abilities",
    },
    "latticework.models.ising": {
        "DenseIsing": "latticework.models.dense_ising",
        "LearnedIsing": "latticework.models.dense_ising",
        "erdos_renyi": "latticework.models.dense_ising",
        "sherrington_kirkpatrick": "latticework.models.dense_ising",
    },
    "latticework.sampling.metrics": {"MMD": "latticework.sampling.mmd"},
}


def offer_moved_names(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module some of whose names have moved."""

    def find_name(name: str) -> Any:
        if name not in PLACES[module]:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place = PLACES[module][name]
        warnings.warn(f"{module}.{name} moved to {place}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(place), name)

    return find_name


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


class OldName:
    """A method of a class under the name that it had until 0.2."""

    def __init__(self, old: str, new: str, method: Any) -> None:
        self.old, self.new, self.method = old, new, method

    def __get__(self, instance: Any, owner: type) -> Any:
        advice = f"{owner.__name__}.{self.old} is now {self.new}"
        warnings.warn(advice, DeprecationWarning, stacklevel=2)
        # The method of the class where it stands, so super().old() is the parent's method.
        return self.method.__get__(instance, owner)


class RenamedMethods:
    """Base of classes whose methods have had other names: `old_names` maps old ones to new ones.

    Old names can be called, and subclasses can define methods under them, both with a warning.
    """

    old_names: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        for old, new in cls.old_names.items():
            if old in cls.__dict__ and new not in cls.__dict__:
                advice = f"{cls.__name__} defines {old}, whose name is now {new}"
                warnings.warn(advice, DeprecationWarning, stacklevel=2)
                setattr(cls, new, cls.__dict__[old])
            if new in cls.__dict__:
                setattr(cls, old, OldName(old, new, cls.__dict__[new]))


def rename_fields(**new_names: str) -> Callable[[type], Any]:
    """A decorator of a dataclass whose fields have had other names, `old="new"`.

    The old names are taken as arguments and can be read, both with a warning.
    """

    def decorate(kind: type) -> type:
        start: Any = kind.__init__  # type: ignore[misc]

        def take_old_fields(self: Any, *values: Any, **fields: Any) -> None:
            for old, new in new_names.items():
                if old in fields:
                    _warn_of_field(kind, old, new)
                    fields[new] = fields.pop(old)
            start(self, *values, **fields)

        for old, new in new_names.items():
            setattr(kind, old, property(partial(_read_old_field, kind, old, new)))
        kind.__init__ = wraps(start)(take_old_fields)  # type: ignore[misc]
        return kind

    return decorate


def _read_old_field(kind: type, old: str, new: str, instance: Any) -> Any:
    _warn_of_field(kind, old, new)
    return getattr(instance, new)


def _warn_of_field(kind: type, old: str, new: str) -> None:
    warnings.warn(f"{kind.__name__}.{old} is now {new}", DeprecationWarning, stacklevel=3)


def take_old_methods(thing: Any, old_names: dict[str, str]) -> Any:
    """`thing`, of a user's class without this base, with new names for its old methods."""
    for old, new in old_names.items():
        if hasattr(thing, old) and not hasattr(thing, new):
            advice = f"{type(thing).__name__}.{old} is now {new}"
            warnings.warn(advice, DeprecationWarning, stacklevel=2)
            setattr(thing, new, getattr(thing, old))
    return thing
