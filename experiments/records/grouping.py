"""Group records for averaging, and name the groups: those of one differ only in their seed.

Every figure, table and claim gets its records from here. Records that differ in anything else form
separate groups, each drawn as its own line, box or row, with a label that names the difference. A
figure whose x axis shows a setting lists it in `axes`: records that differ in an axis stay in one
group. Where only one setting can be shown, `require_one_setting` refuses several.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from latticework.experiments.records.identity import SEEDS
from latticework.experiments.records.labels import (
    sampler_key,
    sampler_label,
    sampler_order,
)
from latticework.experiments.records.record import Record

K = TypeVar("K")
T = TypeVar("T")
Settings = dict[str, str]  # dotted key of the configuration: value as JSON
CHOICES = ("data", "model", "negatives")  # groups whose option's name may tell records apart
# Parts that say what is sampled: a label names them where they differ.
TARGET_GROUPS = ("data", "model")
MAX_VALUE_CHARACTERS = 40  # characters of a value in a label, unless two values would look alike
MIN_COMMON_SEEDS = 3  # common seeds with which a value of a setting is compared
ITERATIONS_KEY = "task.iterations"  # how long a model learns: a longer run contains the shorter one


class UnlikeRecordsError(LookupError):
    """Records differ in more than their seed where only one setting can be shown."""


@dataclass(frozen=True)
class Group:
    """Records that differ only in seed and axes.

    `key` is the sampler's key (`sampler_key`), which gives its colour. `differs` names the
    settings in which the group differs from the other groups; it is empty if there is no need. No
    two groups of a sampler have the same text. The group is number `line_index`
    (from 0) of the sampler's `line_count` groups.
    """

    key: tuple[str, int]
    differs: str
    records: list[Record]
    line_index: int = 0
    line_count: int = 1

    @property
    def label(self) -> str:
        """`DMALA`, or `DMALA, step_size 0.1`."""
        return join_label(sampler_label(self.key), self.differs)


def join_label(name: str, differs: str) -> str:
    """`name`, followed by `differs` if it is not empty."""
    return ", ".join(filter(None, (name, differs)))


def groups(records: Iterable[Record], axes: Sequence[str] = ()) -> list[Group]:
    """Group records that differ only in seed and `axes`. Samplers are in their usual order.

    `axes` are dotted keys of the configuration, such as `model.coupling`; `task` includes every key
    below it. If several records have the same identity and data, only the first is used. If data or
    a stored model were replaced between runs, the runs before and after are separate groups.
    """
    parts = _parts(drop_repeated_runs(records), axes)
    targets = _distinguishing_keys(parts, within=TARGET_GROUPS)
    samplers = group_by(lambda part: sampler_key(part.records[0]), parts)
    result: list[Group] = []
    for sampler in sorted(samplers, key=sampler_order):
        siblings = samplers[sampler]
        keys = list(dict.fromkeys([*_distinguishing_keys(siblings), *targets]))
        siblings.sort(key=lambda part: part.places(keys))
        texts = {key: _texts(siblings, key) for key in keys}
        for index, part in enumerate(siblings):
            differences = []
            for key in keys:
                name = key.removeprefix("sampler.").removeprefix("model.")
                differences.append(f"{name} {texts[key][part.value(key)]}")
            label = ", ".join(differences)
            result.append(Group(sampler, label, part.records, index, len(siblings)))
    return result


def group_by(key: Callable[[T], K], items: Iterable[T]) -> dict[K, list[T]]:
    """The items by their `key`, in the order in which they come."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def settings_table(
    records: Iterable[Record],
) -> tuple[list[str], list[tuple[list[str], list[Record]]]]:
    """Headings and rows of a table of the settings of `records`, one row per setting.

    The headings are the sampler, if there are several, and the keys of further settings that tell
    the rows apart. A row has a text for each heading, and its records, which differ in their seed.
    """
    parts = _parts(drop_repeated_runs(records))
    parts.sort(key=lambda part: sampler_order(sampler_key(part.records[0])))
    names = list(map(_name_of_sampler, parts))
    keys = _distinguishing_keys(parts, names)
    headings = ["sampler", *keys] if len(set(names)) > 1 else keys
    texts = {key: _texts(parts, key) for key in keys}
    rows = []
    for name, siblings in group_by(_name_of_sampler, parts).items():
        for part in sorted(siblings, key=lambda part: part.places(keys)):
            row = [name] if headings is not keys else []
            for key in keys:
                value = part.value(key)
                row.append("" if value is None else texts[key][value])
            rows.append((row, part.records))
    return headings, rows


def by_setting(records: Iterable[Record], axes: Sequence[str] = ()) -> list[list[Record]]:
    """Lists of records that agree in all settings but `axes`, ordered by their first records."""
    return [part.records for part in _parts(list(records), axes)]


def by_sampler(records: Iterable[Record]) -> dict[tuple[str, int], list[Record]]:
    """The records of each sampler, where only one setting per sampler can be shown.

    Raises UnlikeRecordsError if the records of a sampler differ in more than their seed.
    """
    by_key: dict[tuple[str, int], list[Record]] = {}
    for group in groups(records):
        by_key.setdefault(group.key, []).extend(group.records)
    for of_sampler in by_key.values():
        require_one_setting(of_sampler)
    return by_key


def require_one_setting(records: Iterable[Record], axes: Sequence[str] = ()) -> list[Record]:
    """The records without duplicates, if they differ only in seed and `axes`.

    Otherwise raises UnlikeRecordsError, which names the keys in which they differ.
    """
    distinct = drop_repeated_runs(records)
    parts = _parts(distinct, axes)
    if len(parts) > 1:
        values = []
        for key in _distinguishing_keys(parts):
            values.append(f"{key} ({', '.join(sorted(_texts(parts, key).values()))})")
        raise UnlikeRecordsError(
            f"records that differ in more than their seed are not averaged: {'; '.join(values)}"
        )
    return distinct


def common_values(
    parts: Iterable[Iterable[Record]], value: Callable[[Record], float]
) -> list[float]:
    """The values of a setting at which all `parts` have runs with common seeds, ascending.

    A value with fewer than MIN_COMMON_SEEDS common seeds counts only if no other value has more. So
    an unfinished sweep at one value does not affect comparisons at others. Raises LookupError if
    there is none.
    """
    runs = []
    for part in parts:
        runs.append({(value(record), record.config.get("seed")) for record in part})
    seeds = Counter(setting for setting, _ in set.intersection(*runs))
    if not seeds:
        raise LookupError("the samplers have no value of the setting and seed in common")
    enough = min(MIN_COMMON_SEEDS, max(seeds.values()))
    return sorted(filter(lambda setting: seeds[setting] >= enough, seeds))


def drop_repeated_runs(records: Iterable[Record]) -> list[Record]:
    """The first record of each identity and data, so that a repeated run counts once."""
    first: dict[Any, Record] = {}
    given = list(records)
    for record, settings in zip(given, _settings(given), strict=True):
        first.setdefault((frozenset(settings.items()), _seeds(record)), record)
    return list(first.values())


def require_records_with(records: Iterable[Record], *names: str, task: str = "") -> list[Record]:
    """The records with all of `names`: columns of metrics.csv, facts of run.json, or arrays.

    Raises LookupError if there is none; the message names the `task` that makes such records.
    """
    complete = []
    for record in records:
        for name in names:
            if not (name in record.document or name in record.metrics or record.has_array(name)):
                break
        else:
            complete.append(record)
    if not complete:
        advice = f"; run task={task}" if task else ""
        raise LookupError(f"no record holds {', '.join(names)}{advice}")
    return complete


def keep_longest_runs(records: Iterable[Record]) -> list[Record]:
    """Keep the longest of records that differ only in their number of iterations.

    The readings of a long run begin with those of a short one.
    """
    longest: dict[Any, Record] = {}
    for record in records:
        key = frozenset(_leave_out(record.settings, [ITERATIONS_KEY]).items()), _seeds(record)
        longest[key] = max(longest.get(key, record), record, key=_count_iterations)
    return list(longest.values())


def _count_iterations(record: Record) -> int:
    return record.setting(ITERATIONS_KEY) or 0


def _seeds(record: Record) -> tuple[Any, ...]:
    return tuple(record.config.get(key) for key in SEEDS)


def _leave_out(settings: Settings, axes: Sequence[str]) -> Settings:
    """`settings` without `axes` and the keys below them."""
    prefixes = tuple(f"{axis}." for axis in axes)
    return {key: value for key, value in settings.items() if not f"{key}.".startswith(prefixes)}


def _contents(record: Record) -> Settings:
    """Hashes of the data and the model that the run found under the names in its configuration.

    Older records lack some.
    """
    contents = {}
    for key, content in (
        ("data.fingerprint", (record.document.get("data") or {}).get("fingerprint")),
        ("model.loaded", record.document.get("loaded")),
    ):
        if content:
            contents[key] = json.dumps(content)
    return contents


def _settings(records: Sequence[Record]) -> list[Settings]:
    """The settings of each record, with the contents that differ between records alike in them.

    A file was replaced between these runs.
    """
    known: dict[Any, str] = {}
    replaced = set()
    for record in records:
        for name, content in _contents(record).items():
            key = name, record.config.get("model_seed"), frozenset(record.settings.items())
            if content != known.setdefault(key, content):
                replaced.add(name)
    if not replaced:
        return [record.settings for record in records]
    settings = []
    for record in records:
        contents = _contents(record)
        told_apart = {name: contents[name] for name in replaced & contents.keys()}
        settings.append(record.settings | told_apart)
    return settings


@dataclass(frozen=True)
class _Part:
    """Records of one setting, and the keys by which they may differ from others."""

    records: list[Record]
    settings: Settings

    def value(self, key: str) -> str | None:
        """The setting `key` as JSON, or the option chosen for a group."""
        if key in CHOICES:
            name = self.records[0].choices.get(key)
            return None if name is None else json.dumps(name)
        return self.settings.get(key)

    def place(self, key: str) -> tuple[bool, float, str]:
        """A sort key by the value of `key`: numbers in increasing order, then text."""
        value = json.loads(self.value(key) or "null")
        is_number = isinstance(value, int | float)
        return not is_number, float(value) if is_number else 0.0, str(value)

    def places(self, keys: Sequence[str]) -> list[tuple[bool, float, str]]:
        """A sort key by the values of several keys."""
        return list(map(self.place, keys))


def _name_of_sampler(part: _Part) -> str:
    return sampler_label(sampler_key(part.records[0]))


def _parts(records: Sequence[Record], axes: Sequence[str] = ()) -> list[_Part]:
    """The records by their settings without `axes`, in the order of their first records."""
    parts: dict[Any, _Part] = {}
    for record, settings in zip(records, _settings(records), strict=True):
        shared = _leave_out(settings, axes)
        parts.setdefault(frozenset(shared.items()), _Part([], shared)).records.append(record)
    return list(parts.values())


def _distinguishing_keys(
    parts: Sequence[_Part], names: Sequence[str] | None = None, within: Sequence[str] = ()
) -> list[str]:
    """Keys that distinguish as many parts as all keys do, the most recognisable first.

    The order is: keys set on the command line, choices of groups, other settings. A key is left out
    if those before it, or `names`, one per part, distinguish as many. Only keys of the groups
    `within` are used, unless it is empty.
    """
    overridden = _overridden_keys(parts)

    def rank(key: str) -> tuple[bool, bool, bool, bool, int, str]:
        is_inner = "_target_" in key or any(map(str.isdigit, key.split(".")))
        of_sampler = key.startswith("sampler.")
        return (
            key not in overridden,
            key not in CHOICES,
            is_inner,
            not of_sampler,
            key.count("."),
            key,
        )

    chosen: list[str] = []
    labels: list[Any] = list(
        names or [""] * len(parts)
    )  # labels of the parts, by the keys chosen so far
    keys = set(CHOICES).union(*(part.settings for part in parts))
    for key in sorted(keys, key=rank):
        if within and key.split(".")[0] not in within:
            continue
        values = [part.value(key) for part in parts]
        finer = list(zip(labels, values, strict=True))
        if len(set(finer)) > len(set(labels)):
            chosen.append(key)
            labels = finer
    return chosen


def _overridden_keys(parts: Iterable[_Part]) -> set[str]:
    """The keys of the configuration that the commands of the records set."""
    keys = set()
    for part in parts:
        for record in part.records:
            for override in record.document.get("overrides") or ():
                keys.add(override.partition("=")[0].lstrip("+~"))
    return keys - set(CHOICES)


def _texts(parts: Iterable[_Part], key: str) -> dict[str | None, str]:
    """A short text for each value of `key`; the whole value where two would have the same."""
    texts: dict[str | None, str] = {}
    for part in parts:
        value = part.value(key)
        texts[value] = _shorten(value)
    count = Counter(texts.values())
    for value, text in texts.items():
        if count[text] > 1:
            texts[value] = str(value)
    return texts


def _shorten(value: str | None) -> str:
    """A value in JSON as a short text."""
    setting = json.loads(value or "null")
    if isinstance(setting, float):
        return f"{setting:.6g}"
    text = setting if isinstance(setting, str) else str(value or "null").replace(" ", "")
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[: MAX_VALUE_CHARACTERS - 3]}..."
