"""Names: of samplers, of sites, and of objects in a user's own files, as `file.py:Name`."""

import dataclasses
import importlib.util
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from inspect import Parameter, signature
from math import inf
from pathlib import Path
from typing import Any

from latticework.models.domains import Domain
from latticework.samplers import NAMES, find_sampler_class, parse_sampler_call
from latticework.samplers.base import Sampler
from latticework.sampling.annotations import describe_annotation, fits
from latticework.sampling.messages import nearest


def load_object(text: str) -> Any:
    """The object that `file.py:Name` names; files beside it can be imported.

    Raises ValueError for another form, a file that is not there, or a name that it does not have.
    """
    place, separator, name = text.rpartition(":")
    if not separator or not place.endswith(".py"):
        raise ValueError(f"{text!r} does not name an object in a file; write file.py:Name")
    module = _module(Path(place).resolve())
    if not hasattr(module, name):
        public = [key for key in vars(module) if not key.startswith("_")]
        raise ValueError(f"{place} has no {name}: {nearest(name, public)}")
    return getattr(module, name)


def parse_sampler(text: str, fields: dict[str, Any] | None = None) -> Any:
    """The sampler `file.py:Name`, or that of a name of `samplers.NAMES`, with the given fields.

    The text may hold fields, too: `gwg(flips=2)`. Raises ValueError for an unknown field, or a
    value that does not fit its annotation.
    """
    text, given = parse_sampler_call(text)
    fields = {**given, **(fields or {})}
    if ".py:" in text:
        kind = load_object(text)
    elif text in NAMES:
        kind, defaults = find_sampler_class(text)
        fields = {**defaults, **fields}
    else:
        raise ValueError(f"sampler {text!r} is not known: {nearest(text, NAMES)}")
    if isinstance(kind, type):
        _check_fields(text, fields, kind)
        return kind(**fields)
    if fields:
        raise ValueError(f"{text} is no class, so it takes no settings: {', '.join(fields)}")
    return kind


def as_text(sampler: Any) -> tuple[str, dict[str, Any] | None]:
    """Text that `from_text` reads: a sampler's name and its fields, None where it has no name."""
    name = name_of(sampler)
    if name is None:
        return str(sampler), None
    fields = vars(sampler)
    return name, {key: as_text(v) if isinstance(v, Sampler) else v for key, v in fields.items()}


def from_text(name: str, fields: dict[str, Any] | None) -> Any:
    """The sampler that `as_text` wrote; its text if it, or its kernel, had no name."""
    if fields is None:
        return name
    kind, defaults = find_sampler_class(name)
    if isinstance(kernel := fields.get("kernel"), list):
        if kernel[1] is None:
            return f"{kind.__name__}(kernel={kernel[0]})"
        fields = {**fields, "kernel": from_text(*kernel)}
    return kind(**{**defaults, **fields})


def name_of(sampler: Any) -> str | None:
    """The name in `samplers.NAMES` of the sampler's class; None for a class of the user's own."""
    return next((name for name in NAMES if find_sampler_class(name) == (type(sampler), {})), None)


def short_repr(sampler: Any) -> str:
    """The class of a sampler with the fields that differ from their defaults, in four digits."""
    if not dataclasses.is_dataclass(sampler):
        return str(sampler)
    shown = []
    for field in dataclasses.fields(sampler):
        value = getattr(sampler, field.name)
        default = field.default_factory() if callable(field.default_factory) else field.default
        if repr(value) != repr(default):
            text = f"{value:.4g}" if isinstance(value, float) else repr(value)
            text = short_repr(value) if isinstance(value, Sampler) else text
            shown.append(f"{field.name}={text}")
    return f"{type(sampler).__name__}({', '.join(shown)})"


def _check_fields(text: str, fields: dict[str, Any], made_by: Callable[..., Any]) -> None:
    try:
        known = signature(made_by, eval_str=True).parameters
    except NameError:  # annotations for type checkers only
        known = signature(made_by).parameters
    if any(each.kind is Parameter.VAR_KEYWORD for each in known.values()):
        return
    for name, value in fields.items():
        if name not in known:
            raise ValueError(f"{text} has no setting {name}: {nearest(name, known)}")
        hint = known[name].annotation
        if not (fits(value, hint) or (value == inf and fits(1.0, hint))):
            raise ValueError(f"{name} of {text} must be {describe_annotation(hint)}, got {value!r}")


def _module(file: Path) -> Any:
    if not file.is_file():
        raise ValueError(f"there is no file {file}")
    name = f"_of_the_user_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    spec.loader.exec_module(module)
    return module


def site_names(names: Iterable[str], domain: Domain) -> tuple[str, ...]:
    """The names of the sites, from any sequence of words, such as the columns of a table.

    Raises ValueError unless there are `domain.dim` different ones.
    """
    wanted = f"names must be {domain.dim} different words, one a site"
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(f"{wanted}, got {names!r}")
    words = tuple(names)
    for name in words:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"{wanted}, got {name!r} among them")
    if len(words) != domain.dim:
        raise ValueError(f"{wanted}, got {len(words)}")
    name, times = Counter(words).most_common(1)[0]
    if times > 1:
        raise ValueError(f"{wanted}, got {name!r} more than once")
    return tuple(map(str, words))
