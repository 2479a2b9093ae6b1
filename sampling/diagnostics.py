"""Convergence diagnostics: effective sample size and R-hat, quantity by quantity.

A. Vehtari, A. Gelman, D. Simpson, B. Carpenter and P.-C. Buerkner, "Rank-Normalization, Folding,
and Localization: An Improved R-hat for Assessing Convergence of MCMC", Bayesian Analysis 2021. The
numbers are those of ArviZ, which computes one quantity at a time; here many are computed at once.
Pure functions of NumPy arrays. SciPy is imported when first used, because that takes a second.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MIN_ESS = 400  # effective samples of each quantity (Vehtari et al. 2021)
LARGEST_R_HAT = 1.2  # of any number of chains
FAR = 5  # times the excess of R-hat over 1 that is allowed: more steps alone do not help
ANTITHETIC = 2  # effective samples for a draw, above which draws alternate
RARE_VISITS = 4  # visits of a value, up to which the spread of the draws says too little
ADVICE = (
    "try a sampler that changes several sites at once, such as gibbs(sites=2, scan=random) or "
    "hamming_ball, or other starts (x=)"
)
FEW, NUMBERS = 32, 2**20  # entries whose ranks are read, at least; and numbers, at most
FEWEST = 4  # draws that the diagnostics need
MEASURES = ("mcse_mean", "ess_bulk", "ess_tail", "r_hat")  # of a quantity
STUCK = {"ess_bulk": 0.0, "ess_tail": 0.0, "r_hat": np.inf}  # where chains keep different values
SHORTEST = 10  # draws of a chain that is judged: the ESS of fewer does not depend on the draws
NOISE = 8  # rounding errors by which equal log-probabilities differ, at most
AT_ONCE = 2**22  # numbers whose diagnostics are computed together, which bounds the memory


def largest_r_hat(chains: int) -> float:
    """The largest R-hat of `chains` chains that agree: 1 + chains / 400, and at most 1.2.

    Of chains that have one law, R-hat^2 - 1 is about 2 chains / ESS. So 1.01 is what four chains
    show at an ESS of 400, and it would ask 256 chains for an ESS of 25,600.
    """
    return min(1 + chains / MIN_ESS, LARGEST_R_HAT)


def round_noise(log_prob: NDArray) -> NDArray[np.float64]:
    """Round log-probabilities to what their precision can tell, float64.

    Equal values that came about along different paths differ by rounding errors. These depend on
    the chain, so ranks would order equal values chain by chain, and R-hat would grow.
    """
    sizes = np.abs(log_prob[np.isfinite(log_prob)])
    largest = float(sizes.max(initial=0))
    if largest == 0 or not np.issubdtype(log_prob.dtype, np.floating):
        return log_prob.astype(np.float64)
    error = NOISE * float(np.finfo(log_prob.dtype).eps) * largest
    grid = 2.0 ** np.ceil(np.log2(error))
    return np.round(log_prob.astype(np.float64) / grid) * grid


def convergence(trace: NDArray) -> dict[str, NDArray]:
    """ESS (of the mean) and R-hat of each coordinate of `trace` `[draws, chains, *shape]`.

    Both are NaN for a coordinate that is constant within every chain; `constant` counts these.
    `mean` is the average over draws, chains and coordinates, and `mean_error` its Monte Carlo
    standard error, NaN if the average over coordinates never changes.
    """
    draws = trace.reshape(*trace.shape[:2], -1).transpose(1, 0, 2).astype(np.float64)
    still, found = _measure_quantities(draws, ess=lambda one: _ess(_split(one)), r_hat=split_r_hat)
    overall = draws.mean(-1, keepdims=True)
    _, error = _measure_quantities(overall, mcse=_mcse)
    return {
        **found,
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
    parts = [_quantities(draws[..., part].astype(np.float64), measures) for part in _parts(draws)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _quantities(draws: NDArray, measures: Sequence[str]) -> dict[str, NDArray]:
    """`quantities` of a part that is computed at once."""
    every = dict(zip(MEASURES, (_mcse, _ess_bulk, _ess_tail, _rank_r_hat), strict=True))
    still, found = _measure_quantities(draws, **{name: every[name] for name in measures})
    constant = (draws == draws[:1, :1]).all(axis=(0, 1))
    stuck = still & ~constant
    if draws.shape[1] >= FEWEST:
        for name in STUCK.keys() & set(measures):
            found[name][stuck] = STUCK[name]
    rows = np.ascontiguousarray(draws.reshape(-1, len(still)).T)  # sums do not depend on the part
    single = rows.shape[1] == 1  # one draw has no spread
    sd = np.full(still.shape, np.nan) if single else rows.std(1, ddof=1)
    return {"mean": rows.mean(1), "sd": sd, **found, "constant": constant, "stuck": stuck}


def mixing(draws: NDArray) -> dict[str, NDArray]:
    """`ess` and `r_hat` of each quantity of `draws` `[chains, draws, quantities]`.

    The bulk ESS and R-hat of `quantities`, at less cost. NaN where every chain is constant.
    """
    _, found = _measure_quantities(draws.astype(np.float64), ess=_ess_bulk, r_hat=_rank_r_hat)
    return found


def _parts(draws: NDArray) -> Iterator[slice]:
    """The quantities of `draws` `[chains, draws, quantities]` in parts of `AT_ONCE` numbers."""
    many = max(1, AT_ONCE // max(1, draws.shape[0] * draws.shape[1]))
    for first in range(0, max(1, draws.shape[2]), many):
        yield slice(first, first + many)


# Each function below maps draws [chains, draws, quantities] to a number for each quantity.


def _measure_quantities(
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
    at_high = draws == high
    share = at_high.mean((0, 1))
    inside = np.where(share <= 0.5, at_high, ~at_high)
    visits = inside[:, 0].sum(0) + (inside[:, 1:] & ~inside[:, :-1]).sum((0, 1))
    seldom = ((draws == low) | at_high).all((0, 1)) & (visits >= 1) & (visits <= RARE_VISITS)
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


class Convergence(NamedTuple):
    converged: bool  # R-hat and ESS of all quantities are good; constant ones have neither
    text: str
    judged: bool = True  # False if draws cannot tell: too few, one chain, or starts too alike


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
    log_prob: NDArray,
    draws: NDArray,
    site_names: Sequence[str] | None = None,
    caveat: str = "",
    of: tuple[NDArray, Sequence[str]] | None = None,
    labels: Sequence[Sequence[str]] | None = None,
) -> Convergence:
    """Whether `draws` `[chains, draws, *shape]` and their `log_prob` `[chains, draws]` have mixed.

    The log-probability and each entry need an R-hat of at most `largest_r_hat` and a bulk ESS of at
    least `MIN_ESS`; an ESS above `ANTITHETIC` times the draws is refused, because it does not show
    what draws that alternate hide. Every chain must have moved. Entries that are the same in all
    draws are left out. Of many entries, those with the largest R-hat without ranks are judged.
    `of`, numbers `[chains, draws, n]` and their n names, takes the place of the entries, which are
    named by `site_names` and the `labels` of each site's values (`entry_name`).

    A `caveat` says why no draws can tell: nothing has converged with one.
    """
    found = _judge_draws(log_prob, draws, site_names, of, labels)
    if not caveat:
        return found
    if found.converged:
        text = found.text.replace("converged: ", "not judged: ", 1)
        return Convergence(False, f"{text}, but {caveat}", judged=False)
    return found._replace(text=f"{found.text}; {caveat}")


def _judge_draws(
    log_prob: NDArray,
    draws: NDArray,
    site_names: Sequence[str] | None,
    of: tuple[NDArray, Sequence[str]] | None,
    labels: Sequence[Sequence[str]] | None,
) -> Convergence:
    """`verdict` without a caveat."""
    chains, length = log_prob.shape
    log_prob = round_noise(log_prob)
    if log_prob.size < MIN_ESS:
        text = f"not judged: {log_prob.size} draws, at least {MIN_ESS} are needed"
        return Convergence(False, text, judged=False)
    if length < SHORTEST:
        text = f"not judged: {length} draws a chain, at least {SHORTEST} are needed"
        return Convergence(False, text, judged=False)
    if chains == 1:
        text = "not judged: a single chain cannot show what it has missed; take chains=4"
        return Convergence(False, text, judged=False)

    flat = draws.reshape(chains, length, -1)
    still, constant = _find_constants(flat)
    frozen = still.all(1) & (log_prob == log_prob[:, :1]).all(1)  # [chains]
    if frozen.all():
        return Convergence(False, f"does not mix: no chain ever moved; {ADVICE}")

    if of is None:
        values, every, names = flat, constant, None
    else:
        values, names = of
        _, every = _find_constants(values)
        if every.all():
            text = f"not judged: {', '.join(names)} never changed, in any draw"
            return Convergence(False, text, judged=False)
    entries = _worst_entries(values, np.nonzero(~every)[0])
    judged = np.concatenate((log_prob[..., None], values[..., entries]), -1, dtype=np.float64)
    found = mixing(judged)
    first = int(log_prob.min() == log_prob.max())  # 1 leaves a flat log-probability out
    r_hat = np.nan_to_num(found["r_hat"][first:], nan=np.inf, posinf=np.inf)
    ess = np.nan_to_num(found["ess"][first:])

    def name(place: np.intp) -> str:
        if place + first == 0:
            return "the log-probability"
        entry = entries[place + first - 1]
        if names is not None:
            return names[entry]
        return entry_name(np.unravel_index(entry, draws.shape[2:]), site_names, labels)

    worst, fewest, most = r_hat.argmax(), ess.argmin(), ess.argmax()
    limit = largest_r_hat(chains)
    measured = f"R-hat {r_hat[worst]:.4g} at {name(worst)}"
    size = f"ESS {min(ess[fewest], log_prob.size):.0f} at {name(fewest)}"
    converged = False
    if frozen.any():
        parts = [f"does not mix: {frozen.sum()} of {chains} chains never moved", measured]
    elif r_hat[worst] - 1 > FAR * (limit - 1):
        parts = [f"does not mix: {measured}"]
    elif r_hat[worst] > limit:
        parts = [f"not converged: {measured}, above {limit:.4g} for {chains} chains"]
    elif min(ess[fewest], log_prob.size) < MIN_ESS:
        parts = [f"not converged: {size}, below {MIN_ESS}"]
    elif ess[most] > ANTITHETIC * log_prob.size:
        parts = [
            f"not converged: antithetic, ESS {ess[most]:.0f} of {log_prob.size} draws at "
            f"{name(most)}: draws alternate, so the means of sites may be right where other means "
            "are not; take another sampler"
        ]
    else:
        converged = True
        parts = [f"converged: {measured}", size]

    if of is None:
        sites = draws.shape[2]
        same = constant.reshape(sites, -1).all(1)
        stays = still[~frozen].reshape(chains - frozen.sum(), sites, -1).all(2).any(0) & ~same
        if stays.any():
            parts.append(f"{stays.sum()} of {sites} sites never changed in a chain")
        if same.any():
            parts.append(f"{same.sum()} of {sites} sites constant")
    advice = f"; {ADVICE}" if frozen.any() else ""
    return Convergence(converged, ", ".join(parts) + advice)


def _find_constants(values: NDArray) -> tuple[NDArray, NDArray]:
    """Whether `values` `[chains, draws, n]` never change: in a chain; in all draws, `[n]`."""
    still = np.empty((len(values), values.shape[2]), dtype=bool)
    constant = np.empty(values.shape[2], dtype=bool)
    for part in _parts(values):
        some = values[..., part]
        still[:, part] = (some == some[:, :1]).all(1)
        constant[part] = still[:, part].all(0) & (some[:, 0] == some[:1, 0]).all(0)
    return still, constant


def _worst_entries(values: NDArray, entries: NDArray) -> NDArray:
    """The `entries` of `values` `[chains, draws, n]` that are judged.

    They are all, or of many those with the largest R-hat without ranks.
    """
    most = max(FEW, NUMBERS // (values.shape[0] * values.shape[1]))
    if len(entries) <= most:
        return entries
    r_hat = np.empty(values.shape[2])
    for part in _parts(values):
        r_hat[part] = split_r_hat(values[..., part].astype(np.float64))
    return np.sort(entries[np.argsort(-r_hat[entries])[:most]])
