"""Tables of numbers for regression: rows with targets, split and standardised.

A `Table` has three parts of float32 features and targets: the training rows, 1 % of them held out
(`valid`), and the test rows, which are a fifth of all rows or the publisher's test part. Features
are standardised by the mean and standard deviation of the training rows, or shifted and scaled to
[0, 1] by their range. A column that is constant there becomes 0. Targets are in [0, 1]. (R. Zhang,
X. Liu and Q. Liu, ICML 2022, Section 7.4 and App. I.5, who normalise both "to (0, 1)".)
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.data.base import derive

TEST, HELD_OUT = 0.2, 0.01  # fractions of all rows, and of the training rows


@dataclass(frozen=True, eq=False)
class Rows:
    """Features `[n, dim]` and targets `[n]`, float32."""

    features: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True, eq=False)
class Table:
    """The result of a loader of `data.tables`.

    Args:
        train: the rows for training; the module's docstring defines the three parts.
        valid: the rows for choosing settings.
        test: the rows for the reported scores.
        columns: the names of the features.
        variant: the exact name of the data used, for records and tables.
        substitute: whether other data replace the ones asked for.
    """

    train: Rows
    valid: Rows
    test: Rows
    columns: tuple[str, ...]
    variant: str
    substitute: bool = False

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the contents and the variant."""
        digest = hashlib.sha256(f"{self.variant}|{self.columns}".encode())
        for rows in (self.train, self.valid, self.test):
            digest.update(f"|{len(rows)}|".encode())
            digest.update(rows.features.numpy().tobytes())
            digest.update(rows.targets.numpy().tobytes())
        return digest.hexdigest()[:16]


def split(
    features: NDArray,
    targets: NDArray,
    columns: tuple[str, ...],
    variant: str,
    *,
    seed: int,
    tested: NDArray | None = None,
    normalise: Literal["unit"] | None = None,
    limit: int | None = None,
    substitute: bool = False,
) -> Table:
    """Shuffle the rows by `seed`, split them and normalise the features.

    `features` `[n, dim]` and `targets` `[n]` are float64. `tested` `[n]` marks the test rows; None
    takes a fifth of all rows at random. `normalise` None standardises the features. "unit" maps the
    range of the training rows to [0, 1], so that a test row may lie outside. `limit` keeps the
    first `limit` shuffled rows, and the variant then says so. Raises ValueError unless there are at
    least 10 rows, some to train and some to test on, all numbers are finite and targets are in
    [0, 1].
    """
    if not np.isfinite(features).all() or not ((targets >= 0) & (targets <= 1)).all():
        raise ValueError(f"{variant}: expected finite features and targets in [0, 1]")
    order = torch.randperm(len(targets), generator=derive(seed, "table split")).numpy()[:limit]
    if len(order) < 10:
        raise ValueError(f"{variant}: expected at least 10 rows, found {len(order)}")
    if len(order) < len(targets):
        variant = f"{variant}, {len(order):,} of {len(targets):,} rows"
    if tested is None:
        count = round((1 - TEST) * len(order))
    else:
        order = order[np.argsort(tested[order], kind="stable")]
        count = len(order) - int(tested[order].sum())
        if not 0 < count < len(order):
            sizes = f"{count} and {len(order) - count}"
            raise ValueError(f"{variant}: expected rows to train and to test on, found {sizes}")
    held_out = round(HELD_OUT * count)
    parts = np.split(order, [count - held_out, count])

    trained = features[parts[0]]
    constant = (trained == trained[:1]).all(0)
    if normalise is None:
        centre, spread = trained.mean(0), trained.std(0, ddof=1)
    else:
        centre, spread = trained.min(0), np.ptp(trained, axis=0)
    scale = np.where(constant, np.inf, spread)  # constant: 0 in all parts
    normal = (features - centre) / scale

    def rows(part: NDArray) -> Rows:
        return Rows(
            torch.from_numpy(normal[part].astype(np.float32)),
            torch.from_numpy(targets[part].astype(np.float32)),
        )

    train, valid, test = map(rows, parts)
    return Table(train, valid, test, columns, variant, substitute)


def count_repeated(table: Table) -> int:
    """How many test rows are the same as a training row, target included."""
    train, test = (
        torch.cat([rows.features, rows.targets.unsqueeze(1)], 1)
        for rows in (table.train, table.test)
    )
    return rows_among(test, train)


def rows_among(rows: Tensor, others: Tensor) -> int:
    """How many of `rows` are equal to one of `others`, both `[n, columns]`."""

    def bytes_of(table: Tensor) -> list[bytes]:
        return [row.tobytes() for row in (table + 0).numpy()]  # -0.0 becomes 0.0

    known = set(bytes_of(others))
    return sum(row in known for row in bytes_of(rows))


def unit_range(values: NDArray) -> NDArray:
    """`values` shifted and scaled to [0, 1]."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low)
