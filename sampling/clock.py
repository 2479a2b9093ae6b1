"""A stopwatch for what is timed: seconds, and the share of them that was spent on a processor."""

import time

import torch

from latticework.sampling.devices import synchronise

# Seconds, some time slices of a scheduler: in less, a share is that of one slice.
MIN_MEASURED_SECONDS = 0.01


class Clock:
    """Seconds spent inside `with clock:`, synchronised with the device at both ends.

    `cpu` are the seconds in which this thread was on a processor. Both survive a restart of the
    run.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.seconds, self.cpu = device, 0.0, 0.0

    @property
    def share(self) -> float | None:
        """CPU seconds per second: 1 for a thread that had its core to itself, 1/3 among three.

        None on a GPU and with several threads, where this thread waits for others, and for less
        than `MIN_MEASURED_SECONDS` seconds. A share of 1 does not exclude work on other cores that
        slows this one.
        """
        alone = self.device.type == "cpu" and torch.get_num_threads() == 1
        known = alone and self.seconds >= MIN_MEASURED_SECONDS
        return self.cpu / self.seconds if known else None

    def __enter__(self) -> "Clock":
        synchronise(self.device)
        self._started = time.thread_time(), time.perf_counter()
        return self

    def __exit__(self, *raised: object) -> None:
        synchronise(self.device)
        cpu, start = self._started
        self.seconds += time.perf_counter() - start
        self.cpu += time.thread_time() - cpu

    def state_dict(self) -> dict[str, float]:
        return {"seconds": self.seconds, "cpu": self.cpu}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.seconds, self.cpu = state["seconds"], state["cpu"]
