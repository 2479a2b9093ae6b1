"""The folder that holds the record of a configuration: `<overrides>-<8 digits>`.

The overrides are for people. The digits are the first of the digest of the run's identity
(`experiments.records.identity`). A folder is found by them, however a command was spelled.
Folders of release 0.2 have no digits, and are found by the configuration in run.json.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from latticework.experiments.records.identity import DIGITS, digest

LOCK = ".lock"  # of a run that has begun
LONGEST = 120  # characters of a folder's name
DRAWING = ("figures", "tables")  # overrides below these say what is drawn, and are none of a run's


class Written(NamedTuple):
    """The PNGs and CSVs that were written, and a line for each figure or table that failed."""

    files: list[Path]
    failed: list[str]


def run_name(overrides: Iterable[str], skipped: Collection[str] = ()) -> str:
    """A folder's name from the overrides of a run or a sweep, without the keys in `skipped`.

    Numbers have one spelling: 0.30, .3 and 3e-1 become 0.3. If the name is truncated, or some of
    its characters are replaced, a digest is appended.
    """
    text = ",".join(sorted(spelled(overrides, skipped)))
    name = re.sub(r"[^A-Za-z0-9_=.,+\[\]-]", "_", text) or "default"
    if name in (text, "default") and len(name) <= LONGEST:
        return name
    return f"{name[:LONGEST]}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def spelled(overrides: Iterable[str], skipped: Collection[str] = ()) -> list[str]:
    """The overrides as `key=value` in canonical spelling. The last of a repeated key is kept."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    last = {one.get_key_element(): one for one in parsed if is_of_a_run(one.key_or_group, skipped)}
    return [_text(key, one) for key, one in last.items()]


def is_of_a_run(key: str, skipped: Collection[str] = ()) -> bool:
    """Whether an override of `key` may change what a run does."""
    return key not in skipped and key.partition(".")[0] not in DRAWING


def _text(key: str, override: Override) -> str:
    if override.is_delete() and override.value() is None:
        return key
    if override.is_discrete_sweep():
        return f"{key}={','.join(map(str, override.sweep_string_iterator()))}"
    if override.is_sweep_override():  # a search's
        return str(override.input_line)
    return f"{key}={override.get_value_element_as_str()}"


def folder_name(config: dict[str, Any], overrides: Iterable[str], skipped: Collection[str]) -> str:
    """The name of the folder of a run with the resolved configuration `config`."""
    return f"{run_name(overrides, skipped)}-{digest(config)[:DIGITS]}"


def without_digits(name: str) -> str:
    """The name of a run without the digits of its identity."""
    return re.sub(rf"-[0-9a-f]{{{DIGITS}}}$", "", name)


def find(parent: Path, config: dict[str, Any]) -> Path | None:
    """The folder in `parent` of a run of `config` that has begun, or None; a finished one first."""
    mine = digest(config)
    folders = list(parent.glob(f"*-{mine[:DIGITS]}")) or _of_0_2(parent, mine)
    for file in ("run.json", LOCK):
        if begun := sorted(folder for folder in folders if (folder / file).exists()):
            return begun[0]
    return None


def _of_0_2(parent: Path, mine: str) -> list[Path]:
    """The folders of records of release 0.2 with the digest `mine`; goes with 0.4."""
    found = []
    for file in parent.glob("*/run.json"):
        folder = file.parent
        if without_digits(folder.name) != folder.name and not (folder / ".identity").exists():
            continue  # of this release
        with suppress(OSError, ValueError, LookupError, AttributeError, TypeError):  # damaged
            if digest(json.loads(file.read_text())["config"]) == mine:
                found.append(folder)
    return found
