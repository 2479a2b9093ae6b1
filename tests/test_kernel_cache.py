"""Compiled kernels kept on disk: what is damaged, full, or another user's stops no run."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core import caching

from latticework.samplers.compiled import cache, folders, jit


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


@pytest.mark.parametrize("mode", [0o777, 0o702])
def test_a_folder_below_one_that_others_can_write_is_not_used(tmp_path, mode):
    """Its owner could put another in its place."""
    parent = tmp_path / "parent"
    assert folders.fault_of(parent / "own") == ""
    parent.chmod(mode)
    assert f"other users can write {parent}" in folders.fault_of(parent / "own")
    parent.chmod(mode | 0o1000)  # sticky, as /tmp is
    assert folders.fault_of(parent / "own") == ""


def test_all_folders_are_made_for_their_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        assert folders.fault_of(tmp_path / "a/b/c") == ""
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")] == 3 * [0o700]


PLANTED = """
import os, tempfile
from pathlib import Path
from latticework.samplers import inductor
shared = Path(tempfile.gettempdir(), "torchinductor_" + os.environ["USER"])
shared.mkdir(mode=0o777)
inductor.use_private_folder()
import torch
from torch._inductor import codecache
from torch._inductor.runtime.cache_dir_utils import cache_dir
print(cache_dir(), codecache._HEADER_DIR, codecache._HEADER_LOCK_DIR, sep=":")
assert not any(shared.iterdir())
"""


@pytest.mark.slow
@pytest.mark.parametrize("usable", [True, False])
def test_fused_kernels_are_kept_where_no_other_user_can_write(tmp_path, usable):
    """PyTorch's own folder, which anybody can make beforehand, is not read; else one is made."""
    temporary, own = tmp_path / "tmp", tmp_path / "own"
    temporary.mkdir()
    own.mkdir(mode=0o700)
    own.chmod(0o700 if usable else 0o777)
    given = {"TMPDIR": str(temporary), "LATTICEWORK_CACHE": str(own / "cache"), "USER": "someone"}
    given["TORCHINDUCTOR_CACHE_DIR"] = str(temporary / "torchinductor_someone")
    done = subprocess.run(
        [sys.executable, "-c", PLANTED], env=os.environ | given, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for folder in done.stdout.strip().split(":"):
        start = own / "cache" / "inductor" if usable else temporary / "latticework-"
        assert folder.startswith(str(start))
    assert ("set LATTICEWORK_CACHE" in done.stderr) != usable


WITHOUT_JIT = """
import latticework as lw
lattice = lw.Lattice((3, 3), 0.2)
lw.sample(lattice, "gibbs", chains=2, steps=20_000, diagnose=False)
for engine in ("compiled", "fused"):
    try:
        lw.sample(lattice, "gibbs", chains=2, steps=5, engine=engine, diagnose=False)
    except ValueError as error:
        assert "NUMBA_DISABLE_JIT=1" in str(error), error
    else:
        raise AssertionError(engine)
"""


@pytest.mark.slow
def test_without_numba_auto_runs_eagerly_and_other_engines_say_why():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_JIT], env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_folder_depends_on_the_kernels(folder, tmp_path, monkeypatch):
    assert folder.parent == tmp_path
    copy = tmp_path / "cache.py"
    copy.write_text("changed")
    monkeypatch.setattr(cache, "__file__", str(copy))
    assert cache.cache_folder() != folder


def test_python_cannot_call_a_part_of_a_kernel(folder):
    """It has no entry from Python, and numba would crash."""
    part = jit.lean(double)

    def whole(x):
        return part(x)

    kernel = jit.kernel(whole)
    for _ in range(2):  # before and after the part is compiled
        with pytest.raises(TypeError, match="double is a part of kernels"):
            part(3.0)
        assert kernel(3.0) == 6.0
