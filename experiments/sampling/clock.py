"""A stopwatch for loops that time only a part of their body, and that can be resumed."""

import time
from types import TracebackType

import torch

from latticework.experiments.sampling.chain import synchronise


class Clock:
    """Seconds spent inside `with clock:`, synchronised with the device at both ends.

    In the memory of a resumable loop (`experiments.running.checkpoint`), the count survives a
    restart.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.seconds = device, 0.0

    def __enter__(self) -> "Clock":
        synchronise(self.device)
        self._started = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        synchronise(self.device)
        self.seconds += time.perf_counter() - self._started

    def state_dict(self) -> dict[str, float]:
        return {"seconds": self.seconds}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.seconds = state["seconds"]
