"""The probabilities of decisions by which sweeps in bits update a site."""

import numpy as np
from numpy.typing import NDArray

from latticework.samplers.compiled.bits.decisions import Chances, count_terms
from latticework.samplers.sweep import TIE_NATS, TIE_SHARE

Groups = list[NDArray[np.float64]]  # log-odds `[kinds of sites, numbers of neighbours at 1]`


def gibbs_chances(odds: NDArray[np.float64]) -> Chances:
    """The probability of 1, whatever the present value, from the log-odds `[kinds, numbers]`."""
    odds = pad_numbers(odds)
    with np.errstate(over="ignore"):
        probability = 1 / (1 + np.exp(-odds))
    return Chances(probability[:, None], np.zeros((len(odds), 2, odds.shape[1]), bool))


def metropolis_chances(groups: Groups) -> list[Chances]:
    """The probabilities of a flip by the rule of `samplers.sweep`, from `[kinds, numbers]` of each.

    A site at its unlikely value flips for certain. One at its likely value flips with probability
    exp(-|log-odds|), and this may be tried at both values: the certain flip comes on top. But where
    both values are nearly as likely, a tie, either value has a probability of its own. All groups
    have that if one has it.
    """
    gains = [np.stack((odds, -odds), 1) for odds in map(pad_numbers, groups)]  # for both values
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


def chances_of(groups: Groups, metropolis: bool) -> list[Chances]:
    """The probabilities of both samplers of `samplers.sweep`, for each group of chains."""
    if metropolis:
        return metropolis_chances(groups)
    return [gibbs_chances(odds) for odds in groups]
