"""The test files that an uncommitted change can reach, for `make test`.

    python -m workshop.changed_tests

Prints nothing, which pytest reads as all tests, where the tree is clean, or where a file changed
that is not a module or a test, such as a configuration. Who imports whom is read from the code
(grimp). A test that runs commands, or loads classes by their names, reaches every module.
"""

import ast
import subprocess
from functools import cache
from pathlib import Path

import grimp

from latticework.public_names import read_public_names

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("latticework", "workshop")
PUBLIC_NAMES = read_public_names()  # their modules, which are imported when first used
TEST_FOLDERS = (Path("tests"), Path("workshop/tests"))
# Helpers and modules behind which any module may be loaded by its name.
REACHES_ALL = {"command", "documented", "fakes", "kills", "snapshot", "transcripts"}


def list_changed_files() -> list[Path]:
    """The files that differ from the last commit, with new ones, relative to the root."""
    changed = _run_git("diff", "--name-only", "HEAD")
    return [Path(line) for line in changed] + list_new_files()


def list_new_files() -> list[Path]:
    """The files that git does not track yet, in folders of which it tracks some.

    Other files in a checkout, such as README's target.py, are a user's and no part of the project.
    """
    folders = _run_git("ls-tree", "-d", "--name-only", "HEAD")
    new = _run_git("ls-files", "--others", "--exclude-standard", "--", *folders)
    return [Path(line) for line in new]


def list_project_files() -> list[Path]:
    """The files of the project that are there, tracked or new, relative to the root."""
    files = [Path(line) for line in _run_git("ls-files")] + list_new_files()
    return [file for file in files if (ROOT / file).exists()]


def _run_git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def module_name(file: Path) -> str | None:
    """The module in `file`, relative to the root; None for a file that is not one of a package."""
    if file.suffix != ".py" or TEST_FOLDERS[1] in file.parents:
        return None
    parts = list(file.with_suffix("").parts)
    if parts[:2] == ["src", "latticework"]:
        parts = parts[1:]
    elif parts[0] != "workshop":
        if not (ROOT / "src" / "latticework" / parts[0]).exists() and file != Path("run.py"):
            return None
        parts = ["latticework", *parts]
    return ".".join(parts).removesuffix(".__init__")


@cache
def imports_of_test(file: Path) -> frozenset[str]:
    """The modules that a test or a helper imports, also through helpers; "*" for any module."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module)
            imported.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and _is_package(node.value):
            imported.add(PUBLIC_NAMES.get(node.attr, "*"))
    reached = {name for name in imported if name.split(".")[0] in PACKAGES or name == "*"}
    for name in {name.split(".")[0] for name in imported}:
        if name in REACHES_ALL or name == "subprocess":
            reached.add("*")
            continue
        for folder in TEST_FOLDERS:  # helpers
            if (ROOT / folder / f"{name}.py").is_file():
                reached |= imports_of_test(folder / f"{name}.py")
    return frozenset(reached - {"latticework"})


def _is_package(node: ast.expr) -> bool:
    """Whether `node` is the name of the package, as in `lw.GWG`."""
    return isinstance(node, ast.Name) and node.id in ("lw", "latticework")


def list_tests() -> list[Path]:
    """All test files, relative to the root."""
    tests: list[Path] = []
    for folder in TEST_FOLDERS:
        tests += [file.relative_to(ROOT) for file in sorted((ROOT / folder).glob("test_*.py"))]
    return tests


def select_tests(changed: list[Path], graph: grimp.ImportGraph) -> list[Path]:
    """The tests that the `changed` files can reach; empty if they may be all of them."""
    tests = list_tests()
    selected = {file for file in changed if file in tests}
    reached: set[str] = set()
    for file in changed:
        if file in selected:
            continue
        name = module_name(file)
        if name is None or name not in graph.modules:
            return []  # also a module that was removed
        reached |= {name, *graph.find_downstream_modules(name)}
    in_package = any(name.startswith("latticework") for name in reached)
    for test in tests:
        imported = imports_of_test(test)
        if reached & imported or (in_package and "*" in imported):
            selected.add(test)
    return sorted(selected)


def main() -> None:
    changed = list_changed_files()
    if changed:
        graph = grimp.build_graph(*PACKAGES)
        print(*select_tests(changed, graph))


if __name__ == "__main__":
    main()
