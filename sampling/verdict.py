"""The verdict on draws: whether chains have converged, or cannot tell."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.sampling import pair_products
from latticework.sampling.diagnostics import (
    MIN_ESS,
    MIN_RARE_ENTRIES,
    drift_p_values,
    find_rare,
    in_parts,
    largest_r_hat,
    mixing,
    round_noise,
    split_r_hat,
)

# Times the excess of R-hat over 1 that is allowed: more steps alone do not help.
R_HAT_EXCESS_RATIO = 5
MAX_ESS_RATIO = 2  # effective samples for a draw, above which draws alternate
ADVICE = (
    "try a sampler that changes several sites at once, such as gibbs(sites=2, scan=random) or "
    "hamming_ball, or other starts (x=)"
)


MIN_RANKED_ENTRIES = 32  # entries whose ranks are read, where there are many
MAX_RANKED_NUMBERS = 2**20  # in all entries whose ranks are read, unless they are that few
# Draws of a chain that is judged: the ESS of fewer does not depend on the draws.
MIN_CHAIN_DRAWS = 20
# Chains from which a test over them sees a drift, and its p-value times the number of quantities.
MIN_TESTED_CHAINS, MIN_DRIFT_P = 32, 0.01


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

    The log-probability, each entry and products of pairs of sites (`pair_products`) need an R-hat
    of at most `largest_r_hat` and a bulk ESS of at least `MIN_ESS`; an ESS above `MAX_ESS_RATIO`
    times the draws is refused, because it does not show what draws that alternate hide. Every chain
    must have moved, and many chains must not drift: no mean may differ between the first and the
    second half of the draws. Quantities that are the same in all draws are left out, and so are
    those with a value that is too rare to be judged, which the text names (`find_rare`). Among
    many entries, those with the largest R-hat without ranks are judged. docs/calibration.md says
    how often this is wrong. No rule sees a mode that no chain visits.

    `of`, numbers `[chains, draws, n]` and their n names, takes the place of the entries and pairs.
    Entries are named by `site_names` and the `labels` of each site's values (`entry_name`).

    A `caveat` says why no draws can tell: nothing has converged with one.
    """
    judgement = _judge_draws(log_prob, draws, site_names, of, labels)
    if not caveat:
        return judgement
    if judgement.converged:
        text = judgement.text.replace("converged: ", "not judged: ", 1)
        return Convergence(False, f"{text}, but {caveat}", judged=False)
    return judgement._replace(text=f"{judgement.text}; {caveat}")


def _judge_draws(
    log_prob: NDArray,
    draws: NDArray,
    site_names: Sequence[str] | None,
    of: tuple[NDArray, Sequence[str]] | None,
    labels: Sequence[Sequence[str]] | None,
) -> Convergence:
    """`verdict` without a caveat."""
    log_prob = round_noise(log_prob)
    if why := _why_not_judged(log_prob):
        return Convergence(False, f"not judged: {why}", judged=False)
    chains, length = log_prob.shape
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

    def name_entry(entry: Any) -> str:
        if names is not None:
            return names[entry]
        return entry_name(np.unravel_index(entry, draws.shape[2:]), site_names, labels)

    rare = _find_rare_in_parts(values)
    entries = _worst_entries(values, np.nonzero(~every & ~rare)[0])
    judged, quantity_names = [log_prob[..., None], values[..., entries]], ["the log-probability"]
    quantity_names += map(name_entry, entries)
    if of is None:
        pairs = pair_products.select_pairs(draws.shape[2])
        judged.append(pair_products.multiply_pairs(draws, pairs))
        quantity_names += _name_pairs(pairs, draws.ndim > 3, site_names)
    extremes = _find_extremes(judged, quantity_names)
    if extremes is None:
        text = f"not judged: every entry has a value entered fewer than {MIN_RARE_ENTRIES} times"
        return Convergence(False, text, judged=False)
    converged, parts = _judge_extremes(extremes, frozen)
    if of is None:
        parts += _describe_still_sites(still[~frozen], constant, draws.shape[2])
    parts += _describe_rare([name_entry(entry) for entry in np.nonzero(rare)[0][:1]], rare.sum())
    advice = f"; {ADVICE}" if frozen.any() else ""
    return Convergence(converged, ", ".join(parts) + advice)


def _why_not_judged(log_prob: NDArray) -> str:
    """Why draws `[chains, draws]` cannot tell; "" if they can."""
    chains, length = log_prob.shape
    if log_prob.size < MIN_ESS:
        return f"{log_prob.size} draws, at least {MIN_ESS} are needed"
    if length < MIN_CHAIN_DRAWS:
        return f"{length} draws a chain, at least {MIN_CHAIN_DRAWS} are needed"
    if chains == 1:
        return "a single chain cannot show what it has missed; take chains=4"
    return ""


class Extremes(NamedTuple):
    """The worst numbers of the judged quantities, each with the quantity's name."""

    draws: int  # draws of all chains
    r_hat: tuple[float, str]
    least_ess: tuple[float, str]
    most_ess: tuple[float, str]
    drift: tuple[float, str]  # p-value of equal halves, times the number of quantities


def _name_pairs(
    pairs: NDArray[np.int64], one_hot: bool, site_names: Sequence[str] | None
) -> list[str]:
    """The names of products of pairs: `x[0] x[3]`, or `[x[0] = x[3]]` of one-hot sites."""
    texts = []
    for first, second in pairs:
        sites = entry_name((first,), site_names), entry_name((second,), site_names)
        texts.append("[{} = {}]".format(*sites) if one_hot else "{} {}".format(*sites))
    return texts


def _find_extremes(blocks: Sequence[NDArray], names: Sequence[str]) -> Extremes | None:
    """The extremes over the quantities that vary and have no value too rare to be judged.

    `blocks` of quantities are `[chains, draws, n]`, the first of which is never too rare; p-values
    are times the number in the block. None if no quantity is left.
    """
    values = np.concatenate(blocks, -1, dtype=np.float64)
    rare = find_rare(values)
    rare[: blocks[0].shape[-1]] = False
    varying = np.flatnonzero(~_find_constants(values)[1] & ~rare)
    if not len(varying):
        return None
    values = values[..., varying]
    measures = mixing(values)
    r_hat = np.nan_to_num(measures["r_hat"], nan=np.inf, posinf=np.inf)
    ess, drift = np.nan_to_num(measures["ess"]), np.ones(len(varying))
    if len(values) >= MIN_TESTED_CHAINS:
        block_of = np.repeat(np.arange(len(blocks)), [block.shape[-1] for block in blocks])
        sizes = np.bincount(block_of[varying], minlength=len(blocks))
        drift = drift_p_values(values) * sizes[block_of[varying]]

    def pair(numbers: NDArray, place: np.intp) -> tuple[float, str]:
        return numbers[place], names[varying[place]]

    return Extremes(
        values[..., 0].size,
        pair(r_hat, r_hat.argmax()),
        pair(ess, ess.argmin()),
        pair(ess, ess.argmax()),
        pair(drift, drift.argmin()),
    )


def _judge_extremes(extremes: Extremes, frozen: NDArray) -> tuple[bool, list[str]]:
    """Whether chains have converged, and the parts of the text; `frozen` `[chains]` never moved."""
    draws, (r_hat, worst), (least, fewest), (most, alternating), (p, drifting) = extremes
    chains, least = len(frozen), min(least, draws)
    limit = largest_r_hat(chains)
    measured, size = f"R-hat {r_hat:.4g} at {worst}", f"ESS {least:.0f} at {fewest}"
    if frozen.any():
        return False, [f"does not mix: {frozen.sum()} of {chains} chains never moved", measured]
    if r_hat - 1 > R_HAT_EXCESS_RATIO * (limit - 1):
        return False, [f"does not mix: {measured}"]
    if r_hat > limit:
        return False, [f"not converged: {measured}, above {limit:.4g} for {chains} chains"]
    if least < MIN_ESS:
        return False, [f"not converged: {size}, below {MIN_ESS}"]
    if p < MIN_DRIFT_P:
        text = f"not converged: the mean of {drifting} drifts from the first to the second half"
        return False, [f"{text} of the draws (p = {p:.1g}); take a longer burn_in"]
    if most > MAX_ESS_RATIO * draws:
        text = (
            f"not converged: antithetic, ESS {most:.0f} of {draws} draws at {alternating}: draws "
            "alternate, so the means of sites may be right where other means are not; take "
            "another sampler"
        )
        return False, [text]
    return True, [f"converged: {measured}", size]


def _describe_still_sites(still: NDArray, constant: NDArray, sites: int) -> list[str]:
    """Notes on sites that never change; `still` `[chains, entries]` is of chains that moved."""
    notes = []
    same = constant.reshape(sites, -1).all(1)
    stays = still.reshape(len(still), sites, -1).all(2).any(0) & ~same
    if stays.any():
        notes.append(f"{stays.sum()} of {sites} sites never changed in a chain")
    if same.any():
        notes.append(f"{same.sum()} of {sites} sites constant")
    return notes


def _describe_rare(first: Sequence[str], count: int) -> list[str]:
    """A note on `count` quantities that are not judged, the first of which is named."""
    if not count:
        return []
    names = f"{first[0]} has" if count == 1 else f"{first[0]} and {count - 1} more have"
    return [f"{names} a value entered fewer than {MIN_RARE_ENTRIES} times, too rare to be judged"]


def _find_rare_in_parts(values: NDArray) -> NDArray[np.bool_]:
    """Whether quantities `[chains, draws, n]` have a value that is too rare to be judged, `[n]`."""
    return np.concatenate([find_rare(values[..., part]) for part in in_parts(values)])


def _find_constants(values: NDArray) -> tuple[NDArray, NDArray]:
    """Whether `values` `[chains, draws, n]` never change: in a chain; in all draws, `[n]`."""
    still = np.empty((len(values), values.shape[2]), dtype=bool)
    constant = np.empty(values.shape[2], dtype=bool)
    for part in in_parts(values):
        block = values[..., part]
        still[:, part] = (block == block[:, :1]).all(1)
        constant[part] = still[:, part].all(0) & (block[:, 0] == block[:1, 0]).all(0)
    return still, constant


def _worst_entries(values: NDArray, entries: NDArray) -> NDArray:
    """The `entries` of `values` `[chains, draws, n]` that are judged.

    They are all, or of many those with the largest R-hat without ranks.
    """
    most = max(MIN_RANKED_ENTRIES, MAX_RANKED_NUMBERS // (values.shape[0] * values.shape[1]))
    if len(entries) <= most:
        return entries
    r_hat = np.empty(values.shape[2])
    for part in in_parts(values):
        r_hat[part] = split_r_hat(values[..., part].astype(np.float64))
    return np.sort(entries[np.argsort(-r_hat[entries])[:most]])
