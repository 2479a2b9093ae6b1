"""The provenance of a figure, stored in the metadata of its PNG and PDF.

The proof is a JSON document: the figure's name, the command that draws it, the versions, and for
each record its place and its fingerprint. A PNG has it in the text chunk `latticework`, a PDF in
its keywords.
"""

import json
import re
import sys
import zipfile
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from latticework.experiments.records.faults import DamagedError
from latticework.experiments.records.record import BUNDLES, Record, damage, opened

KEY = "latticework"
MARK = re.compile(rb"latticework:([A-Za-z0-9+/=]+)")
PACKAGES = ("latticework", "matplotlib", "numpy", "pandas")


@dataclass(frozen=True)
class Proof:
    """The command, the records by place with their fingerprints, and the versions."""

    figure: str
    command: str
    records: dict[str, str]
    versions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, figure: str, command: str, records: Sequence[Record]) -> "Proof":
        """The proof for a figure that is drawn from `records` now."""
        prints = {place(record): record.fingerprint for record in records}
        return cls(figure, command, prints, versions())

    def text(self) -> str:
        """The proof as compressed text in a few characters."""
        content = json.dumps(asdict(self), sort_keys=True).encode()
        return b64encode(zlib.compress(content, 9)).decode()

    @classmethod
    def read(cls, text: str) -> "Proof":
        return cls(**json.loads(zlib.decompress(b64decode(text))))


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that draw."""
    found = {"python": sys.version.split()[0]}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # an un-installed checkout
            continue
    return found


def place(record: Record) -> str:
    """Where the record is: `<experiment>/<scale>/<run>` in the outputs, or `<bundle>.zip/<run>`."""
    if isinstance(record.path, zipfile.Path):
        archive = Path(str(record.path.root.filename)).name
        return f"{archive}/{record.path.name}"
    return "/".join(record.path.resolve().parts[-3:])


def attach(figure: Figure, proof: Proof) -> None:
    """Keep the proof with the figure until it is saved."""
    figure.proof = proof  # type: ignore[attr-defined]


def attached(figure: Figure) -> Proof | None:
    return getattr(figure, "proof", None)


def png_metadata(figure: Figure) -> PngInfo:
    """For PIL's `Image.save(pnginfo=)`; empty for a figure without a proof."""
    info = PngInfo()
    if proof := attached(figure):
        info.add_text(KEY, proof.text())
    return info


def pdf_metadata(figure: Figure) -> dict[str, Any]:
    """For `Figure.savefig(metadata=)`; empty for a figure without a proof."""
    proof = attached(figure)
    return {"Keywords": f"{KEY}:{proof.text()}"} if proof else {}


def read(file: Path) -> Proof | None:
    """The proof in a PNG or PDF; None if the file has none. Raises ValueError for other files."""
    if file.suffix == ".png":
        with Image.open(file) as image:
            text = image.info.get(KEY)
    elif file.suffix == ".pdf":
        found = MARK.search(file.read_bytes())
        text = found[1].decode() if found else None
    else:
        raise ValueError(f"{file} is no figure of this library: it is neither a PNG nor a PDF")
    return Proof.read(text) if text else None


def verified(proof: Proof, folders: Sequence[Path]) -> dict[str, str]:
    """The state of each record by its place: "unchanged", or a description of the change.

    Records are looked for in `folders` and in the committed bundles.
    """
    return {name: _state(name, print_, folders) for name, print_ in proof.records.items()}


def _state(name: str, known: str, folders: Sequence[Path]) -> str:
    bundled = ".zip/" in name
    states = []
    for folder in [BUNDLES] if bundled else folders:
        try:
            record = opened(folder / name)
        except DamagedError as error:
            states.append(f"changed: {error}")
            continue
        except ValueError:
            continue
        fault = damage(record.path) if isinstance(record.path, Path) else ""
        if not fault and record.fingerprint == known:
            return "unchanged"
        states.append(f"changed: {fault or 'another run stands there'}")
    return states[0] if states else "missing"
