"""A run's configuration: how it is composed and resolved, and what its YAML interpolates.

Resolvers of OmegaConf for the YAML files:

- `${scaled:steps}`: a number of the experiment, from the column of `scales` for this run.
- `${at_scale:100,20,4}`: a default of a task or data set, at scale=paper, quick and smoke.
- `${folder:}`: a run's folder.
- `${user_path:~/x}`: a path with the home folder.
- `${commands:}`, `${groups:}` and `${experiments:}`: what --help lists.
"""

import ast
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers.oc import env

from latticework.experiments import CONF
from latticework.experiments.records import identity
from latticework.experiments.runs.errors import COMMANDS

HIDDEN_GROUPS = ("data/base", "experiment/parts", "target/parts", "tuned")  # they hold no options


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
        name = identity.folder_name(config, *naming)
        if (parent / name / "run.json").exists():  # names of other spellings need not be read
            return name
        begun = identity.find_run_folder(parent, config, identity.list_names(parent))
        return name if begun is None else begun.name
    except (OmegaConfBaseException, LookupError, TypeError, ValueError, OSError):
        return identity.run_name(*naming)  # the configuration is not valid; the run reports why


def resolve_config(config: DictConfig) -> dict[str, Any]:
    """`config` without `hydra`, resolved, as plain values.

    `${hydra:...}` reads the `hydra` of `config`; in a run, whose configuration has none, the run's.
    """
    plain: dict[str, Any] = {}
    with _hydra_of(config):
        for key in config:
            if key == "hydra":
                continue
            value = config[key]
            if OmegaConf.is_config(value):
                value = OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
            plain[str(key)] = value
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
            shown: Any = _as_written(config, plain)
            return shown
    finally:
        OmegaConf.register_new_resolver("oc.env", env, replace=True)


PROJECTS = "LATTICEWORK_"  # how the environment variables of this project begin
OPENING, CLOSING = "\0oc.env:", "\0"  # no interpolation, which OmegaConf would resolve


def _as_written(node: Any, plain: Any) -> Any:
    """`plain` with the texts of `node` that contain environment variables."""
    if isinstance(plain, dict):
        return {key: _as_written(_item_or(node, key, value), value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_as_written(_item_or(node, n, value), value) for n, value in enumerate(plain)]
    if not isinstance(plain, str):
        return plain
    text = node if isinstance(node, str) and OPENING in node else plain
    return identity.mask_passwords(text.replace(OPENING, "${oc.env:").replace(CLOSING, "}"))


def _item_or(node: Any, key: str | int, value: Any) -> Any:
    """node[key], or `value` if a resolver there needs the value of an environment variable."""
    try:
        return node[key]
    except Exception:  # noqa: BLE001 - a resolver raises whatever it likes
        return value


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
    return [identity.mask_passwords(word) for word in words]


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
    is_there, value = key in column, column.get(key)
    if choice and isinstance(value, DictConfig):
        name = str(choice[0])
        key = f"{key}.{name}"
        is_there = name in value or "others" in value
        value = value.get(name, value.get("others"))
    if not is_there:
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
    lines = {}
    for name in COMMANDS:
        script = CONF.parent / "scripts" / f"{name}.py"
        docstring = ast.get_docstring(ast.parse(script.read_text())) or ""
        lines[name] = docstring.partition("\n")[0]
    return _format_list(lines)


def experiments() -> str:
    """The experiments, each with the first comment line of its file, for --help."""
    lines = {}
    for file in sorted((CONF / "experiment").glob("*.yaml")):
        lines[file.stem] = first_comment(file)
    return _format_list(lines)


def _format_list(lines: dict[str, str]) -> str:
    width = max(map(len, lines))
    return "\n".join(f"  {name:{width}}  {line}" for name, line in lines.items())


def first_comment(file: Path) -> str:
    """The first comment of a YAML file: one line, a whole sentence."""
    for line in file.read_text().splitlines():
        comment = line.removeprefix("#").strip()
        if line.startswith("#") and not comment.startswith("@package"):
            return comment
    return ""


def groups() -> str:
    """The groups with their options, without helpers and experiments, for --help."""
    options_of: dict[str, list[str]] = {}
    for file in sorted(CONF.rglob("*.yaml")):
        name = str(file.parent.relative_to(CONF))
        if name not in (".", "experiment") and not name.startswith(HIDDEN_GROUPS):
            options_of.setdefault(name, []).append(file.stem)
    width = max(map(len, options_of))
    indent = " " * (width + 4)
    paragraphs = []
    for name, options in sorted(options_of.items()):
        text = f"  {name:{width}}  {', '.join(options)}"
        paragraphs.append(
            textwrap.fill(text, 100, subsequent_indent=indent, break_on_hyphens=False)
        )
    return "\n".join(paragraphs)


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
    """The folder of the records of a command."""
    return Path(config.outputs).expanduser() / config.name / config.scale
