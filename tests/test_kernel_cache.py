"""Compiled kernels kept on disk: what is damaged, full, or another user's stops no run."""

import errno
import os
from pathlib import Path

import pytest
from numba.core import caching

from latticework.samplers.compiled import cache, jit


def double(x):
    return 2 * x


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of kernels; its parent is there, as after an earlier version."""
    monkeypatch.setenv("LATTICEWORK_CACHE", str(tmp_path))
    cache._usable_folder.cache_clear()
    cache._warn.cache_clear()
    yield cache.cache_folder()
    cache._usable_folder.cache_clear()


def in_a_new_process():
    """Call a kernel as a process does that has compiled nothing; whether it was on disk."""
    kernel = jit.kernel(double)
    assert kernel(3.0) == 6.0
    return sum(kernel.stats.cache_hits.values()) == 1


def empty(content):
    return b""


def half(content):
    return content[: len(content) // 2]


def flipped(content):
    """One bit of the code, or of a name, which pickle may read without an error."""
    return bytes([*content[:-100], content[-100] ^ 1, *content[-99:]])


@pytest.mark.parametrize("harm", [empty, half, flipped])
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_damaged_file_is_removed_and_made_again(folder, suffix, harm, caplog):
    assert [in_a_new_process() for _ in range(2)] == [False, True]
    (file,) = folder.rglob(f"*{suffix}")
    file.write_bytes(harm(file.read_bytes()))
    assert [in_a_new_process() for _ in range(2)] == [False, True]
    assert [record.getMessage() for record in caplog.records] == [
        f"{file} is damaged: removed, and its kernel is compiled again"
    ]


def test_a_full_disk_is_told_once(folder, monkeypatch, caplog):
    def full(path, mode):
        if "w" in mode:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return Path(path).open(mode)

    monkeypatch.setattr(caching, "open", full, raising=False)
    assert [in_a_new_process() for _ in range(2)] == [False, False]
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"No space left on device ({folder}" in line


def test_a_disk_without_room_for_a_file_is_told_once(folder, monkeypatch, caplog):
    """numba tries this first, and would go on in the source's folder."""

    make = caching.tempfile.TemporaryFile

    def full(dir):
        if Path(dir).is_relative_to(folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return make(dir=dir)

    monkeypatch.setattr(caching.tempfile, "TemporaryFile", full)
    assert [in_a_new_process() for _ in range(2)] == [False, False]
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"no file can be made in {folder}" in line


def test_a_folder_that_cannot_be_made_is_told_once(folder, monkeypatch, caplog):
    folder.parent.joinpath("file").touch()
    monkeypatch.setenv("LATTICEWORK_CACHE", str(folder.parent / "file"))
    assert [in_a_new_process() for _ in range(2)] == [False, False]
    assert caplog.text.count("set LATTICEWORK_CACHE to a folder of yours") == 1


def test_a_folder_is_made_for_its_owner_alone(folder):
    before = os.umask(0)
    try:
        assert not in_a_new_process()
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("mode", "user", "told"),
    [
        (0o777, 0, "other users can write"),
        (0o770, 0, "other users can write"),
        (0o700, 1, "belongs to another user"),
    ],
)
def test_what_others_may_have_written_is_not_loaded(folder, mode, user, told, monkeypatch, caplog):
    """numba would unpickle it."""
    assert [in_a_new_process() for _ in range(2)] == [False, True]
    folder.chmod(mode)
    uid = os.geteuid() + user
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    cache._usable_folder.cache_clear()
    monkeypatch.setattr(caching.IndexDataCacheFile, "load", None)  # is not called
    assert [in_a_new_process() for _ in range(2)] == [False, False]
    (line,) = [record.getMessage() for record in caplog.records]
    assert told in line
    assert str(folder) in line


def test_the_folder_depends_on_the_kernels(folder, tmp_path, monkeypatch):
    assert folder.parent == tmp_path
    copy = tmp_path / "cache.py"
    copy.write_text("changed")
    monkeypatch.setattr(cache, "__file__", str(copy))
    assert cache.cache_folder() != folder
