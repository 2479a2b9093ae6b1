"""Files of the project by patterns, and their text."""

from functools import cache

from documented import ROOT

FOLDERS = ("data", "experiments", "models", "samplers", "sampling", "scripts")
PACKAGE = ("run.py", "src/latticework/*.py", *(f"{folder}/**/*.py" for folder in FOLDERS))
PACKAGE += ("workshop/*.py",)
SOURCE = (*PACKAGE, "tests/*.py", "tests/made_records/*.py", "workshop/tests/*.py")


@cache
def read(path: str) -> str:
    return (ROOT / path).read_text()


@cache
def files(*patterns: str) -> list[str]:
    """The files that one of the patterns matches, relative to the root, sorted; no links."""
    paths: set[str] = set()
    for pattern in patterns:
        for file in ROOT.glob(pattern):
            if file.is_file() and not file.is_symlink():
                paths.add(str(file.relative_to(ROOT)))
    return sorted(paths)
