"""The target interface: an unnormalised log-probability on a discrete domain.

A model must say what `forward` is. Everything else has a default built from it, and a model with
structure overrides what it can do cheaper: a closed-form gradient, and the three `local` methods
that price a change of a few sites without evaluating the whole model (Gibbs, Hamming ball,
locally balanced).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Generator, Tensor, nn

from models.domain import Binary, Domain

Cache = tuple[Tensor, ...]  # what a model remembers of a state, for its local methods


class EnergyModel(nn.Module, ABC):
    """log pi(x) up to a constant, on `domain`. One sign convention: larger is likelier."""

    domain: Domain
    flip_bound: float = math.inf  # no flip changes the log-probability by more, where it is known
    untrained: bool = False  # its weights are random and meant to be learned
    recipe: str = ""  # what trains it, as a word of the command line
    quadratic: bool = (
        False  # log pi is a quadratic polynomial of x, as `gradient` differentiates it
    )

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Unnormalised log-probability, `[chains, *domain.shape] -> [chains]`."""

    def log_prob(self, x: Tensor) -> Tensor:
        return self(x)

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`[chains]` and `[chains, *domain.shape]`, from one evaluation; neither carries a graph.

        The default differentiates `forward`; a model with a closed form overrides it. Raises
        ValueError where `forward` cannot be differentiated.
        """
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            log_prob = self(x)
            if not getattr(log_prob, "requires_grad", False):
                raise ValueError(
                    f"the log-probability of {type(self).__name__} cannot be differentiated in x; "
                    "make it of differentiable operations, or choose a sampler without gradients"
                )
            (grad,) = torch.autograd.grad(log_prob.sum(), x)
        return log_prob.detach(), grad

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """As of any module; a model with a state that was stored is no longer `untrained`."""
        result = super().load_state_dict(*args, **kwargs)
        self.untrained = False
        return result

    def log_z_and_mean(self) -> tuple[Tensor, Tensor] | None:
        """Exact log normaliser (scalar) and mean of x `[*domain.shape]`, float64, if known cheaply.

        None says that only enumeration is left (`experiments.exact`).
        """
        return None

    def gradient(self, x: Tensor) -> Tensor:
        """The second of `log_prob_and_grad(x)` alone, for a model that has it for less."""
        return self.log_prob_and_grad(x)[1]

    def colours(self) -> Tensor | None:
        """A class for each site, `[dim]` from 0 on, or None where there is no such structure.

        Sites of one class are independent of one another given all the others.
        """
        return None

    # Learning.

    def start_from_data(self, mean: Tensor) -> None:
        """Set parameters from the mean `[dim]` of the training rows, before the first update.

        The default leaves the parameters as they are.
        """

    def contrast(self, positive: Tensor, negative: Tensor) -> Tensor:
        """Mean log pi of `negative` - that of `positive`, a scalar; adds its gradient to `.grad`.

        The default differentiates `forward` with respect to all parameters, which require no
        gradient afterwards.
        """
        self.requires_grad_(True)
        with torch.enable_grad():
            values = self(torch.cat((positive, negative)))
            loss = values[len(positive) :].mean() - values[: len(positive)].mean()
            loss.backward()
        self.requires_grad_(False)
        return loss.detach()

    def project(self) -> None:
        """Move the parameters back to the allowed set after an update. The default allows all."""

    # Local structure. Each method may use the cache of `x`, which `cache(x)` makes anew.

    def cache(self, x: Tensor) -> Cache:
        """What the methods below may need of `x`; a tuple of tensors, chains first."""
        return ()

    def moved(self, cache: Cache, x: Tensor, sites: Tensor, new: Tensor) -> Cache:
        """The cache after `x[:, sites]` became `new` (`[chains, len(sites), ...]`).

        `x` is still the old state. The old cache may be overwritten.
        """
        return ()

    def evaluate_with_cache(self, x: Tensor) -> tuple[Tensor, Tensor, Cache]:
        """`log_prob_and_grad(x)` and `cache(x)` together."""
        return *self.log_prob_and_grad(x), ()

    def evaluate_flipped(
        self, cache: Cache, x: Tensor, y: Tensor, index: Tensor
    ) -> tuple[Tensor, Tensor, Cache]:
        """`evaluate_with_cache(y)` where `y` differs from `x` at `index` `[chains, flips]` only."""
        return self.evaluate_with_cache(y)

    def differences(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        """Exact change in log-probability of each move of each of `sites`, `[n]` indices.

        Shape `[chains, n]` where the move is a flip, else `[chains, n, moves]`.
        """
        domain, chains, moves = self.domain, len(x), self.domain.moves
        index = (sites.unsqueeze(-1) * moves + torch.arange(moves, device=x.device)).flatten()
        neighbours = [domain.move_one(x, i.expand(chains, 1)) for i in index]
        after = torch.stack([self(y) for y in neighbours], -1)
        difference = after - self(x).unsqueeze(-1)
        return difference if moves == 1 else difference.unflatten(-1, (len(sites), moves))

    def differences_after(self, x: Tensor, index: Tensor) -> tuple[Tensor | None, Tensor]:
        """The `differences` that a flip of each chain's site `index` `[chains, 1]`, made, changed.

        The sites whose difference is another than before, `[chains, m]` (or None: every site), and
        their differences at `x`, the state after the flip, `[chains, m or dim]`. A site may be
        listed twice. For pairwise models, whose gains are exact differences; others raise.
        """
        raise NotImplementedError(f"{type(self).__name__} does not price flips by neighbourhoods")

    def log_odds(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        """Log of pi(site high given the rest) / pi(site low ...), `[chains, n]`; binary only."""
        assert isinstance(self.domain, Binary)
        high = x.index_select(1, sites) == self.domain.high
        difference = self.differences(x, cache, sites)
        return torch.where(high, -difference, difference)

    def conditional(self, x: Tensor, cache: Cache, sites: Tensor) -> tuple[Tensor, Cache]:
        """`log_odds`, and the cache with what was found on the way and `moved` can use."""
        return self.log_odds(x, cache, sites), cache

    def block_log_probs(self, x: Tensor, cache: Cache, sites: Tensor, patterns: Tensor) -> Tensor:
        """Log-probability of `x` with `x[:, sites]` set to each pattern, `[chains, patterns]`.

        Up to a constant a chain. `sites` are `[n]` distinct indices; `patterns` are
        `[1 or chains, patterns, n, ...]`.
        """
        count = patterns.shape[1]
        y = x.unsqueeze(1).repeat_interleave(count, 1)
        y[:, :, sites] = patterns.to(x).expand(len(x), *patterns.shape[1:])
        return self(y.flatten(0, 1)).view(len(x), count)

    def site_log_probs(self, x: Tensor, cache: Cache, site: Tensor) -> Tensor:
        """Log-probability of `x` with `site` `[1]` at each of its values, `[chains, values]`.

        Up to a constant a chain; what Gibbs draws a categorical site from.
        """
        patterns = self.domain.patterns(1, x.device).unsqueeze(0)
        return self.block_log_probs(x, cache, site, patterns)


class DataModel(EnergyModel):
    """A target that is a sum over rows of data, so that a minibatch estimates it.

    `rows` counts them. `forward` is the full-batch target, and `given(batch)` the estimate from the
    rows with indices `batch` `[n]`, scaled so that its gradient is unbiased: a model of its own, so
    that whoever evaluates it twice sees the same rows.
    """

    rows: int

    @abstractmethod
    def given(self, batch: Tensor) -> EnergyModel:
        """The target estimated from the rows `batch`; reads nothing on the host."""


class AnnealedModel(EnergyModel):
    """A path of targets pi_beta from one that can be drawn from, beta = 0, to another, beta = 1.

    `know(x)` is what the path must know of a point to price a change of beta there, a tuple of
    tensors, chains first, that does not depend on beta. Whoever keeps it beside a chain gets
    log-ratios, and evaluations at that point, for nothing.
    """

    beta: Tensor  # scalar, a buffer: changing it reads nothing on the host

    @abstractmethod
    def draw(self, chains: int, rng: Generator) -> Tensor:
        """Independent draws from pi_0, `[chains, *domain.shape]`."""

    @abstractmethod
    def log_z_start(self) -> Tensor:
        """Log normaliser of pi_0, a float64 scalar."""

    @abstractmethod
    def move_to(self, beta: Tensor, x: Tensor | None = None, known: Cache = ()) -> None:
        """Change beta. An evaluation at this tensor `x`, of which `known` is known, is then free.

        It holds until the next change, for as long as `x` is not overwritten.
        """

    @abstractmethod
    def know(self, x: Tensor) -> Cache:
        """What is known of `x`, at no evaluation where a step since `move_to` has just made it."""

    @abstractmethod
    def log_ratio(self, known: Cache, beta: Tensor) -> Tensor:
        """How much log pi of `x` grows from the present beta to this one, `[chains]`, float64."""


class Predictor(DataModel):
    """A DataModel whose rows are features and targets in [0, 1]: a regression, x its weights."""

    @abstractmethod
    def on(self, features: Tensor, targets: Tensor) -> "Predictor":
        """The same regression on other rows, `[rows, features]` and `[rows]`."""

    @abstractmethod
    def predict(self, x: Tensor, features: Tensor) -> Tensor:
        """The targets that each chain expects, `[chains, ...], [n, features] -> [chains, n]`."""


class CarriesRates(ABC):
    """A model that keeps the mean sufficient statistics ("rates") of its training data."""

    @abstractmethod
    def set_rates(self, batches: Iterable[Tensor]) -> None:
        """Rates of the rows of all `batches` `[n, dim]`; ValueError where there are none."""


class Function(EnergyModel):
    """Any PyTorch function of x as a target: `Function(lambda x: ..., Binary(10))`.

    `log_prob` maps `[chains, *domain.shape]` to `[chains]` and must be differentiable for the
    gradient-based samplers. `Sampler.init` checks what it returns.
    """

    def __init__(self, log_prob: Callable[[Tensor], Tensor], domain: Domain) -> None:
        super().__init__()
        self.function, self.domain = log_prob, domain

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)
