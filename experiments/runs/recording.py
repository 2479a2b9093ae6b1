"""Execute one run and write its record, safely with respect to crashes and concurrent processes.

A record is a folder. `metrics.csv` grows during the run. `run.json` is written last: it marks the
run as finished and holds the checksum of every other file. `error.txt` holds the traceback of a
failed run. `checkpoints/` is removed when the run has finished. The running process holds `.lock`,
a lock of the operating system that is released when the process ends. `.holder` names that process,
and `.crash` says how it died if a signal killed it (experiments/runs/signals.py).
"""

import atexit
import glob
import json
import logging
import os
import shutil
import socket
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig

from latticework.experiments.records.identity import LOCK, find, run_name, same, without_digits
from latticework.experiments.records.numbers import headline
from latticework.experiments.records.record import checksums, damage, load
from latticework.experiments.runs import storage
from latticework.experiments.runs.configuration import checked, resolved
from latticework.experiments.runs.errors import summary, wants_traceback
from latticework.experiments.runs.loggers import About, tried
from latticework.experiments.runs.machine import edited, facts, inputs, peak_memory, replaced
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.signals import crash_noted, death, stoppable
from latticework.sampling.devices import find_device

log = logging.getLogger(__name__)
HOLDER = ".holder"
Prepare = Callable[[DictConfig, Run], Callable[[], None]]  # builds the parts of a run


class Outcome(NamedTuple):
    """How a run ended, and the folder of its record."""

    path: Path
    how: Literal["finished", "finished before", "failed", "skipped"]


def record(cfg: DictConfig, prepare: Prepare) -> Outcome:
    """Execute what `prepare` returns, and write its record to the folder named by Hydra.

    An existing record of the same resolved configuration is found however it was spelled
    (`experiments.records.identity`). What happens depends on that record:

    - Finished: it is kept. `force=true` runs it again.
    - Damaged, or of a file that was replaced since (`experiments.runs.machine.inputs`): it is
      moved to `outputs/superseded`, and the run starts from the beginning.
    - Unfinished: it resumes from its checkpoint, or starts from the beginning without one.
      Checkpoints that do not fit are moved to `outputs/superseded` too; only those of another kind
      of device are refused, unless `force=true` is given.
    - In use by another process: this process waits; in a sweep, it skips the run.

    A finished record is moved only after data, model, sampler and task have been built. If a run
    fails, `error.txt` holds its traceback and the sweep continues. The callback at the end of the
    sweep reports the failures.
    """
    asked = Path(HydraConfig.get().runtime.output_dir)
    try:
        # A single run was checked before Hydra made its folder (experiments/finish.py).
        # In a sweep each run is checked here, so that a mistake in one does not stop the others.
        config = resolved(cfg) if HydraConfig.get().mode == RunMode.RUN else checked(cfg)
        path = _claimed(asked, config)
    except Exception as error:  # noqa: BLE001 - whatever a run raises belongs in its record
        return _fail(asked, error)
    with stoppable(), _held(path) as ours:
        return _record(cfg, config, path, prepare) if ours else Outcome(path, "skipped")


def _claimed(asked: Path, config: dict[str, Any]) -> Path:
    """The folder for the record of `config`: an existing folder of that identity, or `asked`.

    A lock makes the search and the claim atomic, so that concurrent processes agree. Records of the
    same experiment and overrides with another configuration are moved away: a default has changed
    since.
    """
    parent, hydra = asked.parent, HydraConfig.get()
    experiment = hydra.runtime.choices.get("experiment")
    with FileLock(parent / LOCK):
        path = find(parent, config) or asked
        (path / LOCK).open("a").close()  # it has begun; its time of writing stays
        if path != asked:
            _remove_if_unused(asked)
        own = run_name(hydra.overrides.task, hydra.job.config.override_dirname.exclude_keys)
        for file in sorted(parent.glob(f"{glob.escape(own)}*/run.json")):
            if file.parent == path or without_digits(file.parent.name) != own:
                continue
            if _experiment_of(file) == experiment:
                with FileLock(file.parent / LOCK):
                    storage.set_aside(file.parent, _outputs(config))
    return path


def _experiment_of(record: Path) -> str | None:
    """The experiment of a run.json; None without one, or if the file is damaged."""
    try:
        return json.loads(record.read_text())["choices"].get("experiment")
    except (ValueError, KeyError):
        return None


def _outputs(config: dict[str, Any]) -> Path:
    """The outputs folder, spelled as in the folder that Hydra made: links are not resolved."""
    return Path(os.path.abspath(config["outputs"]))  # noqa: PTH100 - Path.resolve follows links


def _remove_if_unused(folder: Path) -> None:
    """Delete a folder that holds only the files that Hydra writes at the start of a run."""
    if all(path.name == ".hydra" or path.suffix == ".log" for path in folder.iterdir()):
        shutil.rmtree(folder, ignore_errors=True)


def _record(cfg: DictConfig, config: dict[str, Any], path: Path, prepare: Prepare) -> Outcome:
    try:
        (path / "error.txt").unlink(missing_ok=True)
        if (path / "run.json").exists():
            if fault := damage(path):
                log.warning("the record %s is damaged: %s; running it again", path, fault)
            elif not cfg.force and _holds(path, config, cfg):
                return Outcome(path, "finished before")
        _execute(cfg, config, path, prepare)
        return Outcome(path, "finished")
    except Exception as error:  # noqa: BLE001 - whatever a run raises belongs in its record
        return _fail(path, error)


def _holds(path: Path, config: dict[str, Any], cfg: DictConfig) -> bool:
    """Whether the finished record in `path` is that of `config`, with the inputs as they are."""
    earlier = json.loads((path / "run.json").read_text())
    if not same(earlier, config):
        return False
    if names := replaced(earlier, config):
        log.info("%s has changed since this run; running it again", names)
        return False
    if _replaceable(earlier, cfg):
        return False
    if HydraConfig.get().mode == RunMode.RUN:  # `Finish` tells of the runs of a sweep
        log.info("already finished: %s (force=true runs it again)", path)
    if names := edited(earlier, config):
        log.warning("the code of %s has changed since this run", names)
    return True


def _replaceable(earlier: dict[str, Any], cfg: DictConfig) -> bool:
    """Whether the record used a substitute for data or a model that are available now."""
    return _data_arrived(earlier, cfg) or _language_model_arrived(earlier, cfg)


def _data_arrived(earlier: dict[str, Any], cfg: DictConfig) -> bool:
    if not (earlier.get("data") or {}).get("substitute") or not cfg.data:
        return False
    try:
        found = instantiate(cfg.data, download=False).load()
    except FileNotFoundError:
        return False
    if found.substitute:
        log.warning("this record has SUBSTITUTE DATA: %s", earlier["data"]["variant"])
        return False
    log.info("the data that this run asked for have arrived; running it again")
    return True


def _language_model_arrived(earlier: dict[str, Any], cfg: DictConfig) -> bool:
    language = earlier.get("language") or {}
    if not language.get("substitute"):
        return False
    try:
        instantiate(cfg.model.language, download=False, strict=True, _partial_=True)()
    except OSError:
        log.warning("this record has a SUBSTITUTE MODEL: %(used)s in place of %(asked)s", language)
        return False
    log.info("%s, for which this run asked, has arrived; running it again", language["asked"])
    return True


@contextmanager
def _held(path: Path) -> Iterator[bool]:
    """Hold the record's lock inside the block; yield whether it was acquired.

    If another process holds the lock, wait for it; in a sweep, yield False at once. The operating
    system releases the lock when the process dies.
    """
    lock, holder = FileLock(path / LOCK), path / HOLDER

    def let_go() -> None:
        holder.unlink(missing_ok=True)

    try:
        lock.acquire(blocking=False)
    except Timeout:
        who = holder.read_text() if holder.exists() else "another process"
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            log.warning("skipped, %s is running it: %s", who, path)
            yield False
            return
        log.warning("waiting for %s, which is running it: %s", who, path)
        lock.acquire()
    try:
        if holder.exists():  # its process would have removed it
            log.warning("%s ran this before and %s", holder.read_text(), death(path))
        holder.write_text(f"process {os.getpid()} on {socket.gethostname()}")
        atexit.register(let_go)  # C code may end the process (experiments/runs/signals.py)
        with crash_noted(path):
            yield True
    finally:
        let_go()
        atexit.unregister(let_go)
        lock.release()


def _fail(path: Path, error: Exception) -> Outcome:
    """Write the traceback of `error` to error.txt. Exits if that cannot be written."""
    cause, trace = summary(error), traceback.format_exc()
    try:
        (path / "error.txt").write_text(f"{cause}\n\n{trace}")
    except OSError as unwritable:
        raise SystemExit(
            f"failed: {path}: {cause}; error.txt could not be written either: {unwritable}"
        ) from error
    if wants_traceback():
        log.error(trace)
    return Outcome(path, "failed")


def _execute(cfg: DictConfig, config: dict[str, Any], path: Path, prepare: Prepare) -> None:
    if cfg.threads != "auto":
        torch.set_num_threads(cfg.threads)
    run = Run(
        path,
        device=find_device(cfg.device),
        seed=cfg.seed,
        model_seed=cfg.model_seed,
        outputs=_outputs(config),
        loggers=[instantiate(logger) for logger in (cfg.logger or {}).values()],
        config=config,
        checkpoint=cfg.checkpoint,
        engine=cfg.engine,
    )
    perform = prepare(cfg, run)
    if (path / "run.json").exists():  # it is to be replaced
        storage.set_aside(path, run.outputs)
    run.take_up(config, force=cfg.force)
    if read := inputs(config):
        run.note(inputs=read)
    hydra = HydraConfig.get()
    choices = {k: v for k, v in hydra.runtime.choices.items() if not k.startswith("hydra")}
    step = run.latest().get("step")
    for logger in run.loggers:
        logger.start(About(path, config, choices, None if step is None else int(step)))
    try:
        perform()
        document = {
            "config": config,
            "choices": choices,
            "overrides": list(hydra.overrides.task),
            "seconds": run.seconds,
            "peak_memory_bytes": peak_memory(run.device),
            **facts(run.device, config),
            **run.notes,
            "files": checksums(path),
        }
        storage.write(path / "run.json", json.dumps(document, indent=2))
        run.checkpoints.remove()
        for logger in run.loggers:
            missed = "the run is finished, but its tracker did not get the results"
            tried(missed, lambda logger=logger: logger.result(headline(load(path))))
    finally:
        for logger in run.loggers:
            tried("a tracker could not end", logger.finish)
