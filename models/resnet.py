"""A residual network as an energy-based model of binary images.

    log pi(x) = f(x) + b'x  up to a constant,     b = logit(mean (1 - 2e-2) + 1e-2)

f consists of a 3x3 convolution, residual blocks of two 3x3 convolutions each, the mean over the
image and a linear head. The first two blocks halve the image; their shortcuts are 1x1 convolutions.
There is no normalisation. The activation is Swish, z sigmoid(z). The base measure b'x makes sites
independent, with the data's frequencies. Zhang et al. (2022), Section 7.3 and App. I.4; W.
Grathwohl et al., ICML 2021. Their scripts learn a slope of Swish per channel, which is fixed to 1
here.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv_transpose2d, fold, pad, silu, unfold

from latticework.models.base import Cache, EnergyModel
from latticework.models.domains import Binary

HALVING = 2  # number of blocks that halve the image

convolution_backward = torch.ops.aten.convolution_backward
silu_backward = torch.ops.aten.silu_backward  # arguments: the derivative, and what was activated
Kept = list[tuple[Tensor, Tensor]]  # what the two activations of each block were applied to
Kernels = tuple[Tensor, Tensor]


class Halved(nn.Conv2d):
    """A 1x1 convolution of every second row and column, `[n, maps, h, w]` to half the size.

    It equals `nn.Conv2d(maps, maps, 1, stride=2)`, whose backward pass by oneDNN writes outside its
    memory on processors with AVX2 but without AVX-512 (2 to 7 input channels, channels last).
    """

    def __init__(self, maps: int) -> None:
        super().__init__(maps, maps, 1)

    def forward(self, z: Tensor) -> Tensor:
        return super().forward(avg_pool2d(z, 1, 2))  # equals a slice, but is faster


class Block(nn.Module):
    """silu(conv(silu(conv(z))) + shortcut(z)), `[n, maps, h, w]`; `stride` 2 halves the size."""

    def __init__(self, maps: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(maps, maps, 3, stride, 1)
        self.second = nn.Conv2d(maps, maps, 3, 1, 1)
        self.shortcut = nn.Identity() if stride == 1 else Halved(maps)

    def forward(self, z: Tensor, kept: Kept | None = None) -> Tensor:
        return self.rest(self.first(z), self.shortcut(z), kept)

    def rest(self, first: Tensor, shortcut: Tensor, kept: Kept | None = None) -> Tensor:
        """The block after its first convolution; appends what its two activations got to `kept`."""
        total = self.second(silu(first)).add_(shortcut)
        if kept is not None:
            kept.append((first, total))
        return silu(total)

    def backpropagate_activations(
        self, by_z: Tensor, first: Tensor, total: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Derivatives by `first` and by the shortcut, from those by the block's output."""
        by_total = silu_backward(by_z, total)
        by_first = input_gradient(self.second, by_total, first)
        return silu_backward.grad_input(by_first, first, grad_input=by_first), by_total

    def backpropagate(self, by_z: Tensor, first: Tensor, total: Tensor, like: Tensor) -> Tensor:
        """Derivatives by the block's input, of `like`'s shape; other arguments as in `before`."""
        by_first, by_total = self.backpropagate_activations(by_z, first, total)
        result = input_gradient(self.first, by_first, like)
        if isinstance(self.shortcut, Halved):
            small = input_gradient(self.shortcut, by_total, by_total)
            result[:, :, ::2, ::2].add_(small)
        else:
            result.add_(by_total)
        return result


class Network(nn.Module):
    """Images `[n, 1, height, width]` to feature maps `[n, maps, h, w]`."""

    def __init__(self, maps: int, blocks: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(1, maps, 3, 1, 1)
        self.blocks = nn.Sequential(
            *(Block(maps, 2 if block < HALVING else 1) for block in range(blocks))
        )

    def plain(self, images: Tensor) -> Tensor:
        """The network by its definition. `forward` computes the same function faster."""
        return self.blocks(self.enter(images))

    def forward(
        self, images: Tensor, slope: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """The feature maps; given `slope` `[maps]`, also a gradient, `[n, 1, height, width]`.

        It is that of the sum of `maps.mean((2, 3)) @ slope` by the images, as autograd would give
        it, but without derivatives by parameters, and with sums and activations in place.
        """
        if slope is None:
            return self._maps(patches(images), self._kernels(), images.shape)
        with torch.no_grad():
            activations: Kept = []
            kernels = self._kernels()
            maps = self._maps(patches(images), kernels, images.shape, activations)
            by_z = (slope / maps[0, 0].numel()).to(maps.dtype).view(1, -1, 1, 1).expand_as(maps)
            halving, *later = self._blocks()
            for block in reversed(later):
                first, total = activations.pop()
                by_z = block.backpropagate(by_z, first, total, like=activations[-1][1])
            both = halving.backpropagate_activations(by_z, *activations.pop())
            by_rows, by_fewer = (
                kernel.to(by.dtype) @ by.permute(0, 2, 3, 1).flatten(1, 2).mT  # [n, rows, h * w]
                for kernel, by in zip(kernels, both, strict=True)
            )
            by_rows[:, : by_fewer.shape[1]].add_(by_fewer)
            return maps, backpropagate_patches(by_rows.to(images.dtype), images)

    def _maps(
        self, rows: Tensor, kernels: Kernels, shape: torch.Size, kept: Kept | None = None
    ) -> Tensor:
        """The feature maps of images of this shape, from their `patches`."""
        size = shape[2] // 2, shape[3] // 2
        first, shortcut = (
            (rows[:, : len(kernel)].mT @ kernel).unflatten(1, size).permute(0, 3, 1, 2)
            for kernel in kernels
        )
        halving, *later = self._blocks()
        z = halving.rest(first, shortcut, kept)
        for block in later:
            z = block(z, kept)
        return z

    def _blocks(self) -> list[Block]:
        return cast(list[Block], list(self.blocks))

    def _kernels(self) -> Kernels:
        """The first convolution composed with the first block's first layer and with its shortcut.

        `[rows, maps]`: a row for each row of `patches`; the shortcut needs only the first ones.
        """
        block = self._blocks()[0]
        (inner, bias), (outer, outer_bias), (short, short_bias) = (
            (cast(nn.Conv2d, layer).weight, cast(Tensor, layer.bias))
            for layer in (self.enter, block.first, block.shortcut)
        )

        def part(up: Tensor, down: Tensor, own: Tensor | float = 0.0, space: int = 0) -> Tensor:
            """Taps `up` of the second and `down` of the first convolution, and the constant."""
            taps = pad(conv_transpose2d(up, down), (space,) * 4).flatten(1)
            return torch.cat((taps, (up.sum((2, 3)) @ bias + own).unsqueeze(1)), 1)

        with torch.autocast(inner.device.type, enabled=False):  # once a call, and small
            first = (
                part(outer, inner, outer_bias),
                -part(outer[:, :, :1], inner[:, :, 2:]),
                -part(outer[:, :, :, :1], inner[:, :, :, 2:]),
                part(outer[:, :, :1, :1], inner[:, :, 2:, 2:]),
            )
            return torch.cat(first, 1).T, part(short, inner, short_bias, space=1).T


def input_gradient(layer: nn.Conv2d, by_output: Tensor, like: Tensor) -> Tensor:
    """Derivatives by the input of `layer`, of `like`'s shape, from those by its output."""
    weight = layer.weight.to(by_output.dtype)
    where = layer.stride, layer.padding, layer.dilation, False, (0, 0), layer.groups
    wanted = (True, False, False)
    return convolution_backward(by_output, like, weight, None, *where, wanted)[0]


def patches(images: Tensor) -> Tensor:
    """The pixels that each site of the first block sees, `[n, rows, h * w]`.

    The compositions of the first convolution with those of the first block are a 5x5 and a 3x3
    convolution, both with stride 2. The first rows are the pixels under the 5x5 kernel, followed by
    ones for the biases. This avoids feature maps of full size, which were most of the work.

    The border needs a correction. The output of the first convolution is padded by zeros, but the
    composed kernel computes values for its row -1 and column -1. Rows that are zero except in the
    first row, in the first column or in the corner, each with ones of its own, subtract them.
    """
    pixels = unfold(images, 5, padding=2, stride=2)  # [n, 25, h * w]
    ones = torch.ones_like(pixels[:, :1])
    parts = [torch.cat((pixels[:, taps], ones), 1) * mask for taps, mask in edges(images)]
    return torch.cat((pixels, ones, *parts), 1)


def backpropagate_patches(by_rows: Tensor, images: Tensor) -> Tensor:
    """Derivatives by `images` from those by their `patches`, which are overwritten."""
    pixels, place = by_rows[:, :25], 26
    for taps, mask in edges(images):
        part = pixels[:, taps]
        part.add_(by_rows[:, place : place + part.shape[1]] * mask)
        place += part.shape[1] + 1
    return fold(pixels, images.shape[2:], 5, padding=2, stride=2)


def edges(images: Tensor) -> list[tuple[slice, Tensor]]:
    """First row, first column and corner: their pixels of the 5x5, and ones there, `[h * w]`."""
    row, column = images.new_zeros(2, images.shape[2] // 2, images.shape[3] // 2)
    row[0].fill_(1)
    column[:, 0].fill_(1)
    masks = row.flatten(), column.flatten(), (row * column).flatten()
    return list(zip((slice(10, 15), slice(2, 25, 5), slice(12, 13)), masks, strict=True))


class ResNet(EnergyModel):
    """Images of `shape` (height, width) as flat states `[chains, height * width]` in {0, 1}.

    `bf16` computes the network's convolutions in bfloat16. "gradient" does so for gradients only.
    Values, and so the Metropolis ratio, stay in float32; this changes the proposal but not the
    target, and costs an additional forward pass. "all" includes values, so rounding errors change
    the target. `compile` applies torch.compile to the network. Parameters have PyTorch's default
    initialisation, from the global generator, and do not require gradients. Raises ValueError for
    sizes below 1, or an odd side.
    """

    base: Tensor

    def __init__(
        self,
        shape: Sequence[int] = (28, 28),
        maps: int = 64,
        blocks: int = 8,
        bf16: Literal["gradient", "all"] | None = None,
        compile: bool = False,
    ) -> None:
        super().__init__()
        if len(shape) != 2:
            raise ValueError(f"shape must be the height and width of images, got {list(shape)}")
        if min(*shape, maps, blocks) < 1:
            raise ValueError(f"sizes must be positive, got {list(shape)}, {maps} and {blocks}")
        if shape[0] % 2 or shape[1] % 2:
            raise ValueError(f"the sides of the images must be even, got {list(shape)}")
        if bf16 not in (None, "gradient", "all"):
            raise ValueError(f"bf16 must be null, gradient or all, got {bf16!r}")
        self.height, self.width = shape
        self.bf16, self.untrained = bf16, True
        self.domain = Binary(math.prod(shape))
        self.network = Network(maps, blocks)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.head = nn.Linear(maps, 1)
        self.register_buffer("base", torch.zeros(self.domain.dim))
        self.requires_grad_(False)
        if compile:
            # This analysis of PyTorch 2.11 fails on a GPU (its issue 181115).
            self.network.compile(options={"triton.coalesce_tiling_analysis": False})

    def start_from_data(self, mean: Tensor) -> None:
        """Take the base measure from the data mean `[dim]`."""
        self.base.copy_((mean * (1 - 2e-2) + 1e-2).logit())

    def forward(self, x: Tensor) -> Tensor:
        return self._log_prob(x, low=self.bf16 == "all")

    def _log_prob(self, x: Tensor, low: bool) -> Tensor:
        images = x.view(-1, 1, self.height, self.width)
        precision: AbstractContextManager = torch.autocast(x.device.type, torch.bfloat16, low)
        with precision:
            maps = self.network(images)
        return self._log_prob_of_maps(maps, x)

    def _log_prob_of_maps(self, maps: Tensor, x: Tensor) -> Tensor:
        # These sums use the precision of x: they are cheap, and large terms cancel in ratios.
        return self.head(maps.to(x.dtype).mean((2, 3))).squeeze(-1) + x @ self.base

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        low, images = self.bf16 is not None, x.view(-1, 1, self.height, self.width)
        with torch.autocast(x.device.type, torch.bfloat16, low):
            maps, grad = self.network(images, self.head.weight[0])
        with torch.no_grad():
            log_prob = (
                self.forward(x) if self.bf16 == "gradient" else self._log_prob_of_maps(maps, x)
            )
        return log_prob, grad.view_as(x) + self.base

    def gradient(self, x: Tensor) -> Tensor:
        images = x.view(-1, 1, self.height, self.width)
        with torch.autocast(x.device.type, torch.bfloat16, self.bf16 is not None):
            _, grad = self.network(images, self.head.weight[0])
        return grad.view_as(x) + self.base

    # The cache is log pi(x), so that Gibbs sampling evaluates one neighbour per step.

    def cache(self, x: Tensor) -> Cache:
        return (self(x),)

    def conditional(self, x: Tensor, cache: Cache, sites: Tensor) -> tuple[Tensor, Cache]:
        """`log_odds` and the cache. For a single site, it also holds log pi after the flip."""
        if len(sites) > 1:
            return super().conditional(x, cache, sites)
        old = x.index_select(1, sites)
        flipped = self(x.index_copy(1, sites, 1 - old))
        log_odds = (flipped - cache[0]).unsqueeze(1) * (1 - 2 * old)
        return log_odds, (cache[0], flipped)

    def update_cache(self, cache: Cache, x: Tensor, sites: Tensor, new: Tensor) -> Cache:
        if len(cache) == 2:
            stayed = (new == x.index_select(1, sites)).squeeze(1)
            return (torch.where(stayed, cache[0], cache[1]),)
        return (self(x.index_copy(1, sites, new)),)
