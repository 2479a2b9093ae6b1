"""Words of error messages."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

MAX_LISTED_OPTIONS = 25  # options, of which a message does not list all


def nearest(name: str, options: Iterable[Any]) -> str:
    """A hint for a misspelled `name`: the closest options, or all of them if none is close."""
    known = sorted(map(str, options))
    if near := get_close_matches(name.lower(), known, cutoff=0.5):
        return f"did you mean {' or '.join(near)}?"
    if len(known) > MAX_LISTED_OPTIONS:
        near = get_close_matches(name.lower(), known, cutoff=0.0)
        return f"the nearest of {len(known)} are {', '.join(near)}"
    return f"there is {', '.join(known)}" if known else "there is none"


def shorten(value: Any) -> str:
    """`value` as text, short enough for a message."""
    return cut(repr(value), 80)


def cut(text: str, longest: int = 500) -> str:
    """`text` on one line, truncated to `longest` characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def in_a_line(error: BaseException) -> str:
    """The message of `error`, preceded by its type unless it is a ValueError or OmegaConf's."""
    if hasattr(error, "full_key"):  # an error of OmegaConf, which the library does not import
        message = str(getattr(error, "msg", None) or error).partition("\n")[0]
        key = str(error.full_key or "")
        message = message.removeprefix("ValueError raised while resolving interpolation: ")
        return message if not key or key in message else f"{key}: {message}"
    text = cut(str(error))
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"
