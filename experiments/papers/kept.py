"""The report's cache, so that only figures whose inputs changed are drawn again.

joblib caches the results by a stamp. The stamp changes with the records, the configuration in
conf/, the code and numbers in experiments/, and the versions of the packages that draw.
"""

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from joblib import Memory

from latticework.experiments.records.proof import place, versions
from latticework.experiments.records.record import Record
from latticework.experiments.runs.sweeps import CONF

SOURCES = (CONF, CONF.parent / "experiments", CONF.parent / "sampling")
FILES = (".py", ".yaml")  # of SOURCES, which decide how records are sorted and drawn
MOST = 300  # results to keep


def memory(folder: Path | None) -> Memory:
    """A cache in `folder`; with None, nothing is cached."""
    return Memory(folder, verbose=0)


def trim(kept: Memory) -> None:
    """Delete the oldest results beyond `MOST`."""
    if kept.location is not None:
        kept.reduce_size(items_limit=MOST)


def stamp(records: Iterable[Record]) -> str:
    """A hash of the records and of everything that decides how they are drawn."""
    prints = sorted(f"{place(record)} {record.fingerprint}" for record in records)
    return _digest([drawing(), *prints])


@cache
def drawing() -> str:
    """A hash of `SOURCES` and of the versions; constant while the process runs."""
    files = sorted(file for folder in SOURCES for file in folder.rglob("*") if file.suffix in FILES)
    prints = [f"{file} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files]
    return _digest([str(versions()), *prints])


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
