"""OmegaConf resolvers for the YAML files.

- `${scaled:steps}`: a number of the experiment, from the column of `scales` for this run.
- `${at_scale:100,20,4}`: a default of a task or data set, at scale=paper, quick and smoke.
- `${folder:}`: a run's folder.
- `${commands:}`, `${groups:}` and `${experiments:}`: what --help lists.
"""

import ast
import textwrap
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from latticework.experiments import CONF
from latticework.experiments.records.identity import find, folder_name, run_name
from latticework.experiments.runs.errors import COMMANDS

HELPERS = ("data/base", "experiment/parts", "target/parts", "tuned")  # they hold no options


def folder(*, _root_: DictConfig) -> str:
    """The folder name of the run that the whole configuration `_root_` describes.

    An existing folder of the same resolved configuration is reused, so that a run finds its record
    however it was spelled. `experiments.runs.recording` makes the final choice, under a lock.
    """
    hydra = _root_.hydra
    naming = hydra.overrides.task, hydra.job.config.override_dirname.exclude_keys
    try:
        config = resolved(_root_)
        parent = Path(config["outputs"], str(config["name"]), str(config["scale"]))
        found = find(parent, config)
        return folder_name(config, *naming) if found is None else found.name
    except (OmegaConfBaseException, LookupError, TypeError, ValueError, OSError):
        return run_name(*naming)  # the configuration is not valid; the run reports why


def resolved(config: DictConfig) -> dict[str, Any]:
    """`config` without `hydra`, resolved, as plain values.

    `${hydra:...}` reads the `hydra` of `config`; in a run, whose configuration has none, the run's.
    """
    running = HydraConfig.instance()
    before = running.cfg
    if "hydra" in config:
        running.cfg = config  # type: ignore[assignment]
    try:
        own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
        plain: Any = OmegaConf.to_container(own, resolve=True, throw_on_missing=True)
        return plain
    finally:
        running.cfg = before


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
    return _listed({file.stem: summary(file) for file in files})


def _listed(found: dict[str, str]) -> str:
    width = max(map(len, found))
    return "\n".join(f"  {name:{width}}  {found[name]}" for name in found)


def summary(file: Path) -> str:
    """The first comment of a YAML file: one line, a whole sentence."""
    comments = (line[1:].strip() for line in file.read_text().splitlines() if line[:1] == "#")
    return next((line for line in comments if not line.startswith("@package")), "")


def groups() -> str:
    """The groups with their options, without helpers and experiments, for --help."""
    found = {}
    for folder in sorted(path for path in CONF.rglob("*") if path.is_dir()):
        name = str(folder.relative_to(CONF))
        if name != "experiment" and not name.startswith(HELPERS):
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
    for resolver in (commands, groups, folder, scaled, at_scale, experiments):
        OmegaConf.register_new_resolver(resolver.__name__, resolver, replace=True)
