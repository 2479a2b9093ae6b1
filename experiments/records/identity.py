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
DIGITS = 8  # of the digest, at the end of the name of a run's folder
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

    Whole numbers are integers, so that 1 and 1.0 are equal. Classes and functions have their
    `short_name`. Of the keys in SOURCES, only those in `sources` are kept.
    """
    config = _since_0_3(config)
    kept = {key: config[key] for key in (*PARTS, *SEEDS) if key in config}
    kept["engine"] = config.get("engine", "eager")  # older records have no such key
    dropped = set(SOURCES) - set(sources)
    plain = {key: canonical(value, dropped) for key, value in kept.items()}
    if isinstance(data := plain.get("data"), dict):
        plain["data"] = {key: value for key, value in data.items() if key not in dropped}
    return plain


def _since_0_3(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a run that learns a model for another, as release 0.3 has it.

    Checkpoints and artifacts of 0.2 say it in other words. This function goes with 0.4.
    """
    if not {"learning", "fingerprint"} <= set(config):
        return config
    data = {**config["data"], "fingerprint": config["fingerprint"]}
    return {**config, "task": config["learning"], "data": data}


def short_name(target: str) -> str:
    """The name of a class or function without its module, so that a module may move.

    The whole path outside of this package, where two may have the same name.
    """
    return target.rpartition(".")[2] if target.startswith("latticework.") else target


def canonical(value: Any, dropped: Collection[str] = ()) -> Any:
    """`value` with short names, whole numbers as integers, and data sets without `dropped`."""
    if isinstance(value, dict):
        is_data = str(value.get("_target_")).startswith("latticework.data.")
        return {
            str(key): short_name(item) if key == "_target_" else canonical(item, dropped)
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
