"""Samplers of an extended space: the joint law of the state and what it is extended by.

The table of enumerated matrices holds the law of x alone. Here chains start from exact draws of the
joint law, and the joint counts are compared with it after some steps.
"""

import pytest
from torch import Generator

from latticework.models.base import Function
from latticework.models.domain import Binary
from latticework.samplers.avg import AVG


@pytest.mark.parametrize("sampler", [AVG(1.0)], ids=str)
def test_a_gradient_whose_rows_share_memory_is_copied(sampler):
    """PyTorch expands the gradient of a sum; rows of large states are selected in place."""
    model, rng = Function(lambda x: x.sum(-1), Binary(200)), Generator().manual_seed(0)
    x = model.domain.uniform(100, rng)
    state = sampler.init(x, model)
    for _ in range(2):
        state, info = sampler.step(state, model, rng)
    assert (info.accept_prob > 0.9).all()
    assert (state.grad == 1).all()
