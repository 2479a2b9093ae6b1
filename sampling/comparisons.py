"""A result against the truth of a reference target, or against another result."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from latticework.models.abilities import KnownTarget
from latticework.models.base import EnergyModel
from latticework.models.domains import Binary, Categorical
from latticework.sampling import pair_products
from latticework.sampling.diagnostics import quantities, round_noise
from latticework.sampling.verdict import Convergence, entry_name

if TYPE_CHECKING:
    from latticework.sampling.result import SampleResult

LEVEL = 1e-3  # probability that right means are called wrong, over all quantities (Bonferroni)
LARGEST_SHARE = 0.2  # sds of the target: four MCSEs at the ESS of 400 that a verdict promises


@dataclass(frozen=True)
class Agreement:
    """Whether two results agree. True or false itself; `text` names the mean that differs most."""

    agree: bool
    text: str

    def __bool__(self) -> bool:
        return self.agree

    def __str__(self) -> str:
        return self.text


def judge_by_reference(result: "SampleResult", reference: KnownTarget) -> Convergence:
    """Whether the means of a result are right, by the truth in place of R-hat.

    Wrong is a mean that is off by more than z* MCSEs (two-sided at `LEVEL` over all means), or by
    more than `LARGEST_SHARE` sds of the target. Raises ValueError for a result on another domain.
    """
    table = reference.compare(result).drop(index="log Z", errors="ignore")
    error, mcse = table["error"].abs().to_numpy(), table["mcse"].to_numpy().copy()
    known = np.nan_to_num(reference.moments["energy"].error)  # a standard error of the truth itself
    mcse[0], limit = np.hypot(mcse[0], known), _limit(len(table))
    z = np.divide(error, mcse, where=mcse > 0, out=np.zeros(len(error)))
    share = error / _sds(result, reference, table["truth"].to_numpy())
    share[np.isnan(share)] = 0  # constant in all draws, and right
    worst, furthest = table.index[z.argmax()], table.index[share.argmax()]
    if z.max() > limit:
        text = f"wrong: the mean of {worst} is off by {z.max():.1f} MCSEs, more than {limit:.1f}"
        return Convergence(False, text)
    if share.max() > LARGEST_SHARE:
        text = f"wrong: the mean of {furthest} is off by {share.max():.2g} sds, more than 0.2"
        return Convergence(False, text)
    return Convergence(
        True,
        f"right: of {len(table)} means, the largest errors are {z.max():.1f} MCSEs at {worst} and "
        f"{share.max():.2g} sds at {furthest}",
    )


def _sds(
    result: "SampleResult", reference: KnownTarget, truth: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The sd of each row of `compare`: of entries with two values by the truth, else infinite."""
    sds, domain = np.full(len(truth), np.inf), result.domain
    sds[0] = np.sqrt(float(reference.moments["energy variance"].value))
    if isinstance(domain, Binary | Categorical):
        low, high = (domain.low, domain.high) if isinstance(domain, Binary) else (0.0, 1.0)
        first = 1 + len(reference.moment_functions())
        sds[first:] = np.sqrt(np.maximum((truth[first:] - low) * (high - truth[first:]), 0))
    return np.where(sds > 0, sds, np.inf)


def compare_results(one: "SampleResult", other: "SampleResult") -> Agreement:
    """Whether the means of two results agree: the log-probability, entries and pairs of sites.

    They disagree if two means differ by more than z* MCSEs of their difference. A quantity that is
    the same in all draws of a result has no MCSE there and counts as exact. Raises ValueError for
    results on different domains.
    """
    if one.domain != other.domain:
        raise ValueError(
            f"results of one target are compared, got domains {one.domain} and {other.domain}"
        )
    (mean, mcse), (other_mean, other_mcse) = _means(one), _means(other)
    difference, error = np.abs(mean - other_mean), np.hypot(mcse, other_mcse)
    rounding = 1e-5 * np.maximum(1, np.abs(mean))
    z = np.divide(difference, error, where=error > 0, out=np.full(len(error), np.inf))
    z[difference <= rounding] = 0
    limit, place = _limit(len(z)), int(z.argmax())
    means = (
        f"{mean[place]:.4g} ± {mcse[place]:.2g} and {other_mean[place]:.4g} ± "
        f"{other_mcse[place]:.2g}"
    )
    name = _name(one, place)
    if z[place] > limit:
        return Agreement(
            False, f"disagree: the mean of {name} is {means}, {z[place]:.1f} MCSEs apart"
        )
    return Agreement(True, f"agree: of {len(z)} means, {name} differs most, {means}")


def _limit(count: int) -> float:
    """MCSEs by which the largest of `count` errors may be off."""
    from scipy.stats import norm

    return float(norm.isf(LEVEL / 2 / count))


def _means(result: "SampleResult") -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means and errors of the log-probability, the entries and the pairs.

    A chain that keeps a value of its own is one draw of it: the error is that over chains.
    """
    draws = result.draws.numpy()
    parts = [
        round_noise(result.log_prob.numpy())[..., None],
        draws.reshape(*draws.shape[:2], -1),
        pair_products.multiply_pairs(draws, pair_products.select_pairs(draws.shape[2])),
    ]
    values = np.concatenate(parts, -1, dtype=np.float64)
    measured = quantities(values, ["mcse_mean"])
    over_chains = np.zeros(values.shape[2])
    if len(values) > 1:
        over_chains = values.mean(1).std(0, ddof=1) / np.sqrt(len(values))
    error = np.where(np.isnan(measured["mcse_mean"]), over_chains, measured["mcse_mean"])
    return measured["mean"], error


def _name(result: "SampleResult", place: int) -> str:
    """The name of a quantity of `_means`."""
    shape = tuple(result.draws.shape[2:])
    entries = int(np.prod(shape))
    if place == 0:
        return "the log-probability"
    if place <= entries:
        return entry_name(np.unravel_index(place - 1, shape), result.names, result.labels)
    one, two = pair_products.select_pairs(shape[0])[place - 1 - entries]
    return f"{entry_name((one,), result.names)} {entry_name((two,), result.names)}"


def chains_off_reference(
    means: NDArray[np.float64], truth: NDArray[np.float64], names: list[str]
) -> tuple[float, str]:
    """The largest error of `means` `[chains, quantities]` in standard errors, and why it is wrong.

    The errors are over chains, by Student's t; "" if no mean is wrong at `LEVEL`.
    """
    from scipy.stats import t

    chains = len(means)
    gap, error = np.abs(means.mean(0) - truth), means.std(0, ddof=1) / np.sqrt(chains)
    z = np.divide(gap, error, where=error > 0, out=np.zeros(len(gap)))
    place = int(z.argmax())
    if 2 * t.sf(z[place], chains - 1) * len(z) >= LEVEL:
        return float(z[place]), ""
    mean = float(means[:, place].mean())
    return float(z[place]), (
        f"its mean of {names[place]} is {mean:.4g} ± {error[place]:.2g}, and the true one "
        f"{truth[place]:.4g}"
    )


def require_same_domain(reference: KnownTarget, model: EnergyModel) -> None:
    """Raise ValueError if a reference is of another domain than the target."""
    if reference.model.domain != model.domain:
        raise ValueError(
            f"the reference {reference.name} has the domain {reference.model.domain}, the target "
            f"{model.domain}; give the target's own reference"
        )


def true_means(reference: KnownTarget, entries: Any) -> NDArray[np.float64]:
    """The true means of the log-probability and of `entries` of x, as `Race.entries` selects."""
    chosen = entries(reference.mean.unsqueeze(0)).flatten().numpy()
    energy = torch.as_tensor(reference.moments["energy"].value).double()
    return np.append(float(energy), chosen)
