"""Checkpoints: a run that broke off goes on with the same numbers; signals."""

import io
import logging
import os
import signal
import sys
from itertools import islice
from types import SimpleNamespace

import pytest
import torch
from checkpointed_work import (
    CONFIG,
    CrashError,
    One,
    begin,
    content,
    content_of_whole_run,
    crash_work,
    files,
    work,
)

from latticework.experiments.runs import environment
from latticework.experiments.runs import run as runs
from latticework.experiments.runs.run import Run
from latticework.sampling import clock
from latticework.sampling.clock import Clock


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return content_of_whole_run(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("at", [1, 2, 6, 7, 12])
def test_a_run_that_broke_off_ends_with_the_same_numbers(tmp_path, expected, at):
    crash_work(tmp_path / "run", at)
    crash_work(tmp_path / "run", min(at + 3, 12))  # and once more
    run = begin(tmp_path / "run")
    assert content(run, work(run)) == expected


def test_other_chance_gives_other_numbers(tmp_path, expected):
    """Control: the comparison detects a difference."""
    run = Run(tmp_path, config=CONFIG, checkpoint=0.0, seed=1)
    assert content(run, work(run)) != expected


def test_notes_and_seconds_go_on(tmp_path):
    run, memory = begin(tmp_path), One(Clock(torch.device("cpu")))
    run._started -= 1000
    run.note(kept="yes", renewed=1)
    for _ in run.resumable(memory, "work", total=2):
        memory.value.seconds += 100
    again, memory = begin(tmp_path), One(Clock(torch.device("cpu")))
    again.note(renewed=2)
    list(again.resumable(memory, "work", total=2))
    assert again.notes == {"kept": "yes", "renewed": 2}
    assert again.seconds > 1000
    assert memory.value.seconds == 200


def test_the_last_two_are_kept_and_can_be_read_safely(tmp_path):
    crash_work(tmp_path, 9)
    assert files(tmp_path) == ["work-0000000007.pt", "work-0000000008.pt"]
    document = torch.load(tmp_path / "checkpoints" / files(tmp_path)[0], weights_only=True)
    assert document["iteration"] == 7
    assert document["rows"] == 2


def test_loops_follow_one_another(tmp_path):
    def both(run, crash_at=None):
        n, m = One(0), One(0)
        for i in run.resumable(n, "first", total=4, first=0):
            n.value += 1
            run.log(i, value=n.value)
        for i in run.resumable(m, "second", total=3):
            m.value += n.value
            run.log(100 + i, value=m.value)
            if i == crash_at:
                raise CrashError
        return (n.value, m.value), (run.path / "metrics.csv").read_text()

    whole = both(begin(tmp_path / "whole"))
    assert whole[0] == (5, 15)
    for at in (1, 2):
        with pytest.raises(CrashError):
            both(begin(tmp_path / f"{at}"), crash_at=at)
        assert both(begin(tmp_path / f"{at}")) == whole
    # The second loop's checkpoint is worth nothing without the end of the first.
    with pytest.raises(CrashError):
        both(begin(tmp_path / "lost"), crash_at=3)
    for file in (tmp_path / "lost" / "checkpoints").glob("first-*"):
        file.unlink()
    assert begin(tmp_path / "lost")._saved == {}
    assert both(begin(tmp_path / "lost")) == whole

    run = begin(tmp_path / "twice")
    list(run.resumable(One(), "same", total=1))
    with pytest.raises(ValueError, match="its own name, got 'same' again"):
        list(run.resumable(One(), "same", total=1))


@pytest.mark.parametrize(
    ("first", "each", "counts"),
    [
        (0, 1, "0/3 1/3 2/3 3/3"),
        (1, 1, "1/3 2/3 3/3"),
        (0, 500, "0/1,500 500/1,500 1,000/1,500 1,500/1,500"),
    ],
)
def test_the_display_counts_steps(tmp_path, monkeypatch, caplog, first, each, counts):
    """Also after a stop, and if the reading at the start is an iteration (`first=0`)."""
    monkeypatch.setattr(runs, "PLAIN_EVERY", -1.0)
    caplog.set_level("INFO")
    for i in begin(tmp_path).resumable(One(), "work", total=3, first=first, each=each):
        if i == 2:
            break  # its round is not stored
    list(begin(tmp_path).resumable(One(), "work", total=3, first=first, each=each))
    shown = [line.split()[1] for line in caplog.messages if "/s" in line]
    assert " ".join(shown) == counts


def test_a_message_erases_the_live_line(tmp_path, monkeypatch):
    """And no handler erases anything after the loop."""
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(runs, "LIVE_EVERY", -1.0)
    handler = logging.StreamHandler(terminal)
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    for i in begin(tmp_path).progress(range(2), "work", 2):
        if i == 1:
            logging.warning("a message")
    logging.warning("the end")
    line, message, end = terminal.getvalue().split(runs.CLEAR)[1:4]
    assert line.startswith("work ")
    assert message == "a message\n"
    assert end.startswith("work ")
    assert terminal.getvalue().endswith(f"{runs.CLEAR}the end\n")
    assert handler.filters == []


@pytest.mark.parametrize(
    ("threads", "seconds", "share"), [(1, 10.0, 0.3), (1, 0.009, None), (2, 10.0, None)]
)
def test_the_clock_says_what_share_of_its_seconds_was_on_a_processor(
    monkeypatch, threads, seconds, share
):
    """Known for one thread on the CPU, and for more than a few time slices."""
    walls, cpus = iter((100.0, 100.0 + seconds)), iter((50.0, 50.0 + 0.3 * seconds))
    times = SimpleNamespace(perf_counter=lambda: next(walls), thread_time=lambda: next(cpus))
    monkeypatch.setattr(clock, "time", times)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    watch = Clock(torch.device("cpu"))
    with watch:
        pass
    assert watch.share == (None if share is None else pytest.approx(share))
    again = Clock(torch.device("cpu"))
    again.load_state_dict(watch.state_dict())
    assert (again.seconds, again.cpu) == pytest.approx((seconds, 0.3 * seconds))


def test_parts_that_were_made_elsewhere_are_noted(tmp_path, monkeypatch):
    """The record has the facts of its last process; others, of earlier ones, are notes."""

    def part(commit, crash_at):
        facts = {"commit": commit, "threads": 1}
        monkeypatch.setattr(environment, "environment_facts", lambda *_: facts)
        run = begin(tmp_path)
        for loop in ("first", "second"):
            for i in run.resumable(One(), loop, total=4):
                if (loop, i) == crash_at:
                    return run.notes
        return run.notes

    assert part("a", ("first", 2)) == {}
    assert part("a", ("first", 3)) == {}
    a, b = ({"commit": commit, "threads": 1} for commit in "ab")
    assert part("b", ("second", 2)) == {"resumed_from": [a]}
    assert part("c", ("second", 3)) == {"resumed_from": [a, b]}
    assert part("b", ("second", 4))["resumed_from"][0] == a
    assert b not in part("b", None)["resumed_from"]


def test_code_that_changed_since_a_checkpoint_is_told(tmp_path, monkeypatch, caplog):
    config = {**CONFIG, "sampler": {"_target_": f"{One.__module__}.One"}}
    for mark, told in (("old", False), ("old", False), ("new", True)):
        monkeypatch.setattr(environment, "_hash", lambda _, mark=mark: mark)
        caplog.clear()
        run = begin(tmp_path, config)
        list(islice(run.resumable(One(), "work", total=9), 2))
        assert (f"code of {One.__module__} has changed since the checkpoint" in caplog.text) is told
    assert run.notes["resumed_from"][0]["sources"] == {One.__module__: "old"}


# Signals.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_the_handler_of_a_launcher_is_called_after_the_checkpoint(tmp_path, expected, number):
    """Like submitit: after SIGTERM's handler the run continues; SIGUSR2's handler exits."""
    called = []

    def handler(number, frame):
        called.append(files(tmp_path))
        if number == signal.SIGUSR2:
            raise SystemExit(144)

    class Interrupted(Run):
        def log(self, step, **values):
            super().log(step, **values)
            if step == 6:
                os.kill(os.getpid(), number)

    before = signal.signal(number, handler)
    try:
        run = Interrupted(tmp_path, config=CONFIG, checkpoint=3600.0)
        if number == signal.SIGUSR2:
            with pytest.raises(SystemExit, match="144"):
                work(run)
        else:
            assert content(run, work(run)) == expected
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
    assert called == [["work-0000000006.pt"]]
    again = begin(tmp_path)
    assert content(again, work(again)) == expected


def test_a_second_interrupt_stops_at_once(tmp_path):
    run = begin(tmp_path, checkpoint=3600.0)

    def twice():
        for _ in run.resumable(One(), "work", total=5):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(SystemExit, match="130"):
        twice()
    assert not (tmp_path / "checkpoints").exists()
