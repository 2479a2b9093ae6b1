"""A claim of a paper: its words, and the function that judges it from an experiment's records."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from latticework.experiments.papers.claims.verdict import Finding
from latticework.experiments.records.record import Record

DLP, RATES = "Zhang et al. (2022)", "Breuleux et al. (2011)"
LATER, OURS = "Later samplers", "Our readings"
GROUPS = (DLP, RATES, LATER, OURS)  # in the order of the ledger
Judge = Callable[[list[Record]], Finding]


class Fresh(NamedTuple):
    """The runs that were made after the statistic, its thresholds and its windows were fixed."""

    description: str
    keep: Callable[[Record], bool]
    judge: Judge | None = None  # where the claim's needs other runs too


def fresh_from(first: int, description: str, seed: str = "seed") -> Fresh:
    """Fresh runs are those whose `seed` is `first` or larger."""
    return Fresh(description, lambda record: record.config[seed] >= first)


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, and the function that judges it from an experiment's records.

    `seed` is the key whose values are independent runs: `model_seed` where it is models. Runs with
    the value `tuning_seed` chose settings, so they do not judge. An `own_reading` is ours, and not
    what the paper says. `cell` has the row and column in a table of many claims that are alike.
    """

    name: str
    exhibit: str  # id of experiments/papers/exhibits.yaml
    experiment: str
    text: str
    source: str
    judge: Judge
    seed: str = "seed"
    own_reading: bool = False
    tuning_seed: int | None = None
    fresh: Fresh | None = None
    cell: tuple[str, str] | None = None

    @property
    def group(self) -> str:
        """The group in which the ledger lists and counts the claim."""
        if self.own_reading:
            return OURS
        paper = self.source.split(",")[0]
        return paper if paper in (DLP, RATES) else LATER


def claim_about(end: str, text: str, judge: Judge, *, exhibit: str, **fields: Any) -> Claim:
    """The claim `<exhibit>-<end>`. `fields` are the other fields of a Claim."""
    return Claim(f"{exhibit}-{end}", exhibit, text=text, judge=judge, **fields)
