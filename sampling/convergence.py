"""A one-line verdict on whether chains have mixed, from all quantities."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latticework.sampling.diagnostics import FEWEST, mixing, split_r_hat
from latticework.sampling.tuning.ranking import MIXED

CONVERGED = 1.01  # the largest R-hat (Vehtari et al. 2021)
ENOUGH = 400  # effective samples of each quantity, the same source
FEW, NUMBERS = 32, 2**20  # entries whose ranks are read, at least; and numbers, at most


class Convergence(NamedTuple):
    converged: bool  # R-hat and ESS of all quantities are good; constant ones have neither
    text: str
    judged: bool = True  # False if there are too few draws, or one chain


def verdict(log_prob: NDArray, draws: NDArray) -> Convergence:
    """Whether `draws` `[chains, draws, *shape]` and their `log_prob` `[chains, draws]` have mixed.

    Chains have mixed if, for the log-probability and each entry, the rank-normalised R-hat is at
    most `CONVERGED` and the bulk ESS at least `ENOUGH`. R-hat is infinite if an entry is constant
    within every chain and differs between chains. Entries with one value in all draws of all
    chains are left out. Of many entries, those with the largest R-hat without ranks are judged.
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
    names += [f"x{[int(i) for i in np.unravel_index(one, draws.shape[2:])]}" for one in entries]
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
