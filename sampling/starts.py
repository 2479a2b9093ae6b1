"""Starts of chains: states `[chains, *domain.shape]` from the run's generator."""

import copy
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch
from torch import Generator, Tensor

from latticework.data.base import TrainingData
from latticework.models import distributions
from latticework.models.abilities import CarriesRates, DataModel
from latticework.models.base import EnergyModel
from latticework.models.domains import Binary, Categorical, Domain, Mixed, Ordinal, one_hot
from latticework.models.paths import path_of
from latticework.samplers.base import Sampler, UnsupportedModelError
from latticework.samplers.checks import check_start, refusing_training
from latticework.sampling.possible import NoStateError, Search, constraints_of

ANNEALED_START_STEPS = 500  # targets that lead to an annealed start
Path = tuple[EnergyModel, Callable[[Tensor], Any]]  # targets, and what sets their beta
MAX_UNIFORM_DRAWS = 1000  # draws of a start in search of a state of positive probability
MAX_DRAWS_BEFORE_SEARCH = 20  # where the model tells which values are possible together
ASCENTS = 100  # steps along the gradient between the states


def uniform(model: EnergyModel, chains: int, rng: Generator, data: TrainingData | None) -> Tensor:
    """Independent uniform sites; states of positive probability where tables hold zeros."""
    if constraints_of(model, 0) is not None:
        return draw_possible(model, chains, rng)
    return model.domain.uniform(chains, rng)


def require_start(start: str, x: Tensor | None) -> None:
    """Raise ValueError unless `start` is a kind of starts, and the default if `x` gives them."""
    if start not in ("uniform", "annealed") or (x is not None and start != "uniform"):
        raise ValueError(f"start must be uniform or annealed, without x, got {start!r}")


@refusing_training()
def draw_possible(model: EnergyModel, chains: int, rng: Generator) -> Tensor:
    """Random states of positive probability, `[chains, *domain.shape]`, where some are found.

    States at -inf are drawn again: uniformly, then by a search where the model tells which values
    are possible together (`sampling.possible`), else as `_other_draws` gives them. Raises
    NoStateError if the search proves that there is no such state, and ValueError if it comes to its
    bound.
    """
    x = model.domain.uniform(chains, rng)
    tells = constraints_of(model, 0) is not None
    for _ in range(MAX_DRAWS_BEFORE_SEARCH if tells else MAX_UNIFORM_DRAWS):
        rows = _impossible_rows(x, model)
        if not len(rows):
            return x
        x[rows] = model.domain.uniform(len(rows), rng)
    rows = _impossible_rows(x, model)
    if tells:
        if len(rows):
            x[rows] = _search_states(model, rows.tolist(), rng).to(x)
        return x
    for draws in _other_draws(model, chains, rng):
        if not len(rows):
            break
        x[rows] = draws[rows].to(x)
        rows = _impossible_rows(x, model)
    return x


def _impossible_rows(x: Tensor, model: EnergyModel) -> Tensor:
    """The chains at -inf; none where the target fails, which the checks of the start will tell."""
    nothing = torch.empty(0, dtype=torch.long, device=x.device)
    try:
        with torch.no_grad():
            impossible = model.log_prob(x.clone()) == -torch.inf
    except Exception:  # noqa: BLE001 - whatever a user's target raises
        return nothing
    if not isinstance(impossible, Tensor) or impossible.shape != (len(x),):
        return nothing
    return impossible.nonzero().squeeze(1)


def _search_states(model: EnergyModel, rows: list[int], rng: Generator) -> Tensor:
    """States of these chains by a search of their own each, `[len(rows), *domain.shape]`."""
    order = Random(int(torch.randint(2**62, (), generator=rng, device=rng.device)))
    states: list[list[int]] = []
    for row in rows:
        if not states or model.chains is not None:  # then chains have evidence of their own
            constraints = constraints_of(model, row)
            assert constraints is not None
            search, sites = Search(constraints, order), constraints.sites
        try:
            values = search.find_state()
        except TimeoutError as error:
            raise ValueError(
                f"{error}, and no uniform state of {type(model).__name__} has positive "
                "probability; start chains at states of positive probability: "
                "latticework.sample(..., x=states)"
            ) from error
        if values is None:
            raise NoStateError(_no_state(model, row))
        states.append([values[variable] for variable in sites])
    return _states(torch.tensor(states), model.domain)


def _no_state(model: EnergyModel, row: int) -> str:
    """The message for a model without a state of positive probability."""
    hint = "look for a table or coupling that excludes too much"
    if getattr(model, "evidence", None) is not None:
        chain = f" of chain {row}" if model.chains is not None else ""
        return (
            f"no state has positive probability given the known values{chain}: the evidence is "
            f"impossible; correct it, or {hint}"
        )
    return f"no state of this {type(model).__name__} has positive probability; {hint}"


def _states(values: Tensor, domain: Domain) -> Tensor:
    """The states with these numbers of values, `[n, sites] -> [n, *shape]`."""
    if isinstance(domain, Categorical):
        return one_hot(values, domain.num_values).float()
    return domain.values().to(values.device)[values]


def _other_draws(model: EnergyModel, chains: int, rng: Generator) -> Iterator[Tensor]:
    """States that uniform ones hardly ever are, for a target that is any function of x.

    First, `MAX_UNIFORM_DRAWS` times, states that have frequencies of the values of their own each,
    such as few ones. Then, `ASCENTS` times, draws from independent sites whose log-odds follow the
    target's gradient between the states, as long as it has one.
    """
    domain = model.domain
    if not isinstance(domain, Binary | Categorical | Ordinal):
        return
    for _ in range(MAX_UNIFORM_DRAWS):
        weights = torch.randn(chains, 1, len(domain.values()), generator=rng, device=rng.device)
        yield _independent_sites(weights.square().expand(-1, domain.dim, -1), domain, rng)
    if isinstance(domain, Ordinal):
        return
    log_odds = torch.zeros(chains, *domain.shape, device=rng.device)
    for _ in range(ASCENTS):
        if isinstance(domain, Binary):
            share = log_odds.sigmoid()
            weights = torch.stack((1 - share, share), -1)
            inside = domain.low + (domain.high - domain.low) * share
        else:
            inside = weights = log_odds.softmax(-1)
        yield _independent_sites(weights, domain, rng)
        try:
            _, grad = model.log_prob_and_grad(inside)
        except Exception:  # noqa: BLE001 - a user's target may fail between the states
            return
        grad = grad.nan_to_num(0, 0, 0)
        steepest = grad.abs().flatten(1).amax(1).clamp(min=torch.finfo(grad.dtype).tiny)
        log_odds += grad / steepest.view(-1, *[1] * (grad.ndim - 1))


def _independent_sites(weights: Tensor, domain: Domain, rng: Generator) -> Tensor:
    """A state for each row of `weights` `[n, sites, values]` of the sites' values."""
    if isinstance(domain, Mixed):
        weights = weights * domain.allowed_values(torch.arange(domain.dim, device=weights.device))
    return _states(distributions.draw_categorical(weights, rng).squeeze(-1), domain)


def anneal_starts(model: EnergyModel, sampler: Sampler, x: Tensor, rng: Generator) -> Tensor:
    """Chains that `sampler` leads from `x` to the target, `[chains, *domain.shape]`.

    They make one step at each of `ANNEALED_START_STEPS` targets of a path from the uniform law to
    pi, such as pi^beta with beta = 1 / n .. 1, so that they can cross between modes before the
    target separates them. The path keeps the structure that the sampler needs (`models.annealed`).
    A sampler of several temperatures leads them by its kernel. A chain that ends at a state of
    probability zero starts at `x` after all. Raises UnsupportedModelError if the sampler does not
    support the model.
    """
    sampler = sampler.inner
    with torch.no_grad():
        target, move_to, state = _begin_annealing(model, sampler, x)
        for rung in range(1, ANNEALED_START_STEPS + 1):
            move_to(torch.full((), rung / ANNEALED_START_STEPS, device=x.device))
            state, _ = sampler.step(sampler.refresh(state, target), target, rng)
        rows = _impossible_rows(state.x, model)
        return state.x.index_copy(0, rows, x[rows].to(state.x))


def _begin_annealing(
    model: EnergyModel, sampler: Sampler, x: Tensor
) -> tuple[EnergyModel, Callable[[Tensor], Any], Any]:
    """A target that the sampler supports, what sets its beta, and the sampler's state at beta = 1.

    Raises UnsupportedModelError if there is none.
    """
    sampler.require_moves(model)
    check_start(x, model, sampler.uses_gradient)
    paths = [_powers(model, x)]
    if isinstance(model, DataModel):
        paths.append(_powers_of_rows(model, x))
    if isinstance(model, CarriesRates):
        paths.append(_scaled_copy(model))
    for target, move_to in paths:
        move_to(torch.ones((), device=x.device))
        try:
            return target, move_to, sampler.at(x, target)
        except UnsupportedModelError as error:
            refusal = error
    sampler.require_support(x, model)  # its error names the model, and not the path
    raise refusal


def _powers(model: EnergyModel, x: Tensor) -> Path:
    path = path_of(model, powers=True)
    for name, tensor in path.named_buffers(recurse=False):  # not those of the model
        setattr(path, name, tensor.to(x))
    return path, path.move_to


def _powers_of_rows(model: DataModel, x: Tensor) -> Path:
    target = _PowersOfRows(model, torch.ones((), device=x.device))
    return target, target.beta.copy_


def _scaled_copy(model: EnergyModel) -> Path:
    """An RBM whose parameters are multiplied by beta, with the rates of its data."""
    target = copy.deepcopy(model)
    whole = {name: parameter.clone() for name, parameter in model.named_parameters()}

    def move_to(beta: Tensor) -> None:
        for name, parameter in target.named_parameters():
            parameter.copy_(beta * whole[name])

    return target, move_to


class _PowersOfRows(DataModel):
    """pi^beta of a sum over rows of data, of which a minibatch estimates it too."""

    beta: Tensor

    def __init__(self, model: EnergyModel, beta: Tensor) -> None:
        super().__init__()
        self.model, self.domain, self.rows = model, model.domain, getattr(model, "rows", 0)
        self.register_buffer("beta", beta)

    def minibatch(self, batch: Tensor) -> EnergyModel:
        assert isinstance(self.model, DataModel)
        return _PowersOfRows(self.model.minibatch(batch), self.beta)

    def forward(self, x: Tensor) -> Tensor:
        return self.beta * self.model(x)

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        log_prob, grad = self.model.log_prob_and_grad(x)
        return self.beta * log_prob, self.beta * grad


def bernoulli(
    model: EnergyModel, chains: int, rng: Generator, data: TrainingData | None, *, logit: float
) -> Tensor:
    """Each site is 1 with probability sigmoid(logit)."""
    return distributions.bernoulli(
        torch.full((chains, model.domain.dim), logit, device=rng.device), rng
    )


def data_mean(model: EnergyModel, chains: int, rng: Generator, data: TrainingData | None) -> Tensor:
    """Each site is 1 with its frequency in the training data."""
    if data is None:
        raise ValueError("start=data_mean needs a data set; give one, such as data=mnist")
    mean = data.mean.to(rng.device).expand(chains, -1)
    return torch.bernoulli(mean, generator=rng)
