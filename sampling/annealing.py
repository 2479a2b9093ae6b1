"""Annealed importance sampling (AIS): log normalisers with standard errors and bounds.

R. M. Neal, "Annealed importance sampling", Statistics and Computing 2001. On a path pi_beta of
unnormalised targets (`models.base.AnnealedModel`), with beta_0 .. beta_K from 0 to 1 and T_k a
kernel that leaves pi_(beta_k) invariant:

    x_0 ~ pi_0,    log w = sum_k log pi_(beta_k)(x_(k-1)) - log pi_(beta_(k-1))(x_(k-1)),
    x_k ~ T_k(x_(k-1)),                                      E[w] = Z_1 / Z_0

E[log w] <= log Z_1 / Z_0 for any choice of kernels. Reverse AIS starts from exact draws of pi_1 and
takes the betas backwards. Then E[w] = Z_0 / Z_1, and -E[log w] is an upper bound on log Z_1 / Z_0
(R. Grosse et al., "Sandwiching the marginal likelihood using bidirectional Monte Carlo", 2015).

With `runs`, the chains are the particles of so many independent runs of an SMC sampler (P. Del
Moral, A. Doucet and A. Jasra, "Sequential Monte Carlo samplers", JRSSB 2006). When fewer than half
of a run's particles are effective, systematic resampling replaces them, and each then has the mean
of their weights. The mean weight of a run still has the expectation Z_1 / Z_0, if betas and kernels
do not depend on its particles.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import AnnealedModel, Cache
from latticework.models.distributions import uniform
from latticework.samplers.base import Info, Sampler
from latticework.samplers.checks import check_start
from latticework.samplers.fused import Fused
from latticework.samplers.ladder import even_schedule
from latticework.sampling.chain import capture, require_whole_blocks
from latticework.sampling.engine import select_kernel
from latticework.sampling.intervals import t_half_width

RESAMPLES = 1000  # resamples of the bootstrap
INTERVAL_LEVEL = 0.95  # level of intervals and bounds
RESAMPLE_ESS_SHARE = 0.5  # if a smaller share of particles is effective, they are resampled
PILOT_ESS_SHARE = 0.9  # share of particles that count after one step of the pilot
HALVINGS = 20  # halvings of the interval in which the pilot looks for its next beta


class Annealing(NamedTuple):
    """The chains at one beta, with their log weights so far."""

    kernel: Any  # the sampler's state, at betas[stage]
    known: Cache  # what the next weight needs, known by the path at its x
    log_weight: Tensor  # [chains], float64
    stage: Tensor  # k, an int64 scalar

    @property
    def x(self) -> Tensor:
        return self.kernel.x


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


def start_annealing(sampler: Sampler, path: AnnealedModel, x: Tensor, betas: Tensor) -> Annealing:
    """Start chains at `x` `[chains, *shape]`, which are draws from the target at betas[0].

    Draws from beta = 0 that are impossible between 0 and 1 have weight 0; possible ones take their
    places, so that kernels meet no infinite values. Raises ValueError unless the sampler is exact
    from the start, if `x` is no valid start, or if all of it is impossible.
    """
    require_exact(sampler)
    path.move_to(betas[0])
    log_weight = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    if betas[0] == 0:
        impossible = path.log_ratio(path.know(x), torch.full_like(betas[0], 0.5)).isneginf()
        if impossible.all():
            raise ValueError(
                f"all of {len(x)} draws from beta = 0 are impossible for the target, so nothing is "
                "known of its normaliser; take more chains, a base nearer to the target, or a "
                "model that tells its zeros, such as Factors, which are softened"
            )
        if impossible.any():
            log_weight = log_weight.masked_fill(impossible, -math.inf)
            number = torch.arange(len(x), device=x.device)
            possible = number[~impossible]
            x = x[torch.where(impossible, possible[number % len(possible)], number)]
    check_start(x, path, sampler.uses_gradient)
    path.move_to(betas[0])  # again: the path remembers the evaluations made since
    state = sampler.at(x, path)
    stage = torch.zeros((), dtype=torch.long, device=x.device)
    return Annealing(state, path.know(state.x), log_weight, stage)


def advance(
    annealing: Annealing,
    sampler: Sampler,
    path: AnnealedModel,
    betas: Tensor,
    rng: Generator,
    runs: int = 0,
) -> Annealing:
    """Move to the next beta. Costs only the sampler's step: the weights reuse its evaluations."""
    state, known, log_weight, stage = annealing
    stage = stage + 1
    now, then = betas.index_select(0, torch.stack((stage - 1, stage))).unbind()
    path.move_to(now)
    log_weight = log_weight + path.log_ratio(known, then)
    if runs:
        rows, log_weight = ancestors(log_weight.view(runs, -1), rng)
        x, known = state.x[rows], tuple(part[rows] for part in known)
        path.move_to(then, x, known)
        state = sampler.relocate(x, state, path)
    else:
        path.move_to(then, state.x, known)
        state = sampler.refresh(state, path)
    state, _ = sampler.step(state, path, rng)
    return Annealing(state, path.know(state.x), log_weight, stage)


@dataclass(frozen=True)
class AnnealingKernel(Sampler):
    """`advance` as a kernel whose target is the path, for engine=fused."""

    sampler: Sampler
    betas: Tensor
    runs: int = 0
    anneals = True

    def at(self, x: Tensor, model: Any) -> Annealing:
        return start_annealing(self.sampler, model, x, self.betas)

    def step(self, state: Annealing, model: Any, rng: Generator) -> tuple[Annealing, Info]:
        with model.on_copies():
            after = advance(state, self.sampler, model, self.betas, rng, self.runs)
        return after, Info(torch.ones_like(after.log_weight))


def ancestors(log_weight: Tensor, rng: Generator) -> tuple[Tensor, Tensor]:
    """Which particle each one continues, and its log weight, both `[runs * particles]`.

    Systematic resampling, in the runs of `log_weight` `[runs, particles]` where fewer than
    `RESAMPLE_ESS_SHARE` of the particles are effective; the others keep theirs.
    """
    runs, size = log_weight.shape
    top = log_weight.amax(1, keepdim=True).nan_to_num(neginf=0)  # all particles have weight 0
    weight = (log_weight - top).exp()
    total = weight.sum(1, keepdim=True)
    few = total.square() < RESAMPLE_ESS_SHARE * size * weight.square().sum(1, keepdim=True)
    itself = torch.arange(size, device=weight.device)
    shift = uniform((runs, 1), rng, weight.device)
    parents = torch.searchsorted(weight.cumsum(1), (itself + shift) / size * total)
    parents.clamp_(max=size - 1)
    first = size * torch.arange(runs, device=weight.device)[:, None]
    rows = torch.where(few, parents, itself) + first
    log_weight = torch.where(few, top + (total / size).log(), log_weight)
    return rows.flatten(), log_weight.flatten()


def stepper(
    annealing: Annealing,
    sampler: Sampler,
    path: AnnealedModel,
    betas: Tensor,
    rng: Generator,
    steps: int,
    runs: int = 0,
    move: Sampler | None = None,
) -> Callable[[Annealing], Annealing]:
    """A function that advances chains by `steps` betas; one CUDA graph on a GPU.

    `move` is the kernel of `AnnealingKernel` for another engine; one that is not fused is not used.
    """
    if isinstance(move, Fused):
        kernel = move
        return lambda state: kernel.unwrap_state(
            kernel.advance(kernel.wrap_state(state), path, rng, steps)[0]
        )

    def block(state: Any, carries: list) -> tuple[Any, list]:
        for _ in range(steps):
            state = advance(state, sampler, path, betas, rng, runs)
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
    runs: int = 0,
    engine: str = "eager",
) -> Annealing:
    """Run AIS from `x`, draws from the target at betas[0], in blocks of `every` betas; or SMC.

    `engine` is eager, where `sampler` may be the kernel of another engine, or fused. Raises
    ValueError as `start` does, and unless the steps between `betas` are whole blocks.
    """
    require_whole_blocks(len(betas) - 1, every)
    with torch.no_grad():
        annealing = start_annealing(sampler, path, x, betas)
        move: Sampler | None = None
        if engine != "eager":
            move, _ = select_kernel(
                AnnealingKernel(sampler, betas, runs), path, engine, (), x, 0, every
            )
        step = stepper(annealing, sampler, path, betas, rng, every, runs, move)
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
    exponents = torch.linspace(0, 1, steps, dtype=torch.float64).flip(
        0
    )  # the exponent of one step is 0
    return torch.cat((exponents.new_zeros(1), first**exponents)).float().double()


@torch.no_grad()
def pilot_betas(
    sampler: Sampler, path: AnnealedModel, x: Tensor, steps: int, rng: Generator
) -> tuple[Tensor, int]:
    """Betas `[steps + 1]` with equal losses of particles, and the steps of the pilot behind them.

    Particles of its own, from `x` `[particles, *shape]` at beta = 0, go to the largest beta at
    which `PILOT_ESS_SHARE` of them count, and make a step there, until beta is 1 (the conditional
    effective sample size of Y. Zhou, A. Johansen and J. Aston, "Toward automatic model comparison",
    Journal of Computational and Graphical Statistics 2016). Raises ValueError as `start` does.
    """
    betas, losses = [torch.zeros((), dtype=torch.float64, device=x.device)], []
    state, known, log_weight, _ = start_annealing(sampler, path, x, torch.stack(betas))

    def share(beta: Tensor) -> Tensor:
        ratio, weight = path.log_ratio(known, beta).double(), log_weight.softmax(0)
        change = (ratio - ratio.max()).exp()
        return (weight @ change).square() / (weight @ change.square())

    while betas[-1] < 1:
        path.move_to(betas[-1])
        low, high = betas[-1], torch.ones_like(betas[-1])
        for _ in range(0 if share(high) >= PILOT_ESS_SHARE else HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if share(middle) >= PILOT_ESS_SHARE else (low, middle)
        betas.append(high.float().double())
        losses.append((1 / share(betas[-1]) - 1).clamp(min=0).sqrt())  # the spread of the weights
        log_weight = log_weight + path.log_ratio(known, betas[-1])
        rows, log_weight = ancestors(log_weight.view(1, -1), rng)
        x = state.x[rows]
        path.move_to(betas[-1], x, tuple(part[rows] for part in known))
        state, _ = sampler.step(sampler.relocate(x, state, path), path, rng)
        known = path.know(state.x)
    ladder = even_schedule(torch.stack(betas), torch.stack(losses).clamp(min=1e-6), steps + 1)
    return ladder.float().double(), len(losses)


# Estimates.


class LogNormaliser(NamedTuple):
    """An estimate of log Z_1 / Z_0."""

    value: float  # log of the mean weight
    error: float  # its standard error, by the delta method
    bootstrap: float  # the same, by resampling chains
    ess: float  # effective number of chains
    bound: float  # mean log weight: below the truth in expectation
    bound_error: float  # its standard error
    chains: int  # or runs of SMC
    by_runs: bool = False  # whether they are runs of SMC

    @property
    def at_least(self) -> float:
        """Below the truth in 95 % of all runs, whatever the kernel and however few chains count.

        By Markov's inequality: the mean weight is unbiased, so it is above its mean 20-fold with
        probability 1/20 at most.
        """
        return self.value + math.log(1 - INTERVAL_LEVEL)

    @property
    def interval(self) -> tuple[float, float]:
        """95 %; from `at_least` to infinity unless it is plain that over half of the chains count.

        It is that of D. R. Cox for the mean of log-normal weights (X.-H. Zhou and S. Gao,
        "Confidence intervals for the log-normal mean", Statistics in Medicine 1997), of which half
        count if log weights have the variance log 2. A run that missed the heavy weights has more
        effective chains, not fewer, so the upper 95 % limit of the variance must be below log 2.

        Runs of SMC are few, so among those near this gate the ones pass whose variance came out too
        small. Their errors are those of the upper limit, at the upper end also the correction by
        half the variance.
        """
        from scipy.stats import chi2

        free = self.chains - 1
        variance = self.chains * self.bound_error**2
        most = variance * free / chi2.ppf(1 - INTERVAL_LEVEL, free)
        if self.ess <= self.chains / 2 or not most < math.log(2):
            return self.at_least, math.inf
        largest = most if self.by_runs else variance
        error = math.sqrt(largest / self.chains + largest**2 / (2 * free))
        half = error * t_half_width(self.chains, INTERVAL_LEVEL)
        return self.bound + variance / 2 - half, self.bound + largest / 2 + half


def estimate_log_normaliser(log_weight: Tensor, rng: Generator, runs: int = 0) -> LogNormaliser:
    """Estimate log Z_1 / Z_0 from the log weights `[chains]` of independent chains.

    With `runs`, from the mean weight of each run of SMC in place of a chain's. `rng` is on their
    device. A weight of 0 is that of an impossible state. When the effective number of chains is
    small, both standard errors are too small; the bound remains valid. Raises ValueError for NaN,
    and for fewer than two positive weights.
    """
    if runs:
        log_weight = log_weight.view(runs, -1).logsumexp(1) - math.log(len(log_weight) / runs)
    chains = len(log_weight)
    possible = log_weight.isfinite()
    if possible.sum() < 2 or not (possible | log_weight.isneginf()).all():
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
        chains=chains,
        by_runs=bool(runs),
    )
