"""The catalogue, words of small sweeps, and a section of a report by its exhibit."""

from pathlib import Path

from latticework.experiments.papers.exhibits import catalogue
from latticework.experiments.papers.report_content import Report, Section
from latticework.experiments.runs.sweeps import CONF

ROOT = CONF.parent
KNOWN = catalogue()
NOWHERE = Path("/nowhere")  # no bundles
SMOKE = ("scale=smoke", "~figures", "~tables")  # the report draws them
PART = ("experiment=ising_sampling", *SMOKE)


def section(made: Report, name: str) -> Section:
    (found,) = [part for part in made.sections if part.exhibit.name == name]
    return found
