"""Why claims of the two papers do not hold here, read from `failures.yaml`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf

from latticework.experiments.papers.claims.claim import DLP, RATES
from latticework.experiments.papers.claims.ledger import Entry
from latticework.experiments.papers.claims.verdict import Verdict

FILE = Path(__file__).with_name("failures.yaml")


@dataclass(frozen=True)
class Failure:
    """The reason of a verdict, and what it is about."""

    about: str  # "the paper", "settings" that it does not state, or "this reproduction"
    why: str


def load_failures(file: Path = FILE) -> dict[str, Failure]:
    """The reasons by the name of the claim."""
    content = OmegaConf.to_container(OmegaConf.load(file))
    assert isinstance(content, dict)
    return {str(name): Failure(**fields) for name, fields in content.items()}


def list_failures(entries: Sequence[Entry]) -> list[tuple[Entry, Failure]]:
    """The claims of the papers that do not hold, with the reasons that are known."""
    known = load_failures()
    failures = []
    for entry in entries:
        fails = entry.verdict is Verdict.FAILS and entry.claim.group in (DLP, RATES)
        if fails and entry.claim.name in known:
            failures.append((entry, known[entry.claim.name]))
    return failures
