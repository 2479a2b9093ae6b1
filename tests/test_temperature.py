"""The temperature of draws by their pseudolikelihood."""

import numpy as np
import pytest
import torch

import latticework as lw
from latticework.sampling.exact import distribution

MODELS = {
    "graph": lw.Graph([[i, (i + 1) % 7] for i in range(7)], 0.4, bias=0.2),
    "spins": lw.Function(lambda x: 0.5 * x[:, 0] * x[:, 1] + 0.3 * x.sum(1), lw.Binary(5, -1, 1)),
    "potts": lw.GraphPotts([[0, 1], [1, 2], [2, 3]], 0.8, 3),
    "ordinal": lw.Function(lambda x: -0.4 * (x[:, 0] - x[:, 1]).square(), lw.Ordinal(2, 5)),
    "excluded": lw.Function(
        lambda x: torch.where(x[:, 0] * x[:, 1] == 1, -torch.inf, 0.7 * x.sum(1)), lw.Binary(4)
    ),
}


def drawn(model, beta, count, seed):
    """Exact draws of the target to the power beta."""
    states, law = distribution(model)
    weights = law.double().pow(beta)
    rng = torch.Generator().manual_seed(seed)
    return states[torch.multinomial(weights, count, replacement=True, generator=rng)]


@pytest.mark.parametrize("beta", [0.4, 1.6])
@pytest.mark.parametrize("name", MODELS)
def test_intervals_hold_the_temperature_of_exact_draws(name, beta):
    """Fewer than 23 of 30 intervals, 95 % each, hold it with probability 1e-4."""
    model, held, widths = MODELS[name], 0, []
    for seed in range(30):
        found = lw.temperature(drawn(model, beta, 300, seed), model)
        held += found.low <= beta <= found.high
        widths.append(found.high - found.low)
    assert held >= 23
    assert np.mean(widths) < 2 * beta


def test_chains_count_as_one_draw_each():
    """Draws that are repeated ten times tell no more than once."""
    model = MODELS["graph"]
    draws = drawn(model, 1.0, 200, 0)
    once = lw.temperature(draws, model)
    repeated = lw.temperature(draws.unsqueeze(1).expand(-1, 10, -1), model)
    np.testing.assert_allclose(repeated, once, rtol=1e-6)
    assert str(once).startswith(f"beta {once.beta:.3g} [")


def test_intervals_of_few_chains_hold_the_temperature():
    """Four chains: 1.96 standard errors would hold it in 344 of 400 cases, Student's t in 380."""
    model, held = MODELS["graph"], 0
    for seed in range(400):
        chains = drawn(model, 1.0, 200, seed).unflatten(0, (4, 50))
        interval = lw.temperature(chains, model)
        held += interval.low <= 1 <= interval.high
    assert held >= 364


@pytest.mark.parametrize(
    ("model", "draws", "match"),
    [
        (MODELS["graph"], torch.ones(50, 7), "no finite positive beta"),
        (lw.Function(lambda x: x[:, 0], lw.Subset(4, 2)), torch.eye(4)[:2], "change one by one"),
        (lw.Function(lambda x: -x.abs().sum(1), lw.Integer(2)), torch.zeros(5, 2), "one by one"),
        (MODELS["graph"], torch.full((5, 7), 0.5), "0 or 1"),
        (MODELS["graph"], drawn(MODELS["graph"], 1.0, 50, 0).unsqueeze(0), "one chain"),
    ],
)
def test_what_has_no_temperature_is_refused(model, draws, match):
    with pytest.raises(ValueError, match=match):
        lw.temperature(draws, model)
