"""Codes of states: the bits, bytes or numbers that stand for the entries of a state in memory."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.domains import Binary, Categorical, Domain, Ordinal, Subset


@dataclass(frozen=True)
class PlainCode:
    """The entries as they are."""

    shape: tuple[int, ...]  # the shape of a state
    dtype: np.dtype

    @property
    def width(self) -> int:
        """Numbers of the code of a state."""
        return int(np.prod(self.shape))

    @property
    def code(self) -> np.dtype:
        """The type of these numbers."""
        return self.dtype

    def encode(self, x: Tensor) -> NDArray | None:
        """Codes `[n, width]` of states `[n, *shape]`; None if they do not tell the states."""
        return x.flatten(1).cpu().numpy().astype(self.dtype)

    def decode(self, codes: NDArray) -> NDArray:
        """The entries `[..., entries]` of the states with these codes `[..., width]`."""
        return codes

    def decode_entries(self, codes: NDArray, entries: NDArray) -> NDArray:
        """Some entries of the states, `[..., n]`."""
        return self.decode(codes)[..., entries]


@dataclass(frozen=True)
class Bits(PlainCode):
    """A bit for a site of two values."""

    low: float
    high: float

    @property
    def width(self) -> int:
        return -(-self.shape[0] // 8)

    @property
    def code(self) -> np.dtype:
        return np.dtype(np.uint8)

    def encode(self, x: Tensor) -> NDArray | None:
        states = x.cpu().numpy()
        low, high = map(states.dtype.type, (self.low, self.high))  # else int8 becomes float
        ones = states == high
        if not (ones | (states == low)).all():
            return None
        return np.packbits(ones, axis=-1)

    def decode(self, codes: NDArray) -> NDArray:
        return self._values(np.unpackbits(codes, axis=-1, count=self.shape[0]))

    def decode_entries(self, codes: NDArray, entries: NDArray) -> NDArray:
        places = (7 - entries % 8).astype(np.uint8)
        return self._values(codes[..., entries // 8] >> places & 1)

    def _values(self, bits: NDArray) -> NDArray:
        if (self.low, self.high) == (0, 1):
            return bits.astype(self.dtype)
        return np.where(bits.astype(bool), self.dtype.type(self.high), self.dtype.type(self.low))


@dataclass(frozen=True)
class WholeNumbers(PlainCode):
    """A byte, or more, for a site of so many values 0, 1, ..."""

    num_values: int

    @property
    def width(self) -> int:
        return self.shape[0]

    @property
    def code(self) -> np.dtype:
        return np.min_scalar_type(self.num_values - 1)

    def encode(self, x: Tensor) -> NDArray | None:
        whole = (x >= 0) & (x < self.num_values) & (x == x.floor())
        return x.cpu().numpy().astype(self.code) if bool(whole.all()) else None

    def decode(self, codes: NDArray) -> NDArray:
        return codes.astype(self.dtype)


@dataclass(frozen=True)
class Categories(WholeNumbers):
    """A byte, or more, for a one-hot site of so many categories."""

    def encode(self, x: Tensor) -> NDArray | None:
        categories = x.argmax(-1)
        one_hot = (x != 0).sum(-1) == 1
        ones = x.gather(-1, categories.unsqueeze(-1)) == 1
        if not bool(one_hot.all() & ones.all()):
            return None
        return categories.cpu().numpy().astype(self.code)

    def decode(self, codes: NDArray) -> NDArray:
        entries = codes[..., None] == np.arange(self.num_values, dtype=self.code)
        return entries.astype(self.dtype).reshape(*codes.shape[:-1], -1)

    def decode_entries(self, codes: NDArray, entries: NDArray) -> NDArray:
        sites, values = np.divmod(entries, self.num_values)
        return (codes[..., sites] == values.astype(self.code)).astype(self.dtype)


def code_of(domain: Domain | None, x: Tensor) -> PlainCode:
    """The code for states of this domain like `x` `[chains, *shape]`."""
    about: tuple[Any, Any] = tuple(x.shape[1:]), torch.empty(0, dtype=x.dtype).numpy().dtype
    if isinstance(domain, Binary | Subset):
        return Bits(*about, domain.low, domain.high)
    if isinstance(domain, Categorical):
        return Categories(*about, domain.num_values)
    if isinstance(domain, Ordinal):
        return WholeNumbers(*about, domain.num_values)
    return PlainCode(*about)
