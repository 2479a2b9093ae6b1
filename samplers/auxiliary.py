"""The common part of AVG, PAVG, EDLP and DHAMS: moves of all sites, driven by a Gaussian variable.

Each of them extends the state x by standard normal noise n in the space of x. Given the noise, all
sites move independently, site i to v with probability proportional to

    exp(drive_i'(v - x_i) - price |v - x_i|^2)

where the drive is the gradient plus a linear function of the noise. At the proposal y, the noise of
the reverse move is n - shift. The samplers differ in drive, price and shift.
"""

import torch
from torch import Tensor

from latticework.models.domains import Domain
from latticework.samplers.scale import Number, by_chain


def logits(x: Tensor, drive: Tensor, price: Number, domain: Domain) -> Tensor:
    """Logits of every move of each site, `[chains, *moves]`; `price` may be that of each chain."""
    gains = domain.gains(x, drive)
    return gains.sub_(domain.distances(x) * by_chain(price, gains))


def log_noise_ratio(noise: Tensor, shift: Tensor) -> Tensor:
    """Log N(noise - shift; 0, I) - log N(noise; 0, I), `[chains]`."""
    return torch.linalg.vecdot(shift.flatten(1), (noise - shift / 2).flatten(1))


def log_proposal_ratio(x: Tensor, y: Tensor, there: Tensor, back: Tensor, domain: Domain) -> Tensor:
    """Log q(x given y) - log q(y given x), `[chains]`; `there` are the logits at x, `back` at y."""
    normalisers = domain.log_normaliser(there) - domain.log_normaliser(back)
    return domain.log_weight_ratio(x, y, there, back) + normalisers
