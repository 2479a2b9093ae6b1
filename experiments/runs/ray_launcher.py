"""A Hydra launcher on Ray core: one task of a Ray cluster for each run of a sweep.

P. Moritz et al., "Ray: A Distributed Framework for Emerging AI Applications", OSDI 2018. If the
process of a run dies, Ray starts the run again, and it resumes from its checkpoint. Settings are in
conf/hydra/launcher/ray.yaml; docs/scaling.md says how to use it. Ray is imported at launch.
"""

import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, configure_log, filter_overrides, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from latticework.experiments.runs import configuration
from latticework.experiments.runs.errors import ConfigurationError

log = logging.getLogger(__name__)


class RayLauncher(Launcher):
    """Runs the sweep on the cluster that `init`, the arguments of `ray.init`, describes.

    A run reserves `num_cpus` and `num_gpus`. Ray starts it again up to `max_retries` times if its
    process dies. A cluster of this machine is started and stopped if `init.address` is null.
    """

    __module__ = "hydra_plugins"

    def __init__(
        self, init: DictConfig, num_cpus: float = 1, num_gpus: float = 0, max_retries: int = 3
    ) -> None:
        self.init: Any = OmegaConf.to_container(init)
        self.wanted = {"num_cpus": num_cpus, "num_gpus": num_gpus, "max_retries": max_retries}
        self.shared: tuple[DictConfig, HydraContext, TaskFunction] | None = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.shared = config, hydra_context, task_function

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run the jobs. Raises ConfigurationError without Ray, RuntimeError if a run was lost."""
        try:
            import ray
        except ImportError as error:
            raise ConfigurationError(
                "hydra/launcher=ray needs Ray: pip install -e '.[ray]' -c constraints.txt"
            ) from error
        assert self.shared is not None
        setup_globals()
        config = self.shared[0]
        configure_log(config.hydra.hydra_logging, config.hydra.verbose)
        Path(str(config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
        ours = not ray.is_initialized()
        if ours:
            ray.init(**{key: value for key, value in self.init.items() if value is not None})
        try:
            execute = ray.remote(**self.wanted)(_execute_on_cluster)
            shared = ray.put((*self.shared, Singleton.get_state()))
            tasks = [
                execute.remote(shared, list(overrides), number)
                for number, overrides in enumerate(job_overrides, start=initial_job_idx)
            ]
            results: list[JobReturn] = []
            lost = []
            for task, overrides in zip(tasks, job_overrides, strict=True):
                try:
                    results.append(ray.get(task))
                except ray.exceptions.RayError as error:
                    log.error("lost: %s: %s", " ".join(filter_overrides(overrides)), error)
                    lost.append(overrides)
        finally:
            if ours:
                ray.shutdown()
        if lost:
            raise RuntimeError(
                f"{len(lost)} of {len(tasks)} runs were lost, because their processes died more "
                f"than {self.wanted['max_retries']} times; the same command resumes them"
            )
        return results


def _execute_on_cluster(shared: tuple[Any, ...], overrides: list[str], number: int) -> JobReturn:
    """One run, in a process of the cluster; as in Hydra's own launchers."""
    config, context, task_function, state = shared
    configuration.register()
    setup_globals()
    Singleton.set_state(state)
    run_config = context.config_loader.load_sweep_config(config, overrides)
    with open_dict(run_config):
        run_config.hydra.job.id, run_config.hydra.job.num = (
            f"{run_config.hydra.job.name}_{number}",
            number,
        )
    HydraConfig.instance().set_config(run_config)
    return run_job(
        hydra_context=context,
        config=run_config,
        task_function=task_function,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )


def register() -> None:
    """Register the launcher with Hydra, which imports plugins by name from `hydra_plugins` only.

    Installed plugins share that package. Where there is none, an empty module stands for it. A
    sweep that chooses the launcher registers it at its start (experiments/callback.py).
    """
    Plugins.instance().register(RayLauncher)
    try:
        package = import_module("hydra_plugins")
    except ImportError:
        package = sys.modules["hydra_plugins"] = ModuleType("hydra_plugins")
    setattr(package, RayLauncher.__name__, RayLauncher)
