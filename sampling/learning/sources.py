"""The sources of negative samples that `latticework.fit` knows by name."""

from dataclasses import dataclass
from typing import Any

from torch import Generator, Tensor

from latticework.data.base import TrainingData
from latticework.models.abilities import HasHiddenUnits
from latticework.models.base import EnergyModel
from latticework.models.domains import Binary
from latticework.samplers.base import Info, Sampler, Wrapper, require_count
from latticework.sampling.learning.negatives import (
    Contrastive,
    FastPersistent,
    Herding,
    Negatives,
    Persistent,
    Replay,
)
from latticework.sampling.messages import nearest
from latticework.sampling.naming import parse_sampler
from latticework.sampling.starts import data_mean
from latticework.sampling.targets import why_unsupported

NAMES = ("pcd", "cd", "fpcd", "herding")
SAMPLERS = ("block_gibbs", "gibbs_sweep", "dmala", "gibbs")  # the first that supports the model
ONE_SITE_STEPS = 10  # steps an update of samplers that do not draw all sites in one
HERDING_SWEEPS = 5


@dataclass(frozen=True)
class Repeated(Wrapper):
    """Several steps of `sampler` as one."""

    steps: int = 1

    def at(self, x: Tensor, model: EnergyModel) -> Any:
        return self.sampler.at(x, model)

    def step(self, state: Any, model: EnergyModel, rng: Generator) -> tuple[Any, Info]:
        for _ in range(self.steps):
            state, info = self.sampler.step(state, model, rng)
        return state, info

    def refresh(self, state: Any, model: EnergyModel) -> Any:
        return self.sampler.refresh(state, model)

    def relocate(self, x: Tensor, state: Any, model: EnergyModel) -> Any:
        return self.sampler.relocate(x, state, model)


def choose_negatives_sampler(model: EnergyModel) -> Sampler:
    """The sampler of the negatives where none is named. Raises ValueError if none is suitable."""
    for name in SAMPLERS:
        sampler: Sampler = parse_sampler(name)
        if not why_unsupported(sampler, model):
            return sampler
    raise ValueError(f"no sampler is known for {type(model).__name__} on {model.domain}; name one")


def source_of(
    negatives: str | Negatives,
    sampler: Sampler,
    steps: int | None,
    model: EnergyModel,
    data: TrainingData,
    *,
    batch: int,
    particles: int,
    rng: Generator,
) -> Negatives:
    """The source of negatives of this name, or the given one.

    `steps` are those of an update; where they are None, one of a sampler that draws all sites, else
    `ONE_SITE_STEPS`. The chains of pcd of anything but an RBM form a replay buffer, which begins
    at the frequencies of the data. Raises ValueError for an unknown name, and where the model has
    no hidden units to herd.
    """
    if isinstance(negatives, Negatives):
        return negatives
    if negatives not in NAMES:
        raise ValueError(f"negatives {negatives!r} is not known: {nearest(str(negatives), NAMES)}")
    is_rbm = isinstance(model, HasHiddenUnits)
    if negatives == "herding":
        if not is_rbm:
            raise ValueError(
                f"herding sets the hidden units of an RBM, got {type(model).__name__}; take "
                'negatives="pcd"'
            )
        return Herding(particles, HERDING_SWEEPS if steps is None else steps)
    if steps is None:
        steps = 1 if sampler.draws_all_sites else ONE_SITE_STEPS
    require_count(steps=steps)
    if negatives == "pcd" and not is_rbm:
        if isinstance(model.domain, Binary) and model.domain.is_unit:
            chains = data_mean(model, particles, rng, data)
        else:
            chains = model.domain.uniform(particles, rng)
        return Replay(sampler, chains, steps, min(batch, particles), ())
    kernel = sampler if steps == 1 else Repeated(sampler, steps)
    if negatives == "pcd":
        return Persistent(kernel, particles)
    return Contrastive(kernel) if negatives == "cd" else FastPersistent(kernel, particles)
