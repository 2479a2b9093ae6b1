"""Move records that a new one replaces to `outputs/superseded` instead of deleting them."""

import logging
import shutil
import time
from pathlib import Path

log = logging.getLogger(__name__)


def set_aside(path: Path, outputs: Path, *, copy: bool = False) -> None:
    """Move the record in `path`, finished or with checkpoints, to a folder in `superseded`.

    With `copy`, it also stays in `path`, for a run that needs parts of it. run.json is moved last,
    so that an interrupted move is detected. `path` is below `outputs`, but links may lead to
    another file system.
    """
    moment = time.time_ns() % 10**9  # two within one second keep apart
    stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{moment:09}"
    # Not resolved: a link would lead out of `outputs`.
    target = outputs / "superseded" / f"{path.relative_to(outputs)}-{stamp}"
    target.mkdir(parents=True)
    for file in sorted(path.iterdir(), key=lambda file: file.name == "run.json"):
        kept = file.name.startswith(".") or file.suffix == ".log"
        if (file.is_file() and not kept) or file.name == "checkpoints":
            if not copy:
                shutil.move(file, target / file.name)
            elif file.is_dir():
                shutil.copytree(file, target / file.name)
            else:
                shutil.copy2(file, target / file.name)
    log.info("an earlier record was %s to %s", "copied" if copy else "moved", target)
