"""The command whose runs would decide a claim."""

import shlex
from collections.abc import Sequence

from latticework.experiments.papers.claims.ledger import Entry
from latticework.experiments.papers.claims.verdict import Verdict


def deciding(entry: Entry, also: Sequence[Sequence[str]] = ()) -> str:
    """The shell command of the runs that would decide `entry`, or that decided it.

    If runs at the paper's scale are missing, the command runs the experiment, also with each set of
    overrides in `also`; finished runs are skipped. If more seeds would decide, the command names
    them. It is empty if seeds would not help.
    """
    words: list[str] = []
    if entry.verdict is Verdict.OPEN and entry.finding and entry.indication is None:
        seeds = entry.finding.seeds_needed()
        if seeds is None:
            return ""
        first = 0 if entry.claim.chose is None else entry.claim.chose + 1  # it does not judge
        span = f"range({seeds})" if not first else f"range({first},{first + seeds})"
        words = [f"{entry.claim.seed}={span}"]
    base = ["python", "run.py", f"experiment={entry.claim.experiment}"]
    return " && ".join(shlex.join([*base, *extra, *words]) for extra in ((), *also))
