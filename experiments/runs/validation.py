"""Checks of a run's configuration before anything is built; errors say what to change.

A part is a node with a `_target_`. Its keys must be arguments of the target, and its values must
fit their annotations. So the signature of a class defines what its YAML may hold. Constraints that
concern one class are checked by that class.
"""

import math
import os
import pkgutil
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from latticework.experiments import CONF
from latticework.experiments.records import identity
from latticework.experiments.runs import configuration, errors
from latticework.sampling import annotations, messages

# Keys with one value in a command: they say which runs there are, and where and how they are
# executed. Runs that differ in nothing else have one record.
UNSWEPT_KEYS = (
    "experiment", "scale", "name", "outputs", "device", "threads", "checkpoint", "force", "logger",
    "figures", "tables", "scales", "hydra/launcher",
    *(f"data.{key}" for key in identity.DATA_LOCATION_KEYS),
)  # fmt: skip
SETTINGS: dict[str, Any] = {
    "name": str,
    "outputs": str,
    "device": str,
    "seed": int,
    "model_seed": int,
    "threads": int | Literal["auto"],
    "engine": Literal["auto", "eager", "compiled", "fused"],
    "checkpoint": float,
    "force": bool,
}
# PyTorch dies of more threads. Whether there is a GPU is for the run's machine to say.
SETTING_RULES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "name": (
        lambda name: re.fullmatch(r"(?!\.\.?$)[^/\\]+", name) and len(os.fsencode(name)) < 256,
        "the name of one folder in outputs, of at most 255 bytes",
    ),
    "threads": (lambda count: count == "auto" or count <= 4096, "at most 4096"),
    "checkpoint": (lambda seconds: seconds >= 0, "0 or more seconds"),
    "device": (
        lambda device: re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", device),
        "auto, cpu, cuda or cuda:1",
    ),
}
# Arguments that must be positive wherever they occur, and arguments that may be infinite.
POSITIVE = {
    "batch", "chains", "dim", "epoch_size", "epochs", "every", "features", "iterations", "keep",
    "learning_rate", "limit", "points", "rows", "samples", "snapshots", "steps",
    "threads", "trial_steps", "trials", "updates", "validation_points",
}  # fmt: skip
INFINITE_ARGUMENTS = {"step_size", "largest_gradient", "largest_loss"}
HYDRA_KEYS = {"_target_", "_partial_", "_args_", "_recursive_", "_convert_"}
VARIADIC = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)


def check_command(config: DictConfig) -> None:
    """Check what all runs of a command share. `config` includes `hydra`.

    Raises ConfigurationError. Each run of a sweep is checked when it begins.
    """
    check_added_keys(config)
    validate_config(config)
    check_folder(config)
    if config.hydra.mode is RunMode.MULTIRUN:
        check_sweep(config)
        check_launcher(config)


def check_launcher(config: DictConfig) -> None:
    """Raise ConfigurationError if the launcher needs Slurm, and this machine has none."""
    is_slurm = str(config.hydra.launcher._target_).endswith(".SlurmLauncher")
    if is_slurm and not (shutil.which("sbatch") and shutil.which("srun")):
        raise errors.ConfigurationError(
            "hydra/launcher=submitit_slurm needs Slurm, and this machine has no sbatch and srun: "
            "give the command on a login node, or take hydra/launcher=joblib for the cores of this "
            "machine"
        )


def check_names(command: Iterable[str]) -> None:
    """Raise ConfigurationError for a path or a list in place of the name of an option.

    Hydra would read a file of another group, or merge several options into one.
    """
    for word in command:
        key, _, value = word.partition("=")
        group = key.lstrip("+").partition("@")[0]
        if not group or not (CONF / group).is_dir():
            continue
        if value.startswith("[") and group != "logger":  # a run may have several loggers
            names = value.strip("[]").replace(" ", "")
            raise errors.ConfigurationError(
                f"{word} is a list, and a run has one {group}: {group}={names} with --multirun is "
                "a run for each"
            )
        known = sorted(file.stem for file in (CONF / group).glob("*.yaml"))
        if value in ("", "null"):
            options = ", ".join(known[:-1]) + f" or {known[-1]}" if known else "its options"
            raise errors.ConfigurationError(
                f"{word} names no option of {group}: leave it out, or choose {options}"
            )
        if ".." in value or value.startswith("/"):
            raise errors.ConfigurationError(
                f"{word} is a path, and {group} takes the name of one of its options: "
                f"{messages.nearest(Path(value).name, known)}"
            )


def validate_config(config: DictConfig) -> dict[str, Any]:
    """`config` without `hydra`, resolved. Raises ConfigurationError if it is not valid."""
    _check_scale(config)
    try:
        document = configuration.resolve_config(config)
    except OmegaConfBaseException as error:
        raise errors.ConfigurationError(messages.in_a_line(error)) from error
    _check_settings(document)
    for name in identity.PARTS:
        part = document.get(name)
        if not (annotations.is_part(part) or (part is None and name != "task")):
            raise errors.ConfigurationError(
                f"{name} must be an option of its group, got {messages.shorten(part)}"
            )
    _check_value("logger", document.get("logger") or {}, dict[str, Callable], "logger")
    for name in (*identity.PARTS, "logger"):
        _check_parts(document.get(name), name)
    return document


def check_added_keys(config: DictConfig) -> None:
    """Raise ConfigurationError for an override `+key=value` of a key that nothing reads.

    `config` includes `hydra`. Keys of the parts are checked with their part.
    """
    known = {*identity.PARTS, *map(str, OmegaConf.load(CONF / "config.yaml"))} - {
        "defaults",
        "hydra",
    }
    loader = GlobalHydra.instance().config_loader()
    given: Any = OmegaConf.to_container(config.hydra.overrides)  # interpolations as they stand
    every = [*given["hydra"], *given["task"]]  # the former may name folders with further groups
    for override in configuration.parse_overrides(given["task"]):
        key = override.key_or_group
        if not (override.is_add() or override.is_force_add()) or "." in key or key in known:
            continue
        group = loader.get_group_options(key, config_name="config", overrides=every)
        if not (group or _is_interpolated(key, config)):
            value = override.get_value_string()
            spellings = [f"{place}={value}" for place in errors.find_keys_named(key, config)]
            hint = messages.nearest(key, known)
            if spellings:
                hint = f"did you mean {' or '.join(spellings)}?"
            raise errors.ConfigurationError(f"{override.input_line}: no run reads {key}; {hint}")


def _is_interpolated(key: str, config: DictConfig) -> bool:
    """Whether an interpolation in `config` names the key: `${key}` or `${oc.select:key,...}`."""
    text = OmegaConf.to_yaml(config)
    return bool(re.search(rf"(\$\{{|oc\.select:\s*){re.escape(key)}[}}.,\[]", text))


def check_folder(config: DictConfig) -> None:
    """Raise ConfigurationError if Hydra's folder for a run is not where records are looked for."""
    hydra, wanted = config.hydra, configuration.records_folder(config)
    if hydra.mode is RunMode.MULTIRUN:
        key, given = "hydra.sweep.dir", Path(hydra.sweep.dir)
        sweep: Any = OmegaConf.to_container(hydra.sweep)
        if os.sep in (subfolder := sweep["subdir"]):
            key, given = "hydra.sweep.subdir", given / subfolder
    else:
        key, given = "hydra.run.dir", Path(hydra.run.dir).parent
    if os.path.abspath(given) != os.path.abspath(wanted):  # noqa: PTH100 - links are not resolved
        raise errors.ConfigurationError(
            f"{key} must lead to a folder in {wanted}, where records are looked for, got {given}: "
            "outputs=... and name=... choose another place"
        )


def check_sweep(config: DictConfig) -> None:
    """Raise ConfigurationError for an empty sweep, or one over a key of `UNSWEPT_KEYS`."""
    params = OmegaConf.select(config, "hydra.sweeper.params") or {}
    words = [*(f"{k}={v}" for k, v in params.items()), *configuration.command_words(config.hydra)]
    last: dict[str, Override] = {}
    for override in configuration.parse_overrides(words):
        last[override.get_key_element()] = override
    for key, override in last.items():
        if key in UNSWEPT_KEYS and override.is_sweep_override():
            advice = f", and a command has one {key}: give a command for each"
            if key == "logger":
                advice = "; for all of them at once, write logger=[...]"
            raise errors.ConfigurationError(f"{override.input_line} gives several values{advice}")
        if override.is_discrete_sweep() and next(override.sweep_string_iterator(), None) is None:
            raise errors.ConfigurationError(
                f"{override.input_line} is an empty sweep: give it one value or more"
            )


def _check_scale(config: DictConfig) -> None:
    """Check `scale` first, because `${scaled:...}` reads the column of `scales` that it names."""
    scale, scales = config.get("scale"), config.get("scales")
    if isinstance(scales, DictConfig) and scale not in list(scales):
        raise errors.ConfigurationError(
            f"scale={scale} is not known: {messages.nearest(str(scale), scales)}"
        )


def _check_settings(document: dict[str, Any]) -> None:
    for name, hint in SETTINGS.items():
        if document.get(name) in (None, ""):
            raise errors.ConfigurationError(
                f"{name} is missing: it must be {annotations.describe_annotation(hint)}"
            )
        _check_value(name, document[name], hint, name)
        fine, wanted = SETTING_RULES.get(name, (bool, ""))
        if wanted and not fine(document[name]):
            raise errors.ConfigurationError(f"{name} must be {wanted}, got {document[name]!r}")


def _check_parts(value: Any, where: str) -> None:
    """Check every part in `value`, recursively."""
    if annotations.is_part(value):
        _check_call(value, where)
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_parts(inner, f"{where}.{name}")
    if isinstance(value, list):
        for place, inner in enumerate(value):
            _check_parts(inner, f"{where}[{place}]")


def _check_call(part: dict[str, Any], where: str) -> None:
    target = str(part["_target_"])
    parameters = _parameters(target)
    if parameters is None:
        return
    given = {str(name): value for name, value in part.items() if name not in HYDRA_KEYS}
    anything = any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
    known = [n for n, p in parameters.items() if p.kind not in VARIADIC and n[0] != "_"]
    for name, value in given.items():
        if name in known:
            _check_value(name, value, parameters[name].annotation, f"{where}.{name}")
        elif not anything:
            raise errors.ConfigurationError(
                f"{where} has no field {name} ({target}): {messages.nearest(name, known)}"
            )
    if part.get("_partial_") or "_args_" in part:
        return
    for name in known:
        if parameters[name].default is Parameter.empty and name not in given:
            raise errors.ConfigurationError(f"{where}.{name} is missing: {target} needs it")
    if identity.short_name(target) == "Budget":
        try:
            pkgutil.resolve_name(target)(**given)  # it compares its counts
        except ValueError as error:
            raise errors.ConfigurationError(f"{where}: {error}") from error


@cache
def _parameters(target: str) -> Mapping[str, Parameter] | None:
    """The parameters of `target`, or None if they cannot be determined; Hydra reports bad names."""
    try:
        called = pkgutil.resolve_name(target)
        try:
            return signature(called, eval_str=True).parameters
        except NameError:  # annotations for type checkers only
            return signature(called).parameters
    except (ImportError, AttributeError, TypeError, ValueError):
        return None


def _check_value(name: str, value: Any, hint: Any, where: str) -> None:
    if name in INFINITE_ARGUMENTS and value == math.inf:
        return
    if not annotations.fits(value, hint):
        beyond = type(value) in (int, float) and not annotations.is_number(value)
        wanted = "a finite number of 64 bits" if beyond else annotations.describe_annotation(hint)
        raise errors.ConfigurationError(f"{where} must be {wanted}, got {messages.shorten(value)}")
    if name in POSITIVE and isinstance(value, int | float) and not value > 0:
        raise errors.ConfigurationError(f"{where} must be positive, got {value}")
