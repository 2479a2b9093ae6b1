"""Chains of AIS, or particles of SMC, on their way along a path; resumable."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor

from latticework.data.base import Dataset
from latticework.experiments.records.record import Budget
from latticework.experiments.runs.run import Run
from latticework.models.base import AnnealedModel, EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling import annealing
from latticework.sampling.adaptation import Adaptation, run_adaptation
from latticework.sampling.engine import NotCompiledError
from latticework.sampling.exact import exact_if_cheap
from latticework.sampling.learning.held_out import mean_log_likelihood
from latticework.sampling.loop_state import LoopState


def kernel_for_path(
    run: Run, kernel: Sampler, path: AnnealedModel, adapt: Adaptation | None = None
) -> Sampler:
    """The kernel that chains move by; engine=fused compiles whole steps of AIS with `kernel`.

    Raises NotCompiledError for engine=fused with an adaptation.
    """
    if run.engine != "fused":
        return run.select_kernel(kernel, path)
    if adapt is not None:
        raise NotCompiledError(
            "engine=fused is not possible: a step would be compiled for each block of betas, whose "
            "kernels the adaptation chooses; use engine=auto or adapt=none"
        )
    return kernel


@dataclass(eq=False)
class Passage(LoopState):
    """Chains on their way along the path."""

    chains: annealing.Annealing
    rng: Generator


@dataclass(eq=False)
class Pilot(LoopState):
    x: Tensor  # where its chains are
    rng: Generator
    chosen: list[dict[str, Any]]  # fields of the kernel, of each block so far


@dataclass(frozen=True)
class Annealer:
    """Takes chains along the path, or the particles of `runs` runs of SMC.

    `base` is log Z at its start.
    """

    run: Run
    kernel: Sampler
    path: AnnealedModel
    budget: Budget
    base: float
    runs: int = 0

    def run_annealing(
        self, name: str, x: Tensor, betas: Tensor, kernels: Sequence[Sampler], forward: bool
    ) -> tuple[annealing.LogNormaliser, annealing.Annealing]:
        """Take chains from `x` along `betas`, with a row of metrics.csv at each reading.

        There is a kernel for each block of betas. A new one costs a new CUDA graph on a GPU.
        """
        run, every, kernel = self.run, self.budget.every, kernels[0]
        betas = betas.to(run.device)
        with torch.no_grad():
            memory = Passage(annealing.start_annealing(kernel, self.path, x, betas), run.rng(name))
        step = None
        for block in run.resumable(memory, name, total=len(kernels)):
            with torch.no_grad():
                if step is None or kernels[block - 1] is not kernel:
                    kernel = kernels[block - 1]
                    chains, rng = memory.chains, memory.rng
                    fused = None
                    if run.engine == "fused":
                        move, most = (
                            annealing.AnnealingKernel(kernel, betas, self.runs),
                            len(betas) - 1,
                        )
                        fused = run.select_kernel(move, self.path, (), x, most, every)
                    step = annealing.stepper(
                        chains, kernel, self.path, betas, rng, every, self.runs, fused
                    )
                memory.chains = step(memory.chains)
            estimate = self.estimate(memory.chains)
            run.log(
                block * every,
                forward=forward,
                beta=betas[block * every],
                log_ratio=estimate.value,
                ess=estimate.ess,
            )
        return self.estimate(memory.chains), memory.chains

    def estimate(self, chains: annealing.Annealing) -> annealing.LogNormaliser:
        rng = self.run.rng("bootstrap", device="cpu")
        return annealing.estimate_log_normaliser(chains.log_weight.cpu(), rng, self.runs)

    def pilot(self, rule: Adaptation, ladder: Tensor) -> list[Sampler]:
        """A kernel for each block of betas, with the fields that `rule` chooses at its middle beta.

        The pilot's own chains move along the path and stop at each of these betas for the steps of
        the rule. The kernels are then frozen. They do not depend on the chains of the run, so the
        weights stay unbiased. The fields are noted as `frozen`, a list for each.
        """
        run, path, every = self.run, self.path, self.budget.every
        middle = ladder[(every + 1) // 2 :: every].to(run.device)
        rng = run.rng("pilot")
        memory = Pilot(path.draw(self.budget.chains, rng), rng, [])
        kernel: Any = self.kernel
        for block in run.resumable(memory, "pilot", total=self.budget.readings):
            before = replace(kernel, **(memory.chosen[-1] if memory.chosen else {}))
            path.move_to(middle[block - 1])
            adapted = run_adaptation(rule, before, path, memory.x, memory.rng, run.engine)
            memory.x, memory.chosen = adapted.x, [*memory.chosen, adapted.fields]
        frozen: dict[str, list[Any]] = {name: [] for name in memory.chosen[0]}
        for fields in memory.chosen:
            for name, value in fields.items():
                frozen[name].append(value)
        run.note(frozen=frozen)
        return [kernel_for_path(run, replace(kernel, **fields), path) for fields in memory.chosen]

    def trial(self, model: EnergyModel, rows: Tensor, ladder: Tensor) -> float:
        """Mean log-likelihood of `rows`, from a short run."""
        rng = self.run.rng("trial")
        x = self.path.draw(self.budget.chains, rng)
        done = annealing.anneal(self.kernel, self.path, x, ladder, rng, self.budget.every)
        return mean_log_likelihood(model, rows, self.base + self.estimate(done).value)["mean"]

    def run_forward(
        self, model: EnergyModel, ladder: Tensor, kernels: Sequence[Sampler]
    ) -> annealing.LogNormaliser:
        """By chains from independent sites to the model; stored, and log Z noted."""
        run, base = self.run, self.base
        x = self.path.draw(self.budget.chains, run.rng("start"))
        there, last = self.run_annealing("annealing", x, ladder, kernels, forward=True)
        run.save("log_weight", forward=last.log_weight)
        run.save("last", x=last.kernel.x)
        known = exact_if_cheap(model)
        run.note(
            log_z=base + there.value,
            log_z_error=there.error,
            log_z_bootstrap=there.bootstrap,
            ess=there.ess,
            log_z_lower=base + there.bound,
            log_z_lower_error=there.bound_error,
            log_z_exact=None if known is None else float(known.log_z),
        )
        return there

    def run_reverse(
        self, data: Dataset, ladder: Tensor, kernels: Sequence[Sampler], back: int, burn_in: int
    ) -> None:
        """The upper bound on log Z by `back` chains from training rows to independent sites."""
        run, base = self.run, self.base
        rng = run.rng("rows", device="cpu")
        rows = torch.randint(len(data.train), (back,), generator=rng)
        x = data.batch(rows, rng).to(run.device)
        held = torch.ones(burn_in, dtype=ladder.dtype)
        path = torch.cat((held, ladder.flip(0)))
        kernels_back = [kernels[-1]] * (burn_in // self.budget.every) + [*reversed(kernels)]
        again, last = self.run_annealing("annealing back", x, path, kernels_back, forward=False)
        run.save("log_weight_back", back=last.log_weight)
        run.note(
            log_z_back=base - again.value,
            log_z_back_error=again.error,
            ess_back=again.ess,
            log_z_upper=base - again.bound,
            log_z_upper_error=again.bound_error,
        )
