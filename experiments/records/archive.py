"""The file format of bundles: many small files with equal parts in one small file.

A bundle is a zip file with a single entry, `records.zip`, which stores the files of all records
without compression. The outer file compresses them together, so common parts of records are stored
once. It is unpacked in memory. A file may come from a stranger, so the sizes that it declares are
checked before anything is unpacked, and no more than those is.
"""

import zipfile
from collections.abc import Mapping
from io import BytesIO
from lzma import LZMAError
from pathlib import Path
from typing import TYPE_CHECKING

from latticework.experiments.records.files import write_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

INNER = "records.zip"
LARGEST = 100 * 2**20  # bytes that the files of a bundle may have, unpacked
CHUNK = 4096  # compressed bytes that are unpacked at once; LZMA packs up to 7,100 bytes in one
BUNDLED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)  # how INNER may be packed
EPOCH = (1980, 1, 1, 0, 0, 0)
LARGEST_ARRAYS = 4 * 2**30  # bytes that the arrays of a file may have, unpacked
PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # how NumPy packs arrays


class DamagedError(ValueError):
    """A record or a bundle cannot be read; the message says which, why, and what to do."""


def write_archive(file: Path, files: Mapping[str, bytes]) -> None:
    """Write `files`, contents by name, to the bundle `file`. Equal contents give equal bytes."""
    inner = BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        for name in sorted(files):
            archive.writestr(_entry(name), files[name])
    outer = BytesIO()
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr(_entry(INNER), inner.getvalue(), zipfile.ZIP_LZMA)
    write_file(file, outer.getvalue())


def open_archive(file: Path) -> zipfile.ZipFile:
    """The records of the bundle `file`, named after it.

    Raises DamagedError for a file that cannot be read, another kind of zip file, or one that does
    not fit into memory.
    """
    try:
        with zipfile.ZipFile(file) as outer:
            if outer.namelist() != [INNER]:
                raise DamagedError(
                    f"{file} is no bundle, which holds {INNER} and nothing else; make it with "
                    "python -m latticework.scripts.bundle"
                )
            if (size := outer.getinfo(INNER).file_size) > LARGEST:
                raise DamagedError(f"{file} holds {size} bytes; a bundle may hold {LARGEST}")
            if outer.getinfo(INNER).compress_type not in BUNDLED:
                raise DamagedError(f"{file} is not packed as bundles are, by LZMA")
            content = bytearray()
            with outer.open(INNER) as stream:
                while chunk := stream.read(CHUNK):
                    content += chunk
            archive = zipfile.ZipFile(BytesIO(content))
            entries = archive.infolist()
            stored = all(entry.compress_type == zipfile.ZIP_STORED for entry in entries)
            if not stored or sum(entry.file_size for entry in entries) > len(content):
                raise DamagedError(
                    f"the files in {file} unpack to more than the {size} bytes that it declares; "
                    "a bundle stores them as they are"
                )
    except (zipfile.BadZipFile, LZMAError, EOFError, NotImplementedError) as error:
        raise DamagedError(
            f"the bundle {file} cannot be read ({type(error).__name__}: {error}): restore it, with "
            "git or from a copy, or make it again with python -m latticework.scripts.bundle"
        ) from error
    archive.filename = str(file)
    return archive


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.create_system, entry.external_attr = 3, 0o644 << 16
    return entry


def read_arrays(content: bytes, name: str, most: int = LARGEST_ARRAYS) -> "dict[str, NDArray]":
    """The arrays of the npz file `content`, which messages call `name`.

    Raises DamagedError if it is none, or if its arrays have more than `most` bytes.
    """
    import numpy as np  # a command that only prints its help needs none

    try:
        with zipfile.ZipFile(BytesIO(content)) as file:
            entries = file.infolist()
        if (size := sum(entry.file_size for entry in entries)) > most:
            raise DamagedError(f"{name} unpacks to {size} bytes; it may have {most}")
        if any(entry.compress_type not in PACKED for entry in entries):
            raise DamagedError(f"{name} is not packed as NumPy packs arrays")
        with np.load(BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)
    except (zipfile.BadZipFile, EOFError, MemoryError, NotImplementedError) as error:
        raise DamagedError(f"{name} cannot be read ({type(error).__name__}: {error})") from error
