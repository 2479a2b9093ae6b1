"""Grey images, and how their values become bits.

There are three ways (`binarize` in the configuration):

- `threshold`: on where the grey value is above one half;
- `static`: each site drawn once with its grey value as probability, in all three splits;
- `dynamic`: validation and test rows drawn once; training rows stay grey and are drawn for each
  batch.

Each split and each draw has its own generator, derived from the seed and the purpose.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from latticework.data.base import Dataset, binarize, derive

MODES = {"threshold": "thresholded at 0.5", "static": "drawn once", "dynamic": "drawn each batch"}


class Grey(NamedTuple):
    """Named square images in 0..255, uint8 [n, dim]; `binary` says that all are 0 or 255."""

    name: str
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    binary: bool = False

    def to_binary(self, mode: str, seed: int, epoch_size: int = 0) -> Dataset:
        """The data set, binarised in one of the MODES; binary images are only scaled to 0/1."""
        variant = self.name if self.binary else f"{self.name}, {MODES[mode]}"
        mode = "threshold" if self.binary else mode

        def bits(split: str, rows: np.ndarray) -> torch.Tensor:
            x = torch.tensor(rows)
            if mode == "threshold":
                return (x > 127).byte()
            return binarize(x, derive(seed, f"binarize {split}")).byte()

        side = round(self.train.shape[1] ** 0.5)
        return Dataset(
            train=torch.tensor(self.train) if mode == "dynamic" else bits("train", self.train),
            valid=bits("valid", self.valid),
            test=bits("test", self.test),
            shape=(side, side),
            variant=variant,
            grey=mode == "dynamic",
            epoch_size=epoch_size,
        )


def check_mode(mode: str) -> None:
    """Raises ValueError unless the mode is one of the MODES."""
    if mode not in MODES:
        raise ValueError(f"binarize must be one of {', '.join(MODES)}, got {mode}")


def hold_out(
    rows: np.ndarray, count: int, seed: int, purpose: str = "validation split"
) -> tuple[np.ndarray, np.ndarray]:
    """Draws `count` rows without replacement: (the other rows in their order, the drawn rows)."""
    order = torch.randperm(len(rows), generator=derive(seed, purpose)).numpy()
    return rows[np.sort(order[count:])], rows[order[:count]]
