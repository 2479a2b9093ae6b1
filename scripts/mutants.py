"""Make small mistakes in the code, one at a time, and see the tests named for each of them fail.

tests/mutants.toml lists the mistakes (mutants): a file, a text that stands in it exactly once, what
replaces it, and the tests that must fail. Each mutant is made in a copy of the working tree, which
is imported as `latticework` in place of this one. It is

    killed        a test failed by its own assertion
    killed by ..  a test failed by another exception, which is named
    survived      all tests passed
    broken        the tests could not be collected, or a fixture failed, or no test ran, or the
                  process died: this says nothing about the tests

Run `python -m latticework.scripts.mutants [name ...]`, or `make mutants`. The exit status is 1
unless every mutant is killed.
"""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "mutants.toml"
# Imported once by the server that test processes are forked from. Nothing of this project.
LIBRARIES = (
    "pytest", "torch", "numpy", "scipy.stats", "scipy.optimize", "pandas", "hydra", "omegaconf",
    "optuna", "matplotlib.figure", "sklearn.datasets", "nltk.translate.bleu_score",
)  # fmt: skip
PACKAGE = "latticework"
PATIENCE = 30  # seconds that a process may take to end once it has answered
LONGEST = 900  # seconds that the tests of one mutant may take; a mistake can cause an endless loop


@dataclass(frozen=True)
class Mutant:
    """`old` becomes `new` in `file`; `tests` (pytest's names) must fail then."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The file's `text` with the mistake. Raises ValueError unless `old` is in it once."""
        if (count := text.count(self.old)) != 1:
            raise ValueError(
                f"{self.name}: expected to find {self.old!r} once in {self.file}, found it {count} "
                "times; adapt tests/mutants.toml to the code"
            )
        return text.replace(self.old, self.new)


def load(file: Path = LIST) -> list[Mutant]:
    """All mutants of the list, in its order."""
    entries = tomllib.loads(file.read_text())["mutant"]
    return [Mutant(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


class Outcome:
    """A pytest plugin that keeps how the first failure came about."""

    def __init__(self) -> None:
        self.ran, self.text = 0, ""

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.text = self.text or f"broken: {report.nodeid} cannot be collected"

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        import pytest

        skipped = call.excinfo is not None and call.excinfo.errisinstance(pytest.skip.Exception)
        self.ran += call.when == "call" and not skipped
        if call.excinfo is None or skipped or self.text:
            return
        if call.when != "call":
            self.text = f"broken: {call.when} of {item.name} failed ({call.excinfo.typename})"
        elif call.excinfo.errisinstance((AssertionError, pytest.fail.Exception)):
            self.text = f"killed ({item.name})"
        else:
            self.text = f"killed by {call.excinfo.typename} ({item.name})"


def run_pytest(folder: Path, tests: Sequence[str], answer: Connection) -> None:
    """In a process of its own: send what the `tests` of the tree in `folder` came to."""
    import_from(folder)
    os.chdir(folder)
    log = os.open(folder / "mutant.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1), os.dup2(log, 2)
    import pytest

    outcome = Outcome()
    code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", *tests], plugins=[outcome])
    if outcome.text == "":
        passed = code == pytest.ExitCode.OK and outcome.ran
        outcome.text = "survived" if passed else f"broken: pytest ended with {code!r}"
    answer.send(outcome.text)


def import_from(folder: Path) -> None:
    """Import `latticework`, here and in child processes, from `folder`, which has that name.

    Raises ImportError if it would come from elsewhere, such as an installed checkout.
    """
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]  # imported from the working tree
    kept = [path for path in sys.path if Path(path).resolve() != ROOT]
    sys.path[:] = [str(folder.parent), *kept]
    os.environ["PYTHONPATH"] = str(folder.parent)
    importlib.invalidate_caches()
    spec = importlib.util.find_spec(PACKAGE)
    found = None if spec is None or spec.origin is None else Path(spec.origin).resolve().parent
    if found != folder.resolve():
        raise ImportError(f"expected to import {PACKAGE} from {folder}, found it in {found}")


def outcome_of(folder: Path, tests: Sequence[str], context: Any) -> str:
    """What the `tests` of the tree in `folder` come to."""
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=run_pytest, args=(folder, tests, there))
    process.start()
    there.close()
    try:
        if here.poll(LONGEST):
            return here.recv()
        return f"broken: no end after {LONGEST} s"
    except EOFError:
        process.join()
        return f"broken: the process ended with {process.exitcode}"
    finally:
        process.join(PATIENCE)
        process.kill()
        process.join()


def copy_tree(target: Path) -> Path:
    """Copy the working tree's files, but those that git ignores, to `target`."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    return target


def write(file: Path, text: str) -> None:
    """Replace a module's text, and forget its byte code, which goes by the second."""
    file.write_text(text)
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
        compiled.unlink()


def try_out(mutant: Mutant, trees: "SimpleQueue[Path]", context: Any) -> str:
    """What the mutant's tests come to in one of the `trees`, which is put back as it was."""
    tree = trees.get()
    file = tree / mutant.file
    text = file.read_text()
    try:
        write(file, mutant.applied(text))
        return outcome_of(tree, mutant.tests, context)
    finally:
        write(file, text)
        trees.put(tree)


def main() -> int:
    parser = argparse.ArgumentParser(description="See every mutant killed by its tests.")
    parser.add_argument("names", nargs="*", help="of mutants; none: all")
    parser.add_argument("-n", type=int, default=1, help="how many at a time")
    options = parser.parse_args()
    mutants = [m for m in load() if not options.names or m.name in options.names]
    if unknown := set(options.names) - {mutant.name for mutant in mutants}:
        parser.error(f"no mutant is called {', '.join(sorted(unknown))}")
    context = get_context("forkserver")
    context.set_forkserver_preload(list(LIBRARIES))
    with tempfile.TemporaryDirectory() as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        first, *others = (
            Path(folder).resolve() / str(i) / PACKAGE for i in range(max(1, options.n))
        )
        for tree in (first, *others):
            trees.put(copy_tree(tree))
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        print(f"{len(mutants)} mutants; their {len(tests)} tests on the code as it is:", flush=True)
        before = outcome_of(first, tests, context)
        print(f"  {before}", flush=True)
        if before != "survived":
            print((first / "mutant.log").read_text()[-3000:])
            return 2
        found: Counter[str] = Counter()
        width = max(len(mutant.name) for mutant in mutants)
        with ThreadPoolExecutor(options.n) as pool:
            outcomes = pool.map(lambda mutant: try_out(mutant, trees, context), mutants)
            for mutant, outcome in zip(mutants, outcomes, strict=True):
                found[outcome.partition(" ")[0].rstrip(":")] += 1
                print(f"{mutant.name:<{width}}  {outcome}", flush=True)
    print(f"{found['killed']} killed, {found['survived']} survived, {found['broken']} broken")
    return 0 if found["killed"] == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
