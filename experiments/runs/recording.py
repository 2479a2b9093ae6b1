"""Execute one run and write its record, safely with respect to crashes and concurrent processes.

A record is a folder. `metrics.csv` grows during the run. `run.json` is written last: it marks the
run as finished and holds the checksum of every other file. `error.txt` holds the traceback of a
failed run. `checkpoints/` is removed when the run has finished. The running process holds `.lock`,
a lock of the operating system that is released when the process ends. `.holder` names that process,
and `.crash` says how it died if a signal killed it (experiments/runs/signals.py).
"""

import atexit
import json
import logging
import os
import shutil
import socket
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig

from latticework.experiments.records.estimates import columns, headline
from latticework.experiments.records.files import read_file, read_json
from latticework.experiments.records.identity import (
    LOCK,
    SEEDS,
    digest,
    find_run_folder,
    has_same_identity,
    list_names,
    mask_passwords,
    run_name,
    strip_digest,
)
from latticework.experiments.records.record import Record, checksums, describe_damage, load_record
from latticework.experiments.runs import storage
from latticework.experiments.runs.configuration import (
    command_words,
    resolve_config,
    storable,
    validate_config,
)
from latticework.experiments.runs.environment import (
    changed_inputs,
    changed_modules,
    environment_facts,
    input_checksums,
    peak_memory,
)
from latticework.experiments.runs.errors import describe_error, wants_traceback
from latticework.experiments.runs.loggers import Logger, RunInfo, build_logger, call_tracker
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.signals import explain_crash, stop_on_signals, write_crash_note
from latticework.experiments.runs.sweeps import Outcome
from latticework.sampling.devices import find_device

log = logging.getLogger(__name__)
HOLDER_FILE = ".holder"
TRACKERS = ".trackers"  # names those that have a finished record, if some came later
Prepare = Callable[[DictConfig, Run], Callable[[], None]]  # builds the parts of a run


def run_and_record(cfg: DictConfig, prepare: Prepare) -> Outcome:
    """Execute what `prepare` returns, and write its record to the folder named by Hydra.

    An existing record of the same resolved configuration is found however it was spelled
    (`experiments.records.identity`). What happens depends on that record:

    - Finished: it is kept. `force=true` runs it again.
    - Damaged, or of a file that was replaced since (`experiments.runs.environment.inputs`): it is
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
    _mask_files(asked)
    try:
        # A single run was checked before Hydra made its folder (experiments/callback.py).
        # In a sweep each run is checked here, so that a mistake in one does not stop the others.
        config = (
            resolve_config(cfg) if HydraConfig.get().mode == RunMode.RUN else validate_config(cfg)
        )
        path = _claim_folder(asked, config)
        shown = storable(cfg, config)
    except Exception as error:  # noqa: BLE001 - whatever a run raises belongs in its record
        return _fail(asked, error)
    with stop_on_signals(), _lock_record(path) as ours:
        return _record(cfg, config, shown, path, prepare) if ours else Outcome(path, "skipped")


def _mask_files(folder: Path) -> None:
    """Mask the passwords in what Hydra has written of a run's configuration."""
    for file in (*folder.glob(".hydra/*.yaml"), folder.parent / "multirun.yaml"):
        try:
            text = read_file(file).decode()
            if (masked := mask_passwords(text)) != text:
                storage.write_atomically(file, masked)
        except FileNotFoundError:  # a run of its own has no multirun.yaml
            continue


def _claim_folder(asked: Path, config: dict[str, Any]) -> Path:
    """The folder for the record of `config`: an existing folder of that identity, or `asked`.

    A lock makes the search and the claim atomic, so that concurrent processes agree. Records of the
    same experiment and overrides with another configuration are moved away: a default has changed
    since.
    """
    parent, hydra = asked.parent, HydraConfig.get()
    experiment = hydra.runtime.choices.get("experiment")
    with FileLock(parent / LOCK):
        path = find_run_folder(parent, config) or asked
        (path / LOCK).open("a").close()  # it has begun; its time of writing stays
        if path != asked:
            _remove_if_unused(asked)
        words = command_words(hydra)
        own = run_name(words, hydra.job.config.override_dirname.exclude_keys)
        has_variables = any("${oc.env:" in word for word in words)  # the same words, other settings
        for name in () if has_variables else sorted(list_names(parent)):
            file = parent / name / "run.json"
            if name == path.name or strip_digest(name) != own or not file.exists():
                continue
            if _experiment_of(file) == experiment:
                try:
                    with FileLock(file.parent / LOCK):
                        storage.set_aside(file.parent, _outputs(config))
                except OSError as error:  # another user's record does not stop this run
                    log.warning("%s has other settings and stays: %s", file.parent, error)
    return path


def _experiment_of(record: Path) -> str | None:
    """The experiment of a run.json; None without one, or if the file is damaged."""
    try:
        return read_json(record)["choices"].get("experiment")
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _outputs(config: dict[str, Any]) -> Path:
    """The outputs folder, spelled as in the folder that Hydra made: links are not resolved."""
    return Path(os.path.abspath(Path(config["outputs"]).expanduser()))  # noqa: PTH100 - Path.resolve follows links


def _remove_if_unused(folder: Path) -> None:
    """Delete a folder that holds only the files that Hydra writes at the start of a run."""
    if all(path.name == ".hydra" or path.suffix == ".log" for path in folder.iterdir()):
        shutil.rmtree(folder, ignore_errors=True)


def _record(
    cfg: DictConfig, config: dict[str, Any], shown: dict[str, Any], path: Path, prepare: Prepare
) -> Outcome:
    try:
        (path / "error.txt").unlink(missing_ok=True)
        if (path / "run.json").exists():
            if fault := describe_damage(path):
                log.warning("the record %s is damaged: %s; running it again", path, fault)
            elif not cfg.force and _can_skip(path, config, shown, cfg):
                _log_to_added_trackers(cfg, path)
                return Outcome(path, "finished before")
        _execute(cfg, config, shown, path, prepare)
        return Outcome(path, "finished")
    except Exception as error:  # noqa: BLE001 - whatever a run raises belongs in its record
        return _fail(path, error)


def _log_to_added_trackers(cfg: DictConfig, path: Path) -> None:
    """Give a finished record to the trackers of `cfg` that did not have it."""
    record, noted = load_record(path), path / TRACKERS
    known = read_json(noted) if noted.exists() else list(record.config.get("logger") or ())
    added = [name for name in cfg.get("logger") or () if name not in known]
    for name in added:
        log.info("%s is given the readings of the record", name)
        logger = build_logger(cfg.logger[name])
        call_tracker(f"{name} did not get the record", _log_record, logger, record)
        call_tracker("a tracker could not end", logger.finish)
    if added:
        storage.write_atomically(noted, json.dumps([*known, *added]))


def _log_results(logger: Logger, path: Path) -> None:
    logger.log_headline(headline(load_record(path)))


def _log_record(logger: Logger, record: Record) -> None:
    assert isinstance(record.path, Path)
    logger.start(RunInfo(record.path, record.config, record.choices))
    rows = record.metrics.to_dict("records") if columns(record) else []
    for row in rows:
        values = {str(name): float(value) for name, value in row.items() if name != "step"}
        logger.log(int(row["step"]), values)
    logger.log_headline(headline(record))


def _can_skip(path: Path, config: dict[str, Any], shown: dict[str, Any], cfg: DictConfig) -> bool:
    """Whether the finished record in `path` is that of `config`, with the inputs as they are.

    Records hold configurations as `shown`.
    """
    earlier = read_json(path / "run.json")
    if not (has_same_identity(earlier, shown) or _has_hidden_settings(earlier, config)):
        return False
    if names := changed_inputs(earlier, config):
        log.info("%s has changed since this run; running it again", names)
        return False
    if _substitute_is_outdated(earlier, cfg):
        return False
    if HydraConfig.get().mode == RunMode.RUN:  # `Finish` tells of the runs of a sweep
        log.info("already finished: %s (force=true runs it again)", path)
    if names := changed_modules(earlier, config):
        log.warning("the code of %s has changed since this run", names)
    shutil.rmtree(path / "checkpoints", ignore_errors=True)  # of a process killed right at its end
    return True


def _substitute_is_outdated(earlier: dict[str, Any], cfg: DictConfig) -> bool:
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
def _lock_record(path: Path) -> Iterator[bool]:
    """Hold the record's lock inside the block; yield whether it was acquired.

    If another process holds the lock, wait for it; in a sweep, yield False at once. The operating
    system releases the lock when the process dies.
    """
    lock, holder = FileLock(path / LOCK), path / HOLDER_FILE

    def let_go() -> None:
        holder.unlink(missing_ok=True)

    try:
        lock.acquire(blocking=False)
    except Timeout:
        who = read_file(holder).decode() if holder.exists() else "another process"
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            log.warning("skipped, %s is running it: %s", who, path)
            yield False
            return
        log.warning("waiting for %s, which is running it: %s", who, path)
        lock.acquire()
    try:
        if holder.exists():  # its process would have removed it
            log.warning(
                "%s ran this before and %s", read_file(holder).decode(), explain_crash(path)
            )
        storage.write_atomically(holder, f"process {os.getpid()} on {socket.gethostname()}")
        atexit.register(let_go)  # C code may end the process (experiments/runs/signals.py)
        with write_crash_note(path):
            yield True
    finally:
        let_go()
        atexit.unregister(let_go)
        lock.release()


def _has_hidden_settings(earlier: dict[str, Any], config: dict[str, Any]) -> bool:
    """Whether a record that shows a secret in another way was made with the settings of `config`.

    Not of substitute data, for which it matters where data are looked for (`identity.same`).
    """
    if (earlier.get("data") or {}).get("substitute"):
        return False
    its = earlier.get("settings_digest") or digest(earlier["config"], seeds=False)
    seeds = [[each.get(key) for key in SEEDS] for each in (earlier["config"], config)]
    return seeds[0] == seeds[1] and its == digest(config, seeds=False)


def _hidden_settings(config: dict[str, Any], shown: dict[str, Any]) -> dict[str, str]:
    """The digest of the settings of `config`, if those that are `shown` have another one."""
    mine = digest(config, seeds=False)
    return {} if mine == digest(shown, seeds=False) else {"settings_digest": mine}


def _fail(path: Path, error: Exception) -> Outcome:
    """Write the traceback of `error` to error.txt. Exits if that cannot be written."""
    cause, trace = describe_error(error), mask_passwords(traceback.format_exc())
    try:
        storage.write_atomically(path / "error.txt", f"{cause}\n\n{trace}")
    except OSError as unwritable:
        raise SystemExit(
            f"failed: {path}: {cause}; error.txt could not be written either: {unwritable}"
        ) from error
    if wants_traceback():
        log.error(trace)
    return Outcome(path, "failed", cause)


def _execute(
    cfg: DictConfig, config: dict[str, Any], shown: dict[str, Any], path: Path, prepare: Prepare
) -> None:
    if cfg.threads != "auto":
        torch.set_num_threads(cfg.threads)
    run = Run(
        path,
        device=find_device(cfg.device),
        seed=cfg.seed,
        model_seed=cfg.model_seed,
        outputs=_outputs(config),
        loggers=[build_logger(logger) for logger in (cfg.logger or {}).values()],
        config=shown,
        checkpoint=cfg.checkpoint,
        engine=cfg.engine,
    )
    perform = prepare(cfg, run)
    if (path / "run.json").exists():  # it is to be replaced
        storage.set_aside(path, run.outputs)
    (path / TRACKERS).unlink(missing_ok=True)  # of the record before
    run.load_checkpoints(config, force=cfg.force)
    if read := input_checksums(config):
        run.note(inputs=read)
    hydra = HydraConfig.get()
    choices = {k: v for k, v in hydra.runtime.choices.items() if not k.startswith("hydra")}
    step = run.latest().get("step")
    for logger in run.loggers:
        logger.start(RunInfo(path, shown, choices, None if step is None else int(step)))
    try:
        perform()
        document = {
            "config": shown,
            "choices": choices,
            "overrides": command_words(hydra),
            "seconds": run.seconds,
            "peak_memory_bytes": peak_memory(run.device),
            **environment_facts(run.device, config),
            **run.notes,
            **_hidden_settings(config, shown),
            "files": checksums(path),
        }
        storage.write_atomically(path / "run.json", json.dumps(document, indent=2))
        run.checkpoints.remove()
        for logger in run.loggers:
            missed = "the run is finished, but its tracker did not get the results"
            call_tracker(missed, _log_results, logger, path)
    finally:
        for logger in run.loggers:
            call_tracker("a tracker could not end", logger.finish)
