"""Files of results: NumPy archives with the draws, and a text about them in JSON."""

import json
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from latticework.models.domains import Binary, Categorical, Integer, Mixed, Ordinal, Subset
from latticework.sampling.adaptation import AdaptationResult
from latticework.sampling.ladder_estimates import Ladders
from latticework.sampling.naming import as_text, from_text
from latticework.sampling.stored_draws import StoredDraws

if TYPE_CHECKING:
    from latticework.sampling.result import SampleResult

TENSORS = ("draws", "log_prob", "acceptance")
STORED_FIELDS = (
    "evaluations", "seconds", "compile_seconds", "seed", "names", "labels", "caveat", "stopped"
)  # fmt: skip
DOMAINS = {made.__name__: made for made in (Binary, Categorical, Mixed, Ordinal, Integer, Subset)}


def write_result(result: "SampleResult", path: Path) -> None:
    """Write the result to a new file, as `SampleResult.save` says."""
    kind = type(result.domain).__name__
    if path.suffix != ".npz":
        raise ValueError(f"a result is written to a file that ends in .npz, got {path}")
    if DOMAINS.get(kind) is not type(result.domain):
        raise ValueError(f"a file holds draws from {', '.join(DOMAINS)}, got {result.domain}")
    about: dict[str, Any] = {name: getattr(result, name) for name in STORED_FIELDS}
    about["domain"] = (
        kind,
        {f.name: getattr(result.domain, f.name) for f in fields(result.domain) if f.init},
    )
    about["sampler"] = as_text(result.sampler)
    arrays = {name: getattr(result, name).numpy() for name in TENSORS}
    if result.ladders is not None:
        arrays |= {f"ladders_{key}": value for key, value in vars(result.ladders).items()}
    if result.adapted is not None:
        arrays["adapted_x"] = result.adapted.x.cpu().numpy()
        sampler_text = as_text(result.adapted.sampler)
        about["adapted"] = {**result.adapted._asdict(), "sampler": sampler_text, "x": None}
    arrays["about"] = np.array(json.dumps(about, default=lambda value: value.tolist()))
    try:
        with path.open("xb") as opened:
            np.savez_compressed(opened, **arrays)
    except FileExistsError:
        raise FileExistsError(
            f"{path} exists and is not overwritten; remove it, or choose another name"
        ) from None


def read_fields(file: str | Path) -> dict[str, Any]:
    """The fields of the result in a file. Raises ValueError for a file of another kind."""
    try:
        with np.load(file) as opened:
            about: dict[str, Any] = json.loads(str(opened["about"]))
            arrays: dict[str, Any] = {k: torch.from_numpy(opened[k]) for k in TENSORS}
            ladders = {k.removeprefix("ladders_"): opened[k] for k in opened if "ladders_" in k}
            x = torch.from_numpy(opened["adapted_x"]) if about.get("adapted") else None
    except (ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{file} is no file that SampleResult.save wrote: {error}") from error
    sampler = from_text(*about.pop("sampler"))
    kind, sizes = about.pop("domain")
    if chosen := about.pop("adapted", None):
        text = chosen["sampler"]  # None in older files
        made_by = sampler if text is None else from_text(*text)
        about["adapted"] = AdaptationResult(**{**chosen, "sampler": made_by, "x": x})
    if ladders:
        about["ladders"] = Ladders(**{**ladders, "steps": int(ladders["steps"])})
    if about["names"] is not None:
        about["names"] = tuple(about["names"])
    if about.get("labels") is not None:
        about["labels"] = tuple(map(tuple, about["labels"]))
    domain = DOMAINS[kind](**sizes)
    arrays["draws"] = StoredDraws.pack(arrays["draws"], domain)
    return {**arrays, **about, "sampler": sampler, "domain": domain}
