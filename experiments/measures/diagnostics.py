"""Convergence diagnostics by ArviZ: effective sample size and R-hat, coordinate by coordinate.

A. Vehtari et al., "Rank-Normalization, Folding, and Localization: An Improved R-hat", 2021. Pure
functions of NumPy arrays; no torch.
"""

import logging
import warnings

import numpy as np
from numpy.typing import NDArray

FEWEST = 4  # draws that the diagnostics need


def convergence(trace: NDArray) -> dict[str, NDArray]:
    """ESS (of the mean) and R-hat of each coordinate of `trace` `[draws, chains, *shape]`.

    Both are NaN for a coordinate that is constant within every chain, because its mixing cannot be
    judged. `constant` counts such coordinates. `mean` is the average over draws, chains and
    coordinates, and `mean_error` its Monte Carlo standard error over chains and draws; NaN if the
    average over coordinates never changes.
    """
    logging.getLogger("arviz").setLevel(logging.WARNING)  # which of its parts are there
    import arviz  # takes seconds to import, and most runs need none of it

    draws = trace.reshape(*trace.shape[:2], -1).transpose(1, 0, 2).astype(np.float64)
    constant = (draws == draws[:, :1]).all(axis=(0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # constant coordinates divide by zero
        warnings.filterwarnings("ignore", "More chains")  # [chains, draws] it is all the same
        data = arviz.convert_to_dataset({"x": draws})
        ess = arviz.ess(data, method="mean")["x"].to_numpy()
        r_hat = arviz.rhat(data, method="split")["x"].to_numpy()
        overall = draws.mean(-1)  # [chains, draws]
        error = np.nan
        if np.ptp(overall) > 0:
            error = float(arviz.mcse(arviz.convert_to_dataset({"x": overall}))["x"])
    ess, r_hat = (np.where(constant, np.nan, values) for values in (ess, r_hat))
    return {
        "ess": ess,
        "r_hat": r_hat,
        "constant": np.asarray(constant.sum()),
        "mean": np.asarray(overall.mean()),
        "mean_error": np.asarray(error),
    }
