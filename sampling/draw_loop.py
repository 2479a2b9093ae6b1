"""The loop that makes draws: blocks of them, from chains that stay where the last block ended.

The chains of an engine make a block (`ChainDraws`, `FusedDraws`); `DrawLoop` adds it to what is
kept. A block's size follows from the shapes alone, so numbers depend neither on a progress bar nor
on where a run was stopped, and the host reads a GPU once a block.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import gcd
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.domains import Domain
from latticework.samplers.base import Sampler
from latticework.samplers.fused import Fused
from latticework.samplers.ladder import LadderState
from latticework.samplers.sums import MultiStepSampler
from latticework.samplers.tempered import Tempered
from latticework.sampling.chain import Chain, deep_copy
from latticework.sampling.diagnostics import split_r_hat
from latticework.sampling.drawing import METRICS, MeteredKernel
from latticework.sampling.ladder_estimates import Ladders, levels_of
from latticework.sampling.metrics import whole_numbers
from latticework.sampling.running_moments import RunningMoments
from latticework.sampling.stored_draws import StoredDraws
from latticework.sampling.watch import Look

EVALUATED_ENTRIES = 2**16  # entries of draws whose log-probabilities are evaluated together
MAX_BLOCK_ENTRIES, MAX_BLOCK_DRAWS = 2**22, 512  # limits of a block whose draws know theirs
MAX_THIN = 8  # steps between draws up to which the states of all steps are asked of a kernel
CALL_SECONDS = 0.02  # after which calls of a kernel do not grow, so that a run can be stopped
MAX_BLOCK_BYTES = 2**20  # the limit of a block whose draws are bytes, so that it stays in the cache
SHOWN_SITES = 256  # sites whose R-hat a progress bar shows, at most


class DrawnBlock(NamedTuple):
    x: Tensor  # [draws, chains, *domain.shape], of the target's type or int8
    log_prob: Tensor  # [draws, chains]


class DrawnSums(NamedTuple):
    """Sums over the steps of a chain since its burn-in."""

    accept: Tensor  # [chains], float64, of acceptance probabilities
    invalid: Tensor  # [chains], steps that met a log-probability of NaN or +inf


class DrawnChains(Protocol):
    """Chains of an engine that make blocks of draws."""

    @property
    def sums(self) -> DrawnSums: ...

    def make(self, draws: int, look: Any, exactly: bool) -> DrawnBlock:
        """At most `draws` draws, until `look` says so; looks after each one if `exactly`."""

    def fork(self) -> "DrawnChains": ...

    def ladders(self, steps: int) -> Ladders | None: ...


class ChainDraws:
    """Draws of a `Chain`: every `thin` steps the state, after a burn-in."""

    def __init__(
        self, kernels: MeteredKernel, x: Tensor, rng: Generator, burn_in: int, thin: int
    ) -> None:
        self._kernels, self._thin, self._every = kernels, thin, gcd(burn_in, thin)
        self._chain = Chain(
            kernels.kernel, kernels.target, x, rng, every=self._every, metrics=METRICS
        )
        self._advance(burn_in)
        self._before = [part.clone() for part in self._chain.carries[0]]
        state = self._chain.sampler_state
        self._tempered = isinstance(state, LadderState)
        self._trips = state.trips.clone() if self._tempered else torch.zeros(0)
        self._levels: list[Any] = []
        self.later = _is_function_of_x(kernels.kernel, self._chain.state, x)
        # Whether a call of the kernel can make several draws.
        self.together = (
            self.later
            and self._every == thin <= MAX_THIN
            and isinstance(kernels.kernel, MultiStepSampler)
            and not self._tempered
            and fits_bytes(kernels.count.model.domain)
        )
        self._call_draws = 1  # draws of the next such call, at most

    def make(self, draws: int, look: Any, exactly: bool) -> DrawnBlock:
        kernel, model = self._kernels.kernel, self._kernels.count.model
        if self.together and not exactly:
            x = self._trace(draws, look)
            return DrawnBlock(x, self._evaluate_bytes(x))
        state = self._chain.state
        x = state.x.new_empty(draws, *state.x.shape)
        log_prob: list[Tensor] = []
        made = 0
        for made in range(1, draws + 1):
            self._advance(self._thin)
            state = self._chain.state
            x[made - 1] = state.x
            if not self.later:
                with torch.no_grad():
                    log_prob.append(kernel.log_prob(state, model).clone())
            if self._tempered:
                self._levels.append(levels_of(self._chain.sampler_state))
            if x.device.type == "cpu" and look(made):
                break
        x = x[:made]
        known = _evaluate_draws(model, x) if self.later else torch.stack(log_prob)
        return DrawnBlock(x, known)

    def _evaluate_bytes(self, x: Tensor) -> Tensor:
        """The log-probabilities of int8 draws, by the kernel where it has a way of its own."""
        count, dtype, evaluated = self._kernels.count, self._chain.state.x.dtype, 0
        kernel: Any = self._kernels.kernel

        def evaluate(states: Tensor) -> Tensor:
            nonlocal evaluated
            known = kernel.evaluate_states(states, self._kernels.target)
            if known is None:
                return count.model.log_prob(states.to(dtype))
            evaluated += len(states)
            return known

        log_prob = _evaluate_draws(count.model, x, evaluate)
        count.evaluations += evaluated
        return log_prob

    def _trace(self, draws: int, look: Any) -> Tensor:
        """States `[draws, chains, *shape]` as int8, by calls that make more and more of them."""
        parts: list[Tensor] = []
        made = 0
        while made < draws:
            count, began = min(self._call_draws, draws - made), time.perf_counter()
            before = self._kernels.count.evaluations
            parts.append(self._chain.trace(count))
            self._kernels.charge(before, count * self._thin)
            made += count
            if look(made):
                break
            if time.perf_counter() - began < CALL_SECONDS:
                self._call_draws = 2 * count
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    @property
    def sums(self) -> DrawnSums:
        parts = zip(self._chain.carries[0], self._before, strict=True)
        return DrawnSums(*(now - before for now, before in parts))

    def fork(self) -> "ChainDraws":
        twin = copy.copy(self)
        twin._chain, twin._levels = self._chain.fork(), [*self._levels]
        return twin

    def ladders(self, steps: int) -> Ladders | None:
        if not self._tempered:
            return None
        kernel, state = self._kernels.kernel, self._chain.sampler_state
        tempered: Any = kernel.sampler if isinstance(kernel, Fused) else kernel
        trips, domain = state.trips - self._trips, self._kernels.count.model.domain
        odds, counted = tempered.log_odds, domain.is_counted
        return Ladders.from_draws(state, self._levels, trips, steps, odds, counted)

    def _advance(self, steps: int) -> None:
        for _ in range(steps // self._every if steps else 0):
            before = self._kernels.count.evaluations
            self._chain.advance()
            self._kernels.charge(before, self._every)


class FusedDraws:
    """Draws of a fused kernel, whose calls make many."""

    later = False

    def __init__(
        self, kernels: MeteredKernel, x: Tensor, rng: Generator, burn_in: int, thin: int
    ) -> None:
        self._kernels, self._rng, self._thin = kernels, rng, thin
        kernel: Any = kernels.kernel
        count = kernels.count
        with torch.no_grad():
            self._state = kernel.init(x, kernels.target)
            before = count.evaluations
            self._state, _ = kernel.advance(self._state, kernels.target, rng, burn_in)
            kernels.charge(before, burn_in)
        nothing = torch.zeros(len(x), dtype=torch.long)
        self.sums = DrawnSums(nothing.double(), nothing)

    def make(self, draws: int, look: Any, exactly: bool) -> DrawnBlock:
        kernel: Any = self._kernels.kernel
        count = self._kernels.count
        with torch.no_grad():
            steps = draws * self._thin
            self._kernels.charge(count.evaluations, steps)
            self._state, drawn = kernel.draw(
                self._state, self._kernels.target, self._rng, steps, self._thin, count.model
            )
        self.sums = DrawnSums(self.sums.accept + drawn.accept, self.sums.invalid + drawn.invalid)
        return DrawnBlock(drawn.x, drawn.log_prob)

    def fork(self) -> "FusedDraws":
        twin = copy.copy(self)
        twin._state = deep_copy(self._state)
        twin._rng = Generator(self._rng.device)
        twin._rng.set_state(self._rng.get_state())
        return twin

    def ladders(self, steps: int) -> Ladders | None:
        return None


@dataclass(eq=False)
class DrawLoop:
    """Chains after their burn-in, and what is kept of their draws."""

    kernels: MeteredKernel
    draws: DrawnChains
    store: StoredDraws | RunningMoments
    precision: torch.dtype  # the type of log-probabilities
    thin: int
    evaluations: float  # all chains' since the start of the call
    seconds: float = 0.0  # spent in the loop
    steps: int = 0
    log_probs: tuple[Tensor, ...] = ()  # blocks [draws, chains]
    # The draws whose R-hat was computed last, and its text.
    _shown: tuple[int, str] = field(default=(0, ""), init=False)
    _first: float = field(default=0.0, init=False)  # evaluations before the block
    _counted: float = field(default=0.0, init=False)  # the counter before it

    def make(self, draws: int, look: Look, exactly: bool = False) -> None:
        """Make `draws` draws, or fewer if `look` says so; at least one.

        With `exactly`, it says so after the draw from which on it would.
        """
        last, stop = self.store.draws + draws, False
        while self.store.draws < last and not stop:
            began = time.perf_counter()
            self._first, self._counted = self.evaluations, self.kernels.count.evaluations
            size = min(last - self.store.draws, self._block_draws())
            block = self.draws.make(size, partial(self._look_within_block, look), exactly)
            self.store.append(block.x)
            self.log_probs += (block.log_prob.to(self.precision).cpu(),)
            self._count(0)
            self.seconds += time.perf_counter() - began
            stop = look(self)

    def _look_within_block(self, look: Look, made: int) -> bool:
        self._count(made)
        return look(self)

    def _count(self, made: int) -> None:
        """Set the steps and evaluations after `made` draws of a block that is not stored yet."""
        self.steps = (self.store.draws + made) * self.thin
        self.evaluations = self._first + self.kernels.count.evaluations - self._counted

    def fork(self) -> "DrawLoop":
        """Chains at the same place, which go on without these."""
        twin = copy.copy(self)
        twin.draws, twin.store = self.draws.fork(), self.store.fork()
        return twin

    @property
    def log_prob(self) -> Tensor:
        """The log-probabilities of the draws, `[chains, draws]`."""
        return torch.cat(self.log_probs).T.contiguous()

    @property
    def acceptance(self) -> Tensor:
        """The mean acceptance probability of each chain, `[chains]`."""
        return (self.draws.sums.accept.cpu() / self.steps).float()

    def describe_progress(self) -> str:
        """The acceptance and the largest R-hat so far, which is computed as draws double."""
        known, text = self._shown
        if self.store.draws >= max(8, 2 * known):
            worst = self._largest_r_hat()
            text = "" if np.isnan(worst) else f", R-hat {worst:.3g}"
            self._shown = self.store.draws, text
        return f"acceptance {float(self.acceptance.mean()):.2f}{text}"

    def _largest_r_hat(self) -> float:
        """The largest split R-hat of the log-probability and some entries; NaN of one chain."""
        if self.draws.sums.accept.numel() == 1:
            return float("nan")
        values = [self.log_prob.double().numpy()[..., None]]
        if isinstance(self.store, StoredDraws):
            count = int(np.prod(self.store.shape[2:]))
            chosen = np.unique(np.linspace(0, count - 1, SHOWN_SITES).astype(int))
            values.append(self.store.select_entries(chosen).astype(np.float64))
        r_hat = np.concatenate([split_r_hat(each) for each in values])
        finite = r_hat[np.isfinite(r_hat)]
        return float(finite.max()) if len(finite) else float("nan")

    def _block_draws(self) -> int:
        """The draws of a block."""
        entries = self.store.chains * int(np.prod(self.kernels.count.model.domain.shape))
        if not getattr(self.draws, "later", False):
            return max(1, min(MAX_BLOCK_DRAWS, MAX_BLOCK_ENTRIES // entries))
        evaluated = max(1, EVALUATED_ENTRIES // entries)
        if getattr(self.draws, "together", False) and isinstance(self.store, StoredDraws):
            most = min(MAX_BLOCK_DRAWS, MAX_BLOCK_BYTES // entries)
            return max(1, most // evaluated) * evaluated
        return evaluated


def start_draws(
    kernels: MeteredKernel, x: Tensor, rng: Generator, burn_in: int, thin: int
) -> DrawnChains:
    """Chains from `x` after their burn-in."""
    kernel = kernels.kernel
    fused = isinstance(kernel, Fused) and not isinstance(kernel.sampler, Tempered)
    kind: Any = FusedDraws if fused else ChainDraws
    return kind(kernels, x, rng, burn_in, thin)


def _is_function_of_x(kernel: Sampler, state: Any, x: Tensor) -> bool:
    """Whether the log-probability of a draw needs an evaluation, which can be made later."""
    held = type(kernel).log_prob is not Sampler.log_prob or hasattr(state, "log_prob")
    return not held and x.device.type == "cpu"


@torch.no_grad()
def _evaluate_draws(
    model: EnergyModel, draws: Tensor, evaluate: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """The log-probabilities of `draws` `[draws, chains, ...]`, many together: a call costs time.

    They are evaluated by `evaluate`, else by the model.
    """
    evaluate = evaluate or model.log_prob
    if model.chains is not None:  # each chain has a target of its own
        return torch.stack([evaluate(x) for x in draws])
    size = max(1, EVALUATED_ENTRIES // draws[0].numel())
    parts = [evaluate(part.flatten(0, 1)) for part in draws.split(size)]
    return torch.cat(parts).view(draws.shape[:2])


def fits_bytes(domain: Domain) -> bool:
    """Whether the values of `domain` are whole numbers that int8 holds."""
    try:
        return whole_numbers(domain) is torch.int8
    except ValueError:
        return False
