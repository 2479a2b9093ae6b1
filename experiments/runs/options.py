"""Options of the groups in conf/, composed by name without a run."""

from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from latticework.experiments.runs import resolvers
from latticework.sampling.messages import nearest

CONF = Path(__file__).resolve().parents[2] / "conf"


def names(group: str, conf: Path = CONF) -> list[str]:
    """The options of a group, in alphabetical order: `names("sampler")`."""
    return sorted(file.stem for file in (conf / group).glob("*.yaml"))


def option(group: str, name: str, conf: Path = CONF) -> DictConfig:
    """The file conf/<group>/<name>.yaml with its own defaults applied.

    Raises ValueError that names the nearest options if there is no such file.
    """
    if name not in names(group, conf):
        raise ValueError(f"{group} {name!r} is not known: {nearest(name, names(group, conf))}")
    resolvers.register(conf)
    with initialize_config_dir(str(conf), version_base="1.3"):
        return compose(f"{group}/{name}")[group]
