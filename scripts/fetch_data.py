"""Find, download and check the data sets of `conf/data`.

`python -m latticework.scripts.fetch_data` checks all data sets; give names to check only these.
Each is loaded as in a run, but with `strict=true`: a missing data set is an error and is not
replaced by a substitute. The exit status is 1 if any failed.
"""

from __future__ import annotations

import logging
import sys

from hydra.utils import instantiate

from latticework.experiments import CONF
from latticework.experiments.runs import configuration
from latticework.sampling.messages import nearest
from latticework.scripts.arguments import parser_of


def fetch(name: str) -> str:
    """Load the data set that `conf/data/<name>.yaml` describes; return its variant and its sizes.

    Raises:
        OSError: if its files are missing and cannot be downloaded.
        ValueError: if a file is damaged.
    """
    config = configuration.compose_config((), f"data/{name}").data
    if "strict" in config:  # the digits have no such option: they come with scikit-learn
        config.strict = True
    data = instantiate(config).load()
    sizes = []
    for part in ("train", "valid", "test"):
        rows = getattr(data, part, None)  # texts lack some parts
        if rows is not None:
            sizes.append(f"{len(rows):,}")
    return f"{data.variant}: {' / '.join(sizes)}" if sizes else data.variant


def main(words: list[str] | None = None) -> int:
    """Fetch the named data sets, or all; return the exit status."""
    every = sorted(path.stem for path in (CONF / "data").glob("*.yaml"))
    parser = parser_of("fetch_data", __doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default all: {', '.join(every)}")
    names = parser.parse_args(words).names or every
    for name in names:
        if name not in every:
            parser.error(f"there is no data set {name} ({nearest(name, every)})")
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    failed = []
    for name in names:
        try:
            print(f"ok      {name:18} {fetch(name)}", flush=True)
        except (OSError, ValueError) as error:
            print(f"FAILED  {name:18} {error}", flush=True)
            failed.append(name)
    if failed:
        print(f"\n{len(failed)} of {len(names)} are not available: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
