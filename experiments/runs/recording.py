"""Execute one run and write its record, safely with respect to crashes and concurrent processes.

A record is a folder. `metrics.csv` grows during the run. `run.json` is written last: it marks the
run as finished and holds the checksum of every other file. `error.txt` holds the traceback of a
failed run. `checkpoints/` is removed when the run has finished. The running process holds `.lock`,
a lock of the operating system that is released when the process ends; `.holder` names the process.
"""

import atexit
import json
import logging
import os
import shutil
import socket
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from latticework.experiments.records import estimates, files, identity
from latticework.experiments.records.record import Record, checksums, describe_damage, load_record
from latticework.experiments.runs import configuration, environment, errors, loggers, storage
from latticework.experiments.runs.outcomes import Outcome
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.signals import stop_on_signals
from latticework.experiments.runs.validation import validate_config
from latticework.sampling.devices import find_device

log = logging.getLogger(__name__)
HOLDER_FILE = ".holder"
TRACKERS_FILE = ".trackers"  # names those that have a finished record, if some came later
Prepare = Callable[[DictConfig, Run], Callable[[], None]]  # builds the parts of a run


def run_and_record(cfg: DictConfig, prepare: Prepare) -> Outcome:
    """Execute what `prepare` returns, and write its record to the folder named by Hydra.

    An existing record of the same resolved configuration is found however it was spelled
    (`experiments.records.identity`). What happens depends on that record:

    - Finished: it is kept. `force=true` runs it again.
    - Damaged, or of a file that was replaced since (`environment.input_checksums`): it is moved to
      `outputs/superseded`, and the run starts from the beginning.
    - Unfinished: it resumes from its checkpoint, or starts from the beginning without one.
      Checkpoints that do not fit are moved to `outputs/superseded` too; only those of another kind
      of device are refused, unless `force=true` is given.
    - In use by another process: this process waits; in a sweep, it skips the run.

    A finished record is moved only after data, model, sampler and task have been built. If a run
    fails, `error.txt` holds its traceback and the sweep continues. The callback at the end of the
    sweep reports the failures.
    """
    hydra = HydraConfig.get()
    in_sweep = hydra.mode == RunMode.MULTIRUN
    path = Path(hydra.runtime.output_dir)
    _mask_files(path)
    try:
        # A single run was checked before Hydra made its folder (experiments/callback.py).
        # In a sweep each run is checked here, so that a mistake in one does not stop the others.
        config = validate_config(cfg) if in_sweep else configuration.resolve_config(cfg)
        path = _claim_folder(path, config)
    except Exception as error:  # noqa: BLE001 - whatever a run raises belongs in its record
        return _fail(path, error)
    with stop_on_signals(), _lock_record(path, wait=not in_sweep) as is_locked:
        if not is_locked:
            return Outcome(path, "skipped")
        try:
            (path / "error.txt").unlink(missing_ok=True)
            if _keeps_record(path, cfg, config):
                _log_to_added_trackers(cfg, path)
                return Outcome(path, "finished before")
            with _name_holder(path):
                _execute(cfg, config, path, prepare)
            return Outcome(path, "finished")
        except Exception as error:  # noqa: BLE001 - whatever a run raises belongs in its record
            return _fail(path, error)


def _keeps_record(path: Path, cfg: DictConfig, config: dict[str, Any]) -> bool:
    """Return whether the run is finished: the record in `path` is whole, and it is this run's.

    The reason is logged if a record is there and the run is made again.
    """
    if not (path / "run.json").exists():
        return False
    if fault := describe_damage(path):
        log.warning("the record %s is damaged: %s; running it again", path, fault)
        return False
    if cfg.force:
        return False
    record = files.read_json(path / "run.json")
    if not _is_same_run(record, cfg, config):
        return False
    if names := environment.changed_inputs(record, config):
        log.info("%s has changed since this run; running it again", names)
        return False
    if names := environment.changed_modules(record, config):
        log.warning("the code of %s has changed since this run", names)
    if substitute := _describe_substitute(record):
        log.warning("this record has a %s; force=true runs it again", substitute)
    if HydraConfig.get().mode == RunMode.RUN:  # a sweep has a line for each run
        log.info("already finished: %s (force=true runs it again)", path)
    # A process that was killed between run.json and its end has left checkpoints.
    shutil.rmtree(path / "checkpoints", ignore_errors=True)
    return True


def _is_same_run(record: dict[str, Any], cfg: DictConfig, config: dict[str, Any]) -> bool:
    """Return whether the record (run.json) is of the run `cfg`, which `config` resolves.

    A record shows texts of environment variables as they are written, and then holds the digest of
    the settings with their values. For a run on substitute data, what was written is compared: it
    matters in which folders data are looked for.
    """
    if identity.has_same_identity(record, config):
        return True
    if (record.get("data") or {}).get("substitute"):
        return identity.has_same_identity(record, configuration.storable(cfg, config))
    for key in identity.SEEDS:
        if record["config"].get(key) != config.get(key):
            return False
    settings = record.get("settings_digest") or identity.digest(record["config"], seeds=False)
    return settings == identity.digest(config, seeds=False)


def _describe_substitute(record: dict[str, Any]) -> str:
    """Say which data or which language model a record has in place of those it asked for."""
    data, language = record.get("data") or {}, record.get("language") or {}
    if data.get("substitute"):
        return f"SUBSTITUTE of its data: {data['variant']}"
    if language.get("substitute"):
        return f"SUBSTITUTE MODEL: {language['used']} in place of {language['asked']}"
    return ""


def _mask_files(folder: Path) -> None:
    """Mask the passwords in what Hydra has written of a run's configuration."""
    for file in (*folder.glob(".hydra/*.yaml"), folder.parent / "multirun.yaml"):
        try:
            text = files.read_file(file).decode()
        except FileNotFoundError:  # a single run has no multirun.yaml
            continue
        if (masked := identity.mask_passwords(text)) != text:
            storage.write_atomically(file, masked)


def _claim_folder(asked: Path, config: dict[str, Any]) -> Path:
    """Return the folder for the record of `config`: an existing one of that identity, or `asked`.

    A lock makes the search and the claim atomic, so that concurrent processes agree.
    """
    hydra = HydraConfig.get()
    words = configuration.command_words(hydra)
    name = identity.run_name(words, hydra.job.config.override_dirname.exclude_keys)
    if identity.strip_digest(asked.name) == name and (asked / "run.json").exists():
        return asked  # it was claimed under this name: other names need not be read
    parent = asked.parent
    with FileLock(parent / identity.LOCK):
        names = identity.list_names(parent)
        path = identity.find_run_folder(parent, config, names) or asked
        (path / identity.LOCK).open("a").close()  # it has begun; its time of writing stays
        if path != asked:
            _remove_if_unused(asked)
        if not any("${oc.env:" in word for word in words):  # with which the same words may differ
            former = _with_other_digits(names, name, path.name)
            _set_aside_former_settings([parent / folder for folder in former], config)
    return path


def _with_other_digits(folders: Sequence[str], name: str, claimed: str) -> list[str]:
    """Return the folders of the overrides `name`, except the one that is claimed, in order."""
    length = len(name) + 1 + identity.DIGEST_CHARACTERS
    matching = []
    for folder in folders:
        if folder.startswith(f"{name}-") and len(folder) == length and folder != claimed:
            matching.append(folder)
    return sorted(matching)


def _set_aside_former_settings(folders: Sequence[Path], config: dict[str, Any]) -> None:
    """Move away the records in `folders` of the running experiment: a default has changed since."""
    experiment = HydraConfig.get().runtime.choices.get("experiment")
    for folder in folders:
        file = folder / "run.json"
        if not file.exists() or _experiment_of(file) != experiment:
            continue
        try:
            with FileLock(folder / identity.LOCK):
                storage.set_aside(folder, _outputs(config))
        except OSError as error:  # another user's record does not stop this run
            log.warning("%s has other settings and stays: %s", folder, error)


def _experiment_of(record: Path) -> str | None:
    """The experiment of a run.json; None without one, or if the file is damaged."""
    try:
        return files.read_json(record)["choices"].get("experiment")
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _outputs(config: dict[str, Any]) -> Path:
    """The outputs folder, spelled as in the folder that Hydra made: links are not resolved."""
    return Path(os.path.abspath(Path(config["outputs"]).expanduser()))  # noqa: PTH100 - Path.resolve follows links


def _remove_if_unused(folder: Path) -> None:
    """Delete a folder that holds only the files that Hydra writes at the start of a run."""
    if all(path.name == ".hydra" or path.suffix == ".log" for path in folder.iterdir()):
        shutil.rmtree(folder, ignore_errors=True)


def _log_to_added_trackers(cfg: DictConfig, path: Path) -> None:
    """Give a finished record to the trackers of `cfg` that did not have it."""
    record, noted = load_record(path), path / TRACKERS_FILE
    known = files.read_json(noted) if noted.exists() else list(record.config.get("logger") or ())
    added = [name for name in cfg.get("logger") or () if name not in known]
    for name in added:
        log.info("%s is given the readings of the record", name)
        logger = loggers.build_logger(cfg.logger[name])
        loggers.call_tracker(f"{name} did not get the record", _log_record, logger, record)
        loggers.call_tracker("a tracker could not end", logger.finish)
    if added:
        storage.write_atomically(noted, json.dumps([*known, *added]))


def _log_headline(logger: loggers.Logger, path: Path) -> None:
    logger.log_headline(estimates.headline(load_record(path)))


def _log_record(logger: loggers.Logger, record: Record) -> None:
    assert isinstance(record.path, Path)
    logger.start(loggers.RunInfo(record.path, record.config, record.choices))
    rows = record.metrics.to_dict("records") if estimates.metric_columns(record) else []
    for row in rows:
        values = {str(name): float(value) for name, value in row.items() if name != "step"}
        logger.log(int(row["step"]), values)
    logger.log_headline(estimates.headline(record))


@contextmanager
def _lock_record(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the record's lock inside the block; yield whether it was acquired.

    If another process holds the lock, wait for it, or yield False at once. The operating system
    releases the lock when the process dies.
    """
    lock, holder = FileLock(path / identity.LOCK), path / HOLDER_FILE
    try:
        lock.acquire(blocking=False)
    except Timeout:
        who = files.read_file(holder).decode() if holder.exists() else "another process"
        if not wait:
            log.warning("skipped, %s is running it: %s", who, path)
            yield False
            return
        log.warning("waiting for %s, which is running it: %s", who, path)
        lock.acquire()
    try:
        yield True
    finally:
        lock.release()


@contextmanager
def _name_holder(path: Path) -> Iterator[None]:
    """Name this process inside the block, for others that wait for the record."""
    holder = path / HOLDER_FILE

    def remove() -> None:
        holder.unlink(missing_ok=True)

    storage.write_atomically(holder, f"process {os.getpid()} on {socket.gethostname()}")
    atexit.register(remove)  # C code may end the process (experiments/runs/signals.py)
    try:
        yield
    finally:
        remove()
        atexit.unregister(remove)


def _hidden_settings(config: dict[str, Any], shown: dict[str, Any]) -> dict[str, str]:
    """The digest of the settings of `config`, if those that are `shown` have another one."""
    mine = identity.digest(config, seeds=False)
    return {} if mine == identity.digest(shown, seeds=False) else {"settings_digest": mine}


def _fail(path: Path, error: Exception) -> Outcome:
    """Write the traceback of `error` to error.txt. Exits if that cannot be written."""
    cause, trace = errors.describe_error(error), identity.mask_passwords(traceback.format_exc())
    try:
        storage.write_atomically(path / "error.txt", f"{cause}\n\n{trace}")
    except OSError as unwritable:
        raise SystemExit(
            f"failed: {path}: {cause}; error.txt could not be written either: {unwritable}"
        ) from error
    if errors.wants_traceback():
        log.error(trace)
    return Outcome(path, "failed", cause)


def _execute(cfg: DictConfig, config: dict[str, Any], path: Path, prepare: Prepare) -> None:
    """Execute the run `cfg`, which `config` resolves, and write its record to `path`."""
    shown = configuration.storable(cfg, config)
    if cfg.threads != "auto":
        torch.set_num_threads(cfg.threads)
    run = Run(
        path,
        device=find_device(cfg.device),
        seed=cfg.seed,
        model_seed=cfg.model_seed,
        outputs=_outputs(config),
        loggers=[loggers.build_logger(logger) for logger in (cfg.logger or {}).values()],
        config=shown,
        checkpoint=cfg.checkpoint,
        engine=cfg.engine,
    )
    perform = prepare(cfg, run)
    if (path / "run.json").exists():  # it is to be replaced
        storage.set_aside(path, run.outputs)
    (path / TRACKERS_FILE).unlink(missing_ok=True)  # those that had the former record
    run.load_checkpoints(config, force=cfg.force)
    if inputs := environment.input_checksums(config):
        run.note(inputs=inputs)
    hydra = HydraConfig.get()
    choices = {k: v for k, v in hydra.runtime.choices.items() if not k.startswith("hydra")}
    step = run.latest().get("step")
    for logger in run.loggers:
        logger.start(loggers.RunInfo(path, shown, choices, None if step is None else int(step)))
    try:
        perform()
        document = {
            "config": shown,
            "choices": choices,
            "overrides": configuration.command_words(hydra),
            "seconds": run.seconds,
            "peak_memory_bytes": environment.peak_memory(run.device),
            **environment.environment_facts(run.device, config),
            **run.notes,
            **_hidden_settings(config, shown),
            "files": checksums(path),
        }
        storage.write_atomically(path / "run.json", json.dumps(document, indent=2))
        run.checkpoints.remove()
        for logger in run.loggers:
            missed = "the run is finished, but its tracker did not get the results"
            loggers.call_tracker(
                missed,
                lambda logger=logger: logger.log_headline(estimates.headline(load_record(path))),
            )
    finally:
        for logger in run.loggers:
            loggers.call_tracker("a tracker could not end", logger.finish)
