"""Rename the classes in records made before 0.2.

    python -m latticework.scripts.rename_records outputs

Since 0.2 every module is imported as `latticework.*`, and the modules of `experiments` lie in
rooms. A record names the classes it was made with (`_target_`), so an older record would count as
one of another configuration. This script rewrites those names, in run.json of every record below a
folder and in bundles, and changes nothing else. Records that have today's names are left alone.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from latticework.experiments.results.archive import open_archive, write_archive

# Where the modules of `experiments` have gone. Everything else only gained the package's name.
MOVED = {
    "ais": "sampling.annealing",
    "annotations": "config.annotations",
    "artifacts": "running.artifacts",
    "bundle": "report.bundle",
    "chain": "sampling.chain",
    "checkpoint": "running.checkpoint",
    "checks": "config.checks",
    "clock": "sampling.clock",
    "context": "running.run",
    "diagnostics": "measures.diagnostics",
    "draws": "sampling.draws",
    "evaluations": "learning.evaluations",
    "exact": "measures.exact",
    "figures.draw": "report.draw",
    "figures.style": "results.style",
    "generated": "learning.generated",
    "identity": "config.identity",
    "isl": "measures.sampling_likelihood",
    "learned": "learning.snapshots",
    "loggers": "running.loggers",
    "machine": "running.machine",
    "metrics": "measures.metrics",
    "mistakes": "config.errors",
    "mmd": "measures.mmd",
    "negatives": "learning.negatives",
    "occupancy": "measures.occupancy",
    "predictive": "measures.predictive",
    "progress": "running.progress",
    "published": "results.published",
    "record": "results.record",
    "recording": "running.recording",
    "resolvers": "config.resolvers",
    "starts": "sampling.starts",
    "stationary": "measures.stationary",
    "study": "tuning.study",
    "sweep": "report.finish",
    "tables.table": "results.estimate",
    "text_metrics": "measures.text",
    "training": "learning.training",
    "truth": "measures.reference",
    "tuning": "tuning.space",
    "validation": "measures.validation_isl",
    "validity": "measures.nonfinite",
}
OURS = re.compile(r"(data|experiments|models|samplers)\.\w")


def renamed(target: str) -> str:
    """Today's name of a class or function, given the name in an older record."""
    if not OURS.match(target):
        return target
    parts = target.split(".")
    for length in range(len(parts), 1, -1):
        if (module := ".".join(parts[1:length])) in MOVED and parts[0] == "experiments":
            return ".".join(["latticework.experiments", MOVED[module], *parts[length:]])
    return f"latticework.{target}"


def brought_up(value: Any) -> Any:
    """`value`, a JSON document, with today's names under each `_target_` and `path`."""
    if isinstance(value, dict):
        return {
            key: renamed(item)
            if key in ("_target_", "path") and isinstance(item, str)
            else brought_up(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [brought_up(item) for item in value]
    return value


def rewrite_json(content: bytes) -> bytes:
    """run.json with today's names, in the layout it had."""
    document = json.loads(content)
    indent = len(content.split(b"\n")[1]) - len(content.split(b"\n")[1].lstrip(b" "))
    return json.dumps(brought_up(document), indent=indent).encode()


def rewrite_folder(root: Path) -> int:
    """Rewrite every run.json below `root`; the number of those that changed."""
    changed = 0
    for file in sorted(root.rglob("run.json")):
        old = file.read_bytes()
        if (new := rewrite_json(old)) != old:
            partial = file.with_suffix(".partial")
            partial.write_bytes(new)
            partial.replace(file)
            changed += 1
    return changed


def rewrite_bundle(file: Path) -> int:
    """Rewrite the run.json of every record in the bundle `file`; the number that changed."""
    changed = 0
    with open_archive(file) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    for name, old in files.items():
        if name.endswith("/run.json"):
            files[name] = rewrite_json(old)
            changed += files[name] != old
    if changed:
        write_archive(file, files)
    return changed


def main(arguments: list[str] | None = None) -> None:
    """Rewrite what the command line names: folders of records, or bundles."""
    parser = argparse.ArgumentParser(
        prog="latticework.scripts.rename_records", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "paths", nargs="*", type=Path, default=[Path("outputs")], help="folders, or zip files"
    )
    for path in parser.parse_args(arguments).paths:
        if not path.exists():
            parser.error(f"{path} does not exist; name a folder of records or a bundle")
        changed = rewrite_bundle(path) if path.is_file() else rewrite_folder(path)
        print(f"{path}: {changed} records rewritten")


if __name__ == "__main__":
    main()
