"""How the verdicts depend on the thresholds that are ours."""

from collections.abc import Sequence

from latticework.experiments.papers.claims.ledger import Entry
from latticework.experiments.papers.claims.thresholds import SCALES, Threshold

WORDS = dict(zip(SCALES, ("halved", "doubled"), strict=True))


def list_thresholds(entries: Sequence[Entry]) -> list[tuple[Threshold, list[str]]]:
    """The thresholds that the entries use, in the order of the ledger, with the names of claims."""
    claims: dict[Threshold, list[str]] = {}
    for entry in entries:
        for threshold in entry.thresholds:
            claims.setdefault(threshold, []).append(entry.claim.name)
    return list(claims.items())


def list_changes(entries: Sequence[Entry]) -> list[tuple[Entry, str]]:
    """The entries whose verdict changes, with the change: "halved: does not hold"."""
    changes = []
    for entry in entries:
        texts = []
        for scale, verdict in zip(SCALES, entry.scaled, strict=False):
            if verdict is not entry.verdict:
                texts.append(f"{WORDS[scale]}: {verdict}")
        if texts:
            changes.append((entry, ", ".join(texts)))
    return changes


def describe_sensitivity(entries: Sequence[Entry]) -> str:
    """How many verdicts change with all thresholds halved, and with all doubled, in a sentence."""
    dependent = [entry for entry in entries if entry.scaled]
    counts = []
    for place, scale in enumerate(SCALES):
        changed = sum(entry.scaled[place] is not entry.verdict for entry in dependent)
        counts.append(f"{changed} would be another if all were {WORDS[scale]}")
    return (
        f"{len(dependent)} of {len(entries)} verdicts depend on thresholds of ours: "
        f"{', and '.join(counts)}."
    )
