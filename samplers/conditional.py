"""Draws from a block's conditional distribution, whose log-probabilities may be NaN or infinite.

Gibbs and the Hamming ball sampler have no acceptance test that could reject such a value. Instead,

- a value of unknown (NaN) log-probability is never drawn;
- a chain stays where it is if no finite value is left, or if one is +infinity.

`Info.log_ratio` reports both: it is NaN for a chain that met either, else 0.
"""

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.distributions import (
    bernoulli_mask,
    draw_categorical,
    few_bits,
    softmax_weights,
)


class Invalid(NamedTuple):
    """Chains whose conditional distribution could not be computed in full."""

    stay: Tensor  # [chains], whether nothing could be drawn
    unknown: Tensor  # [chains], whether the log-probability of some value was NaN


def draw_value(log_probs: Tensor, rng: Generator) -> tuple[Tensor, Invalid]:
    """The index of a value, `[chains, values] -> [chains]`, and which chains were invalid."""
    weights = softmax_weights(without_unknown(log_probs))
    choice = draw_categorical(weights, rng).squeeze(-1)
    return choice, Invalid(weights.isnan().any(1), log_probs.isnan().any(1))


def draw_bit(log_odds: Tensor, dtype: torch.dtype, rng: Generator) -> tuple[Tensor, Invalid | None]:
    """0 or 1 with the given log-odds of 1, `[chains, 1]`, and which chains were invalid.

    None in place of the second means that no chain was. The bits have the given `dtype`.
    """
    probability = log_odds.double().sigmoid()
    if (bits := few_bits(probability, dtype, rng)) is not None:
        return bits, None
    stay = probability[:, 0].isnan()
    return bernoulli_mask(probability, rng).to(dtype), Invalid(stay, stay)


def settle(new: Tensor, current: Tensor, invalid: Invalid) -> tuple[Tensor, Tensor]:
    """The block after the draw, `new` or `current` `[chains, ...]`, and `Info.log_ratio`."""
    rows = invalid.stay.view(-1, *[1] * (new.ndim - 1))
    log_ratio = torch.where(invalid.stay | invalid.unknown, torch.nan, 0.0)
    return torch.where(rows, current, new), log_ratio


def without_unknown(log_probs: Tensor) -> Tensor:
    """NaN becomes -infinity, so that it is never drawn; infinities stay."""
    return log_probs.nan_to_num(-torch.inf, torch.inf, -torch.inf)
