"""Bernoulli and categorical distributions: draws, weights and log normalisers.

Domains, models and samplers draw their random numbers here. Draws use the generator passed last,
and nothing is read on the host. Large CPU tensors are drawn and summed in faster ways. In place of
the generator, a `Tape` gives numbers that were drawn beforehand.

Rare events have the right frequency. An outcome of probability p, of a decision or of a categorical
draw, comes with probability p (1 + e), |e| < 2^-20 for p above 2^-32. Numbers with 24 random bits
would give |e| = 0.6 at 10^-7.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import isqrt, pi, prod

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad, softplus

FUSING_ENTRIES = 2**14  # from here on, arithmetic costs more than the calls of operations
# Entries up to which PyTorch's `bernoulli_`, a call less, is the fastest.
MAX_BERNOULLI_ENTRIES = 512
TWO_STAGES_FROM = 512  # entries of a categorical distribution
COLUMNS = 64  # entries that a compiled draw sums one by one; it takes two stages from half of them
SIGN = -(2**31)  # the bit of the sign of a float32
PER_DISTANCE = 2.0**-31 - 2.0**-54  # a little below 2^-31: rounding must not reach 1


class Tape:
    """Uniform numbers that were drawn beforehand, for a step that reads them in their order.

    It takes the place of the generator. Compiled code can draw none itself, and a step that is run
    both ways on one tape makes the same decisions, up to rounding. `numbers` `[n]` are float64 in
    [0, 1). Without them, the tape draws numbers that are always the same, and `read` counts how
    many a step needs.
    """

    def __init__(self, numbers: Tensor | None = None) -> None:
        self.numbers, self.read = numbers, 0
        self.device = torch.device("cpu") if numbers is None else numbers.device
        self._own = Generator().manual_seed(0)

    def next(self, shape: Sequence[int]) -> Tensor:
        """The next numbers, float64 in this shape."""
        first, self.read = self.read, self.read + prod(shape)
        if self.numbers is None:
            return torch.rand(shape, generator=self._own, dtype=torch.float64)
        return self.numbers[first : self.read].reshape(shape)


def uniform(shape: Sequence[int], rng: Generator, device: torch.device | None = None) -> Tensor:
    """Uniform float64 numbers in [0, 1) in this shape, on the generator's device or another."""
    if isinstance(rng, Tape):
        return rng.next(shape)
    empty = torch.empty(shape, dtype=torch.float64, device=device or rng.device)
    return empty.uniform_(generator=rng)


def random_integers(low: int, high: int, shape: Sequence[int], rng: Generator) -> Tensor:
    """Uniform integers in low .. high - 1, int64 in this shape, on the generator's device."""
    if isinstance(rng, Tape):
        return (rng.next(shape) * (high - low)).long().clamp_(max=high - low - 1) + low
    return torch.randint(low, high, tuple(shape), generator=rng, device=rng.device)


def coins(shape: Sequence[int], rng: Generator) -> Tensor:
    """Fair coins, bool in this shape, on the generator's device."""
    if isinstance(rng, Tape):
        return rng.next(shape) < 0.5
    return torch.rand(tuple(shape), generator=rng, device=rng.device) < 0.5


def normal_like(x: Tensor, rng: Generator) -> Tensor:
    """Standard normal numbers in the shape and type of `x`."""
    if not isinstance(rng, Tape):
        return torch.empty_like(x).normal_(generator=rng)
    half = (x.numel() + 1) // 2  # Box and Muller (1958): two numbers from two
    radius, angle = rng.next((2, half)).unbind()
    radius, angle = radius.neg().log1p().mul(-2).sqrt(), angle * (2 * pi)
    both = torch.cat((radius * angle.cos(), radius * angle.sin()))
    return both[: x.numel()].view(x.shape).to(x.dtype)


def uniform_like(x: Tensor, rng: Generator) -> Tensor:
    """Uniform numbers in [0, 1) in the shape of `x`, small ones as precise as large ones.

    They are float64, or float32 for large float32 tensors on the CPU (see `_signed_distances`).
    """
    if _one_by_one(x, rng):
        return uniform(x.shape, rng, x.device)
    return _signed_distances(x, rng).abs_().mul_(PER_DISTANCE)


def _one_by_one(x: Tensor, rng: Generator) -> bool:
    """Whether numbers in the shape of `x` are drawn in float64; else as `_signed_distances`."""
    few = x.is_cuda or x.dtype != torch.float32 or x.numel() < FUSING_ENTRIES
    return few or isinstance(rng, Tape)


def _signed_distances(x: Tensor, rng: Generator) -> Tensor:
    """Uniform numbers in [-2^31, 2^31], in the shape and type of `x`, each precise to 2^-23.

    A number is a signed random integer of 32 bits; the next integer gives its binary places after
    the point, which matter next to 0 only. It takes half as long as float64.
    """
    pairs = torch.empty(x.numel() // 2 + 1, dtype=torch.int64, device=x.device)
    words = pairs.random_(-(2**63), None, generator=rng).view(torch.int32).to(x.dtype)
    del pairs  # memory that is returned to the system, and asked for again, takes a third of a step
    return torch.add(words[:-1], words[1:], alpha=2.0**-32)[: x.numel()].view_as(x)


def bernoulli_mask(probability: Tensor, rng: Generator) -> Tensor:
    """True with the given probability, elementwise; False where it is NaN."""
    if (few := few_bits(probability, torch.bool, rng)) is not None:
        return few
    return uniform_like(probability, rng) < probability


def bernoulli(log_odds: Tensor, rng: Generator) -> Tensor:
    """1.0 with probability sigmoid(log_odds), else 0.0; NaN where that is NaN.

    Both outcomes have the right frequency where they are rare.
    """
    if _one_by_one(log_odds, rng):
        probability = log_odds.double().sigmoid()
        if (few := few_bits(probability, log_odds.dtype, rng)) is not None:
            return few
        # ceil(p - u) is 1 where u < p and 0 elsewhere; unlike a comparison, it keeps NaN. If p is
        # almost 0 and u almost 1, float32 rounds p - u to -1, of which relu makes 0.
        numbers = uniform_like(probability, rng)
        return torch.sub(probability, numbers, out=torch.empty_like(log_odds)).ceil_().relu_()
    # In float32, numbers near 1 are coarse. So this decides about the outcome that is rarer.
    distance = _signed_distances(log_odds, rng).abs_()
    rare = log_odds.abs().neg_().sigmoid_()
    rare.sub_(distance, alpha=PER_DISTANCE)  # above 0: it happens
    del distance
    rare.view(torch.int32).bitwise_xor_(log_odds.view(torch.int32).bitwise_and(SIGN))
    return rare.floor_().abs_()  # 1 where it is below 0


def flips(log_odds: Tensor, rng: Generator) -> Tensor:
    """`bernoulli(log_odds, rng)`, but 0 where that is NaN."""
    if isinstance(rng, Tape):  # these operations are faster where they are fused
        return bernoulli_mask(log_odds.double().sigmoid(), rng).to(log_odds.dtype)
    return bernoulli(log_odds, rng).nan_to_num_()


def few_bits(probability: Tensor, dtype: torch.dtype, rng: Generator) -> Tensor | None:
    """0 or 1 with the given probabilities; None for many, on a GPU, from a tape, or with a NaN.

    PyTorch's `bernoulli_` raises an error for NaN on the CPU, and would abort the program on a GPU.
    """
    if probability.is_cuda or probability.numel() > MAX_BERNOULLI_ENTRIES or isinstance(rng, Tape):
        return None
    try:
        bits = torch.empty_like(probability, dtype=dtype)
        return bits.bernoulli_(probability.double(), generator=rng)
    except RuntimeError:
        return None


def softplus_sum(z: Tensor) -> Tensor:
    """Sum of log(1 + exp(z)) over the last axis, `[..., n] -> [...]`.

    For large tensors, max(z, 0) + log(1 + exp(-|z|)): 32 of these numbers between 1 and 2 are
    multiplied before one logarithm is taken.
    """
    if (
        z.is_cuda or z.numel() < FUSING_ENTRIES or type(z) is not Tensor
    ):  # these fuse where z is traced
        return softplus(z).sum(-1)
    memory = z.abs()
    factors = memory.neg_().exp_().add_(1)
    for _ in range(5):
        half = (factors.shape[-1] + 1) // 2
        factors, second = factors[..., :half], factors[..., half:]
        factors[..., : second.shape[-1]].mul_(second)
    total = factors.log().sum(-1)
    return total.add_(torch.clamp(z, min=0, out=memory).sum(-1))


def draw_categorical(weights: Tensor, rng: Generator, draws: int = 1) -> Tensor:
    """Indices drawn in proportion to non-negative `weights`, `[..., n] -> [..., draws]`.

    Draws are with replacement, by inverse transform in double precision, so an entry of weight zero
    is never drawn. With many entries, a block is drawn first, then one of its entries.
    """
    n = weights.shape[-1]
    if n < (COLUMNS // 2 if isinstance(rng, Tape) else TWO_STAGES_FROM):
        return _invert(weights, rng, draws)
    width = isqrt(n)
    blocks = pad(weights, (0, -n % width)).unflatten(-1, (-1, width))
    block = _invert(blocks.sum(-1), rng, draws)
    inside = blocks.gather(-2, block.unsqueeze(-1).expand(*block.shape, width))
    return torch.add(_invert(inside, rng, 1).squeeze(-1), block, alpha=width).clamp_(max=n - 1)


def draw_distinct(log_weights: Tensor, rng: Generator, draws: int) -> Tensor:
    """Distinct indices in the order drawn, `[..., n] -> [..., draws]` (Plackett-Luce).

    Each is drawn among those left, in proportion to exp(log_weights), by a race: entry i arrives
    after an exponential time of rate exp(log_weights_i).
    """
    log_times = uniform_like(log_weights, rng).neg_().log1p_().neg_().log_()
    return (log_weights - log_times).topk(draws).indices


def _invert(weights: Tensor, rng: Generator, draws: int) -> Tensor:
    last = weights.shape[-1] - 1
    if isinstance(rng, Tape) and last < COLUMNS:  # sums of columns fuse, and `cumsum` does not
        totals = list(accumulate(weights.double().unbind(-1)))
        level = uniform((*weights.shape[:-1], draws), rng) * totals[-1].unsqueeze(-1)
        first = torch.zeros_like(level, dtype=torch.long)
        return sum(((total.unsqueeze(-1) <= level).long() for total in totals[:-1]), first)
    total = weights.cumsum(-1, dtype=torch.float64)
    level = uniform((*weights.shape[:-1], draws), rng, weights.device) * total[..., -1:]
    return torch.searchsorted(total, level, right=True).clamp_(max=last)


def softmax_weights(logits: Tensor) -> Tensor:
    """Weights proportional to exp(logits) over the last axis, the largest of them 1."""
    return (logits - logits.amax(-1, keepdim=True)).exp_()
