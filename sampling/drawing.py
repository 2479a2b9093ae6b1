"""The kernel that an engine runs a sampler by, and the cost of its steps."""

import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.samplers.sums import MultiStepSampler, SumRequest
from latticework.sampling.adaptation import Adaptation, AdaptationResult, run_adaptation
from latticework.sampling.engine import engine_for_adaptation, select_kernel
from latticework.sampling.evaluations import EvaluationCounter, evaluations_of_step
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
