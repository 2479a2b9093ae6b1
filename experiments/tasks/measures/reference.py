"""Ground truth for metrics: exact moments of small models, or long chains of a trusted sampler.

Each function takes the model and the run and returns a Reference. An experiment names one under
`task.truth`. Sampled references are shared artifacts, computed once and used by every run.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from latticework.experiments.runs.artifacts import artifact, fingerprint
from latticework.experiments.runs.run import Run
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.exact import exact as exact_moments
from latticework.sampling.metrics import Reference


def exact(model: EnergyModel, run: Run) -> Reference:
    """Exact means, for models that can be summed exactly (see sampling.exact)."""
    return Reference(mean=exact_moments(model).mean.float().to(run.device))


def symmetric(model: EnergyModel, run: Run) -> Reference:
    """The means of a target that is symmetric in the values of each site: their average.

    Examples are Ising and Potts models without a field. A chain that stays in one of several equal
    modes has other means.
    """
    mean = model.domain.values().mean(0)
    return Reference(mean=mean.expand(model.domain.shape).to(run.device))


def averaged(
    model: EnergyModel, run: Run, *, sampler: Sampler, chains: int, steps: int
) -> Reference:
    """Means over the second half of long chains of a trusted sampler, which start uniformly."""

    def make() -> dict[str, Tensor]:
        total = torch.zeros(model.domain.shape, dtype=torch.float64, device=run.device)
        states = _states(model, run, sampler, chains, steps, "averaged truth", "reference means")
        for step, x in enumerate(states):
            if step >= steps // 2:
                total += x.mean(0)
        return {"mean": (total / (steps - steps // 2)).float()}

    spec = _spec(model, run, sampler, chains=chains, steps=steps)
    return Reference(mean=artifact(run, "averages", spec, make)["mean"])


def sampled(
    model: EnergyModel, run: Run, *, sampler: Sampler, samples: int, floor: int, steps: int
) -> Reference:
    """The final states of `samples + floor` independent chains after `steps` steps of `sampler`.

    Chains start at uniform states. The first `samples` states are the reference; the others show
    how close exact samples come to it.
    """

    def make() -> dict[str, Tensor]:
        chains, what = samples + floor, "ground-truth samples"
        *_, x = _states(model, run, sampler, chains, steps, "truth", what)
        return {"x": x}

    spec = _spec(model, run, sampler, samples=samples, floor=floor, steps=steps)
    x = artifact(run, "truth", spec, make)["x"]
    return Reference(samples=x[:samples], floor=x[samples:])


def _states(
    model: EnergyModel, run: Run, sampler: Sampler, chains: int, steps: int, purpose: str, what: str
) -> Iterator[Tensor]:
    """The states after each step of chains that start uniformly; `purpose` names their draws."""
    rng = run.shared_rng(purpose)
    with torch.no_grad():
        state = sampler.init(model.domain.uniform(chains, rng), model)
    for _ in run.progress(range(steps), what):
        with torch.no_grad():
            state, _ = sampler.step(state, model, rng)
        yield state.x


def _spec(model: EnergyModel, run: Run, sampler: Sampler, **counts: int) -> dict[str, Any]:
    model_and_sampler = {"model": fingerprint(model), "sampler": repr(sampler)}
    return {**model_and_sampler, **counts, "seed": run.model_seed}
