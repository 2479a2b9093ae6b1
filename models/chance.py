"""Bernoulli and categorical distributions: draws, weights and log normalisers.

Domains, models and samplers draw their random numbers here. Every function runs on tensors of any
leading shape, takes its randomness from the generator passed last, and reads nothing on the host.
Large CPU tensors take a path of their own with the same distribution and fewer operations.
"""

from math import isqrt

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad, softplus

LARGE = 2**14  # entries of a tensor from which on its work outweighs the calls of operations
TWO_STAGES_FROM = 512  # entries of a categorical law


def uniform_like(x: Tensor, rng: Generator) -> Tensor:
    """Uniform numbers in the shape of `x`, of 23 bits or more, below 1.

    A CPU generator takes as long for 64 bits as for a float of 24, so that large float tensors are
    made from 64-bit integers, two numbers each, in two thirds of the time.
    """
    if x.is_cuda or x.dtype != torch.float32 or x.numel() < LARGE:
        return torch.empty_like(x).uniform_(generator=rng)
    pairs = torch.empty((x.numel() + 1) // 2, dtype=torch.int64, device=x.device)
    bits = pairs.random_(-(2**63), None, generator=rng).view(torch.int32)
    # The factor is a little below 2^-32: rounding must not reach 1, or sites of probability 0 flip.
    return bits[: x.numel()].view_as(x).to(x.dtype).mul_(2.0**-32 - 2.0**-54).add_(0.5)


def softplus_sum(z: Tensor) -> Tensor:
    """Sum of log(1 + exp(z)) over the last axis, `[..., n] -> [...]`.

    Where a tensor is large, as sum of max(z, 0) + log(1 + exp(-|z|)), with one logarithm for the
    product of 32 of the second terms, which are the logarithms of numbers between 1 and 2.
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

    Inverse transform in double precision, no host reads, and an entry of weight zero is never
    drawn. Draws are independent (with replacement). Among many entries, first a block of
    consecutive ones is drawn, then one of them.
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
