"""Group records for averaging: the records of a group differ only in their seed.

Every figure, table and claim gets its records from here. Records that differ in anything else form
separate groups, each drawn as its own line, box or row, with a label that names the difference. A
figure whose x axis shows a setting lists it in `axes`: records that differ in an axis stay in one
group. Where only one setting can be shown, `alone` raises an error for several.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from latticework.experiments.records.identity import SEEDS
from latticework.experiments.records.labels import SAMPLERS, label, sampler_key, seeds
from latticework.experiments.records.record import Record

Settings = dict[str, str]  # dotted key of the configuration: value as JSON
CHOICES = ("data", "model", "negatives")  # groups whose option's name may tell records apart
TARGET = ("data", "model")  # parts that say what is sampled: a label names them where they differ
LONGEST = 40  # characters of a value in a label, if they tell the values apart
ENOUGH = 3  # common seeds with which a value of a setting is compared
CONTENTS = ("data.fingerprint", "model.loaded")  # hashes of what a run read (`_contents`)
LENGTH = "task.iterations"  # how long a model learns: a longer run contains the shorter one


class UnlikeRecordsError(LookupError):
    """Records differ in more than their seed where only one setting can be shown."""


@dataclass(frozen=True)
class Group:
    """Records that differ only in seed and axes.

    `key` is the sampler's key (`style.sampler_key`), which gives its colour. `differs` names the
    settings in which the group differs from the other groups; it is empty if there is no need. No
    two groups of a sampler have the same text. The group is number `place` (from 0) of the
    sampler's `of` groups.
    """

    key: tuple[str, int]
    differs: str
    records: list[Record]
    place: int = 0
    of: int = 1

    @property
    def label(self) -> str:
        """`DMALA`, or `DMALA, step_size 0.1`."""
        return named(label(self.key), self.differs)


def named(name: str, differs: str) -> str:
    """`name`, followed by `differs` if it is not empty."""
    return ", ".join(filter(None, (name, differs)))


def groups(records: Iterable[Record], axes: Sequence[str] = ()) -> list[Group]:
    """Group records that differ only in seed and `axes`. Samplers are in their usual order.

    `axes` are dotted keys of the configuration, such as `model.coupling`; `task` includes every key
    below it. Of several records with the same identity and data, only the first is used. If data or
    a stored model were replaced between runs, the runs before and after are separate groups.
    """
    found = _parts(once(records), axes)
    targets = _telling(found, [k for k in _keys(found) if k.split(".")[0] in TARGET])
    siblings: dict[tuple[str, int], list[_Part]] = {}
    for part in found:
        siblings.setdefault(sampler_key(part.records[0]), []).append(part)
    result: list[Group] = []
    for key in sorted(siblings, key=in_order):
        some = siblings[key]
        own = list(dict.fromkeys([*_telling(some, _keys(some)), *targets]))
        some.sort(key=lambda part: [_ordered(part, name) for name in own])
        words = {name: _texts(part.value(name) for part in some) for name in own}
        for place, part in enumerate(some):
            parts = (_words(name, words[name][part.value(name)]) for name in own)
            result.append(Group(key, ", ".join(parts), part.records, place, len(some)))
    return result


def differing(records: Iterable[Record]) -> tuple[list[str], list[tuple[list[str], list[Record]]]]:
    """Headings and rows of a table of the settings of `records`, one row per setting.

    The headings are the sampler, if there are several, and the keys of further settings that tell
    the rows apart. A row has a text for each heading, and its records, which differ in their seed.
    """
    parts = _parts(once(records))
    parts.sort(key=lambda part: in_order(sampler_key(part.records[0])))
    names = [label(sampler_key(part.records[0])) for part in parts]
    keys = _telling(parts, _keys(parts), names)
    several = len(set(names)) > 1
    words = {key: _texts(part.value(key) for part in parts) for key in keys}
    rows = []
    for name in dict.fromkeys(names):
        some = [part for part, own in zip(parts, names, strict=True) if own == name]
        for part in sorted(some, key=lambda part: [_ordered(part, key) for key in keys]):
            values = ((key, part.value(key)) for key in keys)
            texts = ["" if value is None else words[key][value] for key, value in values]
            rows.append(([name, *texts] if several else texts, part.records))
    return (["sampler", *keys] if several else keys), rows


def by_setting(records: Iterable[Record], axes: Sequence[str] = ()) -> list[list[Record]]:
    """Lists of records that agree in all settings but `axes`, ordered by their first records."""
    return [part.records for part in _parts(list(records), axes)]


def by_sampler(
    records: Iterable[Record], axes: Sequence[str] = ()
) -> dict[tuple[str, int], list[Record]]:
    """The records of each sampler, where only one setting per sampler can be shown.

    Raises UnlikeRecordsError if the records of a sampler differ in more than seed and `axes`.
    """
    found = groups(records, axes)
    for group in found:
        if group.of > 1:
            alone((r for other in found if other.key == group.key for r in other.records), axes)
    return {group.key: group.records for group in found}


def alone(records: Iterable[Record], axes: Sequence[str] = ()) -> list[Record]:
    """The records without duplicates, if they differ only in seed and `axes`.

    Otherwise raises UnlikeRecordsError, which names the keys in which they differ.
    """
    kept = once(records)
    parts = _parts(kept, axes)
    if len(parts) > 1:
        keys = _telling(parts, _keys(parts))
        values = (
            f"{key} ({', '.join(sorted(_texts(p.value(key) for p in parts).values()))})"
            for key in keys
        )
        raise UnlikeRecordsError(
            f"records that differ in more than their seed are not averaged: {'; '.join(values)}"
        )
    return kept


def shared(parts: Iterable[Iterable[Record]], value: Callable[[Record], float]) -> list[float]:
    """The values of a setting at which all `parts` have runs with common seeds, ascending.

    A value with fewer than ENOUGH common seeds counts only if no other value has more. So an
    unfinished sweep at one value does not affect comparisons at others. Raises LookupError if
    there is none.
    """
    ran = [{(value(record), record.config.get("seed")) for record in part} for part in parts]
    count = Counter(place for place, _ in set.intersection(*ran))
    if not count:
        raise LookupError("the samplers have no value of the setting and seed in common")
    enough = min(ENOUGH, max(count.values()))
    return sorted(place for place, seeds in count.items() if seeds >= enough)


def once(records: Iterable[Record]) -> list[Record]:
    """The first record of each identity and data, so that a repeated run counts once."""
    first: dict[Any, Record] = {}
    given = list(records)
    replaced = _replaced(given)
    for record in given:
        own = record.settings | _contents(record, replaced)
        first.setdefault((_key(own), _seeds(record)), record)
    return list(first.values())


def averaged(records: Iterable[Record], axes: Sequence[str] = ()) -> str:
    """The runs that a figure of `records` averages: `seeds 0-4`, or `3 to 5 runs, seeds 0-4`.

    Records that differ only in seed and `axes` are averaged. The numbers of runs are given unless
    every average includes all seeds.
    """
    kept = once(records)
    sizes = sorted({len(part) for part in by_setting(kept, axes)})
    if sizes == [1] or sizes == [len({_seeds(record) for record in kept})]:
        return seeds(kept)
    count = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return f"{count} runs, {seeds(kept)}"


def spread_over(
    records: Iterable[Record], band: str = "one standard deviation", axes: Sequence[str] = ()
) -> str:
    """A sentence that explains lines and bands of means over the runs of `records`.

    `axes` are those of `averaged`.
    """
    kept = once(records)
    if len(by_setting(kept, axes)) == len(kept):
        return f"One run a line, {seeds(kept)}."
    return f"Mean over {averaged(kept, axes)}; band: {band}."


def longest(records: Iterable[Record]) -> list[Record]:
    """Keep the longest of records that differ only in their number of iterations.

    The readings of a long run begin with those of a short one.
    """
    found: dict[Any, Record] = {}
    for record in records:
        key = _key(_without(record.settings, [LENGTH])), _seeds(record)
        found[key] = max(found.get(key, record), record, key=_iterations)
    return list(found.values())


def _key(settings: Settings) -> frozenset[tuple[str, str]]:
    """`settings` as the key of a dictionary."""
    return frozenset(settings.items())


def _seeds(record: Record) -> tuple[Any, ...]:
    return tuple(record.config.get(key) for key in SEEDS)


def _iterations(record: Record) -> int:
    return (record.config["task"] or {}).get("iterations", 0)


def _without(settings: Settings, axes: Sequence[str]) -> Settings:
    """`settings` without `axes` and the keys below them."""
    return {
        key: value
        for key, value in settings.items()
        if not any(f"{key}.".startswith(f"{axis}.") for axis in axes)
    }


def _contents(record: Record, names: Collection[str] = CONTENTS) -> Settings:
    """Hashes of the data and the model that the run found under the names in its configuration.

    Only those in `names`. Older records lack some.
    """
    data = (record.document.get("data") or {}).get("fingerprint")
    found = dict(zip(CONTENTS, (data, record.document.get("loaded")), strict=True))
    return {key: json.dumps(found[key]) for key in CONTENTS if key in names and found[key]}


def _replaced(records: Sequence[Record]) -> set[str]:
    """The CONTENTS that differ between records of equal settings and model seed.

    A file was replaced between these runs.
    """
    known: dict[Any, str] = {}
    return {
        name
        for record in records
        for name, content in _contents(record).items()
        if content
        != known.setdefault((name, record.config.get("model_seed"), _key(record.settings)), content)
    }


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


def _parts(records: Sequence[Record], axes: Sequence[str] = ()) -> list[_Part]:
    """The records by their settings without `axes`, in the order of their first records.

    The settings include the contents of files that were replaced between runs.
    """
    replaced = _replaced(records)
    parts: dict[Any, _Part] = {}
    for record in records:
        own = _without(record.settings, axes) | _contents(record, replaced)
        parts.setdefault(_key(own), _Part([], own)).records.append(record)
    return list(parts.values())


def _keys(parts: Sequence[_Part]) -> list[str]:
    """The keys in which the parts differ, the most recognisable first.

    The order is: keys set on the command line, choices of groups, other settings.
    """
    every = {key for part in parts for key in part.settings}
    differ = [key for key in (*CHOICES, *every) if len({part.value(key) for part in parts}) > 1]
    given = {
        override.partition("=")[0].lstrip("+~")
        for part in parts
        for record in part.records
        for override in record.document.get("overrides") or ()
    } - set(CHOICES)

    def rank(key: str) -> tuple[bool, bool, bool, bool, int, str]:
        inner = "_target_" in key or any(word.isdigit() for word in key.split("."))
        own = key.startswith("sampler.")
        return key not in given, key not in CHOICES, inner, not own, key.count("."), key

    return sorted(differ, key=rank)


def _telling(
    parts: Sequence[_Part], keys: Sequence[str], names: Sequence[str] | None = None
) -> list[str]:
    """A greedy subset of `keys`, in order, that distinguishes as many parts as all keys do.

    `names`, one per part, already distinguish some of them.
    """
    chosen: list[str] = []
    known = names or [""] * len(parts)

    def classes(some: Sequence[str]) -> int:
        own = (tuple(part.value(key) for key in some) for part in parts)
        return len(set(zip(known, own, strict=True)))

    for key in keys:
        if classes([*chosen, key]) > classes(chosen):
            chosen.append(key)
    return chosen


def in_order(key: tuple[str, int]) -> tuple[int, int]:
    """A sort key for legends: the sampler's place in SAMPLERS, unknown samplers last."""
    names = list(SAMPLERS)
    return names.index(key[0]) if key[0] in names else len(names), key[1]


def _ordered(part: _Part, key: str) -> tuple[bool, float, str]:
    """A sort key: numbers in increasing order, then text."""
    value = json.loads(part.value(key) or "null")
    is_number = isinstance(value, int | float)
    return not is_number, float(value) if is_number else 0.0, str(value)


def _words(key: str, text: str) -> str:
    """A setting in words: `step_size 0.1` for the sampler, `model.coupling 0.3` for other parts."""
    return f"{key.removeprefix('sampler.')} {text}"


def _texts(values: Iterable[str | None]) -> dict[str | None, str]:
    """Each of `values` as a short text, just long enough that no two are equal."""
    different = set(values)
    for times in (1, 2, 3, 8, 64):
        texts = {value: _text(value, min(6 * times, 17), LONGEST * times) for value in different}
        if len(set(texts.values())) == len(different):
            return texts
    return {value: value or "null" for value in different}


def _text(value: str | None, digits: int, longest: int) -> str:
    if value is None:
        return "null"
    found = json.loads(value)
    if isinstance(found, float):
        return f"{found:.{digits}g}"
    text = found if isinstance(found, str) else value.replace(" ", "")
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
