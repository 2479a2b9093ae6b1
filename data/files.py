"""Finds a published file in the data root or in the cache, or downloads it to the cache.

The data root is `root`, else the environment variable LATTICEWORK_DATA. It may be read-only. The
cache is `cache`, else data/cache in a checkout, which git ignores, else the user's cache folder.

A file whose checksum is wrong is an error. It is left as it is, and no other place is searched.
Checksums are the md5 that the publishers and torchvision give, or those of files that only the data
root offers. They detect truncated files and mix-ups, not malice. Omniglot's chardata.mat, the whole
table of Online News and the archive of BlogFeedback have no checksum: no authentic copy was at
hand, and the archive was packed again. Their loaders check columns and rows, or images, and
nothing more.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import logging
import lzma
import os
import shutil
import threading
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from uuid import uuid4

TIMEOUT = 10.0  # seconds to wait for an answer
UNPACK: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
UNREADABLE = (
    *(EOFError, OSError, ValueError, KeyError),
    *(zlib.error, lzma.LZMAError, zipfile.BadZipFile),
)

log = logging.getLogger(__name__)


def default_cache(here: Path) -> Path:
    """`here`/cache in a checkout, where `here` is data/; else the user's cache folder."""
    if (here.parent / "pyproject.toml").is_file():
        return here / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "latticework"


CACHE = default_cache(Path(__file__).resolve().parent)


class MissingFileError(FileNotFoundError):
    """A file is neither in the data root nor in the cache, and could not be downloaded."""


class DamagedFileError(ValueError):
    """A file exists, but is truncated or is another file."""


def substitute(error: MissingFileError, strict: bool, name: str) -> None:
    """Warns that the data `name` replace the missing ones. Raises `error` if `strict`."""
    if strict:
        raise error
    log.warning("SUBSTITUTE DATA: these are %s\n%s", name, error)


@dataclass(frozen=True)
class Source:
    """One published file.

    Args:
        name: the file's name.
        folders: its possible folders in the data root; the first is its folder in the cache.
        md5: accepted checksums; empty if none is known.
        urls: addresses, tried in this order.
        origin: where the file comes from, if it cannot be downloaded directly.
        packed: whether the checksums are those of the content of a .gz, .bz2 or .xz file, which
            anyone may have compressed.
    """

    name: str
    folders: tuple[str, ...]
    md5: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    origin: str = ""
    packed: bool = False

    @property
    def help(self) -> str:
        return self.origin or " or ".join(self.urls)


def checksum(path: Path, opened: Callable[..., Any] = open) -> str:
    """The md5 in hexadecimal of what `opened` reads: the file, or its content if it unpacks."""
    with opened(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def mismatch(path: Path, source: Source) -> str:
    """Why the file is not the published one, or '' if it is."""
    if not source.md5:
        return ""
    try:
        md5 = checksum(path, UNPACK[Path(source.name).suffix] if source.packed else open)
    except UNREADABLE as error:
        return _unreadable(error)
    if md5 in source.md5:
        return ""
    what = "md5 of the unpacked file" if source.packed else "md5"
    return f"expected {what} {' or '.join(source.md5)}, found {md5}"


@contextlib.contextmanager
def convert_read_errors(path: Path, source: Source | None = None) -> Iterator[None]:
    """Turns errors in reading a truncated or wrong file into DamagedFileError.

    A file of the user's own has no `source`.
    """
    try:
        yield
    except UNREADABLE as error:
        raise damaged_file_error(path, source, _unreadable(error)) from error


def _unreadable(error: Exception) -> str:
    """Why a file cannot be read; raises the system's errors, such as a missing permission."""
    if isinstance(error, OSError) and error.errno:
        raise error
    return f"it cannot be read ({error!r})"


def damaged_file_error(path: Path, source: Source | None, reason: str) -> DamagedFileError:
    """The error for a file with wrong contents; says how to get the file again."""
    if source is None:
        return DamagedFileError(f"{path} ({path.stat().st_size} bytes) is damaged: {reason}")
    return DamagedFileError(
        f"{path} ({path.stat().st_size} bytes) is truncated or is another file: {reason}. "
        f"It was left as it is and nothing else was used in its place. "
        f"Remove it and get it again from {source.help}."
    )


def find(
    source: Source,
    root: str | Path | None = None,
    *,
    cache: str | Path | None = None,
    download: bool = True,
) -> Path:
    """Path of the verified file: in the data root, in the cache, or downloaded, in this order.

    Raises:
        DamagedFileError: if the first file found is not the published one.
        MissingFileError: if no file is found and it cannot be downloaded.
        NotADirectoryError: if the data root is not a folder.
    """
    name = "data.root" if root else "LATTICEWORK_DATA"
    root = root or os.environ.get("LATTICEWORK_DATA")
    if root and not Path(root).expanduser().is_dir():
        without = "data.root=null does" if name == "data.root" else "unset LATTICEWORK_DATA to do"
        raise NotADirectoryError(
            f"the data root {root} is not a folder: set {name} to one; {without} without"
        )
    cache = Path(cache or CACHE).expanduser()
    places = [Path(root).expanduser() / folder for folder in source.folders] if root else []
    target = cache / source.folders[0] / source.name
    for path in [*(place / source.name for place in places), target]:
        if path.is_file():
            if reason := mismatch(path, source):
                raise damaged_file_error(path, source, reason)
            return path
    if not source.urls:
        failure = "it cannot be downloaded"
    elif not download:
        failure = "downloading is switched off (data.download=false)"
    else:
        failure = _download(source, target)
        if not failure:
            return target
    raise MissingFileError(
        f"{source.name} is missing: looked in {', '.join(map(str, [*places, target.parent]))}; "
        f"{failure}. Get it from {source.help} and put it there"
        f"{'' if root else ', or set data.root or LATTICEWORK_DATA to the folder that holds it'}."
    )


def _download(source: Source, target: Path) -> str:
    """Downloads and checks a file under a temporary name, then renames it; '' or the failure.

    Processes that download the same file do not disturb each other, even in two containers, where
    they may have the same number.
    """
    part = target.with_name(f".{target.name}.{uuid4().hex}.part")
    failures = []
    for url in source.urls:
        log.info("downloading %s", url)
        try:
            with _open(url) as response:
                target.parent.mkdir(parents=True, exist_ok=True)
                _save(response, part)
            if reason := mismatch(part, source):
                raise OSError(f"the answer was another file: {reason}")
            part.replace(target)
            return ""
        except (OSError, HTTPException) as error:
            failures.append(f"downloading {url} failed ({type(error).__name__}: {error})")
        finally:
            with contextlib.suppress(OSError):
                part.unlink()
    return "; ".join(failures)


def _save(response: Any, path: Path) -> None:
    """Writes the answer; raises OSError if it is shorter than announced, which urllib ignores."""
    with path.open("wb") as file:
        shutil.copyfileobj(response, file)
    received, announced = path.stat().st_size, response.headers.get("Content-Length")
    if announced and received != int(announced):
        raise OSError(f"the answer ended after {received} of {announced} bytes")


def _open(url: str) -> Any:
    """`urlopen` within TIMEOUT, including the name lookup, which urlopen's timeout leaves out."""
    answer: Future[Any] = Future()

    def ask() -> None:
        try:
            request = urllib.request.Request(url, headers={"User-Agent": "latticework"})
            answer.set_result(urllib.request.urlopen(request, timeout=TIMEOUT))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    return answer.result(timeout=TIMEOUT)
