"""What decides the numbers of a run, and so whether a record is the one that is asked for."""

from collections.abc import Sequence
from typing import Any

# Keys that say where and how a run happens, not what it computes. What a run takes from `scales` is
# in its other keys; the rest of it belongs to other scales.
ENVIRONMENT = (
    "outputs",
    "device",
    "threads",
    "checkpoint",
    "force",
    "logger",
    "figures",
    "tables",
    "scales",
)
SOURCES = ("root", "cache", "download", "strict")  # of `data`: where files are looked for


def same(earlier: dict[str, Any], config: dict[str, Any]) -> bool:
    """Whether what `earlier` (run.json, or as much of it) was made for is what is asked for now.

    Made from a substitute, it only stands for as long as nobody looks elsewhere.
    """
    kept = SOURCES if (earlier.get("data") or {}).get("substitute") else ()
    return _identity(earlier["config"], kept) == _identity(config, kept)


def _identity(config: dict[str, Any], sources: Sequence[str]) -> dict[str, Any]:
    """What decides the numbers of a run; of SOURCES only those in `sources`."""
    identity = {key: value for key, value in config.items() if key not in ENVIRONMENT}
    if isinstance(data := config.get("data"), dict):
        dropped = set(SOURCES) - set(sources)
        identity["data"] = {key: value for key, value in data.items() if key not in dropped}
    return identity
