"""Sweeps of lattices with one coupling: the twin of both samplers of `samplers.sweep`."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.forms import LatticeForm
from latticework.samplers.compiled.bits import MAX_NEIGHBOURS, Chances, count_terms
from latticework.samplers.compiled.compiled_sampler import GroupTwin, Keys, Position, Sums
from latticework.samplers.compiled.jit import over_chains
from latticework.samplers.compiled.rows import TILE_WORDS, Rows, rows_of, sweep_rows
from latticework.samplers.sweep import TIE_NATS, TIE_SHARE, MetropolisSweep

NANOSECONDS = 0.08  # for a site, roughly


@dataclass(frozen=True)
class LatticeSweepTwin(GroupTwin):
    def refuses(self, form: LatticeForm) -> str:
        return refuse_degree(form)

    def start(self, x: Tensor, form: LatticeForm) -> Position:
        return Position(x)

    def run(self, state: Position, form: LatticeForm, keys: Keys, sums: Sums) -> Position:
        self.run_groups(state.x.numpy(), np.arange(len(state.x))[None], (form,), keys, sums)
        return state

    def run_groups(
        self,
        x: NDArray[np.float32],
        rows: NDArray[np.int64],
        forms: tuple[LatticeForm, ...],
        keys: Keys,
        sums: Sums,
    ) -> None:
        flips = isinstance(self.sampler, MetropolisSweep)
        lattice = _rows_of_forms(_SameForms(forms), flips)
        groups, size = rows.shape
        chains = lattice.rows * (2 if lattice.paired else 1)
        tiles, work = groups * -(-size // chains), NANOSECONDS * x.size * len(keys)
        args = lattice, flips, size, rows.ravel(), x, keys, sums
        over_chains(sweep_rows, tiles, work, *args)
        sums.accept[:] += len(keys)
        if np.isnan(forms[0].odds).any():
            sums.invalid[:] += len(keys)


def refuse_degree(form: LatticeForm) -> str:
    most = int(form.degree.max())
    return (
        f"{most} neighbours of a site ({MAX_NEIGHBOURS} at most)" if most > MAX_NEIGHBOURS else ""
    )


def gibbs_chances(odds: NDArray[np.float64]) -> Chances:
    """The probability of 1, whatever the present value, from the log-odds `[kinds, numbers]`."""
    odds = pad_numbers(odds)
    with np.errstate(over="ignore"):
        probability = 1 / (1 + np.exp(-odds))
    return Chances(probability[:, None], np.zeros((len(odds), 2, odds.shape[1]), bool))


def metropolis_chances(groups: list[NDArray[np.float64]]) -> list[Chances]:
    """The probabilities of a flip by the rule of `samplers.sweep`, from `[kinds, numbers]` of each.

    A site at its unlikely value flips for certain. One at its likely value flips with probability
    exp(-|log-odds|), and this may be tried at both values: the certain flip comes on top. But where
    both values are nearly as likely, a tie, either value has a probability of its own. All groups
    have that if one has it.
    """
    gains = [np.stack((odds, -odds), 1) for odds in map(pad_numbers, groups)]  # of both values
    ties = [np.abs(gain) <= TIE_NATS for gain in gains]
    valued = any((tie & (gain != 0)).any() for tie, gain in zip(ties, gains, strict=True))
    chances = []
    for tie, gain in zip(ties, gains, strict=True):
        share = np.where(tie, TIE_SHARE, 1.0)
        if valued:
            probability = share * np.exp(np.minimum(gain, 0))
        else:
            probability = (share * np.exp(-np.abs(gain)))[:, :1]
        chances.append(Chances(probability, (gain >= 0) & ~tie))
    return chances


def pad_numbers(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-odds `[kinds, terms]`; those of numbers of neighbours that no site has are 0."""
    terms = count_terms(odds.shape[1] - 1)
    return np.pad(odds, ((0, 0), (0, terms - odds.shape[1])))


class _SameForms:
    """Forms, equal to a tuple of these objects only."""

    def __init__(self, forms: tuple[LatticeForm, ...]) -> None:
        self.forms, self.ids = forms, tuple(map(id, forms))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SameForms) and self.ids == other.ids

    def __hash__(self) -> int:
        return hash(self.ids)


@lru_cache(maxsize=16)
def _rows_of_forms(of: _SameForms, metropolis: bool) -> Rows:
    return metropolis_rows(of.forms) if metropolis else gibbs_rows(of.forms)


def gibbs_rows(forms: tuple[LatticeForm, ...], tile_words: int = TILE_WORDS) -> Rows:
    """The arrays for sweeps of chains on these forms, which differ in their log-odds only."""
    degree = int(forms[0].degree.max())
    chances = [gibbs_chances(form.odds[:, : degree + 1]) for form in forms]
    return rows_of(forms[0], chances, tile_words)


def metropolis_rows(forms: tuple[LatticeForm, ...]) -> Rows:
    """`gibbs_rows` for Metropolis' rule."""
    degree = int(forms[0].degree.max())
    return rows_of(forms[0], metropolis_chances([form.odds[:, : degree + 1] for form in forms]))
