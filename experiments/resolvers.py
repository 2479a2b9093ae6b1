"""What the YAML files may compute: `${folder:...}`, `${experiments:}` and `${at_scale:...}`."""

import hashlib
import re
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

LONGEST = 120  # characters of a run folder's name


def folder(overrides: str) -> str:
    """A run folder's name from its overrides: no slashes, not too long, never empty."""
    name = re.sub(r"[^A-Za-z0-9_=.,+\[\]-]", "_", overrides) or "default"
    if len(name) <= LONGEST:
        return name
    return f"{name[:LONGEST]}-{hashlib.sha256(overrides.encode()).hexdigest()[:8]}"


def at_scale(paper: Any, quick: Any, smoke: Any, *, _root_: DictConfig) -> Any:
    """The value for the run's `scale`: a budget of a task or data set that no experiment sets.

    Raises ValueError for a scale of the user's own.
    """
    values = {"paper": paper, "quick": quick, "smoke": smoke}
    scale = _root_.get("scale", "paper")  # a part composed by itself has none
    if scale not in values:
        raise ValueError(f"there is no default for scale={scale}: give a value")
    return values[scale]


def register(conf: Path) -> None:
    """Make the resolvers known to OmegaConf; `conf` is the folder of the YAML files."""

    def experiments() -> str:
        """Each experiment and the first comment line of its file, for --help."""
        files = sorted((conf / "experiment").glob("*.yaml"))
        width = max((len(file.stem) for file in files), default=0)
        return "\n".join(f"  {file.stem:{width}}  {_summary(file)}" for file in files)

    OmegaConf.register_new_resolver("folder", folder, replace=True)
    OmegaConf.register_new_resolver("at_scale", at_scale, replace=True)
    OmegaConf.register_new_resolver("experiments", experiments, replace=True)


def _summary(file: Path) -> str:
    comments = (line[1:].strip() for line in file.read_text().splitlines() if line[:1] == "#")
    return next((line for line in comments if not line.startswith("@package")), "")
