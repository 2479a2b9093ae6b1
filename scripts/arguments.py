"""The parser of a script's words, and the folder of the records where no word names it."""

import argparse
import os
from pathlib import Path

from latticework.experiments.runs.errors import COMMANDS


def parser_of(script: str, doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help begins with the first paragraph of `doc` and ends with the others."""
    first, _, details = (doc or "").partition("\n\n")
    called = "latticework " if script in COMMANDS else "python -m latticework.scripts."
    return argparse.ArgumentParser(
        prog=f"{called}{script}",
        description=first,
        epilog=details,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def outputs() -> Path:
    return Path(os.environ.get("LATTICEWORK_OUTPUTS", "outputs")).expanduser()
