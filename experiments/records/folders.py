"""Find the folder that holds the record of a configuration.

A run's folder is named after its overrides, so that people can read it. Different overrides can
give the same configuration, so folders are matched by the configuration's identity
(`experiments.records.identity`). A run claims its folder by writing the identity's digest to
`.digest`, and later runs of the same identity find it there. Records of release 0.2, whose digests
were of whole paths in a file `.identity`, are matched by the configuration in run.json.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from latticework.experiments.records.identity import digest

CLAIM = ".digest"
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
    return f"{name[:LONGEST]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


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


def identity_in(folder: Path) -> str | None:
    """The digest of the run that `folder` belongs to, or None if it is unknown."""
    try:
        if (claim := folder / CLAIM).is_file():
            return claim.read_text().strip()
        return digest(json.loads((folder / "run.json").read_text())["config"])
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return None


def find(parent: Path, mine: str, first: str = "") -> Path | None:
    """The folder in `parent` whose run has the identity `mine`, or None.

    If there are several, the one named `first` is preferred, then a finished one.
    """
    if first and identity_in(parent / first) == mine:
        return parent / first
    if not parent.is_dir():
        return None
    found = [each for each in sorted(parent.iterdir()) if identity_in(each) == mine]
    return next((each for each in found if (each / "run.json").exists()), next(iter(found), None))
