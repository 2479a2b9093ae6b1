"""Check values from YAML against type annotations, and describe annotations in words.

An integer is accepted as a float, and a list as any sequence; a boolean is not a number. Numbers
must be finite and fit in 64 bits. Classes and functions are parts: mappings with a `_target_`.
"""

import math
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from inspect import Parameter
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

ONE = {
    types.NoneType: "null",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
}
PLURALS = {int: "integers", float: "numbers", str: "strings"}


def is_part(value: Any) -> bool:
    return isinstance(value, dict) and "_target_" in value


def is_number(value: Any) -> bool:
    """Whether `value` is a finite number that fits in 64 bits, as tensors and generators need."""
    if type(value) is int:
        return abs(value) < 2**63
    return type(value) is float and math.isfinite(value)


def fits(value: Any, hint: Any) -> bool:
    """Whether `value` is valid for an argument annotated with `hint`."""
    kind, arguments = _split_annotation(hint)
    if kind in (Any, object, Parameter.empty) or isinstance(kind, str | TypeVar):
        return True
    if kind is Union:
        return _fits_any(value, arguments)
    if kind is Literal:
        return any(value == allowed and type(value) is type(allowed) for allowed in arguments)
    if kind in (int, float):
        return is_number(value) and type(value) in (int, kind)
    if kind in ONE:
        return type(value) is kind
    if is_part(value):
        return True
    if kind is Mapping:
        return isinstance(value, dict) and all(fits(v, arguments[-1]) for v in value.values())
    if kind is Sequence:
        return isinstance(value, list) and all(_fits_any(item, arguments) for item in value)
    return False


def _fits_any(value: Any, hints: Iterable[Any]) -> bool:
    return any(fits(value, hint) for hint in hints)


def describe_annotation(hint: Any) -> str:
    """Describe `hint` in words, for error messages."""
    kind, arguments = _split_annotation(hint)
    if kind in ONE:
        return ONE[kind]
    if kind is Union:
        return " or ".join(map(describe_annotation, arguments))
    if kind is Literal:
        return " or ".join(map(str, arguments))
    if kind is Mapping:
        return "a mapping"
    if kind is Sequence:
        inner = [PLURALS.get(_split_annotation(argument)[0], "") for argument in arguments]
        return f"a list of {inner[0]}" if len(inner) == 1 and inner[0] else "a list"
    name = "function" if kind is Callable else getattr(kind, "__name__", str(kind))
    return f"a {name} (a group with a _target_)"


def _split_annotation(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """The kind of `hint` and its arguments; all unions, mappings and sequences share a kind."""
    kind = get_origin(hint) or hint
    arguments = tuple(argument for argument in get_args(hint) if argument is not ...)
    if kind is None:
        return types.NoneType, ()
    if kind is types.UnionType:
        return Union, arguments
    if not isinstance(kind, type) or kind in (str, object):
        return kind, arguments
    if issubclass(kind, Mapping):
        return Mapping, arguments or (Any,)
    if issubclass(kind, Sequence) or kind in (Iterable, Collection):  # a Tensor is neither
        return Sequence, arguments or (Any,)
    return kind, arguments
