"""Budgets of time and of evaluations, as they are written: `5min`, `20000evaluations`."""

import math
import re
from dataclasses import dataclass
from typing import Literal

Unit = Literal["seconds", "evaluations"]
Spent = dict[Unit, float]  # in both units, evaluations by each chain
SECONDS_OF_UNIT = {"s": 1, "m": 60, "h": 3600}  # by the first letter of the unit


@dataclass(frozen=True)
class Allowance:
    """A budget of a sampler: seconds, or evaluations of the target by each chain."""

    amount: float
    unit: Unit

    @classmethod
    def read(cls, text: str) -> "Allowance":
        """From `5seconds`, `5s`, `5min`, `1h`, `20000evaluations` or `20000e`.

        Raises ValueError for anything else.
        """
        number = r"(?:\d+\.?\d*|\.\d+)(?:e\d+)?"
        units = r"s|seconds?|min|minutes?|h|hours?|e|evaluations?"
        match = re.fullmatch(rf"({number})\s*({units})", text)
        if not match or not 0 < float(match[1]) < math.inf:
            raise ValueError(
                f"budget {text!r} is not known; write 10seconds, 5min or 20000evaluations"
            )
        amount, letter = float(match[1]), match[2][0]
        if letter == "e":
            return cls(amount, "evaluations")
        return cls(amount * SECONDS_OF_UNIT[letter], "seconds")

    def part(self, share: float) -> "Allowance":
        return Allowance(self.amount * share, self.unit)

    def subtract(self, spent: Spent) -> "Allowance":
        """The budget that is left; 0 if too much was spent."""
        return Allowance(max(0.0, self.amount - spent[self.unit]), self.unit)

    def __str__(self) -> str:
        return f"{self.amount:g} {self.unit}"
