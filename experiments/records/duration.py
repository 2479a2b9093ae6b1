"""Durations as people write them. Every time that a user reads is written by this function."""

DAY = 86_400


def duration(seconds: float) -> str:
    """`0.05 s`, `42 s`, `13 min`, `2.5 h`, `3.1 days`."""
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 3 * DAY else f"{seconds / DAY:.1f} days"
