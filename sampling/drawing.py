"""The draws of `sample`: the kernel of an engine, the cost of its steps, and its draws."""

import time
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.samplers.fused import Fused
from latticework.samplers.ladder import LadderState
from latticework.samplers.sums import MultiStepSampler, SumRequest
from latticework.samplers.tempered import Tempered
from latticework.sampling.adaptation import Adaptation, AdaptationResult, run_adaptation
from latticework.sampling.chain import Chain
from latticework.sampling.engine import engine_for_adaptation, select_kernel
from latticework.sampling.evaluations import EvaluationCounter, evaluations_of_step
from latticework.sampling.ladder_estimates import Ladders, levels_of
from latticework.sampling.metrics import Metric, Reference, Steps


class ChainSums(NamedTuple):
    total: Tensor  # [chains], float64: in single precision a step would add less and less
    invalid: Tensor  # [chains], int64, steps that met a log-probability of NaN or +inf


@dataclass(frozen=True)
class ChainAcceptance(Metric):
    """Sums over the steps of each chain since the start."""

    wanted = SumRequest(invalid=True)

    def init(self, model: EnergyModel, state: Any, reference: Reference) -> ChainSums:
        zeros = torch.zeros(len(state.x), dtype=torch.long, device=state.x.device)
        return ChainSums(zeros.double(), zeros)

    def update(self, carry: ChainSums, state: Any, sums: Steps, steps: int) -> ChainSums:
        return ChainSums(carry.total.add_(sums.accept), carry.invalid.add_(sums.invalid))

    def read(self, carry: ChainSums) -> dict[str, Tensor]:
        return {}


METRICS = [ChainAcceptance()]
EVALUATED_ENTRIES = 2**16  # entries of draws whose log-probabilities are evaluated together


class MeteredKernel:
    """The kernel that an engine runs a sampler by, and the evaluations that its steps cost."""

    def __init__(self, model: EnergyModel, count: EvaluationCounter, x: Tensor, steps: int) -> None:
        self._model, self.count, self._x, self._steps = model, count, x, steps
        self.seconds = 0.0  # spent on compilation
        self.learning = 0.0  # and on what samplers learn beforehand

    def serve(self, sampler: Sampler, engine: str) -> None:
        """Set `kernel`, and the `target` that it moves on: one that counts, if it is called.

        The sampler has learned what it learns beforehand.
        """
        if sampler.learning_steps:
            sampler = self._learn(sampler, engine_for_adaptation(engine))
        model, x, began = self._model, self._x, time.perf_counter()
        self.kernel, _ = select_kernel(sampler, model, engine, METRICS, x, self._steps)
        if isinstance(self.kernel, MultiStepSampler):
            self.kernel.advance(self.kernel.at(x, model), model, Generator().manual_seed(0), 1)
            self.seconds += time.perf_counter() - began
        self.target, self._price = self.count.model, float(self.count.chains)
        if isinstance(self.kernel, MultiStepSampler) or x.device.type != "cpu":
            # Compiled code and a CUDA graph call no method that could be counted.
            rng = Generator(x.device).manual_seed(0)
            self.target, self._price = model, evaluations_of_step(sampler, model, x, rng)

    @torch.no_grad()
    def _learn(self, sampler: Sampler, engine: str) -> Sampler:
        """The sampler with the fields that it learns, by numba kernels if there are some."""
        model, x, began = self._model, self._x, time.perf_counter()
        kernel: Any = select_kernel(sampler, model, engine, METRICS, x)[0]
        compiled = isinstance(kernel, MultiStepSampler)
        if compiled:
            brief = replace(kernel, rounds=1)
            brief.advance(brief.at(x, model), model, Generator().manual_seed(0), 1)
            self.seconds += time.perf_counter() - began
        began = time.perf_counter()
        fields: dict[str, Any] = kernel.learn_fields(x, model if compiled else self.count.model)
        self.learning += time.perf_counter() - began
        ready = replace(sampler, **fields)  # type: ignore[type-var]
        if compiled:
            each = evaluations_of_step(ready, model, x, Generator().manual_seed(0))
            self.count.evaluations += each * sampler.learning_steps / self.count.chains
        return ready

    def adapt(
        self, rule: Adaptation, sampler: Sampler, x: Tensor, rng: Generator, engine: str
    ) -> AdaptationResult:
        """The adaptation of `sampler` by chains from `x`, whose evaluations count."""
        before = self.count.evaluations
        result = run_adaptation(rule, sampler, self.target, x, rng, engine)
        self.charge(before, rule.blocks(sampler) * rule.steps)
        return result

    def charge(self, before: float, steps: int) -> None:
        """Add what `steps` steps cost if none of their calls was counted since `before`."""
        if self.count.evaluations == before:
            self.count.evaluations += steps * self._price


def draw_samples(
    kernels: MeteredKernel,
    x: Tensor,
    precision: torch.dtype,
    rng: Generator,
    burn_in: int,
    steps: int,
    thin: int,
) -> tuple[dict[str, Any], int]:
    """Fields of `SampleResult` on the draws: every `thin` steps one, after the burn-in.

    Also how many of all chains' steps met a log-probability of NaN or +inf.
    """
    kernel, count, every = kernels.kernel, kernels.count, gcd(burn_in, thin)
    if isinstance(kernel, Fused) and not isinstance(kernel.sampler, Tempered):
        return _draw_fused(kernels, x, precision, rng, burn_in, steps, thin)
    chain = Chain(kernel, kernels.target, x, rng, every=every, metrics=METRICS)

    def advance(steps: int) -> None:
        for _ in range(steps // every):
            before = count.evaluations
            chain.advance()
            kernels.charge(before, every)

    advance(burn_in)
    before_draws, began = [part.clone() for part in chain.carries[0]], chain.sampler_state
    tempered = isinstance(began, LadderState)
    trips, levels = began.trips.clone() if tempered else torch.zeros(0), []
    draws = torch.empty(len(x), steps // thin, *x.shape[1:], dtype=x.dtype)
    log_prob = torch.empty(len(x), steps // thin, dtype=precision)
    later = _is_function_of_x(kernel, chain.state, x)
    for number in range(steps // thin):
        advance(thin)
        draws[:, number] = chain.state.x
        if not later:
            with torch.no_grad():
                log_prob[:, number] = kernel.log_prob(chain.state, count.model)
        if tempered:
            levels.append(levels_of(chain.sampler_state))
    if later:
        _evaluate_draws(count.model, draws, log_prob)
    ladders = None
    if tempered:
        state = chain.sampler_state
        used: Any = kernel.sampler if isinstance(kernel, Fused) else kernel
        ladders = Ladders.from_draws(state, levels, state.trips - trips, steps, used.log_odds)
    accept, invalid = (
        (now - before).cpu() for now, before in zip(chain.carries[0], before_draws, strict=True)
    )
    return {
        "draws": draws,
        "log_prob": log_prob,
        "acceptance": (accept / steps).float(),
        "ladders": ladders,
    }, int(invalid.sum())


def _is_function_of_x(kernel: Sampler, state: Any, x: Tensor) -> bool:
    """Whether the log-probability of a draw needs an evaluation, which can be made later."""
    held = type(kernel).log_prob is not Sampler.log_prob or hasattr(state, "log_prob")
    return not held and x.device.type == "cpu"


@torch.no_grad()
def _evaluate_draws(model: EnergyModel, draws: Tensor, log_prob: Tensor) -> None:
    """Write the log-probabilities of `draws` `[chains, draws, ...]` to `log_prob`.

    Many draws are evaluated together: of a small model, a call costs more than its sums.
    """
    together = max(1, EVALUATED_ENTRIES // draws[:, 0].numel())
    if model.chains is not None:  # each chain has a target of its own
        together = 1
    parts = zip(draws.split(together, 1), log_prob.split(together, 1), strict=True)
    for states, values in parts:
        values.copy_(model.log_prob(states.flatten(0, 1)).view_as(values))


def _draw_fused(
    kernels: MeteredKernel,
    x: Tensor,
    precision: torch.dtype,
    rng: Generator,
    burn_in: int,
    steps: int,
    thin: int,
) -> tuple[dict[str, Any], int]:
    """`draw_samples` by a fused kernel, whose calls make many draws."""
    kernel: Any = kernels.kernel
    count = kernels.count
    with torch.no_grad():
        state, before = kernel.init(x, kernels.target), count.evaluations
        state, _ = kernel.advance(state, kernels.target, rng, burn_in)
        kernels.charge(before, burn_in + steps)
        drawn = kernel.draw(state, kernels.target, rng, steps, thin, count.model)
    return {
        "draws": drawn.x.transpose(0, 1).contiguous(),
        "log_prob": drawn.log_prob.to(precision).T.contiguous(),
        "acceptance": (drawn.accept / steps).float(),
        "ladders": None,
    }, drawn.invalid
