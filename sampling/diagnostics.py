"""Convergence diagnostics: effective sample size and R-hat, quantity by quantity.

A. Vehtari, A. Gelman, D. Simpson, B. Carpenter and P.-C. Buerkner, "Rank-Normalization, Folding,
and Localization: An Improved R-hat for Assessing Convergence of MCMC", Bayesian Analysis 2021. The
numbers are those of ArviZ, which computes one quantity at a time; here many are computed at once.
Pure functions of NumPy arrays. SciPy is imported when first used, because that takes a second.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

MIN_ESS = 400  # effective samples of each quantity (Vehtari et al. 2021)
R_HAT_FACTOR = 1.25  # times the excess of R-hat that chains show at the smallest ESS
LARGEST_R_HAT = 2.0  # limit for any number of chains
# A value that at most this share of the draws have, entered fewer times, is too rare to be judged.
RARE_SHARE, MIN_RARE_ENTRIES = 0.01, 10
RARE_VISITS = 4  # visits of a value, up to which the spread of the draws says too little
MIN_DRAWS = 4  # draws that the diagnostics need
MEASURES = ("mcse_mean", "ess_bulk", "ess_tail", "r_hat")  # measures of a quantity
STUCK_VALUES = {
    "ess_bulk": 0.0,
    "ess_tail": 0.0,
    "r_hat": np.inf,
}  # where chains keep different values
MAX_ROUNDING_ERRORS = 8  # rounding errors by which equal log-probabilities differ, at most
NUMBERS_AT_ONCE = 2**22  # numbers whose diagnostics are computed together, which bounds the memory


def largest_r_hat(chains: int) -> float:
    """The largest R-hat of chains that agree: 1 + 1.25 chains / 400, and at most 2.

    If chains have one law, R-hat is about 1 + chains / ESS. So four chains show 1.01 at an ESS
    of 400, and a limit of 1.01 would ask 256 chains for an ESS of 25,600. docs/calibration.md has
    the rates by which the factor was chosen.
    """
    return min(1 + R_HAT_FACTOR * chains / MIN_ESS, LARGEST_R_HAT)


def round_noise(log_prob: NDArray) -> NDArray[np.float64]:
    """Round log-probabilities to what their precision can tell, float64.

    Equal values that came about along different paths differ by rounding errors. These depend on
    the chain, so ranks would order equal values chain by chain, and R-hat would grow.
    """
    sizes = np.abs(log_prob[np.isfinite(log_prob)])
    largest = float(sizes.max(initial=0))
    if largest == 0 or not np.issubdtype(log_prob.dtype, np.floating):
        return log_prob.astype(np.float64)
    error = MAX_ROUNDING_ERRORS * float(np.finfo(log_prob.dtype).eps) * largest
    grid = 2.0 ** np.ceil(np.log2(error))
    return np.round(log_prob.astype(np.float64) / grid) * grid


def convergence(trace: NDArray) -> dict[str, NDArray]:
    """ESS (of the mean) and R-hat of each coordinate of `trace` `[draws, chains, *shape]`.

    Both are NaN for a coordinate that is constant within every chain; `constant` counts these.
    `mean` is the average over draws, chains and coordinates, and `mean_error` its Monte Carlo
    standard error, NaN if the average over coordinates never changes.
    """
    draws = trace.reshape(*trace.shape[:2], -1).transpose(1, 0, 2).astype(np.float64)
    still, numbers = _measure_quantities(
        draws, ess=lambda one: _ess(_split(one)), r_hat=split_r_hat
    )
    overall = draws.mean(-1, keepdims=True)
    _, error = _measure_quantities(overall, mcse=_mcse)
    return {
        **numbers,
        "constant": np.asarray(still.sum()),
        "mean": np.asarray(overall.mean()),
        "mean_error": np.asarray(error["mcse"][0]),
    }


def quantities(draws: NDArray, measures: Sequence[str] = MEASURES) -> dict[str, NDArray]:
    """Mean, error and mixing of each quantity of `draws` `[chains, draws, quantities]`.

    `measures` are those of `MEASURES` that are computed, which takes most of the time.

    `ess_bulk`, `ess_tail`, `r_hat` (rank-normalised, folded) and `mcse_mean` are ArviZ's, but the
    error of a value that is seldom visited has a floor (`_mcse`). `sd` is the sample standard
    deviation of all draws. `constant` is true if all draws are equal; the diagnostics are then NaN.
    `stuck` is true if every chain is constant and chains differ; then R-hat is infinite, ESS is 0,
    and the error is NaN.
    """
    parts: dict[str, list[NDArray]] = {}
    for part in in_parts(draws):
        for name, numbers in _quantities(draws[..., part].astype(np.float64), measures).items():
            parts.setdefault(name, []).append(numbers)
    return {name: np.concatenate(numbers) for name, numbers in parts.items()}


def _quantities(draws: NDArray, measures: Sequence[str]) -> dict[str, NDArray]:
    """`quantities` of a part that is computed at once."""
    every = dict(zip(MEASURES, (_mcse, _ess_bulk, _ess_tail, _rank_r_hat), strict=True))
    still, numbers = _measure_quantities(draws, **{name: every[name] for name in measures})
    constant = (draws == draws[:1, :1]).all(axis=(0, 1))
    stuck = still & ~constant
    if draws.shape[1] >= MIN_DRAWS:
        for name in STUCK_VALUES.keys() & set(measures):
            numbers[name][stuck] = STUCK_VALUES[name]
    rows = np.ascontiguousarray(draws.reshape(-1, len(still)).T)  # sums do not depend on the part
    single = rows.shape[1] == 1  # one draw has no spread
    sd = np.full(still.shape, np.nan) if single else rows.std(1, ddof=1)
    return {"mean": rows.mean(1), "sd": sd, **numbers, "constant": constant, "stuck": stuck}


def mixing(draws: NDArray) -> dict[str, NDArray]:
    """`ess` and `r_hat` of each quantity of `draws` `[chains, draws, quantities]`.

    The bulk ESS and R-hat of `quantities`, at less cost. NaN where every chain is constant.
    """
    _, numbers = _measure_quantities(draws.astype(np.float64), ess=_ess_bulk, r_hat=_rank_r_hat)
    return numbers


def drift_p_values(draws: NDArray) -> NDArray[np.float64]:
    """P-value of equal means of the first and the second half, by a t-test over the chains.

    Draws are `[chains, draws, quantities]`. It is 1 where the difference is 0 in every chain, and 0
    where it is another number in all of them.
    """
    from scipy.stats import t

    chains, half = len(draws), draws.shape[1] // 2
    change = draws[:, :half].mean(1) - draws[:, -half:].mean(1)
    mean, error = change.mean(0), change.std(0, ddof=1) / np.sqrt(chains)
    ratio = np.divide(np.abs(mean), error, where=error > 0, out=np.where(mean == 0, 0.0, np.inf))
    return 2 * t.sf(ratio, chains - 1)


def count_rare_entries(draws: NDArray) -> NDArray[np.float64]:
    """How often chains enter the rarer of two values, of each quantity; NaN of other quantities.

    Draws are `[chains, draws, quantities]`. A chain that starts at the value enters it.
    """
    low, high = draws.min((0, 1)), draws.max((0, 1))
    at_high = draws == high
    inside = np.where(at_high.mean((0, 1)) <= 0.5, at_high, ~at_high)
    entries = inside[:, 0].sum(0) + (inside[:, 1:] & ~inside[:, :-1]).sum((0, 1))
    two = ((draws == low) | at_high).all((0, 1)) & (low < high)
    return np.where(two, entries, np.nan)


def find_rare(draws: NDArray) -> NDArray[np.bool_]:
    """Whether a quantity of two values has one that is too rare to be judged, `[quantities]`.

    Its share is at most `RARE_SHARE`, and chains `[chains, draws, quantities]` entered it fewer
    than `MIN_RARE_ENTRIES` times. A value of a larger share that is seldom entered mixes slowly,
    which R-hat and ESS show.
    """
    low, high = draws.min((0, 1)), draws.max((0, 1))
    at_high = (draws == high).mean((0, 1))
    rare = (np.minimum(at_high, 1 - at_high) <= RARE_SHARE) & (low < high)
    entries = count_rare_entries(draws[..., rare])  # NaN of quantities of more values
    rare[rare] = entries < MIN_RARE_ENTRIES
    return rare


def in_parts(draws: NDArray) -> Iterator[slice]:
    """The quantities of `draws` `[chains, draws, quantities]` in parts of that size."""
    many = max(1, NUMBERS_AT_ONCE // max(1, draws.shape[0] * draws.shape[1]))
    for first in range(0, max(1, draws.shape[2]), many):
        yield slice(first, first + many)


# Each function below maps draws [chains, draws, quantities] to a number for each quantity.


def _measure_quantities(
    draws: NDArray, **measures: Callable[[NDArray], NDArray]
) -> tuple[NDArray, dict[str, NDArray]]:
    """Which quantities are constant in every chain; the measures, NaN there or of few draws."""
    constant = (draws == draws[:, :1]).all(axis=(0, 1))
    numbers = {name: np.full(constant.shape, np.nan) for name in measures}
    if draws.shape[1] < MIN_DRAWS:
        return constant, numbers
    (moving,) = np.nonzero(~constant)
    many = max(1, NUMBERS_AT_ONCE // draws[..., 0].size)
    for first in range(0, len(moving), many):
        places = moving[first : first + many]
        part = draws[:, :, places]
        with np.errstate(divide="ignore", invalid="ignore"):  # constant within half chains
            for name, measure in measures.items():
                numbers[name][places] = measure(part)
    return constant, numbers


def _split(draws: NDArray) -> NDArray:
    """The halves of each chain as chains."""
    half = draws.shape[1] // 2
    return np.concatenate((draws[:, :half], draws[:, -half:]))


def _normal_scores(draws: NDArray) -> NDArray:
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
    end = ended.argmax(0)  # the end for each quantity
    order = np.arange(len(ended))[:, None]
    decreasing = np.where(order < end, np.minimum.accumulate(pairs[: last + 1]), 0).sum(0)
    every = np.arange(len(end))
    even = rho[2 * end, every]
    tail = np.where((even > 0) | (pairs[end, every] >= 0), even, 0)
    count = chains * length
    effective = count / np.maximum(2 * decreasing + tail - 1, 1 / np.log10(count))
    spread = draws.max((0, 1)) - draws.min((0, 1))
    return np.where(spread < np.finfo(float).resolution, count, effective)


def _ess_bulk(draws: NDArray) -> NDArray:
    return _ess(_normal_scores(_split(draws)))


def _ess_tail(draws: NDArray) -> NDArray:
    """The smaller ESS of the indicators of the quantiles at 5 % and 95 %."""
    low, high = np.quantile(draws, (0.05, 0.95), axis=(0, 1))
    return np.minimum(*(_ess(_split((draws <= edge) * 1.0)) for edge in (low, high)))


def _mcse(draws: NDArray) -> NDArray:
    """Monte Carlo standard error of the mean, with a floor for values that are seldom visited.

    If chains enter the rarer of two values v times and stay for exponential times, its share has
    the relative error sqrt(2 / v). With v of 1 to `RARE_VISITS`, no series shows this: an interval
    of 1.96 errors then held the truth in 48 % of cases, and in 93 % with sqrt(2 (v + 1)) / v.
    """
    error = draws.std((0, 1), ddof=1) / np.sqrt(_ess(_split(draws)))
    low, high = draws.min((0, 1)), draws.max((0, 1))
    share, visits = (draws == high).mean((0, 1)), count_rare_entries(draws)
    seldom = (visits >= 1) & (visits <= RARE_VISITS)
    few = np.where(seldom, visits, 1)
    floor = np.minimum(share, 1 - share) * (high - low) * np.sqrt(2 * (few + 1)) / few
    return np.where(seldom, np.maximum(error, floor), error)


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
    return np.fmax(_r_hat(_normal_scores(halves)), _r_hat(_normal_scores(folded)))
