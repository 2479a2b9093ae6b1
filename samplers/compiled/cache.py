"""The folder of compiled kernels, kept between processes, so that no damage there stops a run.

The folder is `LATTICEWORK_CACHE` (default: `latticework` in the user's cache folder), and in it one
folder for each version of the kernels. Its name holds a hash of all of them, because numba checks
only the file of the function that it loads, and not the files of the functions that this one calls.

numba unpickles what it finds, which can run any code. So a folder that other users own or can write
is not used (samplers/compiled/folders.py). Each file ends with its checksum. A damaged file is
removed, and its kernel is compiled again. Where nothing can be kept, each process compiles its
kernels, and a line says so.
"""

import hashlib
import io
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import caching

from latticework.samplers.compiled.folders import cache_root, fault_of, switched_off

log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """The folder of compiled kernels for this version of their source."""
    here = Path(__file__).parent
    source = b"".join(path.read_bytes() for path in sorted(here.rglob("*.py")))
    return cache_root() / f"kernels-{hashlib.sha256(source).hexdigest()[:16]}"


def keep(kernel: Any) -> Any:
    """`kernel`, a function that numba compiles when it is called, with its code kept on disk.

    With NUMBA_DISABLE_JIT=1, numba returns the function as it is, and there is nothing to keep.
    """
    if switched_off():
        return kernel
    if (folder := _usable_folder()) is not None:
        config: Any = numba.config
        before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
        try:
            kernel._cache = _Cache(kernel.py_func)
        except RuntimeError:  # numba could not make its own folder in it
            _warn(f"no file can be made in {folder}")
        finally:
            config.CACHE_DIR = before
    return kernel


@cache
def _usable_folder() -> Path | None:
    """The cache folder, or None if it cannot be used. The log then says why, once."""
    try:
        folder = cache_folder()
    except RuntimeError as error:  # there is no home folder
        _warn(str(error))
        return None
    if why := fault_of(folder):
        _warn(why)
        return None
    return folder


@cache
def _warn(why: str) -> None:
    log.warning(
        "compiled kernels are not kept, so each process compiles them again: %s; "
        "set LATTICEWORK_CACHE to a folder of yours that can be written",
        why,
    )


class _Place(caching.CompileResultCacheImpl):
    """numba's, without the other folders that it tries."""

    _locator_classes = [caching.UserProvidedCacheLocator]


class _Cache(caching.FunctionCache):
    """numba's cache of a function. It goes on without files that cannot be read or written."""

    _impl_class = _Place

    def __init__(self, function: Callable) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _Files(self.cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except OSError as error:
            _warn(f"{error.strerror} ({self.cache_path})")
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn(f"{error.strerror} ({self.cache_path})")


class _Files(caching.IndexDataCacheFile):
    """numba's files of a function, each with a SHA-256 of its content at the end.

    Both of numba's readers stop before it, at the end of the last pickled object.
    """

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        yield (content := io.BytesIO())
        with super()._open_for_write(filepath) as file:
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())

    def _load_index(self) -> dict[Any, str]:
        _remove_if_damaged(Path(self._index_path))
        return super()._load_index()

    def _load_data(self, name: str) -> Any:
        _remove_if_damaged(Path(self._data_path(name)))
        return super()._load_data(name)


def _remove_if_damaged(file: Path) -> None:
    content = file.read_bytes() if file.exists() else None
    if content is not None and hashlib.sha256(content[:-32]).digest() != content[-32:]:
        log.warning("%s is damaged: removed, and its kernel is compiled again", file)
        file.unlink()
