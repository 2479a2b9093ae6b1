"""The command line of `python run.py` and `latticework`: an experiment, or one of the commands."""

import os
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from platform import python_version

HERE = Path(__file__).resolve().parents[1]  # the checkout, or the installed package
INSTALL = f"run `pip install -e . -c constraints.txt` in {HERE}, or use make, which does so"
NEEDED = ("hydra", "torch")  # packages without which nothing runs


def require_packages() -> None:
    """Exit and say what to install if a package is missing that every command needs."""
    for name in NEEDED:
        if find_spec(name) is None:
            needed = f"{name}, which Latticework needs, is not installed for {sys.executable}"
            sys.exit(f"{needed}: {INSTALL}")


def pass_on_source() -> None:
    """Let processes that this one starts import this checkout, whatever is installed."""
    source = HERE / "src"
    if source.is_dir():
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        paths = [str(source), *(path for path in paths if path and path != str(source))]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def describe_versions() -> str:
    """Return the versions of Latticework, PyTorch and Python, in a line each."""
    try:
        package = version("latticework")
    except PackageNotFoundError:
        package = f"of {HERE}, not installed"
    parts = {"Latticework": package, "PyTorch": version("torch"), "Python": python_version()}
    return "\n".join(f"{name} {number}" for name, number in parts.items())


def main() -> None:
    """Run the command that `sys.argv` holds: one of `errors.COMMANDS`, or else an experiment."""
    require_packages()
    pass_on_source()
    # PyTorch reads it when imported. Threads that wait for work sleep; OpenMP's default is to spin,
    # which takes time from other programs and from the thread that is waited for.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from latticework.experiments.runs import signals

    with signals.stop_on_signals():  # imports can be stopped, too
        from latticework.experiments.runs import errors, validation

        words = sys.argv[1:]
        with errors.one_line_errors():
            if words and words[0] in errors.COMMANDS:
                sys.exit(import_module(f"latticework.scripts.{words[0]}").main(words[1:]))
            if "--version" in words:
                print(describe_versions())
                return
            validation.check_names(words)
            import_module("latticework.run").job()
