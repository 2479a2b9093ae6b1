"""Python values that the evaluation of a target reads besides parameters and buffers.

Compiled code keeps the Python numbers of a function, and reads the tensors that it named when it
was recorded. If the function gets another number or another tensor, the code is of an old target.
"""

import functools
from collections.abc import Hashable, Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn

LIBRARIES = ("torch", "numpy", "latticework")  # their functions have no numbers of the user
REGISTERED = ("_parameters", "_buffers")  # read anew at each call
MAX_VALUES = 10_000  # things that are looked at


def reachable_values(target: Any) -> tuple[Hashable, ...]:
    """Values that `target` can reach, in a fixed order: plain values, and identities of tensors.

    It looks into closures, defaults, globals that are named, attributes and containers. Equal
    results mean that a function computes as before, unless it keeps its state elsewhere.
    """
    reached: list[Hashable] = []
    seen: set[int] = set()
    waiting = [target]
    while waiting and len(seen) < MAX_VALUES:
        value = waiting.pop()
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            reached.append((type(value), repr(value)))
            continue
        reached.append(id(value))
        if id(value) not in seen and not isinstance(value, Tensor):
            seen.add(id(value))
            waiting += _parts_of_value(value)
    return tuple(reached)


def _parts_of_value(value: Any) -> Iterator[Any]:
    """The parts of a value."""
    if isinstance(value, list | tuple | set | frozenset):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, FunctionType):
        yield from _parts_of_function(value)
    elif not isinstance(value, type | ModuleType):
        yield from _attributes(value)


def _attributes(value: Any) -> Iterator[Any]:
    """The attributes of an object, and the class's own functions that read globals."""
    for name, attribute in getattr(value, "__dict__", {}).items():
        if not (isinstance(value, nn.Module) and name in REGISTERED):
            yield attribute
    for kind in type(value).__mro__:
        if not _of_library(kind.__module__):
            for name in getattr(kind, "__slots__", ()):
                yield getattr(value, name, None) if isinstance(name, str) else None
            yield from (part for part in vars(kind).values() if not isinstance(part, type))


def _parts_of_function(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # it is empty
            yield None
    yield from (function.__defaults__, function.__kwdefaults__)
    if _of_library(function.__module__):
        return
    names = _names_in_code(function.__code__)
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType):
            if not _of_library(value.__name__):
                yield from (vars(value).get(attribute) for attribute in names)
        elif isinstance(value, type):
            yield from (vars(value).get(attribute) for attribute in names)
        else:
            yield value


def _names_in_code(code: CodeType) -> list[str]:
    """The globals and attributes that a function names, and those inside it."""
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names += _names_in_code(constant)
    return names


def _of_library(name: str | None) -> bool:
    return (name or "").split(".")[0] in (*LIBRARIES, "builtins", "abc", "typing")
