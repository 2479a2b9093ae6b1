"""Every sampler with a small model that it supports: the table's and the rates samplers."""

import numpy as np
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


def ordinary(names: tuple[str, ...]) -> list[str]:
    """The first and the last of the targets that start anywhere and hold dense tensors."""
    targets = {name: TARGETS[name] for name in names}
    kept = [
        name
        for name, target in targets.items()
        if np.isfinite(target.log_prob).all()
        and not isinstance(target.model, lw.Graph | lw.GraphPotts)
    ]
    return list(dict.fromkeys((*kept[:1], *kept[-1:])))


PAIRS: list[tuple[lw.Sampler, lw.EnergyModel, str]] = []
seen: set[tuple[type, str]] = set()
for row in TABLE:
    for place, name in enumerate(ordinary(row.targets)):
        if place == 0 or (type(row.sampler), name) not in seen:  # by another row of its class
            PAIRS.append((row.sampler, TARGETS[name].model, name))
        seen.add((type(row.sampler), name))
PAIRS += [
    (lw.RatesFPCD(0.05), rated(), "rated_rbm"),
    (lw.RatesHerding(0.05), rated(), "rated_rbm"),
    (lw.SamplePenalization(0.05), rated(), "rated_rbm"),
]
# One model for each class of samplers.
FEW = list({type(pair[0]): pair for pair in reversed(PAIRS)}.values())[::-1]
