"""The papers' figures and tables, read from `exhibits.yaml`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

FILE = Path(__file__).with_name("exhibits.yaml")
CITED = {
    "langevin": "Zhang et al. (2022)",
    "rates": "Breuleux et al. (2011)",
    "later": "Later samplers",
}


@dataclass(frozen=True)
class Exhibit:
    """A figure or table of a paper.

    `items_by_experiment` lists the figures and tables that are shown; None shows all.

    `caveat` says what differs from the paper. `headline` names the number that the gallery shows,
    if it is not the first one that the paper prints.
    """

    name: str
    paper: str
    source: str
    title: str
    says: str
    items_by_experiment: dict[str, list[str] | None]
    caveat: str = ""
    headline: str = ""

    @property
    def cited(self) -> str:
        """The paper as a text cites it."""
        return CITED[self.paper]

    @property
    def place(self) -> str:
        """The name in the paper, such as "Figure 4"; "" if it does not name it."""
        place = re.match(r"(?:Figure|Table|Theorem|App\.|Section) [\w.]+", self.source)
        return place[0].replace("App.", "Appendix") if place else ""

    @property
    def heading(self) -> str:
        return f"{self.place}: {self.title}" if self.place else self.title


@dataclass(frozen=True)
class Catalogue:
    """All exhibits in order, with dependencies and times of their experiments."""

    papers: dict[str, str]
    exhibits: tuple[Exhibit, ...]
    needs: dict[str, list[str]]
    aside: list[str]
    settings: dict[str, str]  # by experiment, a setting that outdated records lack
    times: dict[str, dict[str, str]]  # times of experiments without committed records

    def __getitem__(self, name: str) -> Exhibit:
        for exhibit in self.exhibits:
            if exhibit.name == name:
                return exhibit
        names = ", ".join(exhibit.name for exhibit in self.exhibits)
        raise KeyError(f"{name} is not a figure or table; there are {names}")

    def experiments(self, exhibits: Iterable[Exhibit] | None = None) -> list[str]:
        """The experiments that `exhibits` (default: all) need, each once, dependencies first."""
        order: list[str] = []

        def add(name: str) -> None:
            for needed in self.needs.get(name, ()):
                add(needed)
            if name not in order:
                order.append(name)

        for exhibit in self.exhibits if exhibits is None else exhibits:
            for name in exhibit.items_by_experiment:
                add(name)
        return order


def catalogue(file: Path = FILE) -> Catalogue:
    """Read the catalogue. Raises TypeError if an exhibit has a missing or unknown field."""
    content: Any = OmegaConf.to_container(OmegaConf.load(file))
    exhibits = tuple(Exhibit(name=name, **fields) for name, fields in content["exhibits"].items())
    content["exhibits"] = exhibits
    return Catalogue(**content)
