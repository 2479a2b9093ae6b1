"""A run's configuration: what its YAML interpolates, and its checks before anything is built.

Resolvers of OmegaConf for the YAML files:

- `${scaled:steps}`: a number of the experiment, from the column of `scales` for this run.
- `${at_scale:100,20,4}`: a default of a task or data set, at scale=paper, quick and smoke.
- `${folder:}`: a run's folder.
- `${user_path:~/x}`: a path with the home folder.
- `${commands:}`, `${groups:}` and `${experiments:}`: what --help lists.

A part is a node with a `_target_`. Its keys must be arguments of the target, and its values must
fit their annotations. So the signature of a class defines what its YAML may hold. Constraints that
concern one class are checked by that class.
"""

import ast
import math
import os
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.plugins.sweeper import Sweeper
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers.oc import env

from latticework.experiments import CONF
from latticework.experiments.records.identity import (
    DATA_LOCATION_KEYS,
    PARTS,
    SEEDS,
    find_run_folder,
    folder_name,
    mask_passwords,
    run_name,
    short_name,
)
from latticework.experiments.runs.errors import COMMANDS, ConfigurationError, find_keys_named
from latticework.sampling.annotations import describe_annotation, fits, is_number, is_part
from latticework.sampling.messages import in_a_line, nearest, shorten

HIDDEN_GROUPS = ("data/base", "experiment/parts", "target/parts", "tuned")  # they hold no options
# What has one value in a command: which runs there are, and where and how they are executed. Runs
# that differ in nothing else have one record.
UNSWEPT_KEYS = (
    "experiment", "scale", "name", "outputs", "device", "threads", "checkpoint", "force", "logger",
    "figures", "tables", "scales", "hydra/launcher",
    *(f"data.{key}" for key in DATA_LOCATION_KEYS),
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


def folder(*, _root_: DictConfig) -> str:
    """The folder name of the run that the whole configuration `_root_` describes.

    An existing folder of the same resolved configuration is reused, so that a run finds its record
    however it was spelled. `experiments.runs.recording` makes the final choice, under a lock.
    """
    naming = command_words(_root_.hydra), _root_.hydra.job.config.override_dirname.exclude_keys
    try:
        config = resolve_config(_root_)
        outputs = Path(config["outputs"]).expanduser()
        parent = outputs / str(config["name"]) / str(config["scale"])
        found = find_run_folder(parent, config)
        return folder_name(config, *naming) if found is None else found.name
    except (OmegaConfBaseException, LookupError, TypeError, ValueError, OSError):
        return run_name(*naming)  # the configuration is not valid; the run reports why


def resolve_config(config: DictConfig) -> dict[str, Any]:
    """`config` without `hydra`, resolved, as plain values.

    `${hydra:...}` reads the `hydra` of `config`; in a run, whose configuration has none, the run's.
    """
    with _hydra_of(config):
        plain: Any = OmegaConf.to_container(_own(config), resolve=True, throw_on_missing=True)
        return plain


def storable(config: DictConfig, plain: dict[str, Any]) -> dict[str, Any]:
    """`plain`, the resolved `config`, as records and trackers may show it.

    Texts that contain environment variables stay as written, `${oc.env:NAME}`, because they may be
    secrets. Variables of this project, which name folders, are resolved, and so is what
    `oc.decode` makes of a variable, such as a number. Passwords in URLs are masked.
    """

    def as_written(name: str, *default: Any) -> str | None:
        if str(name).startswith(PROJECTS):
            return env(name, *default)
        return f"{OPENING}{','.join(map(str, (name, *default)))}{CLOSING}"

    OmegaConf.register_new_resolver("oc.env", as_written, replace=True)
    try:
        with _hydra_of(config):
            shown: Any = _as_written(_own(config), plain)
            return shown
    finally:
        OmegaConf.register_new_resolver("oc.env", env, replace=True)


PROJECTS = "LATTICEWORK_"  # how the environment variables of this project begin
OPENING, CLOSING = "\0oc.env:", "\0"  # no interpolation, which OmegaConf would resolve


def _as_written(node: Any, plain: Any) -> Any:
    """`plain` with the texts of `node` that contain environment variables."""
    if isinstance(plain, dict | list):
        items = plain.items() if isinstance(plain, dict) else enumerate(plain)
        shown = {}
        for key, value in items:
            try:
                inner = node[key]
            except Exception:  # noqa: BLE001 - a resolver that needs the variable's value
                inner = value
            shown[key] = _as_written(inner, value)
        return shown if isinstance(plain, dict) else list(shown.values())
    if not isinstance(plain, str):
        return plain
    text = node if isinstance(node, str) and OPENING in node else plain
    return mask_passwords(text.replace(OPENING, "${oc.env:").replace(CLOSING, "}"))


def _own(config: DictConfig) -> DictConfig:
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


@contextmanager
def _hydra_of(config: DictConfig) -> Iterator[None]:
    """Let `${hydra:...}` read the `hydra` of `config`, if it has one, inside the block."""
    running = HydraConfig.instance()
    before = running.cfg
    if "hydra" in config:
        running.cfg = config  # type: ignore[assignment]
    try:
        yield
    finally:
        running.cfg = before


def command_words(hydra: Any) -> list[str]:
    """The overrides of the run or command of `hydra` as written, with passwords masked."""
    words: Any = OmegaConf.to_container(hydra.overrides.task)
    return [mask_passwords(word) for word in words]


def user_path(path: str) -> str:
    """`path` with `~` as the home folder, which a shell expands at the start of a word only."""
    return str(Path(path).expanduser())


def scaled(key: str, *choice: Any, _root_: DictConfig) -> Any:
    """The value of `key` in the column of `scales` that the run's `scale` selects.

    The value may be a mapping from choices to values, such as a number of steps for each sampler.
    Then `choice` selects one of them; `others` serves the choices that the mapping does not name.
    Raises ValueError for a scale without the key, and for a choice without a value.
    """
    scale = _root_.get("scale")
    column = OmegaConf.select(_root_, f"scales.{scale}") or {}
    found, value = key in column, column.get(key)
    if choice and isinstance(value, DictConfig):
        name = str(choice[0])
        key = f"{key}.{name}"
        found, value = bool({name, "others"} & set(value)), value.get(name, value.get("others"))
    if not found:
        raise ValueError(
            f"scale={scale} has no {key}: add it to scales.{scale} of the experiment, "
            f"or give +scales.{scale}.{key}=... on the command line"
        )
    return value


def at_scale(paper: Any, quick: Any, smoke: Any, *, _root_: DictConfig) -> Any:
    """The default budget of a task or data set at the run's `scale`; experiments override it.

    Raises ValueError for any other scale, which has no default.
    """
    values = {"paper": paper, "quick": quick, "smoke": smoke}
    scale = _root_.get("scale", "paper")  # a part composed by itself has none
    if scale not in values:
        raise ValueError(f"there is no default for scale={scale}: give a value")
    return values[scale]


def commands() -> str:
    """The commands besides experiments, each with the first line of its script, for --help."""
    scripts = {name: CONF.parent / "scripts" / f"{name}.py" for name in COMMANDS}
    texts = {name: ast.get_docstring(ast.parse(file.read_text())) for name, file in scripts.items()}
    return _listed({name: (text or "").partition("\n")[0] for name, text in texts.items()})


def experiments() -> str:
    """The experiments, each with the first comment line of its file, for --help."""
    files = sorted((CONF / "experiment").glob("*.yaml"))
    return _listed({file.stem: first_comment(file) for file in files})


def _listed(found: dict[str, str]) -> str:
    width = max(map(len, found))
    return "\n".join(f"  {name:{width}}  {found[name]}" for name in found)


def first_comment(file: Path) -> str:
    """The first comment of a YAML file: one line, a whole sentence."""
    comments = (line[1:].strip() for line in file.read_text().splitlines() if line[:1] == "#")
    return next((line for line in comments if not line.startswith("@package")), "")


def groups() -> str:
    """The groups with their options, without helpers and experiments, for --help."""
    found = {}
    for folder in sorted(path for path in CONF.rglob("*") if path.is_dir()):
        name = str(folder.relative_to(CONF))
        if name != "experiment" and not name.startswith(HIDDEN_GROUPS):
            found[name] = sorted(file.stem for file in folder.glob("*.yaml"))
    width = max(map(len, found))
    return "\n".join(
        textwrap.fill(
            f"{name:{width}}  {', '.join(options)}", 100, initial_indent="  ",
            subsequent_indent=" " * (width + 4), break_on_hyphens=False,
        )
        for name, options in found.items() if options
    )  # fmt: skip


def register() -> None:
    """Register the resolvers with OmegaConf."""
    for resolver in (commands, groups, folder, scaled, at_scale, experiments, user_path):
        OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)


def compose_config(words: Iterable[str], name: str = "config") -> DictConfig:
    """The configuration conf/`name`.yaml with the overrides `words`, and with `hydra`.

    Composes also while Hydra runs a command.
    """
    register()
    with _hydra():
        return compose(name, list(words), return_hydra_config=True)


def parse_overrides(words: Sequence[str]) -> list[Override]:
    """The overrides that `words` spell; a glob among them lists the options of its group."""
    with _hydra():
        loader = GlobalHydra.instance().config_loader()
        return OverridesParser.create(config_loader=loader).parse_overrides(list(words))


def _hydra() -> AbstractContextManager[Any]:
    """Hydra with the files of conf/ inside the block; the running command's if there is one."""
    if GlobalHydra.instance().is_initialized():
        return nullcontext()
    return initialize_config_dir(str(CONF), version_base="1.3")


def records_folder(config: DictConfig) -> Path:
    """Where the records of a command are."""
    return Path(config.outputs).expanduser() / config.name / config.scale


def check_names(command: Iterable[str]) -> None:
    """Raise ConfigurationError for a path or a list in place of the name of an option.

    Hydra would read a file of another group, or merge several options into one.
    """
    for word in command:
        key, _, value = word.partition("=")
        group = key.lstrip("+").partition("@")[0]
        if not group or not (CONF / group).is_dir():
            continue
        if value.startswith("[") and group != "logger":  # of which a run may have several
            names = value.strip("[]").replace(" ", "")
            raise ConfigurationError(
                f"{word} is a list, and a run has one {group}: {group}={names} with --multirun is "
                "a run for each"
            )
        known = sorted(file.stem for file in (CONF / group).glob("*.yaml"))
        if value in ("", "null"):
            options = ", ".join(known[:-1]) + f" or {known[-1]}" if known else "its options"
            raise ConfigurationError(
                f"{word} names no option of {group}: leave it out, or choose {options}"
            )
        if ".." in value or value.startswith("/"):
            raise ConfigurationError(
                f"{word} is a path, and {group} takes the name of one of its options: "
                f"{nearest(Path(value).name, known)}"
            )


_validate_each = Sweeper.validate_batch_is_legal


def patch_sweep_validation() -> None:
    """Let a sweep compose one run for each choice of options before it starts, for this process.

    Hydra composes every run, which takes as long as composing them again when they start. Runs of
    the same options differ in values, which are checked when they start.
    """
    setattr(Sweeper, "validate_batch_is_legal", _validate)  # noqa: B010 - mypy refuses the other


def _validate(self: Sweeper, batch: Sequence[Sequence[str]]) -> None:
    kinds = {tuple(word for word in run if _may_choose(word)): run for run in batch}
    _validate_each(self, list(kinds.values()))


def _may_choose(word: str) -> bool:
    """Whether an override may choose an option of a group, maybe one of the user's own."""
    key = word.partition("=")[0].lstrip("+~")
    return "." not in key and key not in SEEDS


def validate_config(config: DictConfig) -> dict[str, Any]:
    """`config` without `hydra`, resolved. Raises ConfigurationError if it is not valid."""
    _check_scale(config)
    try:
        document = resolve_config(config)
    except OmegaConfBaseException as error:
        raise ConfigurationError(in_a_line(error)) from error
    _check_settings(document)
    for name in PARTS:
        part = document.get(name)
        if not (is_part(part) or (part is None and name != "task")):
            raise ConfigurationError(f"{name} must be an option of its group, got {shorten(part)}")
    _check_value("logger", document.get("logger") or {}, dict[str, Callable], "logger")
    for name in (*PARTS, "logger"):
        _check_parts(document.get(name), name)
    return document


def check_added_keys(config: DictConfig) -> None:
    """Raise ConfigurationError for an override `+key=value` of a key that nothing reads.

    `config` includes `hydra`. Keys of the parts are checked with their part.
    """
    own = {*PARTS, *map(str, OmegaConf.load(CONF / "config.yaml"))} - {"defaults", "hydra"}
    loader = GlobalHydra.instance().config_loader()
    given: Any = OmegaConf.to_container(config.hydra.overrides)  # interpolations as they stand
    every = [*given["hydra"], *given["task"]]  # the former may name folders with further groups
    for override in parse_overrides(given["task"]):
        key = override.key_or_group
        if not (override.is_add() or override.is_force_add()) or "." in key or key in own:
            continue
        group = loader.get_group_options(key, config_name="config", overrides=every)
        if not (group or _is_interpolated(key, config)):
            meant = [
                f"{place}={override.get_value_string()}" for place in find_keys_named(key, config)
            ]
            hint = f"did you mean {' or '.join(meant)}?" if meant else nearest(key, own)
            raise ConfigurationError(f"{override.input_line}: no run reads {key}; {hint}")


def _is_interpolated(key: str, config: DictConfig) -> bool:
    """Whether an interpolation in `config` names the key: `${key}` or `${oc.select:key,...}`."""
    text = OmegaConf.to_yaml(config)
    return bool(re.search(rf"(\$\{{|oc\.select:\s*){re.escape(key)}[}}.,\[]", text))


def check_folder(config: DictConfig) -> None:
    """Raise ConfigurationError if Hydra's folder for a run is not where records are looked for."""
    hydra, wanted = config.hydra, records_folder(config)
    if hydra.mode is RunMode.MULTIRUN:
        key, given = "hydra.sweep.dir", Path(hydra.sweep.dir)
        sweep: Any = OmegaConf.to_container(hydra.sweep)
        if os.sep in (subfolder := sweep["subdir"]):
            key, given = "hydra.sweep.subdir", given / subfolder
    else:
        key, given = "hydra.run.dir", Path(hydra.run.dir).parent
    if os.path.abspath(given) != os.path.abspath(wanted):  # noqa: PTH100 - links are not resolved
        raise ConfigurationError(
            f"{key} must lead to a folder in {wanted}, where records are looked for, got {given}: "
            "outputs=... and name=... choose another place"
        )


def check_sweep(config: DictConfig) -> None:
    """Raise ConfigurationError for an empty sweep, or one over a key of `UNSWEPT_KEYS`."""
    params = OmegaConf.select(config, "hydra.sweeper.params") or {}
    words = [*(f"{k}={v}" for k, v in params.items()), *command_words(config.hydra)]
    last = {override.get_key_element(): override for override in parse_overrides(words)}
    for key, override in last.items():
        if key in UNSWEPT_KEYS and override.is_sweep_override():
            several = f"{override.input_line} gives several values"
            raise ConfigurationError(
                f"{several}, and a command has one {key}: give a command for each"
                if key != "logger"
                else f"{several}; for all of them at once, write logger=[...]"
            )
        if override.is_discrete_sweep() and next(override.sweep_string_iterator(), None) is None:
            raise ConfigurationError(
                f"{override.input_line} is an empty sweep: give it one value or more"
            )


def _check_scale(config: DictConfig) -> None:
    """Check `scale` first, because `${scaled:...}` reads the column of `scales` that it names."""
    scale, scales = config.get("scale"), config.get("scales")
    if isinstance(scales, DictConfig) and scale not in list(scales):
        raise ConfigurationError(f"scale={scale} is not known: {nearest(str(scale), scales)}")


def _check_settings(document: dict[str, Any]) -> None:
    for name, hint in SETTINGS.items():
        if document.get(name) in (None, ""):
            raise ConfigurationError(f"{name} is missing: it must be {describe_annotation(hint)}")
        _check_value(name, document[name], hint, name)
        fine, wanted = SETTING_RULES.get(name, (bool, ""))
        if wanted and not fine(document[name]):
            raise ConfigurationError(f"{name} must be {wanted}, got {document[name]!r}")


def _check_parts(value: Any, where: str) -> None:
    """Check every part in `value`, recursively."""
    if is_part(value):
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
            raise ConfigurationError(
                f"{where} has no field {name} ({target}): {nearest(name, known)}"
            )
    if part.get("_partial_") or "_args_" in part:
        return
    for name in known:
        if parameters[name].default is Parameter.empty and name not in given:
            raise ConfigurationError(f"{where}.{name} is missing: {target} needs it")
    if short_name(target) == "Budget":
        try:
            pkgutil.resolve_name(target)(**given)  # it compares its counts
        except ValueError as error:
            raise ConfigurationError(f"{where}: {error}") from error


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
    if not fits(value, hint):
        beyond = type(value) in (int, float) and not is_number(value)
        wanted = "a finite number of 64 bits" if beyond else describe_annotation(hint)
        raise ConfigurationError(f"{where} must be {wanted}, got {shorten(value)}")
    if name in POSITIVE and isinstance(value, int | float) and not value > 0:
        raise ConfigurationError(f"{where} must be positive, got {value}")
