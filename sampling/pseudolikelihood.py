"""Laws of sites given all others at states, and the pseudolikelihood, which needs no normaliser.

J. Besag, "Statistical Analysis of Non-lattice Data", The Statistician 1975.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.models.domains import Binary, Categorical, Mixed, Ordinal


def require_listed_sites(model: EnergyModel, purpose: str) -> None:
    """Raise ValueError unless sites have equally many values and change one by one."""
    domain = model.domain
    if isinstance(domain, Mixed) or not isinstance(domain, Binary | Categorical | Ordinal):
        raise ValueError(
            f"{purpose} needs sites of equally many values that change one by one (Binary, "
            f"Categorical, Ordinal), got {domain}"
        )


@torch.no_grad()
def conditional_terms(
    x: Tensor, model: EnergyModel, sites: Iterable[int] | None = None
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of each site's values given the rest of the states `x` `[n, ...]`.

    They are those at the site's value, `[n, sites]`, and at each of its values,
    `[n, sites, values]`, less the largest. All sites are taken unless `sites` are given.
    """
    cache, rows, at_value = model.cache(x), [], []
    values = model.domain.values().to(x)
    for site in range(model.domain.dim) if sites is None else sites:
        place = torch.tensor([site], device=x.device)
        log_probs = model.site_log_probs(x, cache, place).double()
        log_probs = log_probs - log_probs.max(1, keepdim=True).values
        same = x[:, site].unsqueeze(1) == values
        same = same.all(2) if same.ndim > 2 else same
        rows.append(log_probs)
        at_value.append(log_probs[same])
    return torch.stack(at_value, 1), torch.stack(rows, 1)


def mean_pseudolikelihood(x: Tensor, model: EnergyModel, sites: Tensor) -> float:
    """The mean over states `[n, ...]` of the sum over all sites of log p(x_i given the rest).

    The sum is estimated by that over `sites`.
    """
    at_value, log_probs = conditional_terms(x, model, sites.tolist())
    log_laws = at_value - log_probs.logsumexp(2)
    return float(log_laws.sum(1).mean()) * model.domain.dim / len(sites)
