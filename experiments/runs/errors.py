"""Report mistakes in a command and failures of a run in one line instead of a traceback.

`told` wraps the whole program and explains errors of Hydra's composition. `summary` describes an
error that a run raised, for its record. HYDRA_FULL_ERROR=1 shows tracebacks as well.
"""

import errno
import logging
import os
import re
import shlex
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import hydra._internal.hydra
import hydra._internal.utils
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import (
    ConfigCompositionException,
    InstantiationException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from latticework.experiments.records.archive import DamagedError
from latticework.experiments.records.identity import SOURCES
from latticework.experiments.runs.asking import COMMANDS, program
from latticework.sampling.messages import cut, in_a_line, nearest

# The settings of conf/hydra/launcher are checked against those of the plugin of the same name.
warnings.filterwarnings("ignore", message=r"\s*'hydra/launcher/\w+' is validated against")

TWICE = (
    r"Multiple values for (\S+)\. To override|(\S+) appears more than once in the final defaults"
)
FEWER = (
    "take a smaller model, fewer chains, a smaller batch, or fewer runs at once "
    "(hydra.launcher.n_jobs)"
)
# What has one value in a command: which runs there are, and where and how they are executed. Runs
# that differ in nothing else have one record.
FULL = (errno.ENOSPC, errno.EDQUOT)  # a full disk; the errors of `write` name no file
SINGLE = (
    "experiment", "scale", "name", "outputs", "device", "threads", "checkpoint", "force", "logger",
    "figures", "tables", "scales", "hydra/launcher",
    *(f"data.{key}" for key in SOURCES),
)  # fmt: skip


class ConfigurationError(ValueError):
    """The configuration is not valid; the message says what to change."""


class UnwritableError(OSError):
    """A file could not be written; the message says which, why, and what to do."""


def summary(error: BaseException) -> str:
    """What went wrong in a run, in one line; if a part could not be built, which part and why."""
    if isinstance(error, InstantiationException) and error.__cause__:
        target = re.findall(r"target '([^']+)'", str(error))[:1]
        key = re.findall(r"full_key: (\S+)", str(error))[-1:]  # after those of its cause
        where = " ".join([*key, *(f"({name})" for name in target)])
        return f"{where}: {in_a_line(error.__cause__)}"
    if isinstance(error, ConfigurationError | DamagedError | OmegaConfBaseException):
        return in_a_line(error)
    if isinstance(error, UnwritableError):
        return str(error)
    if isinstance(error, OSError) and error.errno in FULL and error.filename is None:
        places = sorted({outputs_of(sys.argv[1:]), Path(tempfile.gettempdir())})
        free = ", ".join(f"{place} has {_free(place)} free" for place in places)
        return (
            f"{error.strerror} ({free}): make room there, or choose other folders by outputs=... "
            "and TMPDIR"
        )
    if _out_of_memory(error):
        return f"memory ran out ({type(error).__name__}: {cut(str(error), 250)}); {FEWER}"
    return f"{type(error).__name__}: {cut(str(error))}"


def _free(place: Path) -> str:
    """The free space on the disk of `place`, of which some parent exists: `12.3 MB`."""
    there = next(each for each in (place, *place.parents) if each.exists())
    return f"{shutil.disk_usage(there).free / 1e6:,.1f} MB"


def _out_of_memory(error: BaseException) -> bool:
    """Whether memory of the host or of a GPU ran out. PyTorch is not imported here."""
    on_gpu = type(error).__name__ == "OutOfMemoryError"
    return on_gpu or isinstance(error, MemoryError) or "can't allocate memory" in str(error)


def wants_traceback() -> bool:
    """Whether the user asked for tracebacks by Hydra's variable HYDRA_FULL_ERROR."""
    return os.environ.get("HYDRA_FULL_ERROR") == "1"


@contextmanager
def told() -> Iterator[None]:
    """End the program with a message instead of a traceback if an error is raised.

    Inside the block, Hydra's own error report is disabled, because it prints tracebacks of errors
    that it does not expect. So is that of `logging`, which prints a traceback for each line that
    cannot be written to a full disk.
    """
    modules: tuple[Any, ...] = (hydra._internal.utils, hydra._internal.hydra)
    own = hydra._internal.utils.run_and_report
    before = logging.raiseExceptions
    logging.raiseExceptions = wants_traceback()
    for module in modules:
        module.run_and_report = _call
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is, a user reads a message
        end(error)
    except KeyboardInterrupt:  # where no checkpoint could be written
        print("interrupted: the same command continues with what is missing", file=sys.stderr)
        raise SystemExit(128 + signal.SIGINT) from None
    finally:
        logging.raiseExceptions = before
        for module in modules:
            module.run_and_report = own


def _call(function: Callable[[], Any]) -> Any:
    return function()


def end(error: Exception) -> NoReturn:
    """Print why, and exit with status 1."""
    if wants_traceback():
        traceback.print_exception(error)
    print(_explained(error, sys.argv[1:]), file=sys.stderr)
    raise SystemExit(1) from None


def _explained(error: Exception, command: list[str]) -> str:
    """A message for an `error` that Hydra raised for the words of `command`."""
    if isinstance(error, MissingConfigException) and error.options:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        return f"{group}={name} is not known: {nearest(name, error.options)}"
    if isinstance(error, OverrideParseException):
        lines = [line for line in error.message.splitlines() if "^" not in line]
        word = str(error.override)
        return (
            f"{word!r} cannot be read ({lines[-2:][0]}): "
            f"overrides are key=value, {_quoting(word)}"
            + ("" if "=" in word else f"; commands are {', '.join(COMMANDS)}, and come first")
        )
    if twice := re.match(TWICE, str(error)):
        name = twice[1] or twice[2]
        meant = [word.lstrip("+") for word in command if word.startswith(f"+{name}=")]
        return f"{name} is there already, so it takes no +: {_again(command, f'+{name}=', meant)}"
    if re.match("Ambiguous value for argument|Sweep parameters '.*' requires", str(error)):
        return _swept(error, command)
    if isinstance(error, ConfigCompositionException) and error.__cause__:
        return _not_applied(error, error.__cause__, command)
    if isinstance(error, MissingConfigException | ConfigCompositionException):
        return str(error).partition("\nConfig search path")[0].strip()
    if "Config group override" in str(error):
        given = [word for word in command if _is_no_name(word.partition("=")[2])]
        return (
            f"{in_a_line(error)}, in {', '.join(given)}: a group such as data takes the name of "
            "one of its options, and ~data removes it"
        )
    if "Unknown plugin class" in str(error):
        return (
            f"{in_a_line(error)}: the package of this launcher is not installed: "
            'pip install -e ".[sweeps]"'
        )
    if isinstance(error, ConfigurationError | DamagedError):
        return str(error)
    if type(error).__name__ == "TerminatedWorkerError":  # of loky, which joblib brings along
        signals = ", ".join(sorted(set(re.findall(r"SIG[A-Z]+", str(error))))) or "a signal"
        memory = f": {FEWER}" if "SIGKILL" in signals else ""
        return (
            f"a process of the sweep died ({signals}), which ends the sweep{memory}. "
            "The same command resumes, and says which run had died"
        )
    if isinstance(error, OSError) and _is_of_outputs(error, command):
        return f"{summary(error)}; set the folder for records by outputs or LATTICEWORK_OUTPUTS"
    return f"{summary(error)}\nHYDRA_FULL_ERROR=1 shows where this was raised."


def _is_of_outputs(error: OSError, command: list[str]) -> bool:
    """Whether the error is about the folder of records, a file in it, or a folder above it."""
    if isinstance(error, UnwritableError) or not isinstance(error.filename, str):
        return isinstance(error, UnwritableError)
    outputs, place = outputs_of(command), Path(error.filename).resolve()
    return place.is_relative_to(outputs) or outputs.is_relative_to(place)


def outputs_of(command: list[str]) -> Path:
    """The folder for records of a command."""
    words = [word.partition("=")[2] for word in command if word.startswith("outputs=")]
    words += [command[i + 1] for i, word in enumerate(command[:-1]) if word == "--outputs"]
    return Path([os.environ.get("LATTICEWORK_OUTPUTS", "outputs"), *words][-1]).resolve()


def _again(command: list[str], start: str, meant: Iterable[str]) -> str:
    """The command with the words `meant` in place of those that begin with `start`."""
    kept = [word for word in command if not word.startswith(start)]
    return f"{program()} {shlex.join([*kept, *meant])}"


def _swept(error: Exception, command: list[str]) -> str:
    """What to write instead of several values where Hydra expects one."""
    (given,) = re.findall(r"'(.*)'", str(error).partition("\n")[0])
    key, _, values = given.partition("=")
    if key in SINGLE:
        return several(key, values, command)
    return (
        f"{given} gives several values, which is a sweep and needs --multirun: "
        f"{program()} --multirun {shlex.join(command)}"
    )


def several(key: str, values: str, command: list[str]) -> str:
    """What to write instead of several values of `key`, one of SINGLE."""
    if key == "logger":
        meant = _again(command, "logger=", [f"logger=[{values}]"])
        return f"logger={values} would run everything once a tracker; both at once: {meant}"
    return (
        f"{key}={values} gives several values, and a command has one {key}: give a command for each"
    )


def _quoting(override: str) -> str:
    """How to quote a value: in quotes for Hydra, and those in quotes for the shell."""
    key, _, value = override.partition("=")
    if " " not in value and value.isascii():
        return "in quotes if the value has blanks, brackets or commas"
    text = QuotedString(text=value.strip("'\""), quote=Quote.double).with_quotes()
    word = shlex.quote(f"{key}={text}")
    return f"and a text with blanks, brackets, commas or accents needs quotes inside quotes: {word}"


def _is_no_name(text: str) -> bool:
    """Whether Hydra reads `text` as a number, a boolean or null."""
    return bool(re.fullmatch(r"(?i)[-+]?[\d.]\S*|[-+]?inf|nan|true|false|null", text))


def places(name: str, node: Any) -> list[str]:
    """Keys of the configuration around `node` that end in `name`, in the fewest dots.

    `budget.steps` for `steps`. Not those of `scales`, which hold a value for each scale.
    """
    root = node._get_root() if node is not None else None
    if not isinstance(root, DictConfig):
        return []
    document = OmegaConf.to_container(root, resolve=False)
    found = [key for key in _keys(document) if key.rpartition(".")[2] == name]
    fewest = min((key.count(".") for key in found), default=0)
    return [key for key in found if key.count(".") == fewest]


def _keys(value: Any, path: str = "") -> Iterator[str]:
    """The dotted keys of the nested dictionary `value`, below `budget` and the parts of a run."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if path or key in ("budget", "data", "model", "sampler", "task"):
            yield f"{path}{key}"
            yield from _keys(inner, f"{path}{key}.")


def _not_applied(error: Exception, cause: BaseException, command: list[str]) -> str:
    """Why an override could not be applied to the configuration."""
    if isinstance(cause, ConfigKeyError | ConfigAttributeError):
        place, _, name = str(cause.full_key).rpartition(".")
        fields = cause.parent_node if isinstance(cause.parent_node, DictConfig) else ()
        where = f"{place or 'the configuration'} has no field {name}"
        if elsewhere := places(name, cause.parent_node):
            given = [word for word in command if word.partition("=")[0] == str(cause.full_key)]
            value = given[-1].partition("=")[2] if given else "..."
            return f"{where}: did you mean {' or '.join(f'{key}={value}' for key in elsewhere)}?"
        return f"{where}: {nearest(name, [key for key in fields if key != 'hydra'])}"
    return f"{cut(str(error))}. {in_a_line(cause)}"
