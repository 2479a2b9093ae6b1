"""The true moments of a target, with which metrics compare (`task.truth`).

Each is a function of the model and the run that returns a Reference: exact moments of small models,
or long chains of a trusted sampler. Sampled references are shared artifacts, computed once and used
by every run.
"""

import torch
from torch import Generator, Tensor

from latticework.experiments.runs.errors import ConfigurationError
from latticework.experiments.runs.run import Run
from latticework.experiments.runs.storage import artifact_spec, load_or_make_artifact
from latticework.models.abilities import KnownTarget
from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.chain import run_chain
from latticework.sampling.exact import exact as exact_moments
from latticework.sampling.metrics import Reference


def exact(model: EnergyModel, run: Run) -> Reference:
    """Exact means, for models that can be summed exactly (see sampling.exact)."""
    return Reference(mean=exact_moments(model).mean.float().to(run.device))


def known(model: EnergyModel, run: Run, *, target: KnownTarget) -> Reference:
    """The exact means of a reference target, whose model `model` is."""
    return Reference(mean=target.mean.float().to(run.device))


def symmetric(model: EnergyModel, run: Run) -> Reference:
    """The means of a target that is symmetric in the values of each site: their average.

    Examples are Ising and Potts models without a field. A chain that stays in one of several equal
    modes has other means. Raises ConfigurationError if exchanging the values of random states
    changes the log-probability.
    """
    values, x = model.domain.values(), model.domain.uniform(8, Generator().manual_seed(0))
    exchanged = x.roll(1, -1) if x.ndim == 3 else values.sum() - x
    change = model.log_prob(x.to(run.device)) - model.log_prob(exchanged.to(run.device))
    if float(change.abs().max()) > 1e-5 * model.domain.dim:  # rounding is below
        raise ConfigurationError(
            "the known means are those of a target that is symmetric in the values of a site, and "
            f"exchanging them changes its log-probability by {float(change.abs().max()):.3g}: "
            "leave out the field (model.bias), or choose another target.truth"
        )
    mean = values.mean(0)
    return Reference(mean=mean.expand(model.domain.shape).to(run.device))


def averaged(
    model: EnergyModel, run: Run, *, sampler: Sampler, chains: int, steps: int
) -> Reference:
    """Means over the second half of long chains of a trusted sampler, which start uniformly."""

    def make() -> dict[str, Tensor]:
        total = torch.zeros(model.domain.shape, dtype=torch.float64, device=run.device)
        rng = run.shared_rng("averaged truth")
        readings = run_chain(
            sampler, model, model.domain.uniform(chains, rng), rng, steps=steps, every=1
        )
        for reading in run.progress(readings, "reference means", steps, -1):
            if reading.step > steps // 2:
                total += reading.state.x.mean(0)
        return {"mean": (total / (steps - steps // 2)).float()}

    spec = artifact_spec(sampler, model, run, chains=chains, steps=steps)
    return Reference(mean=load_or_make_artifact(run, "averages", spec, make)["mean"])


def sampled(
    model: EnergyModel, run: Run, *, sampler: Sampler, samples: int, floor: int, steps: int
) -> Reference:
    """The final states of `samples + floor` independent chains after `steps` steps of `sampler`.

    Chains start at uniform states. The first `samples` states are the reference; the others show
    how close exact samples come to it.
    """

    def make() -> dict[str, Tensor]:
        rng = run.shared_rng("truth")
        x = model.domain.uniform(samples + floor, rng)
        readings = run_chain(sampler, model, x, rng, steps=steps, every=1)
        for reading in run.progress(readings, "ground-truth samples", steps, -1):
            x = reading.state.x  # the last; a list of the readings would hold all states
        return {"x": x}

    spec = artifact_spec(sampler, model, run, samples=samples, floor=floor, steps=steps)
    x = load_or_make_artifact(run, "truth", spec, make)["x"]
    return Reference(samples=x[:samples], floor=x[samples:])
