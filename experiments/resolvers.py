"""What the YAML files may compute: `${folder:...}` and `${experiments:}`."""

import hashlib
import re
from pathlib import Path

from omegaconf import OmegaConf

LONGEST = 120  # characters of a run folder's name


def folder(overrides: str) -> str:
    """A run folder's name from its overrides: no slashes, not too long, never empty."""
    name = re.sub(r"[^A-Za-z0-9_=.,+\[\]-]", "_", overrides) or "default"
    if len(name) <= LONGEST:
        return name
    return f"{name[:LONGEST]}-{hashlib.sha256(overrides.encode()).hexdigest()[:8]}"


def register(conf: Path) -> None:
    """Make the resolvers known to OmegaConf; `conf` is the folder of the YAML files."""

    def experiments() -> str:
        """Each experiment and the first comment line of its file, for --help."""
        files = sorted((conf / "experiment").glob("*.yaml"))
        width = max((len(file.stem) for file in files), default=0)
        return "\n".join(f"  {file.stem:{width}}  {_summary(file)}" for file in files)

    OmegaConf.register_new_resolver("folder", folder, replace=True)
    OmegaConf.register_new_resolver("experiments", experiments, replace=True)


def _summary(file: Path) -> str:
    comments = (line[1:].strip() for line in file.read_text().splitlines() if line[:1] == "#")
    return next((line for line in comments if not line.startswith("@package")), "")
