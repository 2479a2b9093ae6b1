"""A data set of draws from a model: its examples, from which another model may learn."""

import torch
from torch import Tensor

from latticework.data.base import Dataset
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.storage import artifact_spec, load_or_make_artifact
from latticework.models.base import EnergyModel
from latticework.models.domains import Binary
from latticework.samplers.base import Sampler
from latticework.sampling.chain import run_chain

CHUNK = 100  # chains at once: a sweep's memory stays in the processor's cache


def examples(*, run: Run, model: EnergyModel, sampler: Sampler, chains: int, steps: int) -> Dataset:
    """The final states of `chains` chains after `steps` steps of `sampler`, started uniformly.

    All rows are training rows. They depend on the model seed, not on the run's seed. Raises
    ValueError unless the model's domain is {0, 1}^dim, as a data set has rows of 0 and 1.
    """
    if not (isinstance(model.domain, Binary) and model.domain.is_unit):
        raise ValueError(
            "examples for a data set are rows of 0 and 1, and need a model on {0, 1}^dim, got "
            f"{type(model).__name__} on {model.domain}; choose another model"
        )
    model = model.to(run.device)

    def make() -> dict[str, Tensor]:
        rng, rows = run.shared_rng("examples"), []
        starts = range(0, chains, CHUNK)
        for start in run.progress(starts, "examples", len(starts)):
            x = model.domain.uniform(min(CHUNK, chains - start), rng)
            *_, last = run_chain(sampler, model, x, rng, steps=steps, every=max(steps, 1))
            rows.append(last.state.x.byte())
        return {"x": torch.cat(rows)}

    spec = artifact_spec(sampler, model, run, chains=chains, steps=steps, chunk=CHUNK)
    x = load_or_make_artifact(run, "examples", spec, make)["x"].cpu()
    none = x[:0]
    return Dataset(x, none, none, (x.shape[1],), f"{chains} chains of {type(model).__name__}")
