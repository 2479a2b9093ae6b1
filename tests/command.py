"""`python run.py ...` inside the test's own process, which saves the seconds of importing torch."""

import logging
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra._internal.hydra import Hydra
from hydra.plugins.sweeper import Sweeper

from latticework.experiments.records.record import Record, load_all
from latticework.experiments.runs import signals
from latticework.scripts import command_line as program

SMALL = ("model.shape=[3,3]", "scale=smoke", "sampler=gwg")
CLOCKS = ("seconds", "seconds_per_step", "cpu_share", "peak_memory_bytes")
QUIET = ("hydra/job_logging=none", "hydra/hydra_logging=none")
MODES: dict[tuple[str, ...], object] = {}  # of Hydra, by the words that may choose one
_get_mode = Hydra.get_mode


def mode(self: Hydra, config_name: str, overrides: list[str]) -> object:
    """Whether Hydra makes one run or several; it composes a configuration to read only this."""
    chosen = tuple(word for word in overrides if word.startswith(("experiment=", "hydra.")))
    if chosen and MODES.get(chosen) is None:
        MODES[chosen] = _get_mode(self, config_name, overrides)
    return MODES.get(chosen)


def command_line(*words: str, outputs: Path) -> int:
    """The exit status of `python run.py <words>`, its records under `outputs`."""
    threads, root = torch.get_num_threads(), logging.getLogger()
    before = {number: signal.getsignal(number) for number in signals.SIGNALS}
    handlers, level = root.handlers[:], root.level
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["run.py", *QUIET, *words])
        patch.setitem(os.environ, "LATTICEWORK_OUTPUTS", str(outputs))
        # It composes the runs of a sweep once more before the first, which takes most of the time.
        patch.setattr(Sweeper, "validate_batch_is_legal", lambda *_: None)
        patch.setattr(Hydra, "get_mode", mode)
        try:
            program.main()
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
                return 1
            return int(end.code or 0)
        finally:
            torch.set_num_threads(threads)
            root.handlers[:] = handlers  # Hydra configures the log of the whole process
            root.setLevel(level)
            for number, handler in before.items():
                signal.signal(number, handler)
            _stop_workers()
    return 0


def _stop_workers() -> None:
    """End joblib's processes, which would keep this command's environment for the next one."""
    loky = sys.modules.get("joblib.externals.loky")
    if loky is not None:
        loky.get_reusable_executor().shutdown(wait=True)


def compile_nothing(patch: pytest.MonkeyPatch) -> None:
    """Let engine=auto be eager, for tests that read words and no numbers."""
    from latticework.samplers.compiled import registry  # here: it imports numba
    from latticework.samplers.compiled.compiled_sampler import NoCompiledKernelError

    def none(*_: object) -> None:
        raise NoCompiledKernelError("no kernel is compiled in this test")

    patch.setattr(registry, "find_compiled_kernel", none)


def only(outputs: Path) -> Record:
    """The one record in use below `outputs`."""
    (record,) = [r for r in load_all(outputs) if "superseded" not in r.path.parts]
    return record


def results(record: Record) -> dict[str, object]:
    """The content of a record, without timings and paths."""
    table = record.metrics.drop(columns=[c for c in CLOCKS if c in record.metrics])
    found: dict[str, object] = {"metrics": table.to_csv()}
    for file in sorted(record.path.rglob("*")):
        if file.suffix == ".npz":
            with np.load(file) as arrays:
                found[file.name] = {name: arrays[name].tobytes() for name in arrays}
        elif file.suffix in (".safetensors", ".yaml", ".txt") and ".hydra" not in file.parts:
            found[str(file.relative_to(record.path))] = file.read_bytes()
    found["generated"] = record.document.get("generated")
    return found


def bundled_data(config: object) -> list[str]:
    """Overrides that keep a test off the network: without a data root, the bundled digits."""
    data = getattr(config, "data", None) or {}
    wanted = {"download": "false"} | (
        {} if os.environ.get("LATTICEWORK_DATA") else {"root": "null"}
    )
    return [f"data.{key}={value}" for key, value in wanted.items() if key in data]
