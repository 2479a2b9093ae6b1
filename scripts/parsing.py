"""The parser of the words after `latticework check`, `race`, `why` and `trace`."""

import argparse


def parser_of(command: str, doc: str | None) -> argparse.ArgumentParser:
    """A parser whose help begins with the first line of `doc` and ends with its other lines."""
    first, _, rest = (doc or "").partition("\n\n")
    return argparse.ArgumentParser(
        prog=f"latticework {command}",
        description=first,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
