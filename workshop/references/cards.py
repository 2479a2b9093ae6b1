"""Cards: the answers about a target as NAME.yaml and NAME.npz."""

import importlib.metadata
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from latticework.models.references.catalogue import DEFINITIONS, FOLDER, hash_arrays, pack_codes
from workshop.references.answering import answer
from workshop.references.answers import SEED, Answer
from workshop.references.parameters import PARAMETERS

TEXTS = Path(__file__).parent / "texts.yaml"
VERSIONS = ("numpy", "numba", "mpmath", "networkx", "pgmpy", "dwave-samplers", "scikit-learn")
TESTS = "tests/test_references.py"


def write_card(name: str) -> int:
    """Compute a target and write both files. Returns their size in bytes."""
    parameters = PARAMETERS[name]()
    card, made = make_card(name, parameters, answer(name, parameters))
    arrays: dict[str, Any] = made
    FOLDER.mkdir(exist_ok=True)
    np.savez_compressed(FOLDER / f"{name}.npz", **arrays)
    text = yaml.safe_dump(card, sort_keys=False, width=100, allow_unicode=True)
    (FOLDER / f"{name}.yaml").write_text(text, encoding="utf-8")
    return len(text) + (FOLDER / f"{name}.npz").stat().st_size


def make_card(
    name: str, parameters: Mapping[str, NDArray[Any]], found: Answer
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The card, and the arrays: parameters, packed draws, their log pi, and means of sites."""
    model = DEFINITIONS[name].build(parameters)
    words = yaml.safe_load(TEXTS.read_text(encoding="utf-8"))[name]
    drawn, count, bits = {}, 0, 1
    if found.codes is not None and found.log_prob is not None:
        count, bits = len(found.codes), int(found.codes.max()).bit_length()
        drawn["draws"] = pack_codes(found.codes, bits)
        drawn["log_prob"] = found.log_prob.astype(np.float32)
    else:
        drawn = {"draws": np.empty(0, np.uint8), "log_prob": np.empty(0, np.float32)}
    means = list(found.mean.values())
    gaps = [float(np.abs(means[0] - other).max()) for other in means[1:]]
    values = {"energy": found.energy, "energy variance": found.variance}
    for moment in DEFINITIONS[name].moments:
        values[moment] = found.moments[moment]
    moments = {moment: _entry(value) for moment, value in values.items()}
    for moment, error in found.errors.items():
        moments[moment]["standard_error"] = error
    card = {
        "name": name,
        "kind": words["kind"],
        "definition": words["definition"],
        "sites": model.domain.dim,
        "domain": str(model.domain) if len(str(model.domain)) < 60 else type(model.domain).__name__,
        "source": words["source"],
        "licence": words["licence"],
        "log_z": _entry(found.log_z) if found.log_z else None,
        "mean": {"by": list(found.mean), "difference": max(gaps, default=None)},
        "moments": moments,
        "draws": {"count": count, "bits": bits, "made": found.drawn or None, "seed": SEED},
        "one_method": words.get("why"),
        "statistics": {key: round(float(v), 14) for key, v in found.statistics.items()},
        "notes": found.notes,
        "sha256": {
            "parameters": hash_arrays(parameters),
            "draws": hash_arrays(drawn),
            "mean": hash_arrays({"mean": means[0]}),
        },
        "versions": {package: importlib.metadata.version(package) for package in VERSIONS},
        "tests": TESTS,
    }
    return card, {**parameters, **drawn, "mean": means[0]}


def _entry(values: Mapping[str, float]) -> dict[str, Any]:
    """The first method's value, all methods, and the largest difference from the first one."""
    first, *others = values.values()
    gaps = [abs(first - other) for other in others]
    difference = float(max(gaps)) if gaps else None
    if not math.isfinite(first):
        raise ValueError(f"a moment is {first}")
    return {"value": float(first), "by": list(values), "difference": difference}
