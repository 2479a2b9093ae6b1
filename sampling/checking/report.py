"""A report that is printed as a table: on a console with colours, as a string without."""

import io
from abc import ABC, abstractmethod
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType

COLOURS = {"ok": "green", "fails": "bold red", "no": "yellow", "-": "dim"}  # the colour of a status


class TableReport(ABC):
    @abstractmethod
    def _parts(self) -> Iterator[RenderableType]:
        """A table of all checks, the details of what does not hold, and what was tested."""

    def __str__(self) -> str:
        page = io.StringIO()
        Console(file=page, width=100).print(self)
        return page.getvalue()

    def __rich__(self) -> RenderableType:
        return Group(*self._parts())
