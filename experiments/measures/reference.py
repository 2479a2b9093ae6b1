"""Ground truth for metrics: exact moments of small models, or long chains of a trusted sampler.

Each function takes the model and the run and returns a Reference. An experiment names one under
`task.truth`. Sampled references are shared artifacts, computed once and used by every run.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from latticework.experiments.measures.exact import exact as exact_moments
from latticework.experiments.running.artifacts import artifact, fingerprint
from latticework.experiments.running.run import Run
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler


class Reference(NamedTuple):
    """What is known about the target. A metric raises an error if the part it needs is missing."""

    mean: Tensor | None = None  # E[x], [*domain.shape]
    samples: Tensor | None = None  # [n, *domain.shape]
    floor: Tensor | None = (
        None  # more of them, [chains, *domain.shape]: what a perfect sampler gives
    )


def exact(model: EnergyModel, run: Run) -> Reference:
    """Exact means, for models that can be summed exactly (see experiments.measures.exact)."""
    return Reference(mean=exact_moments(model).mean.float().to(run.device))


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
