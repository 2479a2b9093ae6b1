"""What a loader hands over: three splits of binary (or grey) rows, and the name of what they are.

THE contract. Every split is `uint8 [n, dim]`, chains and rows first:

- `valid` and `test` always hold 0 and 1.
- `train` holds 0 and 1, or, where `grey` is true, 0 to 255, read as 255 times the probability that
  a site is on; such rows are binarised afresh each time they are used.

`batch` turns training rows into float32 zeros and ones in both cases, so a task never asks which
it has; validation and test rows need only `.float()`.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


def derive(seed: int, purpose: str) -> torch.Generator:
    """A CPU generator of its own for each (seed, purpose); the global one is never touched."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))


def binarize(grey: Tensor, rng: torch.Generator) -> Tensor:
    """Draws each site on with probability grey / 255: uint8 of any shape to float32 0/1."""
    return torch.bernoulli(grey.float() / 255, generator=rng)


def some(rows: Tensor, count: int | None) -> Tensor:
    """`count` of the `rows`, drawn at random and always the same ones; None takes all.

    The first ones would not do: the test rows of the static MNIST are in the order of their digits.
    """
    if count is None or count >= len(rows):
        return rows
    return rows[torch.randperm(len(rows), generator=derive(0, "some rows"))[:count]]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows for training, validation and test, as laid down at the head of this file.

    Args:
        train: uint8 [n, dim], 0/1, or 0..255 where `grey`.
        valid: uint8 [n, dim], 0/1.
        test: uint8 [n, dim], 0/1.
        shape: shape of one row, (28, 28) for most images; its product is dim.
        variant: names exactly what was used, for records and figures.
        substitute: whether something else stands in for what was asked.
        grey: whether `train` is to be binarised afresh for each batch.
        epoch_size: training rows that count as one epoch. A substitute has the number of the
            set it stands in for, so that a model gets as many updates; else the length of `train`.

    Raises:
        ValueError: if a split is not uint8 of shape [n, prod(shape)].
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
        """Hash of the contents and the variant, for the keys of shared artifacts."""
        digest = hashlib.sha256(f"{self.variant}|{self.shape}|{self.grey}".encode())
        for rows in (self.train, self.valid, self.test):
            digest.update(str(len(rows)).encode())
            digest.update(rows.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]
