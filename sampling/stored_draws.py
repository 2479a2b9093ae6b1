"""Draws of chains as bits and bytes, in memory or in a file, unpacked where they are used.

Blocks of draws are appended. A copy (`fork`) shares them, so a result keeps its draws while its
chains go on.
"""

import copy
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.domains import Domain
from latticework.sampling.codes import PlainCode, code_of

MAX_HELD_BYTES = 2**26  # bytes of unpacked draws that are held after their first use
MAX_ROWS_AT_ONCE = 2**22  # entries that are unpacked together


class StoredDraws:
    """Draws `[chains, draws, *shape]` from a domain, appended in blocks `[draws, chains, *shape]`.

    States outside the domain are kept as they are. With a `file`, the codes are its array
    `[draws, chains, width]`, in NumPy's format.
    """

    def __init__(self, domain: Domain | None, x: Tensor, file: Path | None = None) -> None:
        """Store states like `x` `[chains, *shape]`. Raises FileExistsError for a file there."""
        if file is not None and file.exists():
            raise FileExistsError(
                f"{file} exists and is not overwritten; remove it, or choose another name"
            )
        self.code: PlainCode = code_of(domain, x)
        self.chains, self.draws = len(x), 0
        self.file, self._blocks = file, []  # type: tuple[Path | None, list[NDArray]]
        self._held: Tensor | None = None

    @classmethod
    def pack(cls, draws: Tensor, domain: Domain | None = None) -> "StoredDraws":
        """Store draws `[chains, draws, *shape]`."""
        stored = cls(domain, draws.new_empty(len(draws), *draws.shape[2:]))
        stored.append(draws.transpose(0, 1))
        return stored

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.chains, self.draws, *self.code.shape)

    def bytes_of(self, draws: int) -> int:
        """Bytes that so many draws of all chains take."""
        return draws * self.chains * self.code.width * self.code.code.itemsize

    @property
    def unpacked_bytes(self) -> int:
        return int(np.prod(self.shape)) * self.code.dtype.itemsize

    def fork(self) -> "StoredDraws":
        """A store with the same draws, to which others are appended.

        Raises ValueError if another copy has written to the file.
        """
        if self.file is not None and len(self._rows()) > self.draws:
            raise ValueError(
                f"{self.file} has more draws than this result, whose chains have gone on; continue "
                "the newest result"
            )
        twin = copy.copy(self)
        twin._blocks, twin._held = [*self._blocks], None
        return twin

    def append(self, x: Tensor) -> None:
        """Add draws `[draws, chains, *shape]`."""
        codes = self.code.encode(x.flatten(0, 1))
        if codes is None:
            self._store_plain()
            codes = self.code.encode(x.flatten(0, 1))
        assert codes is not None
        rows = codes.reshape(len(x), self.chains, -1)
        self.draws, self._held = self.draws + len(x), None
        if self.file is None:
            self._blocks.append(rows)
            return
        with self.file.open("r+b" if self.file.exists() else "xb") as opened:
            self._write_header(opened)
            opened.seek(0, 2)
            rows.tofile(opened)

    def unpack(self) -> Tensor:
        """The draws `[chains, draws, *shape]`."""
        if self._held is not None:
            return self._held
        entries = int(np.prod(self.code.shape))
        draws = np.empty((self.chains, self.draws, entries), self.code.dtype)
        for place, codes in self._parts():
            draws[:, place] = self.code.decode(codes).swapaxes(0, 1)
        unpacked = torch.from_numpy(draws).view(*self.shape)
        if self.unpacked_bytes <= MAX_HELD_BYTES:
            self._held = unpacked
        return unpacked

    def entries(self) -> Any:
        """The draws as an array `[chains, draws, *shape]`; of many, one that unpacks on use."""
        return self.unpack().numpy() if self.unpacked_bytes <= MAX_HELD_BYTES else LazyArray(self)

    def select_entries(self, entries: NDArray) -> NDArray:
        """Entries of the states by their flat numbers, `[chains, draws, n]`."""
        chosen = np.empty((self.chains, self.draws, len(entries)), self.code.dtype)
        for place, codes in self._parts(len(entries)):
            chosen[:, place] = self.code.decode_entries(codes, entries).swapaxes(0, 1)
        return chosen

    def _rows(self) -> NDArray:
        """All codes in the file, `[draws, chains, width]`."""
        return np.load(self.file, mmap_mode="r")  # type: ignore[arg-type]

    def _parts(self, entries: int | None = None) -> Iterator[tuple[slice, NDArray]]:
        """Codes of consecutive draws, and their places."""
        entries = int(np.prod(self.code.shape)) if entries is None else entries
        together = max(1, MAX_ROWS_AT_ONCE // max(1, self.chains * entries))
        blocks = self._blocks if self.file is None else [self._rows()[: self.draws]]
        first = 0
        for block in blocks:
            for begin in range(0, len(block), together):
                part = block[begin : begin + together]
                yield slice(first + begin, first + begin + len(part)), part
            first += len(block)

    def _store_plain(self) -> None:
        """Keep all states as they are, from now on. Raises ValueError where a file holds codes."""
        if self.file is not None:
            raise ValueError(
                f"the chains left their domain, whose states {self.file} holds; check the sampler"
            )
        plain = PlainCode(self.code.shape, self.code.dtype)
        self._blocks = [self.code.decode(block) for block in self._blocks]
        self.code = plain

    def _write_header(self, opened: Any) -> None:
        """Write NumPy's header, which leaves room for more draws."""
        shape = (self.draws, self.chains, self.code.width)
        about = {"descr": self.code.code.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(opened, about)


class LazyArray:
    """Draws as an array whose entries are unpacked when they are read."""

    def __init__(self, stored: StoredDraws, shape: tuple[int, ...] | None = None) -> None:
        self.stored, self.shape = stored, stored.shape if shape is None else shape

    def __len__(self) -> int:
        return self.shape[0]

    @cached_property
    def ndim(self) -> int:
        return len(self.shape)

    def reshape(self, *shape: int) -> Any:
        """An array of these draws with the entries of a state in one axis, or of another shape."""
        flat = (*self.stored.shape[:2], int(np.prod(self.stored.shape[2:])))
        if shape in (flat, (*flat[:2], -1)):
            return LazyArray(self.stored, flat)
        return np.asarray(self).reshape(shape)

    def __getitem__(self, key: Any) -> NDArray:
        if isinstance(key, tuple) and len(key) == 2 and key[0] is Ellipsis and self.ndim == 3:
            return self.stored.select_entries(np.arange(self.shape[2])[key[1]])
        return np.asarray(self)[key]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        return (
            self.stored.unpack().numpy().reshape(self.shape).astype(dtype or self.stored.code.dtype)
        )


class UnpackedDraws:
    """The attribute `draws` of a result, which is stored as bits and bytes."""

    def __get__(self, result: Any, owner: type) -> Any:
        return self if result is None else result.stored.unpack()

    def __set__(self, result: Any, draws: Any) -> None:
        stored = StoredDraws.pack(draws) if isinstance(draws, Tensor) else draws
        result.__dict__["stored"] = stored
