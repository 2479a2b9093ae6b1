"""OmegaConf resolvers for the YAML files.

- `${scaled:steps}`: a number of the experiment, from the column of `scales` for this run.
- `${at_scale:100,20,4}`: a default of a task or data set, at scale=paper, quick and smoke.
- `${folder:}`: a run's folder.
- `${groups:}` and `${experiments:}`: the lists of groups and experiments in --help.
"""

import textwrap
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from latticework.experiments.records.folders import find, run_name
from latticework.experiments.records.identity import digest
from latticework.experiments.runs.asking import is_helper


def folder(*, _root_: DictConfig) -> str:
    """The folder name of the run that the whole configuration `_root_` describes.

    An existing folder of the same resolved configuration is reused, so that a run finds its record
    however it was spelled. `experiments.runs.recording` makes the final choice, under a lock.
    """
    hydra = _root_.hydra
    name = run_name(hydra.overrides.task, hydra.job.config.override_dirname.exclude_keys)
    try:
        config = resolved(_root_)
        parent = Path(config["outputs"], str(config["name"]), str(config["scale"]))
        found = find(parent, digest(config), name)
    except (OmegaConfBaseException, LookupError, TypeError, ValueError, OSError):
        return name  # the configuration is not valid; the run reports why
    return name if found is None else found.name


def resolved(config: DictConfig) -> dict[str, Any]:
    """`config` without `hydra`, resolved, as plain values."""
    own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    plain: Any = OmegaConf.to_container(own, resolve=True, throw_on_missing=True)
    return plain


def scaled(key: str, *choice: Any, _root_: DictConfig) -> Any:
    """The value of `key` in the column of `scales` that the run's `scale` selects.

    The value may be a mapping from choices to values, such as a number of steps for each sampler.
    Then `choice` selects one of them; `others` serves the choices that the mapping does not name.
    Raises ValueError for a scale without the key, and for a choice without a value.
    """
    scale = _root_.get("scale")
    column = OmegaConf.select(_root_, f"scales.{scale}")
    if column is None or key not in column:
        raise ValueError(_missing(str(scale), key))
    value = column[key]
    if not choice or not isinstance(value, DictConfig):
        return value
    name = str(choice[0])
    if name not in value and "others" not in value:
        raise ValueError(_missing(str(scale), f"{key}.{name}"))
    return value[name if name in value else "others"]


def _missing(scale: str, key: str) -> str:
    """What a scale lacks, and where to add it."""
    choices = HydraConfig.get().runtime.choices if HydraConfig.initialized() else {}
    experiment = choices.get("experiment")
    file = f"conf/experiment/{experiment}.yaml" if experiment else "conf/config.yaml"
    return (
        f"scale={scale} has no {key}: add it to scales.{scale} in {file}, "
        f"or give +scales.{scale}.{key}=... on the command line"
    )


def at_scale(paper: Any, quick: Any, smoke: Any, *, _root_: DictConfig) -> Any:
    """The default budget of a task or data set at the run's `scale`; experiments override it.

    Raises ValueError for any other scale, which has no default.
    """
    values = {"paper": paper, "quick": quick, "smoke": smoke}
    scale = _root_.get("scale", "paper")  # a part composed by itself has none
    if scale not in values:
        raise ValueError(f"there is no default for scale={scale}: give a value")
    return values[scale]


def register(conf: Path) -> None:
    """Register the resolvers with OmegaConf. `conf` is the folder of the YAML files."""

    def experiments() -> str:
        """The experiments, each with the first comment line of its file, for --help."""
        files = sorted((conf / "experiment").glob("*.yaml"))
        width = max((len(file.stem) for file in files), default=0)
        return "\n".join(f"  {file.stem:{width}}  {_summary(file)}" for file in files)

    def groups() -> str:
        """The groups with their options, without helpers and experiments, for --help."""
        folders = (folder for folder in sorted(conf.rglob("*/")) if folder.name != "__pycache__")
        found = {
            str(f.relative_to(conf)): sorted(x.stem for x in f.glob("*.yaml")) for f in folders
        }
        shown = {
            name: options
            for name, options in found.items()
            if options and name != "experiment" and not is_helper(name)
        }
        width = max(map(len, shown), default=0)
        lines = (f"{name:{width}}  {', '.join(options)}" for name, options in shown.items())
        return "\n".join(wrap for line in lines for wrap in _wrapped(line, width + 2))

    OmegaConf.register_new_resolver("groups", groups, replace=True)
    OmegaConf.register_new_resolver("folder", folder, replace=True)
    OmegaConf.register_new_resolver("scaled", scaled, replace=True)
    OmegaConf.register_new_resolver("at_scale", at_scale, replace=True)
    OmegaConf.register_new_resolver("experiments", experiments, replace=True)


def _wrapped(line: str, indent: int) -> list[str]:
    return textwrap.wrap(
        line, 100, initial_indent="  ", subsequent_indent=" " * (indent + 2), break_on_hyphens=False
    )


def _summary(file: Path) -> str:
    comments = (line[1:].strip() for line in file.read_text().splitlines() if line[:1] == "#")
    return next((line for line in comments if not line.startswith("@package")), "")
