"""Errors of a run against the truth of a reference target."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from latticework.models.domains import Mixed

if TYPE_CHECKING:
    import pandas as pd


def compare(
    reference: Any, result: Any, functions: Mapping[str, Callable[[Tensor], Tensor]]
) -> "pd.DataFrame":
    """A row a quantity: truth, estimate, error, MCSE, and the error in MCSEs.

    `functions` are the moments of the card other than those of log pi. Raises ValueError for a
    result on another domain.
    """
    import pandas as pd

    domain = reference.model.domain
    if result.domain != domain:
        raise ValueError(f"{reference.name} has the domain {domain}, the result {result.domain}")
    summary = result.summary(digits=None)
    estimates = [summary]
    truths = [reference.moments["energy"].value]
    for value in functions:
        truths.append(reference.moments[value].value)
    truths += _entries(reference.mean, domain).tolist()
    if functions:
        moments = result.summary(digits=None, of=functions)
        estimates = [summary[:1], moments[1:], summary[1:]]
    rows = pd.concat(estimates)
    table = pd.DataFrame({"truth": truths, "estimate": rows["mean"]}, index=rows.index)
    table["error"] = table["estimate"] - table["truth"]
    table["mcse"] = rows["mcse_mean"]
    log_z = result.log_z
    if log_z is not None and reference.log_z is not None:
        error, half = log_z.value - reference.log_z, (log_z.high - log_z.low) / 2
        table.loc["log Z"] = [reference.log_z, log_z.value, error, half / 1.96]
    with np.errstate(divide="ignore", invalid="ignore"):
        table["error_in_mcse"] = table["error"] / table["mcse"]
    return table


def _entries(mean: Tensor, domain: Any) -> Tensor:
    """The entries of a state that have a row in `summary`: values that the sites have."""
    if isinstance(domain, Mixed):
        return mean[domain.allowed_values(torch.arange(domain.dim))]
    return mean.flatten()
