"""Numbers that hand-written notes ask for, from the committed records."""

from pathlib import Path
from typing import Any

from latticework.experiments.records.estimates import format_estimate
from latticework.experiments.records.grouping import require_one_setting
from latticework.experiments.records.likelihood import likelihood_or_ends, log_z_gap
from latticework.experiments.records.record import Record, load_all


def format_likelihood(bundles: Path, experiment: str, settings: dict[str, Any]) -> str:
    """Format the test log-likelihood of some committed models, or its two ends.

    Raises LookupError if no run has the `settings`, or if runs differ in more than their seed.
    """
    records = require_one_setting(select_records(bundles, experiment, settings))
    value = likelihood_or_ends(records)
    return value if isinstance(value, str) else format_estimate(value)


def format_factor(bundles: Path, experiment: str, key: str, settings: dict[str, Any]) -> str:
    """Format the largest value of the setting `key` over its smallest, of some committed runs."""
    records = select_records(bundles, experiment, settings)
    values = [record.setting(key) for record in records]
    return f"{max(values) / min(values):.3g}"


def format_gap(bundles: Path, experiment: str, settings: dict[str, Any]) -> str:
    """Format by how many nats the two ends of log Z of committed runs are apart, in the mean."""
    gaps = []
    for record in select_records(bundles, experiment, settings):
        gap = log_z_gap(record)
        if gap is None:
            raise LookupError(f"{record.display_path} has no chains from training rows")
        gaps.append(gap.mean)
    return f"{sum(gaps) / len(gaps):.0f}"


def select_records(bundles: Path, experiment: str, settings: dict[str, Any]) -> list[Record]:
    """The committed records with `settings`: dotted keys, or groups with their options.

    Raises LookupError if there is none.
    """
    records = load_all(bundles / f"{experiment}.zip")
    for key, value in settings.items():
        records = [
            record for record in records if value in (record.choices.get(key), record.setting(key))
        ]
        if not records:
            raise LookupError(f"no committed run of {experiment} has {key}={value}")
    return records
