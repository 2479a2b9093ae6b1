"""Plain reference implementations of the samplers, without caches, for `workshop.bench`.

They follow the papers' pseudo-code in the style of the papers' own scripts: gradients by autograd,
a dense coupling matrix, parameters that require gradients, `torch.distributions` with its default
validation, and a Metropolis step that evaluates two gradients and two energies. They are neither
optimised nor slowed down. Use them for timing only: they keep the numerical faults of this style
(exp(a) / (exp(a) + 1) overflows, 1e-10 is added inside logarithms). A model is an `nn.Module` that
maps states `[chains, dim]` in {0, 1} to `[chains]`; a step maps `(x, model)` to the next x.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, OneHotCategorical

Step = Callable[[Tensor, nn.Module], Tensor]


class PlainIsing(nn.Module):
    """s'Js + b's with a dense J `[dim, dim]`, s = 2x - 1."""

    def __init__(self, coupling: Tensor, bias: float) -> None:
        super().__init__()
        self.coupling = nn.Parameter(coupling)
        self.bias = nn.Parameter(torch.full((len(coupling),), bias))

    def forward(self, x: Tensor) -> Tensor:
        spins = 2 * x - 1
        return (spins @ self.coupling * spins).sum(-1) + spins @ self.bias


class PlainRBM(nn.Module):
    """b'x + sum_j softplus(W'x + c)_j, with hidden inputs computed by an `nn.Linear`."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        visible, hidden = weight.shape
        self.hidden = nn.Linear(visible, hidden)
        self.hidden.weight.data.copy_(weight.T)
        self.hidden.bias.data.zero_()
        self.bias = nn.Parameter(torch.zeros(visible))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.softplus(self.hidden(x)).sum(-1) + (x * self.bias).sum(-1)


class PlainBayesNet(nn.Module):
    """-scale * mean (sigmoid(out) - y)^2 of a tanh network with weights 2x - 1, batched by chain.

    The weights have the layout of models/bayes_net.py and of the released scripts.
    """

    def __init__(self, features: Tensor, targets: Tensor, hidden: int, scale: float) -> None:
        super().__init__()
        self.features, self.targets, self.hidden, self.scale = features, targets, hidden, scale

    def forward(self, x: Tensor) -> Tensor:
        weights = 2 * x - 1
        count = self.features.shape[1] * self.hidden
        first, bias, second, last = weights.split((count, self.hidden, self.hidden, 1), 1)
        first = first.view(len(x), -1, self.hidden)
        rows = self.features.unsqueeze(0).expand(len(x), -1, -1)
        units = torch.tanh(torch.bmm(rows, first) + bias.unsqueeze(1))
        outputs = torch.bmm(units, second.unsqueeze(2)) + last.unsqueeze(1)
        errors = torch.sigmoid(outputs.squeeze(2)) - self.targets
        return -self.scale * errors.pow(2).mean(1)


class PlainBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, Swish after each."""

    def __init__(self, maps: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(maps, maps, 3, stride, 1)
        self.second = nn.Conv2d(maps, maps, 3, 1, 1)
        self.shortcut = nn.Conv2d(maps, maps, 1, stride) if stride == 2 else nn.Identity()

    def forward(self, z: Tensor) -> Tensor:
        out = self.second(nn.functional.silu(self.first(z)))
        return nn.functional.silu(out + self.shortcut(z))


class PlainResNet(nn.Module):
    """A residual network of square images plus b'x, layer by layer."""

    base: Tensor

    def __init__(self, side: int, maps: int, blocks: int) -> None:
        super().__init__()
        self.side = side
        self.enter = nn.Conv2d(1, maps, 3, 1, 1)
        strides = [2, 2] + [1] * (blocks - 2)
        self.blocks = nn.Sequential(*(PlainBlock(maps, stride) for stride in strides[:blocks]))
        self.head = nn.Linear(maps, 1)
        self.register_buffer("base", torch.zeros(side * side))

    def forward(self, x: Tensor) -> Tensor:
        z = self.blocks(self.enter(x.view(-1, 1, self.side, self.side)))
        return self.head(z.mean((2, 3))).squeeze(-1) + x @ self.base


def gradient(x: Tensor, model: nn.Module) -> Tensor:
    """The gradient of the log-probability by autograd, `[chains, dim]`."""
    x = x.detach().requires_grad_()
    return torch.autograd.grad(model(x).sum(), x)[0]


class PlainGibbs:
    """Gibbs-1 with systematic scan: evaluates the energy before and after the flip of a site."""

    def __init__(self) -> None:
        self.site = 0

    def __call__(self, x: Tensor, model: nn.Module) -> Tensor:
        flipped = x.clone()
        flipped[:, self.site] = 1 - flipped[:, self.site]
        flips = Bernoulli(logits=model(flipped) - model(x)).sample().unsqueeze(-1)
        self.site = (self.site + 1) % x.shape[1]
        return flips * flipped + (1 - flips) * x


def flip_law(x: Tensor, model: nn.Module) -> OneHotCategorical:
    """The law of the site to flip: softmax(d / 2)."""
    # Validation requires probabilities to sum to 1 within 1e-6; 10^4 float32 numbers may not.
    validate = None if x.shape[1] < 5_000 else False
    return OneHotCategorical(logits=gradient(x, model) * (1 - 2 * x) / 2, validate_args=validate)


def gwg(x: Tensor, model: nn.Module) -> Tensor:
    """GWG-1: one flip drawn from softmax(d / 2), then a Metropolis step."""
    forward = flip_law(x, model)
    change = forward.sample()
    y = (1 - x) * change + x * (1 - change)
    backward = flip_law(y, model)
    log_ratio = model(y) - model(x) + backward.log_prob(change) - forward.log_prob(change)
    return accept_or_stay(x, y, log_ratio)


def flip_probability(x: Tensor, model: nn.Module, step_size: float) -> Tensor:
    """Eq. (2) of Zhang et al. (2022) for {0, 1}, `[chains, dim]`."""
    term = gradient(x, model) * (1 - 2 * x) / 2 - 1 / (2 * step_size)
    return torch.exp(term) / (torch.exp(term) + 1)


def langevin_draw(x: Tensor, probability: Tensor) -> tuple[Tensor, Tensor]:
    """Which sites flip and the state after it, both `[chains, dim]`."""
    flips = (torch.rand_like(x) < probability).float()
    return flips, (1 - x) * flips + x * (1 - flips)


def dula(x: Tensor, model: nn.Module, step_size: float = 0.1) -> Tensor:
    """DULA: every draw is accepted."""
    return langevin_draw(x, flip_probability(x, model, step_size))[1]


def dmala(x: Tensor, model: nn.Module, step_size: float = 0.2) -> Tensor:
    """DMALA: the draw is corrected by a Metropolis step, Eq. (3)."""
    there = flip_probability(x, model, step_size)
    flips, y = langevin_draw(x, there)
    back = flip_probability(y, model, step_size)
    log_there, log_back = (
        torch.log(flips * p + (1 - flips) * (1 - p) + 1e-10).sum(-1) for p in (there, back)
    )
    return accept_or_stay(x, y, model(y) - model(x) + log_back - log_there)


def accept_or_stay(x: Tensor, y: Tensor, log_ratio: Tensor) -> Tensor:
    """For each chain, y with probability min(1, exp(log_ratio)), else x."""
    accepted = (log_ratio.exp() > torch.rand_like(log_ratio)).float().unsqueeze(-1)
    return accepted * y + (1 - accepted) * x
