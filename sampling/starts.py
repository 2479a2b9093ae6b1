"""Where chains start: states `[chains, *domain.shape]` from the run's generator."""

import torch
from torch import Generator, Tensor

from latticework.data.base import Dataset
from latticework.models import chance
from latticework.models.base import EnergyModel, Function
from latticework.samplers.base import Sampler
from latticework.samplers.checks import refusing_training

RUNGS = 500  # targets that lead to an annealed start
TRIES = 1000  # draws of a start in search of a state of positive probability


def uniform(model: EnergyModel, chains: int, rng: Generator, data: Dataset | None) -> Tensor:
    """Independent uniform sites."""
    return model.domain.uniform(chains, rng)


def require_start(start: str, x: Tensor | None) -> None:
    """Raise ValueError unless `start` is a kind of starts, and the default if `x` gives them."""
    if start not in ("uniform", "annealed") or (x is not None and start != "uniform"):
        raise ValueError(f"start must be uniform or annealed, without x, got {start!r}")


@refusing_training()
def possible(model: EnergyModel, chains: int, rng: Generator) -> Tensor:
    """Uniform states of positive probability: states at -inf are drawn again, `TRIES` times."""
    x = model.domain.uniform(chains, rng)
    for _ in range(TRIES):
        try:
            with torch.no_grad():
                impossible = model.log_prob(x.clone()) == -torch.inf
        except Exception:  # noqa: BLE001 - whatever a user's target raises
            return x
        if not isinstance(impossible, Tensor) or impossible.shape != (chains,):
            return x
        if not impossible.any():
            return x
        x[impossible] = model.domain.uniform(int(impossible.sum()), rng)
    return x


def annealed(model: EnergyModel, sampler: Sampler, x: Tensor, rng: Generator) -> Tensor:
    """Chains that `sampler` leads from `x` to the target, `[chains, *domain.shape]`.

    They make one step at each of `RUNGS` targets proportional to pi^beta, beta = 1 / RUNGS .. 1, so
    that they can cross between modes before the target separates them. Raises UnsupportedModelError
    for a sampler that needs a special model, because pi^beta is a function of x and no more.
    """
    beta = torch.ones((), device=x.device)
    path = Function(lambda x: beta * model.log_prob(x), model.domain)
    with torch.no_grad():
        state = sampler.init(x, path)
        for rung in range(1, RUNGS + 1):
            beta.fill_(rung / RUNGS)
            state, _ = sampler.step(sampler.refresh(state, path), path, rng)
    return state.x.clone()


def bernoulli(
    model: EnergyModel, chains: int, rng: Generator, data: Dataset | None, *, logit: float
) -> Tensor:
    """Each site is 1 with probability sigmoid(logit)."""
    return chance.bernoulli(torch.full((chains, model.domain.dim), logit, device=rng.device), rng)


def data_mean(model: EnergyModel, chains: int, rng: Generator, data: Dataset | None) -> Tensor:
    """Each site is 1 with its frequency in the training data."""
    if data is None:
        raise ValueError("start=data_mean needs a data set; give one, such as data=mnist")
    mean = data.mean.to(rng.device).expand(chains, -1)
    return torch.bernoulli(mean, generator=rng)
