"""Make `--help` quick: list the groups of conf/ without a copy of Hydra's repository for each."""

from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.object_type import ObjectType

_hydras_own = ConfigLoaderImpl.get_group_options


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
