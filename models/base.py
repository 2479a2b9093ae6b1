"""The target interface: an unnormalised log-probability on a discrete domain.

A model must define `forward`. All other methods have defaults based on it. A model with structure
overrides those that it can compute more cheaply: the gradient in closed form, and the local
methods, which evaluate a change of a few sites without evaluating the whole model (used by Gibbs,
Hamming ball and locally balanced).
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from latticework.models.domains import Binary, Domain
from latticework.models.evidence import Evidence, Known
from latticework.models.forms import Form
from latticework.moved import RenamedMethods, offer_moved_names

Cache = tuple[Tensor, ...]  # what a model remembers of a state, for its local methods
# A few sites, and which of their values, an axis a site, may occur together.
SupportTable = tuple[tuple[int, ...], NDArray[np.bool_]]
ZERO_PRICE = 2.0**20  # nats of a zero in softened models, far more than all other terms together


class NotDifferentiableError(ValueError):
    """The log-probability of a model has no gradient in x."""


class EnergyModel(RenamedMethods, nn.Module, ABC):
    """log pi(x) up to a constant, on `domain`. Larger values are more likely."""

    old_names: ClassVar = {
        "given": "condition_on",
        "moved": "update_cache",
        "restricted": "restrict",
        "softened": "soften",
        "apart": "on_copies",  # annealed models
    }

    # The models that `condition_on` and `with_ones` give. `models.conditioned`, which is imported
    # with the package of models, sets them: they are models themselves.
    _conditioned: ClassVar[type[Any]]
    _with_ones: ClassVar[type[Any]]
    domain: Domain
    flip_bound: float = math.inf  # no flip changes the log-probability by more, where it is known
    untrained: bool = False  # its weights are random and meant to be learned
    # Whether the differences of all sites are in closed form, at about the cost of one evaluation.
    closed_differences: bool = False
    quadratic: bool = False  # log pi is a quadratic polynomial of x, as `gradient` differentiates
    names: tuple[Hashable, ...] | None = None  # names of the sites, where they have some
    labels: tuple[tuple[Hashable, ...], ...] | None = None  # labels of the values of each site
    chains: int | None = None  # how many states it evaluates together, if each has its own target

    def list_edges(self) -> Tensor | None:
        """The coupled pairs of sites `[m, 2]`, each once; None if the model has no graph."""
        return None

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Unnormalised log-probability, `[chains, *domain.shape] -> [chains]`."""

    def log_prob(self, x: Tensor) -> Tensor:
        return self(x)

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability `[chains]` and gradient `[chains, *domain.shape]`, without a graph.

        Both come from one evaluation. The default differentiates `forward`; a model with a closed
        form overrides it. Raises NotDifferentiableError if `forward` is not differentiable.
        """
        if torch.is_inference_mode_enabled():
            raise NotDifferentiableError(
                "torch.inference_mode() switches off differentiation, and the gradient of "
                f"{type(self).__name__} is differentiated; use torch.no_grad() instead, or a "
                "sampler without gradients"
            )
        with torch.enable_grad():
            x = (x.clone() if x.is_inference() else x.detach()).requires_grad_()
            log_prob, grad = self(x), None
            if getattr(log_prob, "requires_grad", False):
                (grad,) = torch.autograd.grad(log_prob.sum(), x, allow_unused=True)
        if grad is None:  # the log-probability has no graph, or only that of parameters
            raise NotDifferentiableError(
                f"the log-probability of {type(self).__name__} cannot be differentiated in x; "
                "use differentiable operations, or choose a sampler without gradients"
            )
        return log_prob.detach(), grad

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load a state as in any module. The model is then no longer `untrained`."""
        result = super().load_state_dict(*args, **kwargs)
        self.untrained = False
        return result

    def log_z_and_mean(self) -> tuple[Tensor, Tensor] | None:
        """Exact log normaliser (scalar) and mean of x `[*domain.shape]`, float64, if cheap.

        None if they can only be enumerated (`sampling.exact`).
        """
        return None

    def hidden_layer(self) -> tuple[Domain, int, Callable[[Tensor], tuple[Tensor, Tensor]]] | None:
        """Hidden units, fewer than the sites, that log Z can be summed over (`sampling.exact`).

        Their domain, the number of sites, and a function of states of the units `[n, units]`: the
        log-probabilities `[n]`, and the mean of x given each `[n, sites]`. None if there are none.
        """
        return None

    def gradient(self, x: Tensor) -> Tensor:
        """The gradient alone, where that is cheaper than `log_prob_and_grad`."""
        return self.log_prob_and_grad(x)[1]

    def colours(self) -> Tensor | None:
        """Classes of sites that are independent given all others, `[dim]` from 0, where known."""
        return None

    def scopes(self, sites: int) -> Tensor | None:
        """Blocks of `sites` sites that may determine one another, `[blocks, sites]`, where known.

        Each site is in one of them at least.
        """
        return None

    def support_tables(self) -> list[SupportTable] | None:
        """Tables that a state of positive probability must all fulfil, and no other does.

        Chains start by them (`sampling.possible`). None where they are not known.
        """
        return None

    def soften(self) -> "EnergyModel | None":
        """This model in float64 with terms of -`ZERO_PRICE` in place of those of -inf.

        A sum of terms then tells the number of its zeros. None if there are none, or if they are
        not known as terms. Paths of tempering need it (`models.annealed.SoftenedPath`).
        """
        return None

    def form(self) -> Form | None:
        """The arrays for compiled kernels (`models.forms`), which may share the parameters' memory.

        None if there is no such form. Called on the CPU in float32 only.
        """
        return None

    # Conditioning.

    def condition_on(self, known: Known) -> "EnergyModel":
        """The law of the other sites, given the values of some: a model on the free sites alone.

        `known` maps sites (numbers from 0, or names where the model has some) to values, or is a
        tensor `[dim]` with NaN at the free sites. The value of a categorical site is the number of
        its category. `complete` puts both together again. A later change of this model's parameters
        may or may not be seen by the conditioned one.

        A tensor `[chains, dim]` gives each chain values of its own, at the same sites. Each chain
        then has a law of its own, and the model evaluates that many states, one of each chain.

        Raises ValueError for sites and values that the model does not have, if no site is free, if
        the free sites differ from chain to chain, and if a table gives known values probability 0.
        """
        evidence = Evidence(self.domain, known, self.names, self._evidence())
        tensors = itertools.chain(self.parameters(), self.buffers())
        if (place := next(tensors, None)) is not None:
            evidence.to(place.device)
        owner: Any = next(kind for kind in type(self).__mro__ if "restrict" in kind.__dict__)
        same = type(self).forward is owner.forward  # a subclass may define another target
        evidence.require_possible(self.support_tables() or (), self.names)
        closed = self.restrict(evidence) if same and evidence.chains is None else None
        smaller = closed or self._conditioned(self, evidence)
        smaller.chains = evidence.chains
        smaller.add_module("evidence", evidence)
        smaller.untrained = self.untrained
        if self.names is not None:
            smaller.names = tuple(self.names[i] for i in evidence.free.tolist())
        if self.labels is not None:
            smaller.labels = tuple(self.labels[i] for i in evidence.free.tolist())
        return smaller

    def with_ones(self, ones: int) -> "EnergyModel":
        """The law of x given that exactly `ones` sites are high, on the domain `Subset`.

        Raises ValueError if the domain is not binary.
        """
        return self._with_ones(self, ones)

    def restrict(self, evidence: Evidence) -> "EnergyModel | None":
        """A smaller model of the free sites, with its own closed forms; None where there is none.

        Equal to this one at completed states, so that log Z is that of the evidence.
        """
        return None

    def complete(self, x: Tensor) -> Tensor:
        """States of the model before `condition_on`, `[chains, *shape]`: `x` and known values."""
        evidence = self._evidence()
        return x if evidence is None else evidence.complete(x)

    @property
    def is_conditioned(self) -> bool:
        """Whether some sites have known values."""
        return self._evidence() is not None

    def _evidence(self) -> Evidence | None:
        return getattr(self, "evidence", None)  # a module, which no class attribute may hide

    # Learning.

    def start_from_data(self, mean: Tensor) -> None:
        """Set parameters from the mean `[dim]` of the training rows, before the first update."""

    def contrast(self, positive: Tensor, negative: Tensor) -> Tensor:
        """Mean log pi of `negative` - mean log pi of `positive`; adds the gradient to `.grad`.

        Returns a scalar. Afterwards no parameter requires a gradient.
        """
        self.requires_grad_(True)
        with torch.enable_grad():
            values = self(torch.cat((positive, negative)))
            loss = values[len(positive) :].mean() - values[: len(positive)].mean()
            loss.backward()
        self.requires_grad_(False)
        return loss.detach()

    def project(self) -> None:
        """Project the parameters onto the allowed set after an update."""

    # Local structure. Each method may use the cache of `x`, which `cache(x)` computes from scratch.

    def cache(self, x: Tensor) -> Cache:
        """Intermediate results at `x` for the methods below: a tuple of tensors, chains first."""
        return ()

    def update_cache(self, cache: Cache, x: Tensor, sites: Tensor, new: Tensor) -> Cache:
        """The cache after `x[:, sites]` became `new` (`[chains, len(sites), ...]`).

        `x` is still the old state. The old cache may be overwritten. A model that adds changes to
        its cache keeps it in double precision, where rounding errors do not add up.
        """
        return ()

    def evaluate_with_cache(self, x: Tensor) -> tuple[Tensor, Tensor, Cache]:
        """`log_prob_and_grad(x)` and `cache(x)` in one evaluation."""
        return *self.log_prob_and_grad(x), ()

    def evaluate_flipped(
        self, cache: Cache, x: Tensor, y: Tensor, index: Tensor
    ) -> tuple[Tensor, Tensor, Cache]:
        """`evaluate_with_cache(y)`; `y` differs from `x` only at `index` `[chains, flips]`."""
        return self.evaluate_with_cache(y)

    def differences(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        """Exact change in log-probability for each move of each of `sites`, `[n]` indices.

        The ones of a `Subset` take the place of sites. Shape `[chains, n]` if there is one move,
        such as a flip, else `[chains, n, moves]`.
        """
        domain, chains, moves = self.domain, len(x), self.domain.moves
        index = (sites.unsqueeze(-1) * moves + torch.arange(moves, device=x.device)).flatten()
        neighbours = [domain.move_one(x, i.expand(chains, 1)) for i in index]
        after = torch.stack([self(y) for y in neighbours], -1)
        difference = after - self(x).unsqueeze(-1)
        return difference if moves == 1 else difference.unflatten(-1, (len(sites), moves))

    def differences_after(self, x: Tensor, index: Tensor) -> tuple[Tensor | None, Tensor]:
        """Update `differences` after each chain's site `index` `[chains, 1]` was flipped.

        `x` is the state after the flip. Returns the sites whose difference changed, `[chains, m]`
        (None for all sites; a site may be listed twice), and their new differences,
        `[chains, m or dim]`. Only pairwise models have it; others raise NotImplementedError.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot update differences after a flip")

    def log_odds(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        """Log pi(site high | rest) - log pi(site low | rest), `[chains, n]`. Binary only."""
        assert isinstance(self.domain, Binary)
        high = x.index_select(1, sites) == self.domain.high
        difference = self.differences(x, cache, sites)
        return torch.where(high, -difference, difference)

    def conditional(self, x: Tensor, cache: Cache, sites: Tensor) -> tuple[Tensor, Cache]:
        """`log_odds`, and the cache with intermediate results that `update_cache` can use."""
        return self.log_odds(x, cache, sites), cache

    def block_log_probs(self, x: Tensor, cache: Cache, sites: Tensor, patterns: Tensor) -> Tensor:
        """Log-probability of `x` with `x[:, sites]` set to each pattern, `[chains, patterns]`.

        Up to a constant per chain. `sites` are `[n]` distinct indices; `patterns` are
        `[1 or chains, patterns, n, ...]`.
        """
        count = patterns.shape[1]
        y = x.unsqueeze(1).repeat_interleave(count, 1)
        y[:, :, sites] = patterns.to(x).expand(len(x), *patterns.shape[1:])
        return self(y.flatten(0, 1)).view(len(x), count)

    def site_log_probs(self, x: Tensor, cache: Cache, site: Tensor) -> Tensor:
        """Log-probability of `x` with `site` `[1]` at each of its values, `[chains, values]`.

        Up to a constant per chain. Gibbs draws a categorical site from it.
        """
        patterns, _ = self.domain.block(x, site)
        return self.block_log_probs(x, cache, site, patterns)


class AnnealedModel(EnergyModel):
    """A path of targets pi_beta: beta = 0 can be sampled exactly, beta = 1 is the target of AIS.

    `know(x)` is what is needed to change beta at the point `x`: tensors, chains first, that do not
    depend on beta. With it, log-ratios and values at `x` need no further evaluation.
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
        """Change beta. With `x` and `known = know(x)`, the next evaluation at `x` is free.

        This is valid until the next change of beta, and only while `x` is not overwritten.
        """

    def with_soft_zeros(self) -> "AnnealedModel":
        """This path with finite prices below beta = 1 for zeros that the model knows of.

        Chains can then pass through states that are impossible for the target.
        """
        return self

    @abstractmethod
    def forget(self) -> None:
        """Forget all evaluations."""

    @contextmanager
    def on_copies(self) -> Iterator[None]:
        """Inside, the path writes to copies of its tensors. Afterwards it remembers nothing."""
        buffers = dict(self._buffers)
        self._buffers.update(
            {name: None if t is None else t.clone() for name, t in buffers.items()}
        )
        try:
            yield
        finally:
            self._buffers.update(buffers)
            self.forget()

    @abstractmethod
    def know(self, x: Tensor) -> Cache:
        """The quantities at `x` that do not depend on beta. Free if the last step evaluated `x`."""

    def know_like(self, x: Tensor, known: Cache) -> Cache:
        """`know(x)` with as many parts as `known` has, from one evaluation."""
        return self.know(x)

    @abstractmethod
    def target_log_prob(self, x: Tensor, known: Cache) -> Tensor:
        """The log-probability of `x` at beta = 1, `[chains]`, from `known = know(x)`."""

    @abstractmethod
    def log_ratio(self, known: Cache, beta: Tensor) -> Tensor:
        """Log pi at `beta` - log pi at the current beta, for the point of `known`.

        `[chains]`, float64.
        """


class Function(EnergyModel):
    """Any PyTorch function of x as a target: `Function(lambda x: ..., Binary(10))`.

    `log_prob` maps `[chains, *domain.shape]` to `[chains]`. Gradient-based samplers need it to be
    differentiable. `Sampler.init` checks its result.
    """

    def __init__(self, log_prob: Callable[[Tensor], Tensor], domain: Domain) -> None:
        super().__init__()
        self.function, self.domain = log_prob, domain

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.domain.as_argument(x))


if not TYPE_CHECKING:  # else type checkers would accept any name
    __getattr__ = offer_moved_names(__name__)
