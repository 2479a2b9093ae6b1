"""Convergence diagnostics: effective sample size and R-hat, quantity by quantity.

A. Vehtari, A. Gelman, D. Simpson, B. Carpenter and P.-C. Buerkner, "Rank-Normalization, Folding,
and Localization: An Improved R-hat for Assessing Convergence of MCMC", Bayesian Analysis 2021. The
numbers are those of ArviZ, which computes one quantity at a time; here many are computed at once.
Pure functions of NumPy arrays. SciPy is imported when first used, because that takes a second.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MIXED = 1.05  # the largest R-hat of chains that agree
CONVERGED = 1.01  # the largest R-hat (Vehtari et al. 2021)
ENOUGH = 400  # effective samples of each quantity, the same source
FEW, NUMBERS = 32, 2**20  # entries whose ranks are read, at least; and numbers, at most
FEWEST = 4  # draws that the diagnostics need
AT_ONCE = 2**22  # numbers whose diagnostics are computed together, which bounds the memory


def convergence(trace: NDArray) -> dict[str, NDArray]:
    """ESS (of the mean) and R-hat of each coordinate of `trace` `[draws, chains, *shape]`.

    Both are NaN for a coordinate that is constant within every chain; `constant` counts these.
    `mean` is the average over draws, chains and coordinates, and `mean_error` its Monte Carlo
    standard error, NaN if the average over coordinates never changes.
    """
    draws = trace.reshape(*trace.shape[:2], -1).transpose(1, 0, 2).astype(np.float64)
    still, found = _measured(draws, ess=lambda one: _ess(_split(one)), r_hat=split_r_hat)
    overall = draws.mean(-1, keepdims=True)
    _, error = _measured(overall, mcse=_mcse)
    return {
        **found,
        "constant": np.asarray(still.sum()),
        "mean": np.asarray(overall.mean()),
        "mean_error": np.asarray(error["mcse"][0]),
    }


def quantities(draws: NDArray) -> dict[str, NDArray]:
    """Mean, error and mixing of each quantity of `draws` `[chains, draws, quantities]`.

    `ess_bulk`, `ess_tail`, `r_hat` (rank-normalised, folded) and `mcse_mean` are ArviZ's; `sd` is
    the sample standard deviation of all draws. `constant` is true if all draws are equal; the
    diagnostics are then NaN. `stuck` is true if every chain is constant and chains differ; then
    R-hat is infinite, ESS is 0, and the error is NaN.
    """
    draws = draws.astype(np.float64)
    still, found = _measured(
        draws, mcse_mean=_mcse, ess_bulk=_ess_bulk, ess_tail=_ess_tail, r_hat=_rank_r_hat
    )
    constant = (draws == draws[:1, :1]).all(axis=(0, 1))
    stuck = still & ~constant
    if draws.shape[1] >= FEWEST:
        found["r_hat"][stuck] = np.inf
        found["ess_bulk"][stuck] = found["ess_tail"][stuck] = 0
    single = draws.shape[:2] == (1, 1)  # one draw has no spread
    sd = np.full(still.shape, np.nan) if single else draws.std((0, 1), ddof=1)
    return {"mean": draws.mean((0, 1)), "sd": sd, **found, "constant": constant, "stuck": stuck}


def mixing(draws: NDArray) -> dict[str, NDArray]:
    """`ess` and `r_hat` of each quantity of `draws` `[chains, draws, quantities]`.

    The bulk ESS and R-hat of `quantities`, at less cost. NaN where every chain is constant.
    """
    _, found = _measured(draws.astype(np.float64), ess=_ess_bulk, r_hat=_rank_r_hat)
    return found


# Each function below maps draws [chains, draws, quantities] to a number for each quantity.


def _measured(
    draws: NDArray, **measures: Callable[[NDArray], NDArray]
) -> tuple[NDArray, dict[str, NDArray]]:
    """Which quantities are constant in every chain; the measures, NaN there or of few draws."""
    constant = (draws == draws[:, :1]).all(axis=(0, 1))
    found = {name: np.full(constant.shape, np.nan) for name in measures}
    if draws.shape[1] < FEWEST:
        return constant, found
    (moving,) = np.nonzero(~constant)
    many = max(1, AT_ONCE // draws[..., 0].size)
    for first in range(0, len(moving), many):
        some = moving[first : first + many]
        part = draws[:, :, some]
        with np.errstate(divide="ignore", invalid="ignore"):  # constant within half chains
            for name, measure in measures.items():
                found[name][some] = measure(part)
    return constant, found


def _split(draws: NDArray) -> NDArray:
    """The halves of each chain as chains."""
    half = draws.shape[1] // 2
    return np.concatenate((draws[:, :half], draws[:, -half:]))


def _ranked(draws: NDArray) -> NDArray:
    """Normal scores of the ranks over all chains and draws; two values stay as they are."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    low, high = draws.min((0, 1)), draws.max((0, 1))
    several = ((draws != low) & (draws != high)).any((0, 1))
    if several.any():
        flat = draws[:, :, several].reshape(-1, several.sum())
        scores = ndtri((rankdata(flat, axis=0) - 0.375) / (len(flat) + 0.25))
        draws = draws.copy()
        draws[:, :, several] = scores.reshape(*draws.shape[:2], -1)
    return draws


def _ess(draws: NDArray) -> NDArray:
    """Effective sample size by Geyer's initial monotone sequence; all draws if constant."""
    from scipy.fft import irfft, next_fast_len, rfft

    chains, length, _ = draws.shape
    means = draws.mean(1, keepdims=True)
    size = next_fast_len(2 * length, real=True)
    power = (np.abs(rfft(draws - means, size, axis=1)) ** 2).mean(0)
    covariance = irfft(power, size, axis=0)[:length] / length
    within = covariance[0] * length / (length - 1)
    total = covariance[0] + (means.var(0, ddof=1)[0] if chains > 1 else 0)
    rho = 1 - (within - covariance) / total
    rho[0] = 1

    pairs = rho[: length // 2 * 2].reshape(length // 2, 2, -1).sum(1)
    last = max(0, -(-(length - 4) // 2))  # the sum may end before this pair, and not after it
    ended = pairs[: last + 1] <= 0
    ended[-1] = True
    end = ended.argmax(0)  # of each quantity
    order = np.arange(len(ended))[:, None]
    kept = np.where(order < end, np.minimum.accumulate(pairs[: last + 1]), 0).sum(0)
    every = np.arange(len(end))
    even = rho[2 * end, every]
    tail = np.where((even > 0) | (pairs[end, every] >= 0), even, 0)
    count = chains * length
    found = count / np.maximum(2 * kept + tail - 1, 1 / np.log10(count))
    spread = draws.max((0, 1)) - draws.min((0, 1))
    return np.where(spread < np.finfo(float).resolution, count, found)


def _ess_bulk(draws: NDArray) -> NDArray:
    return _ess(_ranked(_split(draws)))


def _ess_tail(draws: NDArray) -> NDArray:
    """The smaller ESS of the indicators of the quantiles at 5 % and 95 %."""
    low, high = np.quantile(draws, (0.05, 0.95), axis=(0, 1))
    return np.minimum(*(_ess(_split((draws <= edge) * 1.0)) for edge in (low, high)))


def _mcse(draws: NDArray) -> NDArray:
    """Monte Carlo standard error of the mean."""
    return draws.std((0, 1), ddof=1) / np.sqrt(_ess(_split(draws)))


def _r_hat(draws: NDArray) -> NDArray:
    """The potential scale reduction of chains that are split already."""
    length = draws.shape[1]
    between = length * draws.mean(1).var(0, ddof=1)
    return np.sqrt((between / draws.var(1, ddof=1).mean(0) + length - 1) / length)


def split_r_hat(draws: NDArray) -> NDArray:
    """R-hat of the halves of the chains; NaN for a single chain."""
    if len(draws) == 1:
        return np.full(draws.shape[2], np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        return _r_hat(_split(draws))


def _rank_r_hat(draws: NDArray) -> NDArray:
    """The larger R-hat of the ranks and of the ranks of the distances from the median."""
    if len(draws) == 1:
        return np.full(draws.shape[2], np.nan)
    halves = _split(draws)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    return np.fmax(_r_hat(_ranked(halves)), _r_hat(_ranked(folded)))


class Convergence(NamedTuple):
    converged: bool  # R-hat and ESS of all quantities are good; constant ones have neither
    text: str
    judged: bool = True  # False if there are too few draws, or one chain


def entry_name(
    index: Iterable[Any],
    names: Sequence[str] | None,
    labels: Sequence[Sequence[str]] | None = None,
) -> str:
    """An entry of x as it is shown: `x[3]`, `x[3, 1]`, or `x[rain, 1]` with names of the sites.

    With labels of the values it is `x[rain, heavy]`. The entry of a site of two values, 0 and 1,
    has the label of the second.
    """
    site, *value = map(int, index)
    parts = [str(names[site] if names else site), *map(str, value)]
    if labels is not None:
        parts[1:] = [labels[site][value[0] if value else 1]]
    return f"x[{', '.join(parts)}]"


def verdict(
    log_prob: NDArray, draws: NDArray, site_names: Sequence[str] | None = None
) -> Convergence:
    """Whether `draws` `[chains, draws, *shape]` and their `log_prob` `[chains, draws]` have mixed.

    The log-probability and each entry need an R-hat of at most `CONVERGED` and a bulk ESS of at
    least `ENOUGH`. Entries that are the same in all draws are left out. Of many entries, those with
    the largest R-hat without ranks are judged.
    """
    chains, length = log_prob.shape
    if length < FEWEST or log_prob.size < ENOUGH:
        text = f"not judged: {log_prob.size} draws, at least {ENOUGH} are needed"
        return Convergence(False, text, judged=False)
    if chains == 1:
        text = "not judged: a single chain cannot show what it has missed; take chains=4"
        return Convergence(False, text, judged=False)

    flat = draws.reshape(chains, length, -1)
    still = (flat == flat[:, :1]).all(1)  # [chains, entries]
    frozen = int((still.all(1) & (log_prob == log_prob[:, :1]).all(1)).sum())
    if frozen == chains:
        text = (
            "does not mix: no chain ever moved; try a sampler that changes several sites at once, "
            "such as gibbs(sites=2, scan=random) or hamming_ball, or other starts (x=)"
        )
        return Convergence(False, text)

    constant = (flat == flat[:1, :1]).all((0, 1))
    (entries,) = np.nonzero(~constant)
    if len(entries) > (most := max(FEW, NUMBERS // log_prob.size)):
        entries = np.sort(entries[np.argsort(-split_r_hat(flat[..., entries]))[:most]])
    values = np.concatenate((log_prob[..., None], flat[..., entries]), -1, dtype=np.float64)
    found = mixing(values)
    flat_target = int(log_prob.min() == log_prob.max())
    r_hat, ess = found["r_hat"][flat_target:], np.nan_to_num(found["ess"][flat_target:])
    names = [*([] if flat_target else ["the log-probability"])]
    shape = draws.shape[2:]
    names += [entry_name(np.unravel_index(one, shape), site_names) for one in entries]
    r_hat = np.where(np.isnan(r_hat), np.inf, r_hat)

    sites = draws.shape[2]
    per_site = (chains, sites, -1)
    stays = (still.reshape(per_site).all(2).any(0) & ~constant.reshape(sites, -1).all(1)).sum()
    remarks = [f"{frozen} of {chains} chains never moved"] if frozen else []
    if stays:
        remarks.append(f"{stays} of {sites} sites never changed in a chain")
    same = int(constant.reshape(sites, -1).all(1).sum())
    if same:
        remarks.append(f"{same} of {sites} sites constant")
    worst, fewest = int(r_hat.argmax()), int(ess.argmin())
    measured = f"R-hat {r_hat[worst]:.4g} at {names[worst]}"
    size = f"ESS {ess[fewest]:.0f} at {names[fewest]}"
    converged = bool(r_hat[worst] <= CONVERGED and ess[fewest] >= ENOUGH)
    if converged:
        parts = [f"converged: {measured}", size]
    elif r_hat[worst] > MIXED:
        parts = [f"does not mix: {measured}"]
    elif r_hat[worst] > CONVERGED:
        parts = [f"not converged: {measured}, above {CONVERGED}"]
    else:
        parts = [f"not converged: {size}, below {ENOUGH}"]
    return Convergence(converged, ", ".join([*parts, *remarks]))
