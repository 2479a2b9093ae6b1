"""Convergence diagnostics by ArviZ: effective sample size and R-hat, coordinate by coordinate.

A. Vehtari et al., "Rank-Normalization, Folding, and Localization: An Improved R-hat", 2021. Pure
functions of NumPy arrays; no torch.
"""

import logging
import warnings
from collections.abc import Callable
from typing import Any

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
    draws = trace.reshape(*trace.shape[:2], -1).transpose(1, 0, 2).astype(np.float64)
    constant, found = _measured(
        draws,
        ess=lambda arviz, data: arviz.ess(data, method="mean"),
        r_hat=lambda arviz, data: _r_hat(arviz, data, "split"),
    )
    overall = draws.mean(-1, keepdims=True)
    _, error = _measured(overall, mcse=lambda arviz, data: arviz.mcse(data))
    return {
        **found,
        "constant": np.asarray(constant.sum()),
        "mean": np.asarray(overall.mean()),
        "mean_error": np.asarray(error["mcse"][0]),
    }


def quantities(draws: NDArray) -> dict[str, NDArray]:
    """Mean, error and mixing of each quantity of `draws` `[chains, draws, quantities]`.

    `ess_bulk`, `ess_tail`, `r_hat` (rank-normalised, folded) and `mcse_mean` are ArviZ's; `sd` is
    the sample standard deviation of all draws, as in ArviZ's summary. `stuck` is true for a
    quantity that is constant within every chain; its diagnostics are NaN.
    """
    draws = draws.astype(np.float64)
    stuck, found = _measured(
        draws,
        mcse_mean=lambda arviz, data: arviz.mcse(data, method="mean"),
        ess_bulk=lambda arviz, data: arviz.ess(data, method="bulk"),
        ess_tail=lambda arviz, data: arviz.ess(data, method="tail"),
        r_hat=lambda arviz, data: _r_hat(arviz, data, "rank"),
    )
    single = draws.shape[:2] == (1, 1)  # one draw has no spread
    sd = np.full(stuck.shape, np.nan) if single else draws.std((0, 1), ddof=1)
    return {"mean": draws.mean((0, 1)), "sd": sd, **found, "stuck": stuck}


def mixing(draws: NDArray) -> dict[str, NDArray]:
    """`ess` and `r_hat` of each quantity of `draws` `[chains, draws, quantities]`.

    ArviZ's rank-normalised split bulk ESS and folded R-hat, as in `quantities`, at less cost. NaN
    for a quantity that is constant within every chain.
    """
    _, found = _measured(
        draws.astype(np.float64),
        ess=lambda arviz, data: arviz.ess(data, method="bulk"),
        r_hat=lambda arviz, data: _r_hat(arviz, data, "rank"),
    )
    return found


def _r_hat(arviz: Any, data: Any, method: str) -> Any:
    """ArviZ's R-hat, which compares chains; NaN for one chain."""
    if data.sizes["chain"] == 1:
        return data.isel(chain=0, draw=0) * np.nan
    return arviz.rhat(data, method=method)


def _measured(
    draws: NDArray, **measures: Callable[[Any, Any], Any]
) -> tuple[NDArray, dict[str, NDArray]]:
    """Which quantities are constant within every chain, and ArviZ's measures; NaN for those.

    The measures of fewer than `FEWEST` draws are all NaN.
    """
    constant = (draws == draws[:, :1]).all(axis=(0, 1))
    if draws.shape[1] < FEWEST:
        return constant, {name: np.full(constant.shape, np.nan) for name in measures}
    logging.getLogger("arviz").setLevel(logging.WARNING)  # which of its parts are there
    import arviz  # takes seconds to import, and most runs need none of it

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # constant coordinates divide by zero
        warnings.filterwarnings("ignore", "More chains")  # [chains, draws] it is all the same
        data = arviz.convert_to_dataset({"x": draws})
        found = {name: measure(arviz, data)["x"].to_numpy() for name, measure in measures.items()}
    return constant, {name: np.where(constant, np.nan, values) for name, values in found.items()}
