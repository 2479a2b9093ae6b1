"""Estimates of log Z with their intervals and bounds, from records of task=log_z."""

import pandas as pd

from latticework.experiments.records.grouping import differing, holding
from latticework.experiments.records.record import Record


def normalisers(records: list[Record]) -> pd.DataFrame:
    """One row a record, in nats: log Z, its 95 % interval, and how far the exact value is.

    The interval of SMC and AIS has no upper end where it is not plain that more than half of their
    runs or chains count; the lower end is then that of Markov's inequality. Tempering has no such
    bound. Its interval is the hull of its estimates where they disagree, and it has none where
    ladders made fewer than two round trips. "Counts" are effective
    chains of AIS or runs of SMC, and round trips of a ladder beside those that moves would make
    if each forgot its start. Raises LookupError if no record is of
    task=log_z.
    """
    found = holding(records, "log_z_low", task="log_z")
    headings, rows = differing(found)
    frame = []
    for texts, some in rows:
        for record in some:
            document = record.document
            low, high = document["log_z_low"], document["log_z_high"]
            exact = document["log_z_exact"]
            wide = high is None or not document.get("plain", True)
            tempered = "barrier" in document
            counts = (
                f"{document['round_trips']:.1f} of {document['predicted_round_trips']:.0f} trips, "
                f"barrier {document['barrier']:.2f}"
                if tempered
                else f"{document['ess']:.1f} of {document['effective_of']}"
            )
            frame.append(
                {
                    **dict(zip(headings, texts, strict=True)),
                    "seed": record.config["seed"],
                    "log Z": f"{document['log_z']:.3f}",
                    "95 % from": _bound(low),
                    "to": _bound(high),
                    "plain": "no" if wide else "yes",
                    "at least (Markov)": _text(document.get("log_z_at_least")),
                    "from the other side": _text(
                        document.get("log_z_backward", document.get("log_z_upper"))
                    ),
                    "exact": _text(exact),
                    "error": "" if exact is None else f"{document['log_z'] - exact:+.3f}",
                    "counts": counts,
                    "seconds": f"{document['estimation_seconds']:.1f}",
                    "evaluations": f"{document['evaluations']:.3g}",
                }
            )
    return pd.DataFrame(frame)


def _bound(value: float | None) -> str:
    return "no bound" if value is None else f"{value:.3f}"


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
