"""One process for each contender of `workshop.bench`, limited to a number of cores.

JAX, PyTorch and numba start pools of threads and would disturb each other in one process. A worker
process is bound to its cores before it loads any library, so that every pool has that size. All
workers share the same cores and wait while another one runs.
"""

import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workshop.bench_contenders import CONTENDERS, BenchChains, DeclinedError
from workshop.bench_models import statistics
from workshop.bench_workloads import Workload

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


class Worker:
    """Runs one contender. `start` comes first; `RemoteWorker` calls the other methods."""

    def __init__(self, contender: str, threads: int) -> None:
        self.contender, self.threads = contender, threads
        self.chains: BenchChains | None = None

    def start(self, work: Workload) -> str:
        """Make chains for `work`. Returns why the contender declines, or an empty string."""
        self.chains = None  # frees the memory of the last workload first
        try:
            self.chains = CONTENDERS[self.contender].make(work, self.threads)
        except DeclinedError as error:
            return str(error)
        return ""

    def seconds(self, steps: int) -> float:
        """Seconds per step, over `steps` steps: those of the processor if there is one thread."""
        assert self.chains is not None
        clock = time.process_time if self.threads == 1 else time.perf_counter
        start = clock()
        self.chains.burst(steps)
        return (clock() - start) / steps

    def steps_in(self, budget: float) -> int:
        """The number of steps that take about `budget` seconds. Also warms up."""
        fewest = CONTENDERS[self.contender].fewest
        steps = fewest
        while True:
            self.seconds(steps)  # may compile
            duration = self.seconds(steps) * steps
            if duration >= budget / 4:
                break
            steps *= 4
        result = max(fewest, round(steps * budget / duration))
        if result != steps:
            self.seconds(result)  # may compile once more
        return result

    def trace(self, work: Workload, draws: int, every: int, budget: float) -> NDArray:
        """Energy and magnetisation every `every` steps, `[draws, chains, 2]`.

        Burn-in is a fifth as many draws. Stops after `budget` seconds, with fewer
        draws.
        """
        assert self.chains is not None
        both, values = statistics(work), []
        end = time.perf_counter() + budget
        for draw in range(-(draws // 5), draws):
            self.chains.burst(every)
            if draw >= 0:
                values.append(both(self.chains.states()))
            if time.perf_counter() > end:
                break
        return np.array(values).reshape(-1, work.chains, 2)


class RemoteWorker:
    """A Worker in a process of its own: methods of the same names run there.

    The process imports the library from the folder `source`, if one is given. A method raises
    RuntimeError with the contender's name if it fails there, or if the process dies.
    """

    def __init__(self, contender: str, threads: int, source: str = "") -> None:
        self.contender = contender
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, contender, threads)
        environment = CONTENDERS[contender].environment
        with limit_processes(threads, environment), import_from(source):
            self._process = context.Process(target=serve, args=arguments, daemon=True)
            self._process.start()
        theirs.close()

    def _call(self, name: str, *arguments: object) -> Any:
        try:
            self._pipe.send((name, arguments))
            error, result = self._pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError) as broken:
            self._process.join(10)
            code = self._process.exitcode
            text = f"the process of the contender {self.contender} ended with status {code}"
            raise RuntimeError(text) from broken
        if error:
            raise RuntimeError(f"the contender {self.contender} failed:\n{error}")
        return result

    def start(self, work: Workload) -> str:
        return self._call("start", work)

    def seconds(self, steps: int) -> float:
        return self._call("seconds", steps)

    def steps_in(self, budget: float) -> int:
        return self._call("steps_in", budget)

    def trace(self, work: Workload, draws: int, every: int, budget: float) -> NDArray:
        return self._call("trace", work, draws, every, budget)

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()


def serve(pipe: Connection, contender: str, threads: int) -> None:
    """Answer calls from the pipe until it closes: `(name, arguments)` by `(error, result)`."""
    worker = Worker(contender, threads)
    while True:
        try:
            name, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = ("", getattr(worker, name)(*arguments))
        except Exception:
            answer = (traceback.format_exc(), None)
        pipe.send(answer)


def cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextmanager
def import_from(source: str) -> Iterator[None]:
    """Processes started in the block look for modules in the folder `source` first, if given."""
    before = list(sys.path)
    if source:
        sys.path.insert(0, source)
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def limit_processes(
    threads: int, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[None]:
    """Processes started in the block inherit `threads` cores, pools of that size, and variables.

    Where the system cannot bind a process to cores (macOS), JAX and thrml use all of them.
    """
    given = dict.fromkeys(THREADS, str(threads)) | dict(environment)
    before = {name: os.environ.pop(name, None) for name in given}
    os.environ.update(given)
    allowed = cores()
    binds = hasattr(os, "sched_setaffinity")
    if binds:
        os.sched_setaffinity(0, allowed[:threads])
    try:
        yield
    finally:
        if binds:
            os.sched_setaffinity(0, allowed)
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
