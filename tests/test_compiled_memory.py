"""What kernels remember of the state is computed from scratch again and again.

Each flip rounds it, and rounding errors would add up without a bound.
"""

import pytest
import torch
from targets import scattered
from torch import Generator

import latticework as lw
from latticework.samplers.compiled import rbm, sites
from latticework.samplers.compiled.registry import find_compiled_kernel

pytestmark = pytest.mark.slow  # many kernels are compiled

SITES = 12
BLOCKS = [lw.Gibbs(), lw.Gibbs(3, "random"), lw.HammingBall(5, 2)]
ONE_SITE = [lw.GWG(), lw.LocallyBalanced()]
DUE = 1024  # steps between renewals, on average: the power of two above 64 * 12


MODELS = {
    "pairs": (
        lw.erdos_renyi(SITES, 5, 0.37),
        [*BLOCKS, *ONE_SITE, lw.GWG(4), lw.PAFS(3), lw.RandomWalk(2)],
    ),
    "rbm": (scattered(lw.RBM(SITES, 7), std=0.5), [*BLOCKS, lw.RandomWalk(2)]),
    "potts": (lw.random_potts(SITES, 3, 1.0), [lw.Gibbs(), lw.Gibbs(2, "random"), *ONE_SITE]),
}
CASES = [
    pytest.param(model, sampler, id=f"{name}-{sampler}")
    for name, (model, samplers) in MODELS.items()
    for sampler in samplers
]


@pytest.mark.parametrize(("model", "sampler"), CASES)
def test_an_error_in_the_memory_does_not_stay(model, sampler):
    x = model.domain.uniform(5, Generator().manual_seed(2))
    twin, rng = find_compiled_kernel(sampler, model), Generator().manual_seed(1)
    state = twin.at(x, model)
    memory = getattr(state, "memory", getattr(state, "gradient", None))
    memory += 0.25
    assert not same(state, twin.at(state.x, model))
    state, _ = twin.advance(state, model, rng, 25 * DUE)
    assert same(state, twin.at(state.x, model))


@pytest.mark.parametrize(
    "sampler",
    [lw.DULA(0.2), lw.DMALA(0.2), lw.BlockGibbs(), lw.GWG(3), lw.LocallyBalanced()],
    ids=str,
)
def test_an_error_in_the_hidden_inputs_stays_until_they_are_due(sampler, monkeypatch):
    monkeypatch.setattr(rbm, "ROWS", 2.0)  # else products make them afresh
    model, rng = scattered(lw.RBM(SITES, 7), std=0.5), Generator().manual_seed(1)
    twin, x = (
        find_compiled_kernel(sampler, model),
        model.domain.uniform(5, Generator().manual_seed(2)),
    )
    state, _ = twin.advance(twin.at(x, model), model, rng, 1)
    state.inputs.add_(0.25)
    for steps, error in ((rbm.FRESH - 1, 0.25), (1, 0.0)):
        state, _ = twin.advance(state, model, rng, steps)
        off = state.inputs - model.hidden_inputs(state.x)
        torch.testing.assert_close(off, torch.full_like(off, error), rtol=0, atol=1e-4)


def same(state, fresh) -> bool:
    """Whether two states agree up to rounding, apart from the scan, which goes its own way."""
    names = set(state._fields) - {"scan"}
    return all(
        torch.allclose(getattr(state, name), getattr(fresh, name), rtol=1e-4, atol=1e-4)
        for name in names
    )


def test_renewals_come_once_in_64_to_128_steps_a_site():
    for count in (1, 2, 12, 64, 1000):
        mask = int(sites.renewals(count))
        assert mask & (mask + 1) == 0  # all ones
        assert 64 * count <= mask + 1 < 128 * count
