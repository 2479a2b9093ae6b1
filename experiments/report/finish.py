"""What happens at the start and at the end of a run or a sweep.

At the start, the configuration is checked before anything is written. At the end, figures are drawn
from the records, and failures are reported.
"""

import time
import traceback
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from latticework.experiments.config import errors
from latticework.experiments.config.checks import checked
from latticework.experiments.report.drawing import drawn
from latticework.experiments.running import watch


class Finish(Callback):
    """Hydra callback: checks the configuration, then draws figures and tables; reports failures.

    Exits with status 1 if a run failed. Hydra turns exceptions raised here into warnings, so the
    methods raise SystemExit instead.
    """

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        self.started = time.time()
        HydraConfig.instance().set_config(config)  # for interpolations of ${hydra:...}
        try:
            checked(config)
        except errors.ConfigurationError as error:
            errors.end(error)
        watch.look_in(_folder(config))

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check what all runs share; `recording` checks each run of the sweep."""
        self.on_run_start(config)
        try:
            check_sweep(config)
        except errors.ConfigurationError as error:
            errors.end(error)

    def on_run_end(self, config: DictConfig, **kwargs: Any) -> None:
        folder = _folder(config)
        undrawn = not _drawn(config, folder)
        failed = [
            path for path in folder.rglob("error.txt") if path.stat().st_mtime >= self.started
        ]
        if failed:
            width = max(len(str(path.parent)) for path in failed)
            print(f"\n{len(failed)} failed:")
            for path in failed:
                print(f"  {str(path.parent):{width}}  {path.read_text().splitlines()[0]}")
        if failed or undrawn:
            raise SystemExit(1)

    on_multirun_end = on_run_end


def _folder(config: DictConfig) -> Path:
    """Where the records of the command are."""
    return Path(config.outputs) / config.name / config.scale


def check_sweep(config: DictConfig) -> None:
    """Raise ConfigurationError if one of the sweeps in `config` is empty."""
    params = OmegaConf.select(config, "hydra.sweeper.params") or {}
    words = [*(f"{k}={v}" for k, v in params.items()), *config.hydra.overrides.task]
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    last = {override.get_key_element(): override for override in parser.parse_overrides(words)}
    for override in last.values():
        if override.is_discrete_sweep() and next(override.sweep_string_iterator(), None) is None:
            raise errors.ConfigurationError(
                f"{override.input_line} is an empty sweep: give it one value or more"
            )


def _drawn(config: DictConfig, folder: Path) -> bool:
    try:
        for file in drawn(config, config.hydra.overrides.task, folder):
            print(f"{file.relative_to(folder).parts[0][:-1]}: {file}")
    except Exception as error:  # noqa: BLE001 - the failures are to be told all the same
        if errors.wants_traceback():
            traceback.print_exception(error)
        print(f"figures and tables: {errors.summary(error)}")
        return False
    return True
