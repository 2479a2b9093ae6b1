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
from torch.nn.functional import avg_pool2d, conv2d, conv_transpose2d, pad, pixel_unshuffle, silu

from latticework.models.base import Cache, EnergyModel
from latticework.models.domain import Binary

HALVING = 2  # number of blocks that halve the image


class Halved(nn.Conv2d):
    """A 1x1 convolution of every second row and column, `[n, maps, h, w]` to half the size.

    It equals `nn.Conv2d(maps, maps, 1, stride=2)` and has the same parameters. It avoids a bug of
    oneDNN: on processors with AVX2 but without AVX-512, the backward pass of a strided 1x1
    convolution writes outside its memory (2 to 7 input channels, channels last). Convolutions with
    stride 1, and strided 3x3 convolutions, did not show the bug.
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

    def forward(self, z: Tensor) -> Tensor:
        return self.rest(self.first(z), self.shortcut(z))

    def rest(self, first: Tensor, shortcut: Tensor) -> Tensor:
        return silu(self.second(silu(first)) + shortcut)


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

    def forward(self, images: Tensor) -> Tensor:
        """Compute the first convolution and both branches of the first block as one convolution.

        The first convolution is followed by two linear convolutions, that of the block's first
        layer and that of its shortcut. The compositions are a 5x5 and a 3x3 convolution, both with
        stride 2. On the quarter images of `pixel_unshuffle`, both fit into one 3x3 convolution with
        stride 1. This avoids feature maps of full size, which were most of the work.

        The border needs a correction. The output of the first convolution is padded by zeros, but
        the composed 5x5 kernel computes values for row -1 and column -1. Copies of the input that
        hold only the first row, the first column or the corner subtract them. A channel of ones
        carries the biases.
        """
        quarters = pixel_unshuffle(images, 2)
        ones = torch.ones_like(quarters[:, :1])  # [n, 1, h, w]
        row, column = torch.zeros_like(ones[:1]), torch.zeros_like(ones[:1])
        row[:, :, 0].fill_(1)
        column[:, :, :, 0].fill_(1)
        whole = torch.cat((quarters, ones), 1)
        parts = torch.cat((whole, whole * row, whole * column, whole * (row * column)), 1)
        with torch.autocast(images.device.type, enabled=False):  # once a call, and small
            kernel = self._both().contiguous(memory_format=torch.channels_last)
        both = conv2d(parts.contiguous(memory_format=torch.channels_last), kernel, padding=1)
        first, shortcut = both.chunk(2, 1)
        return self.blocks[1:](self._halving().rest(first, shortcut))

    def _halving(self) -> Block:
        return cast(Block, self.blocks[0])

    def _both(self) -> Tensor:
        """The composed kernel of `forward`, `[2 maps, 20, 3, 3]`."""
        block = self._halving()
        (inner, bias), (outer, outer_bias), (short, short_bias) = (
            (cast(nn.Conv2d, layer).weight, cast(Tensor, layer.bias))
            for layer in (self.enter, block.first, block.shortcut)
        )

        def part(up: Tensor, down: Tensor, space: tuple[int, int, int, int]) -> Tensor:
            """Compose taps `up` of the second and `down` of the first convolution: [maps, 5, 3, 3].

            `space` pads the result on the left, right, top and bottom to offsets -2 to 3.
            """
            wide = pad(conv_transpose2d(up, down), space)  # [maps, 1, 6, 6]
            taps = wide.view(-1, 3, 2, 3, 2).permute(0, 2, 4, 1, 3).flatten(1, 2)
            constant = (up.sum((2, 3)) @ bias).view(-1, 1, 1, 1)
            return torch.cat((taps, pad(constant, (1, 1, 1, 1))), 1)

        first = (
            part(outer, inner, (0, 1, 0, 1)),
            -part(outer[:, :, :1], inner[:, :, 2:], (0, 1, 2, 3)),
            -part(outer[:, :, :, :1], inner[:, :, :, 2:], (2, 3, 0, 1)),
            part(outer[:, :, :1, :1], inner[:, :, 2:, 2:], (2, 3, 2, 3)),
        )
        shortcut = part(short, inner, (1, 2, 1, 2))
        kernel = torch.cat((torch.cat(first, 1), pad(shortcut, (0, 0, 0, 0, 0, 15))))
        own = torch.cat((outer_bias, short_bias)).view(-1, 1, 1, 1)
        return kernel + pad(own, (1, 1, 1, 1, 4, 15))


class ResNet(EnergyModel):
    """Images of `shape` (height, width) as flat states `[chains, height * width]` in {0, 1}.

    `bf16` computes the network's convolutions in bfloat16. "gradient" does so for gradients only.
    Values, and so the Metropolis ratio, stay in float32; this changes the proposal but not the
    target, and costs an additional forward pass. "all" includes values, so rounding errors change
    the target. `compile` applies torch.compile to the network. Parameters have PyTorch's default
    initialisation, from the global generator, and do not require gradients. Raises ValueError for
    sizes below 1, or an odd side.
    """

    recipe = "experiment=ebm_learning"
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
            self.network.compile()

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
        # These sums use the precision of x: they are cheap, and large terms cancel in ratios.
        return self.head(maps.to(x.dtype).mean((2, 3))).squeeze(-1) + x @ self.base

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        low = self.bf16 is not None
        with torch.enable_grad():
            point = x.detach().requires_grad_()
            log_prob = self._log_prob(point, low)
            (grad,) = torch.autograd.grad(log_prob.sum(), point)
        if self.bf16 == "gradient":
            with torch.no_grad():
                return self._log_prob(x, low=False), grad
        return log_prob.detach(), grad

    def gradient(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (grad,) = torch.autograd.grad(self._log_prob(x, self.bf16 is not None).sum(), x)
        return grad

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

    def moved(self, cache: Cache, x: Tensor, sites: Tensor, new: Tensor) -> Cache:
        if len(cache) == 2:
            stayed = (new == x.index_select(1, sites)).squeeze(1)
            return (torch.where(stayed, cache[0], cache[1]),)
        return (self(x.index_copy(1, sites, new)),)
