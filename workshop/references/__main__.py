"""Compute a reference target anew, and write its card and arrays.

python -m workshop.references            # all targets: some minutes
python -m workshop.references asia sk_20
python -m workshop.references --page     # only docs/references.md, from the cards
"""

import argparse
import time

from latticework.models.references.catalogue import DEFINITIONS
from workshop.references.cards import write_card
from workshop.references.page import write_page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="targets; all without names")
    parser.add_argument("--page", action="store_true", help="write only the page of the cards")
    arguments = parser.parse_args()
    names = arguments.names or list(DEFINITIONS)
    if unknown := set(names) - set(DEFINITIONS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(DEFINITIONS)}")
    for name in [] if arguments.page else names:
        began = time.process_time()
        size = write_card(name)
        seconds = time.process_time() - began
        print(f"{name}: {seconds:.1f} s of CPU, {size / 1000:.1f} kB", flush=True)
    write_page()


if __name__ == "__main__":
    main()
