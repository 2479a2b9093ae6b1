"""Statistics of a short run on a reference target: what rules of a verdict read, and true errors.

The quantities are the log-probability, the entries of some sites (`MAX_ENTRIES`), products of pairs
of sites, and the other moments of the target's card.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.abilities import KnownTarget
from latticework.sampling import diagnostics, pair_products
from latticework.sampling.conditional_means import conditional_means, why_no_conditional_means

MAX_ENTRIES = 32  # entries of sites that are read, about; the sites are evenly spaced
ENERGY, SITES, PAIRS, MOMENTS = range(4)  # kinds of quantities
KINDS = {"energy": ENERGY, "sites": SITES, "pairs": PAIRS, "moments": MOMENTS}
SMALLEST_SD = 1e-6  # sd of a quantity that is not constant under the target
COVERING = 1.96  # MCSEs of a 95 % interval


class Truth(NamedTuple):
    """True means of the quantities, `[quantities]` each."""

    mean: NDArray[np.float64]
    error: NDArray[np.float64]  # standard error of that mean; 0 where it is exact
    sd: NDArray[np.float64]  # sd of the quantity under the target
    kind: NDArray[np.int64]


class Quantities:
    """The quantities of a reference target, and their true means.

    Pairs have theirs from the target's independent draws, with a standard error, as have the sds of
    moments. Raises ValueError for a target without draws.
    """

    def __init__(self, reference: KnownTarget) -> None:
        if not len(reference.draws):
            raise ValueError(f"{reference.name} has no independent draws; take another target")
        sites, *values = reference.model.domain.shape
        few = min(sites, MAX_ENTRIES // math.prod(values))
        self._sites = np.unique(np.linspace(0, sites - 1, few).round())
        self._pairs = pair_products.select_pairs(sites)
        self._moments = reference.moment_functions()
        draws = reference.draws.unsqueeze(0)  # one chain
        by_kind = self.read(draws, reference.log_prob.numpy()[None])
        self.truth = self._know(reference, [block[0] for block in by_kind])
        model = reference.model
        self._conditional = model.closed_differences and not why_no_conditional_means(model)
        self._model = model

    def read(self, draws: Tensor, log_prob: NDArray) -> list[NDArray[np.float64]]:
        """The quantities of `draws` `[chains, draws, *shape]` by kind, `[chains, draws, n]`."""
        x = draws.numpy()
        chains, length = x.shape[:2]
        entries = x[:, :, self._sites.astype(np.int64)].reshape(chains, length, -1)
        products = pair_products.multiply_pairs(x, self._pairs)
        states, moments = draws.flatten(0, 1), np.empty((chains, length, len(self._moments)))
        for place, moment in enumerate(self._moments.values()):
            moments[..., place] = moment(states).view(chains, length).numpy()
        energy = diagnostics.round_noise(log_prob)[..., None]
        return [energy, entries.astype(np.float64), products.astype(np.float64), moments]

    def _know(self, reference: KnownTarget, draws: list[NDArray[np.float64]]) -> Truth:
        """The truth, from the card and from the quantities of independent draws, `[draws, n]`."""
        known = reference.moments
        mean = [block.mean(0) for block in draws]
        sd = [block.std(0) for block in draws]
        error = [np.zeros(len(values)) for values in mean]
        mean[ENERGY][0] = known["energy"].value
        error[ENERGY][0] = np.nan_to_num(known["energy"].error)
        sd[ENERGY][0] = np.sqrt(float(known["energy variance"].value))
        places = self._sites.astype(np.int64)
        mean[SITES] = reference.mean[torch.from_numpy(places)].flatten().numpy().copy()
        if np.isin(draws[SITES], (0, 1)).all():  # exact, also of values that no draw has
            sd[SITES] = np.sqrt(mean[SITES] * (1 - mean[SITES]))
        error[PAIRS] = sd[PAIRS] / np.sqrt(len(draws[PAIRS]))
        for place, name in enumerate(self._moments):
            mean[MOMENTS][place] = known[name].value
        kind = np.repeat(np.arange(len(draws)), [len(values) for values in mean])
        return Truth(np.concatenate(mean), np.concatenate(error), np.concatenate(sd), kind)

    def measure(self, draws: Tensor, log_prob: NDArray) -> dict[str, Any]:
        """The statistics of a run, by the names of its columns."""
        values = np.concatenate(self.read(draws, log_prob), -1)
        live = self.truth.sd > SMALLEST_SD
        mean, error, sd, kind = self.truth
        truth = Truth(mean[live], error[live], sd[live], kind[live])
        sums = values[..., self.truth.kind == SITES].sum(-1)
        return {
            **describe_run(values, self.truth.kind, draws.numpy(), log_prob),
            **_measure_errors(values[..., live], truth),
            "least_sum": sums.min(),
            "largest_sum": sums.max(),
            **(self._measure_conditionals(draws, values) if self._conditional else {}),
        }

    def _measure_conditionals(self, draws: Tensor, values: NDArray[np.float64]) -> dict[str, Any]:
        """How many intervals of means given the rest hold, and the median ratio of variances."""
        means = conditional_means(self._model, draws)
        chosen = means[:, :, torch.from_numpy(self._sites.astype(np.int64))].flatten(2).numpy()
        of_sites = self.truth.kind == SITES
        mcse = diagnostics.quantities(values[..., of_sites], ["mcse_mean"])["mcse_mean"]
        sharper = diagnostics.quantities(chosen, ["mcse_mean"])
        live = self.truth.sd[of_sites] > SMALLEST_SD
        known = live & (sharper["mcse_mean"] > 0)
        error = np.abs(sharper["mean"] - self.truth.mean[of_sites])
        both = known & (mcse > 0)
        ratio = (mcse[both] / sharper["mcse_mean"][both]) ** 2
        return {
            "intervals_rb": known.sum(),
            "covering_rb": (known & (error <= COVERING * sharper["mcse_mean"])).sum(),
            "ratio_rb": np.median(ratio) if len(ratio) else np.nan,
        }


def describe_run(
    values: NDArray[np.float64], kind: NDArray[np.int64], draws: NDArray, log_prob: NDArray
) -> dict[str, Any]:
    """The statistics that rules read, without the truth, by the names of the columns.

    Columns `judged_...` leave out values that are too rare to be judged (`diagnostics.find_rare`).
    `values` are the quantities `[chains, draws, n]` of `kind` `[n]`, `draws` the states.
    """
    chains, length = log_prob.shape
    flat = draws.reshape(chains, length, -1)
    still = (flat == flat[:, :1]).all(1)
    frozen = still.all(1) & (log_prob == log_prob[:, :1]).all(1)
    of_sites = still.reshape(chains, draws.shape[2], -1).all(2)[~frozen]
    rare = diagnostics.count_rare_entries(values[..., kind == SITES])
    judged = ~diagnostics.find_rare(values) | (kind == ENERGY)
    mixing = _measure_mixing(values[..., judged], kind[judged])
    return {
        "chains": chains,
        "draws": length,
        **_measure_mixing(values, kind),
        **{f"judged_{name}": number for name, number in mixing.items()},
        "rare": (~judged).sum(),
        "frozen": frozen.sum(),
        "still_sites": of_sites.any(0).sum(),
        "entries": np.fmin.reduce(rare, initial=np.inf),
    }


def _measure_mixing(values: NDArray[np.float64], kind: NDArray[np.int64]) -> dict[str, Any]:
    """The worst R-hat, ESS and drift of the log-probability, the sites and the pairs.

    NaN of a kind that is constant in all draws. Entries that are constant within every chain, but
    not between them, have an infinite R-hat and an ESS of 0.
    """
    measures = diagnostics.mixing(values)
    constant = (values == values[:1, :1]).all((0, 1))
    r_hat = np.nan_to_num(measures["r_hat"], nan=np.inf, posinf=np.inf)
    ess, drift = np.nan_to_num(measures["ess"]), diagnostics.drift_p_values(values)
    columns: dict[str, Any] = {}
    for name in ("energy", "sites", "pairs"):
        chosen = (kind == KINDS[name]) & ~constant
        columns |= {
            f"r_hat_{name}": r_hat[chosen].max(initial=-np.inf),
            f"ess_{name}": ess[chosen].min(initial=np.inf),
            f"most_ess_{name}": ess[chosen].max(initial=-np.inf),
            f"drift_{name}": drift[chosen].min(initial=1) * max(1, chosen.sum()),
        }
    return columns


def _measure_errors(values: NDArray[np.float64], truth: Truth) -> dict[str, Any]:
    """The largest errors of each kind in standard errors and in sds, and how many intervals hold.

    The standard error has that of the truth in it. Where it is not known, because a quantity never
    changed, only the error in sds counts, from which two standard errors of the truth are taken.
    """
    error = np.abs(values.mean((0, 1)) - truth.mean)
    mcse = diagnostics.quantities(values, ["mcse_mean"])["mcse_mean"]
    rare = diagnostics.find_rare(values) & (truth.kind != ENERGY)
    spread = np.sqrt(mcse**2 + truth.error**2)
    known = np.isfinite(spread) & (spread > 0)
    z = np.divide(error, spread, where=known, out=np.zeros(len(error)))
    share = np.maximum(error - 2 * truth.error, 0) / truth.sd
    columns: dict[str, Any] = {"quantities": len(error)}
    for name, kind in KINDS.items():
        chosen = truth.kind == kind
        columns |= {
            f"z_{name}": z[chosen].max(initial=0),
            f"judged_z_{name}": z[chosen & ~rare].max(initial=0),
            f"share_{name}": share[chosen].max(initial=0),
            f"intervals_{name}": (chosen & known).sum(),
            f"covering_{name}": (chosen & known & (z <= COVERING)).sum(),
        }
    return columns
