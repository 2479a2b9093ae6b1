"""Permutation tests of two sets of states."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Literal

import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.domains import Categorical, Domain
from latticework.sampling.mmd import hamming_kernel

MAX_MMD_DRAWS = 1000  # draws of each set whose distances are computed
MAX_PAIRS = 500  # pairs of sites that are compared
LOG_PROB_LEVELS = 50  # levels of the log-probability
DIVISIONS_AT_ONCE = 100  # divisions that are computed together
STATES_AT_ONCE = 4096  # states that are evaluated together
COMPARISONS = 5  # comparisons by a permutation test

Statistic = Callable[[Tensor], Tensor]  # divisions [n, states], 1.0 for the draws -> [n]


@dataclass(frozen=True)
class DrawsOutcome:
    check: str
    status: Literal["ok", "fails", "-"]  # "-": nothing to compare
    detail: str
    p: float | None = None  # p of the permutation test


def compare_states(
    draws: Tensor, others: Tensor, model: EnergyModel, rng: Generator, error: float
) -> Iterator[DrawsOutcome]:
    """The outcomes of the permutation tests of two sets of states."""
    n, states = len(draws), torch.cat((draws, others))
    codes, labels = _codes(states, model.domain)
    _, place = torch.unique(codes, dim=0, return_inverse=True)
    first = place.new_zeros(int(place.max()) + 1).scatter_(0, place, torch.arange(len(place)))
    values = evaluate_draws(states[first], model)[place]  # equal states have equal values
    sizes = n, len(others)
    shares = {"site means": _site_values(codes, labels), "pair means": _pairs(codes, rng)}
    shares = {name: share for name, share in shares.items() if share[1]}  # no pairs with one site
    near = torch.cat((codes[:n][:MAX_MMD_DRAWS], codes[n:][:MAX_MMD_DRAWS]))

    count = ceil(2 * COMPARISONS / error)
    levels = values.sort().values[torch.linspace(0, len(values) - 1, LOG_PROB_LEVELS).long()]
    below = (values.unsqueeze(1) <= levels).float()
    statistics = {"log-probability": _shares(below), "repeats": _repeats(place)}
    statistics |= {name: _shares(happens) for name, (happens, _) in shares.items()}
    permuted = _permute(statistics, *sizes, count, rng)
    permuted |= _permute(
        {"distance": _mmd(near, len(labels))}, min(n, MAX_MMD_DRAWS), MAX_MMD_DRAWS, count, rng
    )

    level = error / COMPARISONS
    here, there = (f"{v.mean():.4g} +- {v.std() / len(v) ** 0.5:.2g}" for v in values.split(sizes))
    kinds = [len(places.unique()) for places in place.split(sizes)]
    squared, floor = permuted["distance"][0], permuted["distance"].quantile(1 - level)
    details = {
        "log-probability": f"mean {here}, reference {there}",
        **{name: _largest(*about, n) for name, about in shares.items()},
        "repeats": f"{kinds[0]} distinct states of {n}, reference {kinds[1]} of {len(others)}",
        "distance": f"squared MMD {squared:.2g}, noise floor {floor:.2g}",
    }
    for name, detail in details.items():
        reached = permuted[name] >= permuted[name][0] - 1e-6 * permuted[name][0].abs()  # rounding
        p = float(reached.double().mean())
        yield DrawsOutcome(name, "fails" if p <= level else "ok", detail, p)


def _permute(
    statistics: dict[str, Statistic], n: int, m: int, count: int, rng: Generator
) -> dict[str, Tensor]:
    """Each statistic of the division into the first `n` states and `m` others, then of random ones.

    The statistics have the shape `[count]`.
    """
    by_name: dict[str, list[Tensor]] = {name: [] for name in statistics}
    for start in range(0, count, DIVISIONS_AT_ONCE):
        order = torch.rand(min(DIVISIONS_AT_ONCE, count - start), n + m, generator=rng).argsort(1)
        if start == 0:
            order[0] = torch.arange(n + m)
        division = (order < n).float()
        for name, statistic in statistics.items():
            by_name[name].append(statistic(division))
    return {name: torch.cat(parts) for name, parts in by_name.items()}


def _codes(states: Tensor, domain: Domain) -> tuple[Tensor, list[str]]:
    """The values of all sites as whole numbers from 0, `[states, dim]`, and what they stand for."""
    if isinstance(domain, Categorical):
        return states.argmax(-1), [str(value) for value in range(domain.num_values)]
    values, codes = torch.unique(states, return_inverse=True)
    return codes, [f"{value:g}" for value in values.tolist()]


def _site_values(codes: Tensor, labels: list[str]) -> tuple[Tensor, list[str]]:
    """Whether a site has a value, `[states, events]`, and the names of these events."""
    values = range(1, 2) if len(labels) == 2 else range(len(labels))
    happens = torch.cat([codes == value for value in values], 1).float()
    names = [f"x[{i}] = {labels[v]}" for v in values for i in range(codes.shape[1])]
    return happens, names


def _pairs(codes: Tensor, rng: Generator) -> tuple[Tensor, list[str]]:
    """Whether two sites have the same value, for all pairs or `MAX_PAIRS` random ones."""
    sites = codes.shape[1]
    if sites * (sites - 1) // 2 <= MAX_PAIRS:
        first, second = torch.triu_indices(sites, sites, 1)
    else:
        start = torch.randint(sites, (MAX_PAIRS,), generator=rng)
        shift = torch.randint(1, sites, (MAX_PAIRS,), generator=rng)
        first, second = torch.stack((start, (start + shift) % sites)).sort(0).values
    names = [f"x[{i}] = x[{j}]" for i, j in zip(first.tolist(), second.tolist(), strict=True)]
    return (codes[:, first] == codes[:, second]).float(), names


def _largest(happens: Tensor, names: list[str], n: int) -> str:
    """The event whose shares in the first `n` states and in the others differ most."""
    share, reference = happens[:n].mean(0), happens[n:].mean(0)
    spread = happens.std(0)
    most = int(((share - reference) / spread.where(spread > 0, torch.inf)).abs().argmax())
    shares = (float(share[most]), n), (float(reference[most]), len(happens) - n)
    shown = [f"{p:.4f} +- {(p * (1 - p) / size) ** 0.5:.4f}" for p, size in shares]
    return f"{names[most]}: {shown[0]}, reference {shown[1]}"


def _shares(happens: Tensor) -> Statistic:
    """The largest difference of the shares of an event, in standard deviations of the event."""
    spread = happens.std(0)
    scaled = happens / spread.where(spread > 0, torch.inf)
    total = scaled.sum(0)

    def statistic(division: Tensor) -> Tensor:
        size, sums = division.sum(1, keepdim=True), division @ scaled
        return (sums / size - (total - sums) / (len(happens) - size)).abs().amax(1)

    return statistic


def _repeats(place: Tensor) -> Statistic:
    """The difference of the shares of pairs that are equal. `place` numbers the distinct states."""
    everything = place.bincount().float()

    def pairs(counts: Tensor) -> Tensor:
        size = counts.sum(1)
        return (counts * (counts - 1)).sum(1) / (size * (size - 1))

    def statistic(division: Tensor) -> Tensor:
        counts = division.new_zeros(len(division), len(everything)).index_add_(1, place, division)
        return (pairs(counts) - pairs(everything - counts)).abs()

    return statistic


def _mmd(codes: Tensor, values: int) -> Statistic:
    """The unbiased squared MMD with the kernel of `sampling.mmd`."""
    apart = hamming_kernel(*[torch.nn.functional.one_hot(codes, max(values, 2)).float()] * 2)
    apart.fill_diagonal_(0)

    def statistic(division: Tensor) -> Tensor:
        second = 1 - division
        n, m = division.sum(1), second.sum(1)
        mine, theirs = division @ apart, second @ apart
        within = (mine * division).sum(1) / (n * (n - 1)) + (theirs * second).sum(1) / (m * (m - 1))
        return within - 2 * (mine * second).sum(1) / (n * m)

    return statistic


def evaluate_draws(x: Tensor, model: EnergyModel) -> Tensor:
    """The target at each of `x` `[n, *domain.shape]`, float64 `[n]`."""
    with torch.no_grad():
        values = torch.cat([model.log_prob(part).double() for part in x.split(STATES_AT_ONCE)])
    if values.isnan().any():
        raise ValueError(f"the target is NaN at {int(values.isnan().sum())} of the draws")
    return values
