"""A line that shows how far a run is: on a terminal by rich, in a notebook as an output of its own.

Nothing is shown elsewhere, nor in the first moments of a run.
"""

import sys
import time
from typing import Any

SHOWN_AFTER = 0.7  # seconds from which on a run is shown
NOTEBOOK_EVERY = 0.5  # seconds between two updates of a notebook's output


def has_live_output() -> bool:
    """Whether the standard error is a terminal, or a notebook shows the output."""
    return in_notebook() or (sys.stderr is not None and sys.stderr.isatty())


def in_notebook() -> bool:
    """Whether the code runs in a kernel of Jupyter."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ in ("ZMQInteractiveShell", "Shell")


def describe_minutes(seconds: float) -> str:
    """A time that is left, in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class ProgressLine:
    """The steps of a run, a note, and the time that is left."""

    def __init__(self, total: int, label: str, size: str = "", unit: str = "steps") -> None:
        """Show `total` steps of `label`, in this `unit`; its draws take `size`, if it has some."""
        self.total, self.label, self.unit, self.began = total, label, unit, time.perf_counter()
        self.size = f"draws take {size}" if size else ""
        self._bar: Any = None
        self._handle: Any = None
        self._updated = 0.0

    def due(self) -> bool:
        """Whether an update would be shown."""
        now = time.perf_counter()
        return now - max(self.began + SHOWN_AFTER - NOTEBOOK_EVERY, self._updated) > NOTEBOOK_EVERY

    def update(self, steps: int, note: str, left: float | None = None) -> None:
        """Show `steps` of all and a note; `left` are seconds, if the steps do not tell them."""
        self._updated = now = time.perf_counter()
        if left is None:
            left = (now - self.began) * (self.total - steps) / max(1, steps)
        remaining = f"{describe_minutes(max(0.0, left))} to go"
        if in_notebook():
            line = f"{self.label}: {steps:,} of {self.total:,} {self.unit}, {note}, {remaining}"
            self._show_in_notebook(f"{line} ({self.size})" if self.size else line)
        else:
            self._show_on_terminal(steps, note, remaining)

    def close(self) -> None:
        """Leave the last line where it is."""
        if self._bar is not None:
            self._bar.stop()

    def _show_in_notebook(self, line: str) -> None:
        from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

        if self._handle is None:
            self._handle = display({"text/plain": line}, raw=True, display_id=True)
        else:
            self._handle.update({"text/plain": line}, raw=True)

    def _show_on_terminal(self, steps: int, note: str, remaining: str) -> None:
        if self._bar is None:
            # Importing rich takes a tenth of a second, so short runs do not.
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=10),
                MofNCompleteColumn(),
                TextColumn(f"{self.unit}, {{task.fields[note]}}, {{task.fields[left]}}"),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), auto_refresh=False)
            self._task = self._bar.add_task(self.label, total=self.total, note=note, left=remaining)
            if self.size:
                self._bar.console.print(f"{self.label}: {self.size}", highlight=False)
            self._bar.start()
        self._bar.update(self._task, completed=steps, note=note, left=remaining)
        self._bar.refresh()
