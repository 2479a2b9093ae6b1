"""Search spaces: each field's `low` and `high` (`log`, `step` as in Optuna), or `choices`."""

import dataclasses
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from optuna import Trial

from latticework.samplers.base import Sampler

Space = dict[str, dict[str, Any]]
TUNE = Path(__file__).resolve().parents[2] / "conf" / "task" / "tune.yaml"
MARK = "Tuned by task=tune"  # marks files that may be overwritten


def spaces() -> dict[str, Space]:
    """The search space of each sampler, by its name in conf/sampler: those of task=tune."""
    return yaml.safe_load(TUNE.read_text())["search"]


def check_space(sampler: Sampler, space: Space, name: str) -> None:
    """Raise ValueError unless `space` gives ranges or choices for fields of the sampler."""
    fields = [field.name for field in dataclasses.fields(sampler)]  # type: ignore[arg-type]
    if not space:
        raise ValueError(
            f"no search space for the sampler {name}; give one by "
            f"+task.search.{name}.FIELD='{{low: ..., high: ...}}', FIELD one of {', '.join(fields)}"
        )
    for field, bounds in space.items():
        if field not in fields:
            raise ValueError(f"{name} has no field {field}; it has {', '.join(fields)}")
        if not ("choices" in bounds or {"low", "high"} <= set(bounds)):
            raise ValueError(f"{field} needs low and high, or choices, got {bounds}")


def suggest(trial: Trial, sampler: Sampler, space: Space) -> dict[str, Any]:
    """One value for each field, of the field's type, rounded as it will be written to YAML."""
    hints = get_type_hints(type(sampler))
    fields: dict[str, Any] = {}
    for name, bounds in space.items():
        if "choices" in bounds:
            fields[name] = trial.suggest_categorical(name, bounds["choices"])
        elif hints[name] is int:
            fields[name] = trial.suggest_int(name, **bounds)
        else:
            fields[name] = trial.suggest_float(name, **bounds)
    return round_fields(fields, space)


def round_fields(fields: dict[str, Any], space: Space) -> dict[str, Any]:
    """Round floats to three digits, so that the measured settings are the written ones.

    Choices stay as they are.
    """
    floats = {k for k, v in fields.items() if isinstance(v, float) and "choices" not in space[k]}
    return {k: float(f"{v:.3g}") if k in floats else v for k, v in fields.items()}


def with_fields(sampler: Sampler, fields: dict[str, Any]) -> Sampler:
    """The sampler with other settings. Its constructor checks them."""
    return dataclasses.replace(sampler, **fields)  # type: ignore[type-var]


def fields_as_numbers(fields: dict[str, Any], space: Space) -> dict[str, float]:
    """`fields` as numbers for metrics.csv. A choice is written as its index."""
    chosen = {k: s["choices"] for k, s in space.items() if "choices" in s and k in fields}
    index = {k: choices.index(fields[k]) for k, choices in chosen.items()}
    return {name: float(value) for name, value in (fields | index).items()}


def from_numbers(values: dict[str, float], sampler: Sampler, space: Space) -> dict[str, Any]:
    """The fields that `numbers` gave."""
    hints = get_type_hints(type(sampler))
    fields: dict[str, Any] = {}
    for name, value in values.items():
        if "choices" in space[name]:
            fields[name] = space[name]["choices"][int(value)]
        else:
            fields[name] = int(value) if hints[name] is int else value
    return fields


def check_replaceable(file: Path) -> None:
    """Raise ValueError if `file` exists and was not written by task=tune."""
    if file.exists() and MARK not in file.read_text():
        raise ValueError(
            f"conf/tuned/{file.parent.name}/{file.name} holds numbers that task=tune did not write "
            "(such as the paper's); use apply=false and copy tuned.yaml by hand to replace them"
        )


def as_yaml(fields: dict[str, Any], facts: dict[str, Any]) -> str:
    """The text of a file for conf/tuned: comments on the provenance, then the fields."""
    lines = [
        "# @package sampler",
        f"# {MARK} on {facts['model']}: {facts['objective']} {facts['search_value']:.4g} "
        "in the search,",
        f"# {facts['held_out']:.4g} with fresh chains. {facts['budget']}.",
        f"# {facts['method']}.",
        f"# {facts['command']}",
        *(f"{name}: {value}" for name, value in fields.items()),
    ]
    return "\n".join(lines) + "\n"
