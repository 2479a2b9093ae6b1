"""Annealed importance sampling (AIS): log normalisers with standard errors and bounds.

R. M. Neal, "Annealed importance sampling", Statistics and Computing 2001. On a path pi_beta of
unnormalised targets (`models.base.AnnealedModel`), with beta_0 .. beta_K from 0 to 1 and T_k a
kernel that leaves pi_(beta_k) invariant:

    x_0 ~ pi_0,    log w = sum_k log pi_(beta_k)(x_(k-1)) - log pi_(beta_(k-1))(x_(k-1)),
    x_k ~ T_k(x_(k-1)),                                      E[w] = Z_1 / Z_0

E[log w] <= log Z_1 / Z_0 for any choice of kernels. Reverse AIS starts from exact draws of pi_1 and
takes the betas backwards. Then E[w] = Z_0 / Z_1, and -E[log w] is an upper bound on log Z_1 / Z_0
(R. Grosse et al., "Sandwiching the marginal likelihood using bidirectional Monte Carlo", 2015).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import AnnealedModel, Cache
from latticework.samplers.base import Sampler
from latticework.samplers.checks import check_start
from latticework.sampling.chain import capture, require_whole_blocks

RESAMPLES = 1000  # of the bootstrap


class Annealing(NamedTuple):
    """The chains at one beta, with their log weights so far."""

    kernel: Any  # the sampler's state, at betas[stage]
    known: Cache  # of its x, by the path: what the next weight needs
    log_weight: Tensor  # [chains], float64
    stage: Tensor  # k, an int64 scalar


def require_exact(sampler: Sampler) -> None:
    """Raise ValueError for a sampler whose chains do not keep the target's law from the start."""
    if not sampler.exact:
        raise ValueError(
            "annealed importance sampling needs a kernel that leaves its target invariant, and "
            f"{sampler} does not; choose another, such as gwg, dmala, gibbs or block_gibbs"
        )
    if not sampler.stationary_start:
        raise ValueError(
            f"annealed importance sampling cannot use {sampler}: chains that start from exact "
            "draws still need a burn-in; choose another, such as gwg, dmala or gibbs"
        )


def start(sampler: Sampler, path: AnnealedModel, x: Tensor, betas: Tensor) -> Annealing:
    """Start chains at `x` `[chains, *shape]`, which are draws from the target at betas[0].

    Raises ValueError unless the sampler is exact from the start, or if `x` is no valid start.
    """
    require_exact(sampler)
    path.move_to(betas[0])
    check_start(x, path, sampler.uses_gradient)
    path.move_to(betas[0])  # again: the path remembers the evaluations made since
    state = sampler.at(x, path)
    zeros = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    stage = torch.zeros((), dtype=torch.long, device=x.device)
    return Annealing(state, path.know(state.x), zeros, stage)


def advance(
    annealing: Annealing, sampler: Sampler, path: AnnealedModel, betas: Tensor, rng: Generator
) -> Annealing:
    """Move to the next beta. Costs only the sampler's step: the weights reuse its evaluations."""
    state, known, log_weight, stage = annealing
    stage = stage + 1
    now, then = betas.index_select(0, torch.stack((stage - 1, stage))).unbind()
    path.move_to(now)
    log_weight = log_weight + path.log_ratio(known, then)
    path.move_to(then, state.x, known)
    state, _ = sampler.step(sampler.refresh(state, path), path, rng)
    return Annealing(state, path.know(state.x), log_weight, stage)


def stepper(
    annealing: Annealing,
    sampler: Sampler,
    path: AnnealedModel,
    betas: Tensor,
    rng: Generator,
    steps: int,
) -> Callable[[Annealing], Annealing]:
    """A function that advances chains by `steps` betas; one CUDA graph on a GPU."""

    def block(state: Any, carries: list) -> tuple[Any, list]:
        for _ in range(steps):
            state = advance(state, sampler, path, betas, rng)
        return state, carries

    run = capture(block, annealing, [], rng) if betas.is_cuda else block
    return lambda annealing: run(annealing, [])[0]


def anneal(
    sampler: Sampler,
    path: AnnealedModel,
    x: Tensor,
    betas: Tensor,
    rng: Generator,
    every: int = 1,
) -> Annealing:
    """Run AIS from `x`, draws from the target at betas[0], in blocks of `every` betas.

    Raises ValueError as `start` does, and unless the steps between `betas` are whole blocks.
    """
    require_whole_blocks(len(betas) - 1, every)
    with torch.no_grad():
        annealing = start(sampler, path, x, betas)
        step = stepper(annealing, sampler, path, betas, rng, every)
        for _ in range((len(betas) - 1) // every):
            annealing = step(annealing)
    return annealing


# Schedules: betas, float64 [steps + 1]. Each is rounded to float32, the precision of the models.


def linear(steps: int) -> Tensor:
    return torch.linspace(0, 1, steps + 1, dtype=torch.float64).float().double()


def sigmoid(steps: int, slope: float = 4.0) -> Tensor:
    """Denser at both ends. A larger `slope` concentrates the betas more."""
    curve = torch.linspace(-slope, slope, steps + 1, dtype=torch.float64).sigmoid()
    return ((curve - curve[0]) / (curve[-1] - curve[0])).float().double()


def geometric(steps: int, first: float = 1e-3) -> Tensor:
    """0, then a geometric sequence from `first` to 1: denser at the start."""
    exponents = torch.linspace(0, 1, steps, dtype=torch.float64).flip(0)  # of one step: 0
    return torch.cat((exponents.new_zeros(1), first**exponents)).float().double()


# Estimates.


class LogNormaliser(NamedTuple):
    """An estimate of log Z_1 / Z_0."""

    value: float  # log of the mean weight
    error: float  # its standard error, by the delta method
    bootstrap: float  # the same, by resampling chains
    ess: float  # effective number of chains
    bound: float  # mean log weight: below the truth in expectation
    bound_error: float  # its standard error


def estimate_log_normaliser(log_weight: Tensor, rng: Generator) -> LogNormaliser:
    """Estimate log Z_1 / Z_0 from the log weights `[chains]` of independent chains.

    `rng` is on their device. When the effective number of chains is small, both standard errors
    are too small; the bound remains valid. Raises ValueError for non-finite log weights, and for
    fewer than two.
    """
    chains = len(log_weight)
    if chains < 2 or not log_weight.isfinite().all():
        raise ValueError(f"an estimate needs two finite log weights or more, got {log_weight}")
    weight = (log_weight - log_weight.max()).exp()
    mean = weight.mean()
    index = torch.randint(chains, (RESAMPLES, chains), generator=rng, device=weight.device)
    return LogNormaliser(
        value=float(log_weight.max() + mean.log()),
        error=float(weight.std() / mean / chains**0.5),
        bootstrap=float(weight[index].mean(-1).log().std()),
        ess=float(weight.sum() ** 2 / weight.square().sum()),
        bound=float(log_weight.mean()),
        bound_error=float(log_weight.std() / chains**0.5),
    )
