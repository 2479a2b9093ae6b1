"""A target that is only a function: which of twelve sensors to switch on."""

import torch

# [12, 40]: how well each sensor sees each place on a line; the sensors in the middle see farther.
SENSORS, PLACES = torch.linspace(0, 1, 12)[:, None], torch.linspace(0, 1, 40)
REACH = 0.04 + 0.1 * SENSORS * (1 - SENSORS)
SEEN = torch.exp(-(((SENSORS - PLACES) / REACH) ** 2))
PRICE = 2.0  # price of a sensor, in places


def log_prob(x):
    """Places that are seen minus the price of the sensors; `[chains, 12]` in {0, 1} -> [chains]."""
    unseen = (1 - x[..., None] * SEEN).prod(1)
    return (1 - unseen).sum(-1) - PRICE * x.sum(-1)
