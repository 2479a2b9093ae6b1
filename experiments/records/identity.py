"""The identity of a run, the part of its configuration that determines its numbers; its folder.

The identity is the resolved configuration in canonical form, so it does not depend on how the
command spelled it. A record belongs to a run if both have the same identity.

The folder of a record is `<overrides>-<8 digits>`. The overrides are for people. The digits are the
first of the digest of the identity, and a folder is found by them.
"""

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType

# The groups from which run.py builds a run. Other keys feed these by interpolation (budget, sizes),
# or say where and how the run is executed (outputs, device, threads, logger, figures).
PARTS = ("data", "model", "sampler", "task")
SEEDS = ("seed", "model_seed")
DIGEST_CHARACTERS = 8  # digits of the digest, at the end of the name of a run's folder
LOCK = ".lock"  # in the folder of a run that has begun
MAX_NAME_CHARACTERS = 120  # characters of a folder's name
# Overrides of figures and tables do not change a run.
FIGURE_GROUPS = ("figures", "tables")
# Settings that older records lack, which mean null.
NULL_IF_MISSING = (
    "acceptance",
    "scales",
    "log_odds",
    "learn_base",
    "normalise",
    "quality",
    "revision",
    "temperature",
)
# Settings that came later, and the values that stand for what older records did without them. Only
# `digest(seeds=False)` leaves them out: the folders of runs keep their digits.
BEFORE = {
    "data.sentences": None,
    "data.split": "random",
    "sampler.coding": None,
    "sampler.hot": 0,
    "task.pretrain.visible_bias": "data",
}
# Settings of a data set that say where files are looked for.
DATA_LOCATION_KEYS = ("root", "cache", "download", "strict")


# A password in a URL, before the last @ of its host, or among its parameters.
PASSWORDS = (
    re.compile(r"(://[^\s/:@]*:)[^\s@]*(?:@[^\s/@]*)*(?=@)"),
    re.compile(r"([?&](?:password|passwd|pwd|token|secret|api_key)=)[^&\s]+", re.IGNORECASE),
)
MASK = "***"


def mask_passwords(text: str) -> str:
    """`text` without the passwords of its URLs: `postgresql://user:***@host/name`."""
    for pattern in PASSWORDS if "://" in text else ():
        text = pattern.sub(rf"\g<1>{MASK}", text)
    return text


def has_same_identity(earlier: dict[str, Any], config: dict[str, Any]) -> bool:
    """Whether the record `earlier` (run.json, or part of it) has the identity of `config`.

    A record of substitute data is reused only if data are looked for in the same folders.
    """
    keys = DATA_LOCATION_KEYS if (earlier.get("data") or {}).get("substitute") else ()
    return identity(earlier["config"], keys) == identity(config, keys)


def digest(config: dict[str, Any], *, seeds: bool = True) -> str:
    """A hash of the identity, as hexadecimal digits.

    `seeds=False` leaves out the seeds, and settings with their values in BEFORE, so that it
    compares the settings of runs of different releases.
    """
    settings = identity(config)
    if not seeds:
        for key in SEEDS:
            settings.pop(key, None)
        for key, value in BEFORE.items():
            _drop(settings, key.split("."), value)
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _drop(settings: dict[str, Any], path: list[str], value: Any) -> None:
    """Remove the setting at `path` from nested `settings` if it has the `value`."""
    *outer, last = path
    node: Any = settings
    for name in outer:
        node = node.get(name) if isinstance(node, dict) else None
    if isinstance(node, dict) and last in node and node[last] == value:
        del node[last]


def identity(config: dict[str, Any], sources: Collection[str] = ()) -> dict[str, Any]:
    """The part of a resolved configuration that determines the numbers, in canonical form.

    Whole numbers are integers, so that 1 and 1.0 are equal. Classes and functions have their
    `short_name`. Passwords in URLs are masked, as in records. Of DATA_LOCATION_KEYS, only those in
    `sources` are kept.
    """
    dropped = set(DATA_LOCATION_KEYS) - set(sources)
    plain = {}
    for key in (*PARTS, *SEEDS):
        if key in config:
            plain[key] = canonical(config[key], dropped)
    plain["engine"] = config.get("engine", "eager")  # older records have no such key
    if isinstance(data := plain.get("data"), dict):
        for key in dropped:
            data.pop(key, None)
    return plain


def short_name(target: str) -> str:
    """The name of a class or function without its module, so that a module may move.

    The whole path outside of this package, where two may have the same name.
    """
    return target.rpartition(".")[2] if target.startswith("latticework.") else target


def canonical(value: Any, dropped: Collection[str] = ()) -> Any:
    """`value` with short names, whole numbers as integers, and data sets without `dropped`.

    Settings in NULL_IF_MISSING are left out if they are null.
    """
    if isinstance(value, dict):
        is_data = str(value.get("_target_")).startswith("latticework.data.")
        return {
            str(key): short_name(item) if key == "_target_" else canonical(item, dropped)
            for key, item in value.items()
            if not ((is_data and key in dropped) or (item is None and key in NULL_IF_MISSING))
        }
    if isinstance(value, list | tuple):
        return [canonical(item, dropped) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return mask_passwords(value) if isinstance(value, str) else value


def flatten_settings(value: Any, key: str = "") -> dict[str, Any]:
    """The values of nested settings by dotted key, `key` first.

    A list is one value, unless it holds dictionaries: their keys then follow their places in it.
    """
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {key: value}
    settings: dict[str, Any] = {}
    for name, item in value.items():
        settings |= flatten_settings(item, f"{key}.{name}" if key else str(name))
    return settings


def run_name(overrides: Iterable[str], skipped: Collection[str] = ()) -> str:
    """A folder's name from the overrides of a run or a sweep, without the keys in `skipped`.

    Numbers have one spelling: 0.30, .3 and 3e-1 become 0.3.
    """
    return name_from_overrides(canonical_overrides(overrides, skipped))


def name_from_overrides(words: Iterable[str]) -> str:
    """A folder's name from overrides in canonical spelling.

    If it is truncated, or some of its characters are replaced, a digest is appended.
    """
    text = ",".join(sorted(map(mask_passwords, words)))
    name = re.sub(r"[^A-Za-z0-9_=.,+\[\]-]", "_", text) or "default"
    if name in (text, "default") and len(name) <= MAX_NAME_CHARACTERS:
        return name
    return f"{name[:MAX_NAME_CHARACTERS]}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def canonical_overrides(overrides: Iterable[str], skipped: Collection[str] = ()) -> list[str]:
    """The overrides as `key=value` in canonical spelling. The last of a repeated key is kept."""
    texts: dict[str, str] = {}
    for override in map(_parse, overrides):
        if affects_run(override.key_or_group, skipped):
            key = override.get_key_element()
            texts[key] = canonical_override(key, override)
    return list(texts.values())


@lru_cache(maxsize=10_000)  # the parser takes milliseconds, and thousands of records say the same
def _parse(word: str) -> Override:
    return OverridesParser.create().parse_override(word)


def affects_run(key: str, skipped: Collection[str] = ()) -> bool:
    """Whether an override of `key` may change what a run does."""
    return key not in skipped and key.partition(".")[0] not in FIGURE_GROUPS


def canonical_override(key: str, override: Override) -> str:
    """An override in canonical spelling."""
    if override.is_delete() and override.value() is None:
        return key
    is_glob = override.value_type is ValueType.GLOB_CHOICE_SWEEP
    if override.is_discrete_sweep() and not is_glob:
        values = list(map(str, override.sweep_string_iterator()))
        is_shuffled = getattr(override.value(), "shuffle", False)
        return f"{key}={','.join(sorted(values) if is_shuffled else values)}"
    if override.is_sweep_override():  # a search, or the options that match a pattern
        return str(override.input_line)
    return f"{key}={override.get_value_element_as_str()}"


def folder_name(config: dict[str, Any], overrides: Iterable[str], skipped: Collection[str]) -> str:
    """The name of the folder of a run with the resolved configuration `config`."""
    return f"{run_name(overrides, skipped)}-{digest(config)[:DIGEST_CHARACTERS]}"


def strip_digest(name: str) -> str:
    """The name of a run without the digits of its identity."""
    return re.sub(rf"-[0-9a-f]{{{DIGEST_CHARACTERS}}}$", "", name)


def find_run_folder(parent: Path, config: dict[str, Any], names: Sequence[str]) -> Path | None:
    """The folder of a run of `config` that has begun, or None; a finished one first.

    `names` are those in the folder `parent`: a sweep asks for each of its runs, beside thousands of
    others, and opens none of them.
    """
    end = f"-{digest(config)[:DIGEST_CHARACTERS]}"
    folders = sorted(parent / name for name in names if name.endswith(end))
    for file in ("run.json", LOCK):
        for folder in folders:
            if (folder / file).exists():
                return folder
    return None


def list_names(folder: Path) -> list[str]:
    """The names in `folder`; none if there is no such folder."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - makes no paths of the names
    except (FileNotFoundError, NotADirectoryError):
        return []
