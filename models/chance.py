"""Bernoulli and categorical distributions: draws, weights and log normalisers.

Domains, models and samplers draw their random numbers here. Draws use the generator passed last,
and nothing is read on the host. Large CPU tensors are drawn and summed in faster ways.
"""

from math import isqrt

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad, softplus

LARGE = 2**14  # entries; from this size on, arithmetic costs more than the calls of operations
TWO_STAGES_FROM = 512  # entries of a categorical distribution


def uniform_like(x: Tensor, rng: Generator) -> Tensor:
    """Uniform numbers below 1 in the shape of `x`, with at least 23 random bits.

    A CPU generator takes as long for 64 random bits as for a float of 24. Large float tensors
    therefore take two numbers from each 64-bit integer, which needs two thirds of the time.
    """
    if x.is_cuda or x.dtype != torch.float32 or x.numel() < LARGE:
        return torch.empty_like(x).uniform_(generator=rng)
    pairs = torch.empty((x.numel() + 1) // 2, dtype=torch.int64, device=x.device)
    bits = pairs.random_(-(2**63), None, generator=rng).view(torch.int32)
    # The factor is a little below 2^-32: rounding must not reach 1, or sites of probability 0 flip.
    return bits[: x.numel()].view_as(x).to(x.dtype).mul_(2.0**-32 - 2.0**-54).add_(0.5)


def softplus_sum(z: Tensor) -> Tensor:
    """Sum of log(1 + exp(z)) over the last axis, `[..., n] -> [...]`.

    Large tensors use max(z, 0) + log(1 + exp(-|z|)). The second terms are logarithms of numbers
    between 1 and 2, so 32 of these are multiplied before one logarithm is taken.
    """
    if z.is_cuda or z.numel() < LARGE:
        return softplus(z).sum(-1)
    memory = z.abs()
    factors = memory.neg_().exp_().add_(1)
    for _ in range(5):
        half = (factors.shape[-1] + 1) // 2
        factors, rest = factors[..., :half], factors[..., half:]
        factors[..., : rest.shape[-1]].mul_(rest)
    total = factors.log().sum(-1)
    return total.add_(torch.clamp(z, min=0, out=memory).sum(-1))


def draw_categorical(weights: Tensor, rng: Generator, draws: int = 1) -> Tensor:
    """Indices drawn in proportion to non-negative `weights`, `[..., n] -> [..., draws]`.

    Draws are independent (with replacement), by inverse transform in double precision. An entry of
    weight zero is never drawn. If there are many entries, a block of consecutive ones is drawn
    first, then one of its entries.
    """
    n = weights.shape[-1]
    if n < TWO_STAGES_FROM:
        return _invert(weights, rng, draws)
    width = isqrt(n)
    blocks = pad(weights, (0, -n % width)).unflatten(-1, (-1, width))
    block = _invert(blocks.sum(-1), rng, draws)
    inside = blocks.gather(-2, block.unsqueeze(-1).expand(*block.shape, width))
    return torch.add(_invert(inside, rng, 1).squeeze(-1), block, alpha=width).clamp_(max=n - 1)


def _invert(weights: Tensor, rng: Generator, draws: int) -> Tensor:
    total = weights.cumsum(-1, dtype=torch.float64)
    shape = (*weights.shape[:-1], draws)
    uniform = torch.empty(shape, dtype=torch.float64, device=weights.device)
    level = uniform.uniform_(generator=rng).mul_(total[..., -1:])
    return torch.searchsorted(total, level, right=True).clamp_(max=weights.shape[-1] - 1)


def softmax_weights(logits: Tensor) -> Tensor:
    """Weights proportional to exp(logits) over the last axis, the largest of them 1."""
    return (logits - logits.amax(-1, keepdim=True)).exp_()
