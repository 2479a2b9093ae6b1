"""Keep rendered figures as files, so that the report does not draw those of unchanged records.

The figures and tables of an experiment lie in a folder that is named after the stamp of its
records and of the code that draws. `drawn.json`, which is written last, holds the tables, the
reasons why others could not be made, and the SHA-256 of every file. Reading runs no code of the
files: they are images, text and JSON.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from latticework.experiments.papers.drawn import Drawn, Picture
from latticework.experiments.records.estimates import Estimate

INDEX = "drawn.json"
MAX_ENTRIES = 300  # drawn experiments that stay
PNG = ".png"
SUFFIXES = (".svg", ".csv", ".html", ".json")  # suffixes of the texts of a picture


def kept_or_drawn(folder: Path | None, stamp: str, draw: Callable[[], Drawn]) -> Drawn:
    """Return the drawings that `folder` keeps under `stamp`, or draw and keep them.

    An entry that is not as it was written is drawn again. With None, nothing is kept.
    """
    if folder is None:
        return draw()
    place = folder / hashlib.sha256(stamp.encode()).hexdigest()
    try:
        drawn = _read_entry(place)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):  # missing, or damaged
        drawn = draw()
        _write(place, drawn)
    else:
        (place / INDEX).touch()  # the entries that were used last stay
    return drawn


def forget_oldest(folder: Path, most: int = MAX_ENTRIES) -> None:
    """Delete the entries that were not used for the longest time, beyond the number `most`."""
    used = {file.parent: file.stat().st_mtime for file in folder.glob(f"*/{INDEX}")}
    for place in sorted(used, key=used.__getitem__, reverse=True)[most:]:
        shutil.rmtree(place)


def _write(place: Path, drawn: Drawn) -> None:
    """Write the entry beside its place and move it there, so that no half of one is read."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".partial-") as temporary:
        entry = Path(temporary) / "entry"
        entry.mkdir()
        pictures = []
        for number, picture in enumerate(drawn.pictures):
            contents = {PNG: picture.png}
            for suffix, text in picture.texts.items():
                contents[suffix] = text.encode()
            digests = {}
            for suffix, content in contents.items():
                (entry / f"{number}{suffix}").write_bytes(content)
                digests[suffix] = _digest_of_bytes(content)
            pictures.append({"name": picture.name, "sha256": digests})
        document = {
            "pictures": pictures,
            "tables": [{"name": name, **_plain_table(frame)} for name, frame in drawn.tables],
            "reasons_not_made": drawn.reasons_not_made,
            "failed": drawn.failed,
        }
        (entry / INDEX).write_text(json.dumps(document))
        if place.exists():  # a damaged entry
            place.rename(Path(temporary) / "damaged")
        entry.rename(place)


def _read_entry(place: Path) -> Drawn:
    """The entry at `place`. Raises an error if a file is missing or differs from what was kept."""
    document = json.loads((place / INDEX).read_text())
    pictures = []
    for number, entry in enumerate(document["pictures"]):
        contents = _read_verified(place, number, entry["sha256"])
        image = contents.pop(PNG)
        texts = {suffix: content.decode() for suffix, content in contents.items()}
        pictures.append(Picture(entry["name"], image, texts))
    tables = []
    for table in document["tables"]:
        tables.append((table["name"], _frame(table)))
    return Drawn(pictures, tables, list(document["reasons_not_made"]), list(document["failed"]))


def _read_verified(place: Path, number: int, digests: Mapping[str, str]) -> dict[str, bytes]:
    """The files of a picture by their suffix. Raises ValueError if one is not the kept one."""
    contents = {}
    for suffix, digest in digests.items():
        if suffix not in (PNG, *SUFFIXES):
            raise ValueError(f"a picture has no file {suffix}")
        contents[suffix] = (place / f"{number}{suffix}").read_bytes()
        if _digest_of_bytes(contents[suffix]) != digest:
            raise ValueError(f"{number}{suffix} is not the file that was kept")
    return contents


def _digest_of_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _plain_table(frame: pd.DataFrame) -> dict[str, Any]:
    """A table as lists of text, numbers and null; an estimate is a list of its three numbers."""
    rows = []
    for cells in frame.astype(object).itertuples(index=False, name=None):
        rows.append(list(map(_cell, cells)))
    return {"columns": list(map(str, frame.columns)), "rows": rows}


def _cell(value: Any) -> Any:
    if isinstance(value, Estimate):
        return list(value)
    return value.item() if isinstance(value, np.generic) else value


def _frame(table: Mapping[str, Any]) -> pd.DataFrame:
    """The table of `_plain`. Cells keep their types, so whole numbers stay whole beside gaps."""
    rows = []
    for row in table["rows"]:
        rows.append([Estimate(*cell) if isinstance(cell, list) else cell for cell in row])
    return pd.DataFrame(rows, columns=table["columns"], dtype=object)
