"""`quadratic` of a model: samplers leave out evaluations because of it, so it must be true."""

import pytest
import torch
from targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_a_model_is_quadratic_if_the_trapezoid_rule_is_exact(name):
    """If log pi is quadratic, log pi(y) - log pi(x) = (grad(x) + grad(y))'(y - x) / 2."""
    target = TARGETS[name]
    x = target.states
    _, grad = target.model.log_prob_and_grad(x)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    mean = (grad + grad[order]) / 2
    found = (mean * (x[order] - x)).flatten(1).sum(-1).double()
    log_prob = torch.from_numpy(target.log_prob)
    exact = torch.allclose(found, log_prob[order] - log_prob, atol=1e-4)
    assert exact == target.model.quadratic
