"""Reference targets: models whose log Z, moments and independent draws are known.

Each has a card, NAME.yaml, which says what the target is and how each number was found, and arrays,
NAME.npz: the parameters and the draws. `python -m workshop.references NAME` writes both.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.abilities import KnownTarget
from latticework.models.base import EnergyModel
from latticework.models.domains import Categorical, Domain, Integer
from latticework.models.references.comparison import compare
from latticework.models.references.constraints import CONSTRAINTS
from latticework.models.references.definition import Arrays, Definition
from latticework.models.references.graphs import GRAPHS
from latticework.models.references.lattices import LATTICES
from latticework.models.references.networks import NETWORKS
from latticework.models.references.posteriors import POSTERIORS

if TYPE_CHECKING:
    import pandas as pd

FOLDER = Path(__file__).parent / "cards"
DEFINITIONS: dict[str, Definition] = LATTICES | GRAPHS | NETWORKS | CONSTRAINTS | POSTERIORS
RESULTS = ("draws", "log_prob", "mean")  # arrays that are not parameters


class KnownMoment(NamedTuple):
    """A mean under the target, and how it is known."""

    value: float | Tensor
    error: float  # the difference of two methods, or a standard error; NaN of one exact method
    by: tuple[str, ...]  # the methods


@dataclass(frozen=True, eq=False, repr=False)
class ReferenceTarget(KnownTarget):
    """A target with known answers: `latticework.reference("ising16_crit")`."""

    name: str
    card: dict[str, Any]  # NAME.yaml
    definition: Definition
    arrays: Arrays

    @cached_property
    def model(self) -> EnergyModel:
        parameters = parameters_of(self.arrays)
        model = self.definition.build(parameters)
        model.requires_grad_(False)
        model.untrained = False
        return model

    @property
    def log_z(self) -> float | None:
        """The log normaliser; None where it is not known exactly."""
        entry = self.card["log_z"]
        return None if entry is None else float(entry["value"])

    @cached_property
    def draws(self) -> Tensor:
        """Independent draws `[n, *domain.shape]`; none (n = 0) where the card has none."""
        return states_of(unpack(self.arrays["draws"], self.card), self.model.domain)

    @cached_property
    def log_prob(self) -> Tensor:
        """Log pi of the draws, `[n]`, float64, as the exact methods compute it."""
        return torch.from_numpy(self.arrays["log_prob"].astype(np.float64))

    @cached_property
    def mean(self) -> Tensor:
        """The mean of x, `[*domain.shape]`, float64; of one-hot sites the probabilities."""
        return torch.from_numpy(self.arrays["mean"]).view(self.model.domain.shape)

    @cached_property
    def moments(self) -> dict[str, KnownMoment]:
        """`mean` of x, `energy` and `energy variance` of log pi, and others of the card."""
        moments = {"mean": _known(self.card["mean"] | {"value": self.mean})}
        for name, entry in self.card["moments"].items():
            moments[name] = _known(entry)
        return moments

    def compare(self, result: Any) -> "pd.DataFrame":
        """The errors of a `SampleResult` against the truth, a row a quantity.

        Columns: truth, estimate, error, mcse, and the error in MCSEs. Rows: the mean of log_prob,
        the card's other moments, every entry of x, and log Z of a tempered run.
        """
        return compare(self, result, self.moment_functions())

    def moment_functions(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """The card's moments other than those of log pi, as functions of states `[n, ...]`."""
        functions = {}
        parameters = parameters_of(self.arrays)
        for name, moment in self.definition.moments.items():
            functions[name] = _bound(moment, parameters)
        return functions

    def __repr__(self) -> str:
        log_z = "not known" if self.log_z is None else f"{self.log_z:.8f}"
        return f"<reference {self.name}: {self.card['sites']} sites, log Z {log_z}>"


def reference(name: str) -> ReferenceTarget:
    """The reference target of this name (`references()` lists them).

    Its parameters are checked against the card. Raises ValueError for an unknown name, with a list.
    """
    if name not in DEFINITIONS:
        raise ValueError(f"name must be one of {', '.join(DEFINITIONS)}, got {name!r}")
    arrays, card = load_arrays(name), read_card(name)
    if hash_arrays(parameters_of(arrays)) != card["sha256"]["parameters"]:
        raise ValueError(f"the parameters of {name} are not those of its card; install it again")
    return ReferenceTarget(name, card, DEFINITIONS[name], arrays)


def reference_model(name: str, window: int | None = None) -> EnergyModel:
    """The model of a reference target: `model=reference model.name=...`.

    On integers, `window` is how far a proposal may move a site. Raises ValueError if it is given
    for another domain.
    """
    model = reference(name).model
    if window is None:
        return model
    if not isinstance(model.domain, Integer):
        raise ValueError(f"window={window} needs a target on integers; {name} has {model.domain}")
    model.domain = replace(model.domain, window=window)
    return model


def references() -> "pd.DataFrame":
    """All reference targets, a row each: kind, sites, log Z, methods, number of draws.

    The methods are those of log Z; where it is not known (NaN), of the energy.
    """
    import pandas as pd

    rows = {}
    for name in DEFINITIONS:
        card = read_card(name)
        log_z = card["log_z"] or {"value": np.nan, "by": card["moments"]["energy"]["by"]}
        rows[name] = {
            "kind": card["kind"],
            "sites": card["sites"],
            "log_z": log_z["value"],
            "methods": ", ".join(log_z["by"]),
            "draws": card["draws"]["count"],
        }
    return pd.DataFrame.from_dict(rows, orient="index")


@cache
def read_card(name: str) -> dict[str, Any]:
    return yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))


def load_arrays(name: str) -> dict[str, NDArray[Any]]:
    with np.load(FOLDER / f"{name}.npz") as file:
        return dict(file)


def parameters_of(arrays: Arrays) -> dict[str, NDArray[Any]]:
    return {name: arrays[name] for name in arrays if name not in RESULTS}


def hash_arrays(arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of names, types, shapes and entries; a compressed file would also hold times."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def pack_codes(codes: NDArray[np.int64], bits: int) -> NDArray[np.uint8]:
    """Whole numbers below 2^bits as bytes: all lowest bits, then all next ones, ..."""
    planes = codes[None] >> np.arange(bits)[:, None, None] & 1
    return np.packbits(planes.astype(np.uint8).ravel())


def unpack(packed: NDArray[np.uint8], card: Mapping[str, Any]) -> NDArray[np.int64]:
    """The numbers of the sites' values, `[draws, sites]`."""
    count, sites, bits = card["draws"]["count"], card["sites"], card["draws"]["bits"]
    planes = np.unpackbits(packed, count=bits * count * sites).reshape(bits, count, sites)
    return (planes.astype(np.int64) << np.arange(bits)[:, None, None]).sum(0)


def states_of(codes: NDArray[np.int64], domain: Domain) -> Tensor:
    numbers = torch.from_numpy(codes)
    if isinstance(domain, Categorical):
        return (numbers.unsqueeze(-1) == torch.arange(domain.num_values)).float()
    return numbers.float()


def _known(entry: Mapping[str, Any]) -> KnownMoment:
    error = entry.get("standard_error", entry["difference"])
    return KnownMoment(entry["value"], np.nan if error is None else error, tuple(entry["by"]))


def _bound(moment: Any, parameters: Arrays) -> Any:
    return lambda x: moment(x, parameters)
