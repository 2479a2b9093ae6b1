"""The data set that loaders return: three splits of binary (or grey) rows, and a name.

Every split is `uint8 [n, dim]`, rows first:

- `valid` and `test` always hold 0 and 1.
- `train` holds 0 and 1 or, if `grey` is true, 0 to 255: 255 times the probability that a site is
  on. Grey rows are binarised anew each time they are used.

`batch` turns training rows of both kinds into float32 zeros and ones. Validation and test rows need
only `.float()`.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor


def derive(seed: int, purpose: str) -> torch.Generator:
    """A separate CPU generator for each (seed, purpose). The global one is not used."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))


def binarize(grey: Tensor, rng: torch.Generator) -> Tensor:
    """Set each site to 1 with probability grey / 255: uint8 of any shape to float32 0/1."""
    return torch.bernoulli(grey.float() / 255, generator=rng)


def fixed_subset(rows: Tensor, count: int | None) -> Tensor:
    """`count` of the `rows`, drawn at random but always the same ones; None takes all.

    The first rows would not be representative: the test rows of static MNIST are sorted by digit.
    """
    if count is None or count >= len(rows):
        return rows
    return rows[torch.randperm(len(rows), generator=derive(0, "some rows"))[:count]]


class TrainingData(Protocol):
    """Rows to learn a model from: a `Dataset`, or those of a user."""

    @property
    def train(self) -> Tensor: ...  # [rows, ...]

    @property
    def epoch_size(self) -> int: ...  # rows that count as one epoch

    @property
    def mean(self) -> Tensor: ...  # [dim], of sites of two values

    def batch(self, rows: Tensor, rng: torch.Generator) -> Tensor:
        """The training rows with these indices, as states."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows for training, validation and test; the module's docstring defines their values.

    Args:
        train: uint8 [n, dim], 0/1, or 0..255 where `grey`.
        valid: uint8 [n, dim], 0/1.
        test: uint8 [n, dim], 0/1.
        shape: shape of one row, (28, 28) for most images; its product is dim.
        variant: the exact name of the data used, for records and figures.
        substitute: whether other data replace the ones asked for.
        grey: whether `train` is binarised anew for each batch.
        epoch_size: training rows that count as one epoch. A substitute takes the number of the
            data set it replaces, so that a model gets as many updates; else the length of `train`.

    Raises:
        ValueError: if a split is not uint8 of shape [n, prod(shape)], or has other values.
    """

    train: Tensor
    valid: Tensor
    test: Tensor
    shape: tuple[int, ...]
    variant: str
    substitute: bool = False
    grey: bool = False
    epoch_size: int = 0

    def __post_init__(self) -> None:
        for name in ("train", "valid", "test"):
            rows = getattr(self, name)
            if rows.dtype != torch.uint8 or rows.ndim != 2 or rows.shape[1] != self.dim:
                raise ValueError(
                    f"{name} must be uint8 [n, {self.dim}], got {rows.dtype} {list(rows.shape)}"
                )
            grey = self.grey and name == "train"
            if not grey and (rows > 1).any():
                hint = "; grey rows need grey=True" if name == "train" else ""
                raise ValueError(f"{name} must be rows of 0 and 1, got {int(rows.max())}{hint}")
        if not self.epoch_size:
            object.__setattr__(self, "epoch_size", len(self.train))

    @property
    def dim(self) -> int:
        """Number of sites of a row."""
        return math.prod(self.shape)

    def batch(self, rows: Tensor, rng: torch.Generator) -> Tensor:
        """Training rows as float32 0/1 [batch, dim]; `rows` are indices or a mask."""
        x = self.train[rows]
        return binarize(x, rng) if self.grey else x.float()

    @cached_property
    def mean(self) -> Tensor:
        """Probability of each site over the training rows, float32 [dim] in [0, 1]."""
        total = self.train.sum(0, dtype=torch.int64)
        return (total.double() / (len(self.train) * (255 if self.grey else 1))).float()

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the contents and the variant; part of the keys of shared artifacts."""
        digest = hashlib.sha256(f"{self.variant}|{self.shape}|{self.grey}".encode())
        for rows in (self.train, self.valid, self.test):
            digest.update(str(len(rows)).encode())
            digest.update(rows.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]
