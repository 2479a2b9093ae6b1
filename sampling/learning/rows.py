"""Rows that a user learns a model from: checked, and split into those to train on and to hold."""

from functools import cached_property
from typing import Any

import torch
from torch import Generator, Tensor

from latticework.data.base import Dataset, TrainingData
from latticework.models.base import EnergyModel
from latticework.models.domains import Binary, Domain
from latticework.models.given_numbers import read_numbers
from latticework.sampling.learning.updates import ROWS_AT_ONCE
from latticework.sampling.messages import shorten

MIN_ROWS = 2  # rows to train on, of which one would be learned by heart


class UserRows:
    """Training rows `[rows, *domain.shape]`, states of the domain."""

    def __init__(self, train: Tensor, domain: Domain) -> None:
        self.train, self.domain, self.epoch_size = train, domain, len(train)

    def batch(self, rows: Tensor, rng: Generator) -> Tensor:
        return self.train[rows].float()

    @cached_property
    def mean(self) -> Tensor:
        """The frequency with which each site is high, float32 `[sites]`."""
        assert isinstance(self.domain, Binary)
        return (self.train == self.domain.high).double().mean(0).float()


def read_rows(given: Any, name: str, model: EnergyModel) -> Tensor:
    """Rows of a tensor, array or table as states of the model, `[rows, *domain.shape]`.

    Images of binary sites are flattened. Raises ValueError for anything that is no state.
    """
    domain, shape = model.domain, model.domain.shape
    x = read_numbers(given, name)
    got = list(x.shape)
    x = x.flatten(1) if x.ndim > 2 and len(shape) == 1 else x
    if x.shape[1:] != shape or x.ndim != len(shape) + 1 or not len(x):
        sites = ", ".join(map(str, shape))
        raise ValueError(f"{name} must have shape [rows, {sites}], got {got}")
    if x.is_floating_point() and not (finite := x.isfinite().flatten(1).all(1)).all():
        row = int((~finite).nonzero()[0])
        raise ValueError(
            f"{name} must have no missing values, got NaN or infinity in row {row}; leave out "
            "such rows, or fill them in"
        )
    x = x if x.is_floating_point() else x.to(torch.uint8 if x.dtype == torch.bool else x.dtype)
    try:
        domain.check(x.float())
    except ValueError as error:
        advice = "; images in grey need a threshold, such as images > 0.5"
        text = str(error).replace("every entry of a state", f"every entry of {name}")
        raise ValueError(text + (advice if isinstance(domain, Binary) else "")) from error
    return x


def split_rows(
    data: Any, held_out: Any, model: EnergyModel, rng: Generator
) -> tuple[TrainingData, Tensor | None]:
    """The rows to train on, and the rows to hold out, if there are any.

    `held_out` is the share of `data` that is drawn for it, rows of their own, or None; a `Dataset`
    has its validation rows. Raises ValueError for rows that are no states of the model, for a share
    that leaves too few, and for models that no rows fit.
    """
    if isinstance(data, Dataset):
        if not (isinstance(model.domain, Binary) and model.domain.is_unit):
            raise ValueError(f"a Dataset has rows of 0 and 1, got a model on {model.domain}")
        if data.dim != model.domain.dim:
            raise ValueError(f"data must have shape [rows, {model.domain.dim}], got {data.dim}")
        return data, data.valid if len(data.valid) else None
    x, held = read_rows(data, "data", model), None
    if isinstance(held_out, bool) or (isinstance(held_out, int | float) and not 0 < held_out < 1):
        raise ValueError(
            f"held_out must be a share between 0 and 1, rows [rows, ...] or None, got {held_out!r}"
        )
    if isinstance(held_out, int | float):
        order = torch.randperm(len(x), generator=rng)
        number = max(1, round(held_out * len(x)))
        x, held = x[order[number:]], x[order[:number]]
    elif held_out is not None:
        held = read_rows(held_out, "held_out", model)
    if len(x) < MIN_ROWS:
        raise ValueError(f"learning needs {MIN_ROWS} training rows or more, got {len(x)}")
    return UserRows(x, model.domain), held


@torch.no_grad()
def require_possible(
    data: TrainingData, model: EnergyModel, rng: Generator, device: torch.device
) -> None:
    """Raise ValueError unless the model gives all training rows a finite log-probability."""
    for rows in torch.arange(len(data.train)).split(ROWS_AT_ONCE):
        x = data.batch(rows, rng).to(device)
        finite = model.log_prob(x).isfinite()
        if not finite.all():
            row = x[~finite][0].flatten().tolist()
            raise ValueError(
                f"the model gives {int((~finite).sum())} of {len(x)} training rows no finite "
                f"log-probability, such as {shorten(row)}; leave them out, or mend the model's "
                "parameters"
            )
