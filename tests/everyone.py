"""Every sampler with a small model that it supports: the table's and the rates samplers."""

import torch
from exactness import TABLE
from targets import TARGETS

import latticework as lw


def rated(visible: int = 5, hidden: int = 3) -> lw.RatedRBM:
    """An RBM with rates, with weights that are large enough to have an effect."""
    rng = torch.Generator().manual_seed(3)
    model = lw.RatedRBM(visible, hidden)
    for parameter in model.parameters():
        parameter.normal_(generator=rng)
    model.set_rates([torch.rand(20, visible, generator=rng).round()])
    return model


PAIRS: list[tuple[lw.Sampler, lw.EnergyModel, str]] = [
    (row.sampler, TARGETS[name].model, name)
    for row in TABLE
    for name in dict.fromkeys((row.targets[0], row.targets[-1]))
]
PAIRS += [
    (lw.RatesFPCD(0.05), rated(), "rated_rbm"),
    (lw.RatesHerding(0.05), rated(), "rated_rbm"),
    (lw.SamplePenalization(0.05), rated(), "rated_rbm"),
]
# One model for each class of samplers.
FEW = list({type(pair[0]): pair for pair in reversed(PAIRS)}.values())[::-1]
