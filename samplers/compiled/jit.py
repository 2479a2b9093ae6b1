"""Compilation of kernels by numba, and their execution on several threads.

A kernel is a function of arrays that advances the chains `first <= c < last`. It releases the GIL,
so `over_chains` runs it on several threads, each with its own range of chains. A chain's numbers do
not depend on the other chains, so neither do they depend on the number of threads.
Compiled code is kept on disk (samplers/compiled/cache.py).
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import numba
import torch
from numba.core import event
from numba.extending import overload

from latticework.samplers.compiled import cache

log = logging.getLogger(__name__)
MIN_THREAD_NANOSECONDS = 50_000.0  # work below which a second thread costs more than it saves
MIN_THREAD_CHAINS = 8  # chains of a thread, where a step of a chain is short: `over_chains`
# Sums may be reordered, so that they use vector registers. NaN and infinities keep their meaning.
REORDERED = frozenset({"reassoc", "contract", "nsz", "arcp"})
# Division by zero as in NumPy. No kernel is called from C.
NUMPY: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True}
# Without an entry from Python, which takes a fifth of the time to compile.
INTO_CALLERS: Any = NUMPY | {"forceinline": True, "no_cpython_wrapper": True}


def kernel(function: Callable) -> Callable:
    """Compile a function of arrays when it is first called; it runs without the GIL."""
    return _compiled(function, frozenset())


def reordered(function: Callable) -> Callable:
    """`kernel` for a function whose sums may be evaluated in any order."""
    return _compiled(function, REORDERED)


def lean(function: Callable) -> Callable:
    """`kernel` for a part of a kernel that neither makes nor returns arrays.

    It is compiled into its callers and counts no references: calls and reference counts each
    cost as much as a short loop. Python cannot call it (TypeError).
    """
    return _refuse_python(_compiled(function, frozenset(), _nrt=False, **INTO_CALLERS))


def inlined(function: Callable) -> Callable:
    """Compile a small function into each kernel that calls it."""
    return numba.njit(function, inline="always", error_model="numpy")


def primitive(
    generic: Callable, choice: Mapping[type, Callable], makes_arrays: bool = False
) -> None:
    """Compile calls of `generic` as the plain function that `choice` has for the type of its form.

    The form is the first argument. Where `choice` has none, that is `generic` itself: the rule that
    most forms share. The function is compiled once, and into its callers: numba's
    `inline="always"` would type each call anew, and kernels with functions among their arguments
    are not found on disk. A function that makes or returns arrays says so by `makes_arrays`; others
    count no references, as `lean` ones.
    """

    @wraps(generic)
    def choose(form: Any, *_: Any) -> Callable:
        return choice.get(form.instance_class, generic)

    options = INTO_CALLERS if makes_arrays else INTO_CALLERS | {"_nrt": False}
    overload(generic, jit_options=options)(choose)


def _compiled(function: Callable, fastmath: frozenset[str], **options: Any) -> Callable:
    options = NUMPY | {"nogil": True, "fastmath": set(fastmath)} | options
    return cache.keep(numba.njit(function, **options))


def _refuse_python(part: Any) -> Any:
    """The part, which raises TypeError if Python calls it: without an entry, that would crash."""

    def refuse(*_: Any, **__: Any) -> None:
        raise TypeError(f"{part.__qualname__} is a part of kernels: call it from one")

    if hasattr(part, "_insert"):  # else numba is switched off
        part._compile_for_args, part._insert = refuse, lambda *_, **__: None
    return part


@lean
def copy(out, values):
    """`out[:] = values`, which takes numba seconds to compile: its error spells out the shapes."""
    for i in range(out.shape[0]):
        out[i] = values[i]


class _Announce(event.Listener):
    """Logs the compilation of our kernels, because it takes seconds; not that of their parts."""

    depth = 0

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if self.depth == 0 and function.__module__.startswith("latticework."):
            log.info("compiling the kernel %s for this machine (once)", function.__qualname__)
        self.depth += 1

    def on_end(self, event: Any) -> None:
        self.depth -= 1


event.register("numba:compile", _Announce())


# Threads.

_pool: ThreadPoolExecutor | None = None


def _forget() -> None:
    """A forked process has no threads of the pool."""
    global _pool
    _pool = None


os.register_at_fork(after_in_child=_forget)


def over_chains(
    run: Callable, chains: int, nanoseconds: float, *args: Any, fewest: int = 1
) -> None:
    """Call `run(first, last, *args)` for ranges of chains, on PyTorch's number of threads.

    `nanoseconds` is a rough estimate of the work. Little work stays on one thread. A thread gets at
    least `fewest` chains. Sums of neighbouring chains share cache lines, and two threads that write
    to one line wait for each other. Where a step takes less than a microsecond, that costs more
    than a second thread saves.
    """
    most = min(max(1, chains // fewest), max(1, int(nanoseconds / MIN_THREAD_NANOSECONDS)))
    threads = min(torch.get_num_threads(), most)
    ends = [chains * i // threads for i in range(threads + 1)]
    _share([partial(run, *ends[i : i + 2], *args) for i in range(threads)], threads)


def over_chunks(run: Callable, chains: int, most: int, nanoseconds: float, *args: Any) -> None:
    """`over_chains` for a `run` that calls BLAS: in chunks of at most `most` chains.

    How a product is rounded depends on its number of rows, and on the threads that share it. So
    chunks do not depend on the number of threads, and a product runs on one thread.
    """
    chunks = -(-chains // most)
    ends = [chains * i // chunks for i in range(chunks + 1)]
    calls = [partial(run, *ends[i : i + 2], *args) for i in range(chunks)]
    with products_on_one_thread() as allowed:
        _share(calls, min(allowed, chunks, max(1, int(nanoseconds / MIN_THREAD_NANOSECONDS))))


@contextmanager
def products_on_one_thread() -> Iterator[int]:
    """PyTorch's products in the block run on one thread. Gives the number of threads before it.

    How a product is rounded depends on the threads that share it.
    """
    allowed = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield allowed
    finally:
        torch.set_num_threads(allowed)


def _share(calls: Sequence[Callable[[], Any]], threads: int) -> None:
    """Make all calls, thread i those numbered i, i + threads, ..."""
    global _pool
    if threads > 1 and (_pool is None or _pool._max_workers < threads - 1):
        _pool = ThreadPoolExecutor(threads - 1, "chains", torch.set_num_threads, (1,))

    def part(thread: int) -> None:
        for call in calls[thread::threads]:
            call()

    futures = [_pool.submit(part, i) for i in range(1, threads)] if _pool else []
    part(0)
    for future in futures:
        future.result()
