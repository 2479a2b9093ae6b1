"""The numbers printed in the papers, read from `published.yaml`."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from latticework.experiments.records.estimate import Estimate
from latticework.experiments.records.record import Record

FILE = Path(__file__).with_name("published.yaml")


def published(name: str, *keys: str) -> Estimate | None:
    """The number at `keys` of the table or figure `name`; None if the paper does not print it.

    Raises KeyError for a name that is not in the file.
    """
    node: Any = _file()[name]["values"]
    for key in keys:
        if not isinstance(node, dict) or key not in node:
            return None
        node = node[key]
    return Estimate(*node) if isinstance(node, list) else Estimate(float(node))


def comparable(records: Iterable[Record], name: str, *keys: str) -> Estimate | None:
    """`published(name, *keys)` for comparison with `records`; None if they used substitute data."""
    if any(record.substitute is not None for record in records):
        return None
    return published(name, *keys)


def printed(name: str, *keys: str) -> float:
    """The mean of `published(name, *keys)`. Raises KeyError if the paper does not print it."""
    found = published(name, *keys)
    if found is None:
        raise KeyError(f"published.yaml has no {name} {' '.join(keys)}")
    return found.mean


def names() -> list[str]:
    """Names of the tables and figures in the file."""
    return list(_file())


@cache
def _file() -> Any:
    return OmegaConf.to_container(OmegaConf.load(FILE))
