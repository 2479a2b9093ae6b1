"""Report mistakes in a command and failures of a run in one line instead of a traceback.

`one_line_errors` wraps the whole program. `describe_error` words an error of a run for its record.
HYDRA_FULL_ERROR=1 shows tracebacks as well.
"""

import errno
import linecache
import logging
import os
import re
import select
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from hydra import errors as hydra_errors
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from latticework.experiments import CONF
from latticework.experiments.records.archive import DamagedError
from latticework.experiments.records.escapes import escape_terminal
from latticework.experiments.records.identity import mask_passwords
from latticework.sampling import messages

# The settings of conf/hydra/launcher are checked against those of the plugin of the same name.
warnings.filterwarnings("ignore", message=r"\s*'hydra/launcher/\w+' is validated against")
if not any(word.startswith("--info") for word in sys.argv):  # which Hydra answers in its log
    for _name in ("hydra", "hydra_plugins"):  # a sweep has a line of ours for each run
        logging.getLogger(_name).setLevel(logging.WARNING)


def end_on_broken_callbacks() -> None:
    """Let an error in a callback of Hydra end the command; Hydra makes a warning of it."""
    warnings.filterwarnings("error", message=r"Callback \S+ raised ")


end_on_broken_callbacks()  # in the processes of launchers, too
# submitit logs twice a poll that a cluster keeps no accounts; it works without.
logging.getLogger("submitit").addFilter(lambda line: "sacct error" not in line.getMessage())

PACKAGE = "latticework."
COMMANDS = ("check", "race", "trace")  # scripts that are also `latticework NAME ...`
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)  # a full disk; the errors of `write` name no file
HYDRA_TRACEBACK_VAR, OWN_TRACEBACK_VAR = (
    "HYDRA_FULL_ERROR",
    "LATTICEWORK_TRACEBACKS",
)  # the user's value, also for workers


class ConfigurationError(ValueError):
    """The configuration is not valid; the message says what to change."""


class UnwritableError(OSError):
    """A file could not be written; the message says which, why, and what to do."""


def describe_error(error: BaseException) -> str:
    """Say in one line why a run failed; if a part could not be built, which part and why.

    Passwords in URLs are masked.
    """
    return mask_passwords(_describe_cause(error))


def _describe_cause(error: BaseException) -> str:
    if isinstance(error, hydra_errors.InstantiationException) and error.__cause__:
        target = re.findall(r"target '([^']+)'", str(error))[:1]
        key = re.findall(r"full_key: (\S+)", str(error))[-1:]  # after those of its cause
        if target:
            key.append(f"({target[0]})")
        return f"{' '.join(key)}: {messages.in_a_line(error.__cause__)}"
    if isinstance(error, ConfigurationError | DamagedError | OmegaConfBaseException):
        return messages.in_a_line(error)
    if isinstance(error, UnwritableError | hydra_errors.HydraException):
        return messages.cut(str(error))
    if isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS and error.filename is None:
        return (
            f"{error.strerror}: make room in the folder of outputs and in {tempfile.gettempdir()}, "
            "or choose others by outputs=... and TMPDIR"
        )
    if _out_of_memory(error):
        return (
            f"memory ran out ({type(error).__name__}: {messages.cut(str(error), 250)}); take a "
            "smaller model, fewer chains, a smaller batch, or fewer runs at once "
            "(hydra.launcher.n_jobs)"
        )
    return f"{type(error).__name__}: {messages.cut(str(error))}"


def _out_of_memory(error: BaseException) -> bool:
    """Whether memory of the host or of a GPU ran out. PyTorch is not imported here."""
    on_gpu = type(error).__name__ == "OutOfMemoryError"
    return on_gpu or isinstance(error, MemoryError) or "can't allocate memory" in str(error)


def wants_traceback() -> bool:
    """Whether the user asked for tracebacks by Hydra's variable HYDRA_FULL_ERROR."""
    return os.environ.get(OWN_TRACEBACK_VAR, os.environ.get(HYDRA_TRACEBACK_VAR)) == "1"


@contextmanager
def one_line_errors() -> Iterator[None]:
    """End the program with a message instead of a traceback if an error or Ctrl-C is raised.

    Inside the block Hydra raises its errors (HYDRA_FULL_ERROR) instead of printing them, and
    `logging` prints no traceback for each line that cannot be written to a full disk.
    """
    raises_in_logs = logging.raiseExceptions
    before = {}
    for name in (HYDRA_TRACEBACK_VAR, OWN_TRACEBACK_VAR):
        before[name] = os.environ.get(name)
    logging.raiseExceptions = wants_traceback()
    os.environ[OWN_TRACEBACK_VAR] = str(int(wants_traceback()))
    os.environ[HYDRA_TRACEBACK_VAR] = "1"
    try:
        with warnings.catch_warnings():
            end_on_broken_callbacks()
            try:
                yield
            finally:
                sys.stdout.flush()
    except BrokenPipeError as error:
        if not _is_output_closed():
            exit_with_message(error)
        raise SystemExit(128 + signal.SIGPIPE) from None
    except KeyboardInterrupt:  # outside the blocks where a run handles its signals
        print("stopped by SIGINT: the same command starts again", file=sys.stderr)
        raise SystemExit(130) from None
    except Exception as error:  # noqa: BLE001 - whatever it is, a user reads a message
        exit_with_message(error)
    finally:
        logging.raiseExceptions = raises_in_logs
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _is_output_closed() -> bool:
    """Whether the reader of the output has ended, such as `head`. Then drop what is left of it."""
    output = sys.stdout.fileno()
    poll = select.poll()
    poll.register(output, select.POLLOUT)
    for _, event in poll.poll(0):
        if event & select.POLLERR:
            os.dup2(os.open(os.devnull, os.O_WRONLY), output)
            return True
    return False


def exit_with_message(error: Exception) -> NoReturn:
    """Print why, and exit with status 1."""
    if wants_traceback():
        traceback.print_exception(error)
    lines = mask_passwords(_message_for(error, sys.argv[1:])).splitlines()
    print("\n".join(map(escape_terminal, lines)), file=sys.stderr)
    raise SystemExit(1) from None


def _message_for(error: Exception, command: list[str]) -> str:
    """A message for an `error` that was raised for the words of `command`."""
    if isinstance(error, hydra_errors.MissingConfigException) and error.options:
        group, _, name = str(error.missing_cfg_file).rpartition("/")
        hint = messages.nearest(name, error.options)
        return f"{group}={name} is not known: {hint} (latticework --help lists all)"
    if isinstance(error, hydra_errors.OverrideParseException):
        word = str(error.override)
        if "=" not in word:
            return (
                f"{word!r} is neither a command nor key=value: {messages.nearest(word, COMMANDS)}"
            )
        why = messages.cut(error.message.partition("\nSee https:")[0])
        return (
            f"{word!r} cannot be read ({why}): overrides are key=value, with quotes inside quotes "
            "for texts"
        )
    if isinstance(error, hydra_errors.ConfigCompositionException) and error.__cause__:
        return _explain_override_error(error, error.__cause__, command)
    worded = hydra_errors.HydraException | ConfigurationError | DamagedError | UnwritableError
    if isinstance(error, worded):
        return describe_error(error)
    if isinstance(error, ValueError | OSError) and _is_worded_here(error):
        return messages.cut(str(error))
    return f"{describe_error(error)}\nHYDRA_FULL_ERROR=1 shows where this was raised."


def _is_worded_here(error: Exception) -> bool:
    """Whether a `raise` statement of this package raised it: its words say what to do."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    source = linecache.getline(frame.f_code.co_filename, line).lstrip()
    return source.startswith("raise ") and str(frame.f_globals["__name__"]).startswith(PACKAGE)


def _explain_override_error(error: Exception, cause: BaseException, command: list[str]) -> str:
    """Why an override could not be applied to the configuration."""
    if isinstance(cause, ConfigKeyError | ConfigAttributeError):
        place, _, name = str(cause.full_key).rpartition(".")
        fields = cause.parent_node if isinstance(cause.parent_node, DictConfig) else ()
        where = f"{place or 'the configuration'} has no field {name}"
        if elsewhere := find_keys_named(name, cause.parent_node):
            value = "..."
            for word in command:
                key, _, text = word.partition("=")
                if key == str(cause.full_key):
                    value = text
            spellings = [f"{key}={value}" for key in elsewhere]
            return f"{where}: did you mean {' or '.join(spellings)}?"
        known = set(map(str, fields)) - {"hydra"}
        if not place:
            known |= {folder.name for folder in CONF.iterdir() if folder.is_dir()} - {"hydra"}
        return f"{where}: {messages.nearest(name, sorted(known))}"
    return f"{messages.cut(str(error))}. {messages.in_a_line(cause)}"


def find_keys_named(name: str, node: Any) -> list[str]:
    """Keys of the configuration around `node` that end in `name`, in the fewest dots.

    `budget.steps` for `steps`. Not those of `scales`, which hold a value for each scale.
    """
    root = node._get_root() if node is not None else None
    if not isinstance(root, DictConfig):
        return []
    document = OmegaConf.to_container(root, resolve=False)
    by_dots: dict[int, list[str]] = {}
    for key in _keys(document):
        if key.rpartition(".")[2] == name:
            by_dots.setdefault(key.count("."), []).append(key)
    return by_dots[min(by_dots)] if by_dots else []


def _keys(value: Any, path: str = "") -> Iterator[str]:
    """The dotted keys of the nested dictionary `value`, below `budget` and the parts of a run."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if path or key in ("budget", "data", "model", "sampler", "task"):
            yield f"{path}{key}"
            yield from _keys(inner, f"{path}{key}.")
