"""The identity of a run: the part of its configuration that determines its numbers.

It is the resolved configuration in canonical form, so it does not depend on how the command spelled
it. A record belongs to a run if both have the same identity.
"""

import hashlib
import json
from collections.abc import Collection
from typing import Any

# The groups from which run.py builds a run. Other keys feed these by interpolation (budget, sizes),
# or say where and how the run is executed (outputs, device, threads, logger, figures).
PARTS = ("data", "model", "sampler", "task")
SEEDS = ("seed", "model_seed")
# Keys that say where and how something happens, not what it computes.
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
SOURCES = ("root", "cache", "download", "strict")  # of a data set: where files are looked for


def same(earlier: dict[str, Any], config: dict[str, Any]) -> bool:
    """Whether the record `earlier` (run.json, or part of it) has the identity of `config`.

    A record of substitute data is reused only if data are looked for in the same folders.
    """
    kept = SOURCES if (earlier.get("data") or {}).get("substitute") else ()
    return identity(earlier["config"], kept) == identity(config, kept)


def digest(config: dict[str, Any], *, seeds: bool = True) -> str:
    """A hash of the identity, as hexadecimal digits; `seeds=False` leaves out the seeds."""
    found = identity(config)
    if not seeds:
        found = {key: value for key, value in found.items() if key not in SEEDS}
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def identity(config: dict[str, Any], sources: Collection[str] = ()) -> dict[str, Any]:
    """The part of a resolved configuration that determines the numbers, in canonical form.

    Whole numbers are integers, so that 1 and 1.0 are equal. Of the keys in SOURCES, only those in
    `sources` are kept. A configuration without a task, such as the settings with which a run learns
    a model, is kept except for the keys in ENVIRONMENT.
    """
    if "task" in config:
        kept = {key: config[key] for key in (*PARTS, *SEEDS) if key in config}
        kept["task"] = flat(kept["task"])
        if config.get("engine", "eager") != "eager":  # older records have no such key
            kept["engine"] = config["engine"]
    else:
        kept = {key: value for key, value in config.items() if key not in ENVIRONMENT}
    dropped = set(SOURCES) - set(sources)
    plain = {key: canonical(value, dropped) for key, value in kept.items()}
    if isinstance(data := plain.get("data"), dict):
        plain["data"] = {key: value for key, value in data.items() if key not in dropped}
    return plain


def flat(task: Any) -> Any:
    """The settings of a task with those of its budget beside them, where older records have them.

    Until `task.budget` was one node, a task had `chains`, `steps` and `every` itself. This is the
    one place that knows of both forms: identities, digests and labels use the older one, and
    `Record.budget` reads it.
    """
    if not (isinstance(task, dict) and isinstance(task.get("budget"), dict)):
        return task
    counts = {key: value for key, value in task["budget"].items() if key != "_target_"}
    return {**{key: value for key, value in task.items() if key != "budget"}, **counts}


def canonical(value: Any, dropped: Collection[str] = ()) -> Any:
    """`value` with whole numbers as integers, and data sets without the keys `dropped`."""
    if isinstance(value, dict):
        is_data = str(value.get("_target_")).startswith("latticework.data.")
        return {
            str(key): canonical(item, dropped)
            for key, item in value.items()
            if not (is_data and key in dropped)
        }
    if isinstance(value, list | tuple):
        return [canonical(item, dropped) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def leaves(value: Any, key: str = "") -> dict[str, Any]:
    """The values of nested settings by dotted key, `key` first.

    A list is one value, unless it holds dictionaries: their keys then follow their places in it.
    """
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {key: value}
    inner = [leaves(item, f"{key}.{name}" if key else str(name)) for name, item in value.items()]
    return {name: item for each in inner for name, item in each.items()}
