"""Runs that are killed, stopped or damaged, and go on to the same numbers, bit for bit."""

import csv
import io
import logging
import os
import signal
import sys
from dataclasses import dataclass
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from kills import cut_short, flip_a_byte

from latticework.experiments.runs import environment
from latticework.experiments.runs import run as runs
from latticework.experiments.runs.environment import input_checksums
from latticework.experiments.runs.errors import ConfigurationError
from latticework.experiments.runs.run import Run
from latticework.models.dense_ising import DenseIsing
from latticework.samplers.gibbs import Gibbs
from latticework.sampling import clock
from latticework.sampling.clock import Clock
from latticework.sampling.loop_state import LoopState, from_checkpoint, to_checkpoint

CONFIG = {"name": "made up", "seed": 0}


class CrashError(Exception):
    """Simulates the death of a process."""


def begin(path, config=CONFIG, checkpoint=0.0, device="cpu", force=False):
    path.mkdir(exist_ok=True)
    run = Run(path, config=config, checkpoint=checkpoint, device=device)
    run.load_checkpoints(config, force=force)
    return run


@dataclass(eq=False)
class Everything(LoopState):
    """A little of everything that a task may keep."""

    model: Any
    stepper: Any
    schedule: Any
    inner: "Inner"
    history: list
    best: float | None
    clock: Clock


@dataclass(eq=False)
class Inner(LoopState):
    """A memory within a memory, as a chain is."""

    rng: Any
    state: Any


@dataclass
class One(LoopState):
    value: Any = None


def memory_of(run, hidden=3):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, hidden), torch.nn.Linear(hidden, 1))
    ising = DenseIsing(torch.zeros(4, 4))
    stepper = torch.optim.Adam(model.parameters(), lr=0.1)
    rng = run.rng("chain")
    inner = Inner(rng, Gibbs().init(ising.domain.uniform(5, rng), ising))
    schedule = torch.optim.lr_scheduler.LinearLR(stepper, 0.1, 1.0, total_iters=10)
    return ising, Everything(model, stepper, schedule, inner, [], None, Clock(run.device))


def work(run, total=12, crash_at=None, **settings):
    """Chains of Gibbs-1, and a network that learns from them; a row every third iteration."""
    ising, memory = memory_of(run, **settings)
    for iteration in run.resumable(memory, "work", total=total):
        inner = memory.inner
        inner.state, _ = Gibbs().step(inner.state, ising, inner.rng)
        noise = torch.rand(5, 1, generator=inner.rng)
        loss = memory.model(inner.state.x + noise).square().mean()
        memory.stepper.zero_grad()
        loss.backward()
        memory.stepper.step()
        memory.schedule.step()
        memory.history.append(loss.item())
        memory.best = min(memory.history)
        if iteration % 3 == 0:
            run.log(iteration, loss=loss.detach())
        if iteration == crash_at:
            raise CrashError
    return memory


def content(run, memory):
    """All that the run ends with."""
    parts = to_checkpoint({k: v for k, v in memory.state_dict().items() if k != "clock"})
    return repr(parts), (run.path / "metrics.csv").read_text()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    run = begin(tmp_path_factory.mktemp("whole") / "run")
    return content(run, work(run))


def crashed(path, at):
    with pytest.raises(CrashError):
        work(begin(path), crash_at=at)


def files(path):
    return sorted(file.name for file in (path / "checkpoints").iterdir())


# Going on.


@pytest.mark.parametrize("at", [1, 2, 6, 7, 12])
def test_a_run_that_broke_off_ends_with_the_same_numbers(tmp_path, expected, at):
    crashed(tmp_path / "run", at)
    crashed(tmp_path / "run", min(at + 3, 12))  # and once more
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
    crashed(tmp_path, 9)
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


# What cannot be used.


def half_a_row(path):
    with (path / "metrics.csv").open("a") as file:
        file.write("12,0.3")
    (path / "checkpoints" / "work-0000000010.partial").write_bytes(b"half")


def lose_rows(path):
    """8 knows of two rows, 9 of three."""
    lines = (path / "metrics.csv").read_text().splitlines(keepends=True)
    (path / "metrics.csv").write_text("".join(lines[:3]))


def of_checkpoints(harm, *places):
    def harmed(path):
        for place in places:
            harm(path / "checkpoints" / files(path)[place])

    return harmed


@pytest.mark.parametrize(
    ("harm", "iteration"),
    [
        (half_a_row, 9),
        (lose_rows, 8),
        (of_checkpoints(flip_a_byte, -1), 8),
        (of_checkpoints(cut_short, -1), 8),
        (of_checkpoints(cut_short, 0, 1), None),
    ],
)
def test_what_is_damaged_gives_way_to_the_checkpoint_before(tmp_path, expected, harm, iteration):
    crashed(tmp_path, 10)
    harm(tmp_path)
    run = begin(tmp_path)
    assert run._saved.get("work", {}).get("iteration") == iteration
    assert (tmp_path / "metrics.csv").exists() is (iteration is not None)
    assert content(run, work(run)) == expected


def everything(folder):
    """The bytes of every file below `folder`, by name."""
    return {f.name: f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_another_configuration_starts_afresh_and_keeps_what_is_there(tmp_path, expected, caplog):
    """Hours of work may be in the checkpoints: nothing of them is deleted."""
    crashed(tmp_path / "run", 9)
    before = everything(tmp_path / "run")
    assert {"metrics.csv", "work-0000000008.pt"} <= set(before)
    run = begin(tmp_path / "run", {**CONFIG, "seed": 1})
    assert "another configuration" in caplog.text
    assert run._saved == everything(tmp_path / "run") == {}
    assert everything(tmp_path / "superseded") == before
    assert content(run, work(run))[1] == expected[1]  # Run itself was given the same seed


def test_a_file_that_was_replaced_takes_the_checkpoint_with_it(tmp_path, caplog):
    file = tmp_path / "model.npz"
    file.write_text("one")
    config = {**CONFIG, "pretrain": {"file": str(file)}}
    run = begin(tmp_path / "run", config)
    run.note(inputs=input_checksums(config))
    list(run.resumable(One(), "work", total=2))
    assert begin(tmp_path / "run", config)._saved
    file.write_text("two")
    assert begin(tmp_path / "run", config)._saved == {}
    assert "pretrain.file has changed since" in caplog.text


def test_another_device_is_refused_and_nothing_is_touched(tmp_path, expected):
    crashed(tmp_path / "run", 9)
    before = everything(tmp_path / "run")
    told = "made on cpu, and this run is on meta: give device=cpu to continue, or force=true"
    with pytest.raises(ConfigurationError, match=told):
        begin(tmp_path / "run", device="meta")
    assert everything(tmp_path / "run") == before
    begin(tmp_path / "run", device="meta", force=True)
    assert everything(tmp_path / "superseded") == before
    run = begin(tmp_path / "run")
    assert content(run, work(run)) == expected


def test_another_model_starts_afresh_and_the_earlier_checkpoints_are_kept(tmp_path, caplog):
    crashed(tmp_path / "run", 9)
    run = begin(tmp_path / "run")
    before = everything(tmp_path / "run")
    whole = begin(tmp_path / "whole")
    assert content(run, work(run, hidden=2)) == content(whole, work(whole, hidden=2))
    assert "it has another model" in caplog.text
    assert everything(tmp_path / "superseded") == before


def test_rows_of_a_loop_whose_checkpoint_is_refused_are_cut(tmp_path):
    """Loop A ends with 3 rows. Loop B stops with 3 more, and is then started with another model."""

    def go(size, stop=None):
        run = begin(tmp_path, checkpoint=0.0)
        for iteration in run.resumable(One(torch.nn.Linear(2, 2)), "A", total=3):
            run.log(iteration, v=1)
        for iteration in run.resumable(One(torch.nn.Linear(size, 2)), "B", total=4):
            if iteration == stop:
                return
            run.log(iteration, v=2)

    go(2, stop=4)
    go(3)
    with (tmp_path / "metrics.csv").open() as file:
        steps = [int(row["step"]) for row in csv.DictReader(file)]
    assert steps == [1, 2, 3, 1, 2, 3, 4]


def test_force_and_threads_are_no_part_of_the_configuration(tmp_path):
    """A scheduler that starts a job again gives the same words, force=true among them."""
    crashed(tmp_path, 9)
    other = {**CONFIG, "threads": 2, "checkpoint": 7}
    assert begin(tmp_path, other, force=True)._saved["work"]["iteration"] == 8


def test_what_cannot_be_stored_is_told(tmp_path):
    with pytest.raises(TypeError, match="got object"):
        list(begin(tmp_path).resumable(One(object()), "work", total=1))


def test_a_tensor_comes_back_on_the_device_of_the_one_that_it_replaces():
    """Rows of the data are on the CPU, whatever the run's device; a list may have grown."""
    run = torch.device("meta")
    rows, chains = torch.empty(0, dtype=torch.long), torch.zeros(2, device=run)
    memory = {"rows": rows, "chains": chains, "drawn": []}
    saved = {"rows": torch.tensor([2, 1]), "chains": torch.ones(2), "drawn": [torch.ones(1)]}
    back = from_checkpoint(memory, saved, run)
    assert back["rows"].tolist() == [2, 1]
    assert back["chains"].device == run
    assert back["drawn"][0].device == run


def test_numbers_of_numpy_are_stored_as_plain_ones(tmp_path):
    """Safe loading refuses numpy's types, so such a checkpoint could never be read."""
    for _ in begin(tmp_path).resumable(One({np.str_("a"): [np.float64(0.1)]}), "work", total=2):
        pass
    document = begin(tmp_path)._saved["work"]
    assert document["memory"] == {"value": {"a": [0.1]}}
    with pytest.raises(TypeError, match="got int64"):
        to_checkpoint(np.int64(1))


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
