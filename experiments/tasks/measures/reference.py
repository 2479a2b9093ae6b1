"""Ground truth for metrics: exact moments of small models, or long chains of a trusted sampler.

Each function takes the model and the run and returns a Reference. An experiment names one under
`task.truth`. Sampled references are shared artifacts, computed once and used by every run.
"""

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
        rng = run.shared_rng("averaged truth")
        with torch.no_grad():
            state = sampler.init(model.domain.uniform(chains, rng), model)
            total = torch.zeros(model.domain.shape, dtype=torch.float64, device=run.device)
            for step in run.progress(range(steps), "reference means"):
                state, _ = sampler.step(state, model, rng)
                if step >= steps // 2:
                    total += state.x.mean(0)
        return {"mean": (total / (steps - steps // 2)).float()}

    spec = {
        "model": fingerprint(model),
        "sampler": repr(sampler),
        "chains": chains,
        "steps": steps,
        "seed": run.model_seed,
    }
    return Reference(mean=artifact(run, "averages", spec, make)["mean"])


def sampled(
    model: EnergyModel, run: Run, *, sampler: Sampler, samples: int, floor: int, steps: int
) -> Reference:
    """The final states of `samples + floor` independent chains after `steps` steps of `sampler`.

    Chains start at uniform states. The first `samples` states are the reference; the others show
    how close exact samples come to it.
    """

    def make() -> dict[str, Tensor]:
        rng = run.shared_rng("truth")
        with torch.no_grad():
            state = sampler.init(model.domain.uniform(samples + floor, rng), model)
            for _ in run.progress(range(steps), "ground-truth samples"):
                state, _ = sampler.step(state, model, rng)
        return {"x": state.x}

    spec = {
        "model": fingerprint(model),
        "sampler": repr(sampler),
        "samples": samples,
        "floor": floor,
        "steps": steps,
        "seed": run.model_seed,
    }
    x = artifact(run, "truth", spec, make)["x"]
    return Reference(samples=x[:samples], floor=x[samples:])
