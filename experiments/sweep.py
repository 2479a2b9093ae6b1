"""The end of a run or a sweep: its figures are drawn from the records, and failures are told."""

import logging
import time
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from experiments.figures.draw import draw_all

log = logging.getLogger(__name__)


class Finish(Callback):
    """Hydra callback. Draws what the experiment names under `figures`; exits 1 if a run failed."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        self.started = time.time()

    on_multirun_start = on_run_start

    def on_run_end(self, config: DictConfig, **kwargs: Any) -> None:
        folder = Path(config.outputs) / config.name / config.scale
        for file in draw_all(config, folder):
            print(f"{file.parent.name[:-1]}: {file}")
        failed = [
            path for path in folder.rglob("error.txt") if path.stat().st_mtime >= self.started
        ]
        if failed:
            width = max(len(str(path.parent)) for path in failed)
            print(f"\n{len(failed)} failed:")
            for path in failed:
                print(f"  {str(path.parent):{width}}  {path.read_text().splitlines()[0]}")
            raise SystemExit(1)

    on_multirun_end = on_run_end
