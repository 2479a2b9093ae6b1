"""The groups of conf/: an override names one option, and Hydra lists and composes them quickly."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.object_type import ObjectType
from hydra.plugins.sweeper import Sweeper

from latticework.experiments.records.identity import SEEDS
from latticework.experiments.runs.errors import ConfigurationError
from latticework.sampling.messages import nearest

CONF = Path(__file__).resolve().parents[2] / "conf"
SEVERAL = ("logger",)  # groups of which a run may have several options
_hydras_validation = Sweeper.validate_batch_is_legal
_hydras_own = ConfigLoaderImpl.get_group_options


def check_names(words: Iterable[str]) -> None:
    """Raise ConfigurationError for a path or a list in place of the name of an option.

    Hydra would read a file of another group, or tell of files that no command names.
    """
    for word in words:
        key, _, value = word.partition("=")
        group = key.lstrip("+").partition("@")[0]
        if not group or not (CONF / group).is_dir():
            continue
        if value.startswith("[") and group not in SEVERAL:
            names = value.strip("[]").replace(" ", "")
            raise ConfigurationError(
                f"{word} is a list, and a run has one {group}: {group}={names} with --multirun is "
                "a run for each"
            )
        if ".." in value or value.startswith("/"):
            known = [file.stem for file in (CONF / group).glob("*.yaml")]
            raise ConfigurationError(
                f"{word} is a path, and {group} takes the name of one of its options: "
                f"{nearest(Path(value).name, known)}"
            )


def validate_quickly() -> None:
    """Let a sweep compose one run for each choice of options before it starts, for this process.

    Hydra composes every run, which takes as long as composing them again when they start. Runs of
    the same options differ in values, which are checked when they start.
    """
    setattr(Sweeper, "validate_batch_is_legal", _validate)  # noqa: B010 - as below


def _validate(self: Sweeper, batch: Sequence[Sequence[str]]) -> None:
    kinds = {tuple(word for word in words if _may_choose(word)): words for words in batch}
    _hydras_validation(self, list(kinds.values()))


def _may_choose(word: str) -> bool:
    """Whether an override may choose an option of a group, maybe one of the user's own."""
    key = word.partition("=")[0].lstrip("+~")
    return "." not in key and key not in SEEDS


def list_quickly() -> None:
    """Let Hydra list the options of a group from its own repository, for this process.

    Hydra 1.3 copies the repository first, because overrides may add to its search path. `--help`
    asks for some 170 groups without overrides, and the copies were half of its time.
    """
    setattr(ConfigLoaderImpl, "get_group_options", _options)  # noqa: B010 - mypy refuses the other


def _options(
    self: ConfigLoaderImpl,
    group_name: str,
    results_filter: ObjectType | None = ObjectType.CONFIG,
    config_name: str | None = None,
    overrides: list[str] | None = None,
) -> Any:
    if config_name is not None or overrides:
        return _hydras_own(self, group_name, results_filter, config_name, overrides)
    return self.repository.get_group_options(group_name, results_filter)
