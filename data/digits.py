"""scikit-learn's digits, which are always at hand."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from latticework.data.base import Dataset
from latticework.data.grey import Grey, check_mode, hold_out


@dataclass(frozen=True, kw_only=True)
class Digits:
    """scikit-learn's 1,797 digits of 8x8, enlarged bilinearly: 1,297 / 250 / 250, split at random.

    Args:
        size: height and width in pixels.
        binarize: threshold, static or dynamic.
        seed: of the generators of the split and the draws.
        epoch_size: training rows that count as one epoch; None for all of them.
    """

    size: int = 28
    binarize: str = "threshold"
    seed: int = 0
    epoch_size: int | None = None

    def __post_init__(self) -> None:
        check_mode(self.binarize)
        if self.size < 8:
            raise ValueError(f"size must be at least 8, the size of the digits, got {self.size}")

    def load(self) -> Dataset:
        """Enlarges, splits and binarises the digits."""
        from sklearn.datasets import load_digits  # here: its import takes a second

        images = torch.from_numpy(load_digits().images).float() * (255 / 16)  # [n, 8, 8]
        large = torch.nn.functional.interpolate(
            images[:, None], (self.size, self.size), mode="bilinear"
        )
        rows = large.round().byte().flatten(1).numpy()
        remaining, test = hold_out(rows, 250, self.seed, "test split")
        train, valid = hold_out(remaining, 250, self.seed)
        name = f"scikit-learn digits at {self.size}x{self.size}"
        grey = Grey(name, train, valid, test)
        return grey.to_binary(self.binarize, self.seed, self.epoch_size or len(train))
