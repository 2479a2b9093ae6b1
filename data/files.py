"""Finds a published file: in the data root, else in the cache, else by downloading it there.

The data root is `root`, else the environment variable LATTICEWORK_DATA; it is only read, and may
be read-only. The cache is `cache`, else the folder `cache` beside this file, which git ignores.

A file that is there but is not the published one is an error and stays as it is: it is neither
replaced nor passed over. Checksums are the md5 that the publishers and torchvision give: they guard
against truncation and mix-ups, not against malice.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import threading
import urllib.request
from concurrent.futures import Future
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

CACHE = Path(__file__).parent / "cache"
TIMEOUT = 10.0  # seconds to wait for an answer

log = logging.getLogger(__name__)


class MissingFileError(FileNotFoundError):
    """A file is in neither place and could not be downloaded."""


class DamagedFileError(ValueError):
    """A file is there, but is truncated or is another file."""


@dataclass(frozen=True)
class Source:
    """One published file.

    Args:
        name: the file's name.
        folders: where it may lie under the data root, or under the cache (the first).
        md5: accepted checksums; none where the publisher gives none.
        urls: addresses, tried in turn.
        origin: where the file comes from, if it cannot be downloaded as it is.
    """

    name: str
    folders: tuple[str, ...]
    md5: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    origin: str = ""

    @property
    def help(self) -> str:
        return self.origin or " or ".join(self.urls)


def checksum(path: Path) -> str:
    """The file's md5 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def mismatch(path: Path, source: Source) -> str:
    """Why the file is not the published one, or '' if it is."""
    if not source.md5 or (found := checksum(path)) in source.md5:
        return ""
    return f"expected md5 {' or '.join(source.md5)}, found {found}"


def damaged(path: Path, source: Source, reason: str) -> DamagedFileError:
    """The error for a file that is not what it should be; says how to get it again."""
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
    """The verified file's path: data root, cache, download, in this order.

    Raises:
        DamagedFileError: if the first file found is not the published one.
        MissingFileError: if there is none and it cannot be downloaded.
        NotADirectoryError: if a data root is named that is no folder.
    """
    root = root or os.environ.get("LATTICEWORK_DATA")
    if root and not Path(root).expanduser().is_dir():
        raise NotADirectoryError(
            f"the data root {root} is not a folder: "
            "set data.root (or LATTICEWORK_DATA) to one, or to null to do without"
        )
    cache = Path(cache or CACHE).expanduser()
    places = [Path(root).expanduser() / folder for folder in source.folders] if root else []
    target = cache / source.folders[0] / source.name
    for path in [*(place / source.name for place in places), target]:
        if path.is_file():
            if reason := mismatch(path, source):
                raise damaged(path, source, reason)
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
    """Fetches a file, checks it, and only then gives it its name; returns why it failed, or ''."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    failures = []
    for url in source.urls:
        log.info("downloading %s", url)
        try:
            with _open(url) as response:
                target.parent.mkdir(parents=True, exist_ok=True)
                with part.open("wb") as file:
                    shutil.copyfileobj(response, file)
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


def _open(url: str) -> Any:
    """`urlopen` within TIMEOUT; its own timeout does not bound a name server that is silent."""
    answer: Future[Any] = Future()

    def ask() -> None:
        try:
            request = urllib.request.Request(url, headers={"User-Agent": "latticework"})
            answer.set_result(urllib.request.urlopen(request, timeout=TIMEOUT))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    return answer.result(timeout=TIMEOUT)
