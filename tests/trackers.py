"""Read what trackers have written: the files of Weights & Biases, and TensorBoard's events."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK, HEAD = 32768, 7  # bytes of LevelDB's log format, and of the head of the file and of a part
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def parts(file: Path) -> Iterator[bytes]:
    """The messages of a .wandb file, which has the format of LevelDB's log."""
    data = file.read_bytes()
    place, message = HEAD, b""
    while place + HEAD <= len(data):
        room = BLOCK - place % BLOCK
        if room < HEAD:
            place += room
            continue
        _, size, kind = struct.unpack("<IHB", data[place : place + HEAD])
        if kind not in (FULL, FIRST, MIDDLE, LAST):
            return  # cut off by a kill
        message += data[place + HEAD : place + HEAD + size]
        place += HEAD + size
        if kind in (FULL, LAST):
            yield message
            message = b""


def of_wandb(file: Path) -> dict[str, Any]:
    """The run's id, group, job type and tags, its rows by step, its summary and its exit code."""
    from wandb.proto.wandb_internal_pb2 import Record

    found: dict[str, Any] = {"rows": {}, "summary": {}, "exit": None}
    for message in parts(file):
        record = Record.FromString(message)
        if record.HasField("run"):
            run = record.run
            found |= {
                "id": run.run_id, "group": run.run_group, "job": run.job_type, "tags": set(run.tags)
            }  # fmt: skip
        for item in record.history.item:
            key = item.key or "/".join(item.nested_key)
            found["rows"].setdefault(record.history.step.num, {})[key] = json.loads(item.value_json)
        for item in record.summary.update:
            key = item.key or "/".join(item.nested_key)
            found["summary"][key] = json.loads(item.value_json)
        if record.HasField("exit"):
            found["exit"] = record.exit.exit_code
    return found
