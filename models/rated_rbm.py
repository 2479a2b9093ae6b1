"""An RBM together with the rates of its training data, for the samplers of `samplers.rates`.

O. Breuleux, Y. Bengio and P. Vincent, "Quickly Generating Representative Samples from an
RBM-Derived Process", Neural Computation 2011, Section 4. The rates are the mean sufficient
statistics of the training data. Hidden units are replaced by their expectation:

    R = mean over the data of (x E[h|x]', x, E[h|x])

The rates depend on a model and a data set, not on a sampler. The model holds them as buffers, so
they are hashed, stored and moved to a device together with its weights.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from latticework.models.abilities import CarriesRates
from latticework.models.rbm import RBM


class RatedRBM(RBM, CarriesRates):
    """`RBM` with `weight_rates` `[visible, hidden]`, `visible_rates` and `hidden_rates`.

    They are NaN until `set_rates` has seen the training data.
    """

    weight_rates: Tensor
    visible_rates: Tensor
    hidden_rates: Tensor

    def __init__(self, visible: int = 784, hidden: int = 500) -> None:
        super().__init__(visible, hidden)
        self.register_buffer("weight_rates", torch.full((visible, hidden), torch.nan))
        self.register_buffer("visible_rates", torch.full((visible,), torch.nan))
        self.register_buffer("hidden_rates", torch.full((hidden,), torch.nan))

    @property
    def has_rates(self) -> bool:
        return not bool(self.hidden_rates.isnan().any())

    @torch.no_grad()
    def set_rates(self, batches: Iterable[Tensor]) -> None:
        """Set the rates from the rows of all `batches` `[n, visible]`, summed in float64.

        Raises ValueError without rows.
        """
        weight, visible, hidden = (
            torch.zeros_like(rates, dtype=torch.float64)
            for rates in (self.weight_rates, self.visible_rates, self.hidden_rates)
        )
        count = 0
        for x in batches:
            h = self.hidden_inputs(x).sigmoid()
            weight += x.T @ h
            visible += x.sum(0, dtype=torch.float64)
            hidden += h.sum(0, dtype=torch.float64)
            count += len(x)
        if count == 0:
            raise ValueError("rates need at least one row of training data, got none")
        self.weight_rates.copy_(weight / count)
        self.visible_rates.copy_(visible / count)
        self.hidden_rates.copy_(hidden / count)
