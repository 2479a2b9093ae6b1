"""The two samplers with continuous memory: relaxed MALA and discrete SVGD.

Their kernels act on positions z in R^d, so the table of enumerated transition matrices cannot hold
them. RMALA is tested for invariance: exact draws from its density, by quadrature on a grid, stay
distributed as that density, counted in boxes that no orthant boundary crosses.
"""

from dataclasses import dataclass

import pytest
import torch
from exactness import p_value

import latticework as lw
from latticework.samplers.relaxed import lift, surrogate, threshold
from latticework.samplers.svgd import stein_direction

TEMPERATURE = 0.6
EDGES = torch.tensor([-0.8, 0.0, 0.8])  # boxes of each coordinate
CELL, REACH = 0.02, 7.0


def target(domain=lw.Binary(2)):  # noqa: B008 - a domain is immutable
    """Not symmetric in any way, and not quadratic."""
    return lw.Function(
        lambda x: 1.1 * x[:, 0] - 2.2 * x[:, 0] * x[:, 1] ** 3 + 0.6 * x[:, 1], domain
    )


def grid_log_density(model, accept):
    """Centres of a grid's cells `[cells, 2]` and the log density there, from its definition."""
    axis = torch.arange(-REACH, REACH, CELL) + CELL / 2
    z = torch.cartesian_prod(axis, axis)
    low, high = model.domain.low, model.domain.high
    if accept == "target":
        x = torch.where(z > 0, high, low)
    else:
        x = low + (high - low) / (1 + (-z / TEMPERATURE).exp())
    return z, model(x) - z.square().sum(-1) / 2


def boxes(z):
    index = torch.bucketize(z, EDGES)
    return index[:, 0] * (len(EDGES) + 1) + index[:, 1]


def box_p(sampler, model, accept, draws=100_000, steps=10):
    """P-value of the box counts after `steps` from exact draws."""
    rng = torch.Generator().manual_seed(0)
    z, log_density = grid_log_density(model, accept)
    law = log_density.double().softmax(0)
    start = z[torch.multinomial(law, draws, True, generator=rng)]
    start += CELL * (torch.rand(start.shape, generator=rng) - 0.5)
    with torch.no_grad():
        state = sampler.at_position(start, model)
        for _ in range(steps):
            state, _ = sampler.step(state, model, rng)
    masses = torch.bincount(boxes(z), law, minlength=(len(EDGES) + 1) ** 2)
    count = torch.bincount(boxes(state.position), minlength=len(masses))
    return p_value(count.numpy(), masses.numpy())


@dataclass(frozen=True)
class Unadjusted(lw.RMALA):
    """Control: forgets the proposal in the Metropolis-Hastings ratio."""

    def _log_proposal(self, start, end):
        return (end.position - start.position).square().sum(-1) * 0


@pytest.mark.parametrize("accept", ["target", "relaxation"])
def test_rmala_leaves_its_density_invariant(accept):
    for domain in (lw.Binary(2), lw.Binary(2, -1, 1)):
        sampler = lw.RMALA(0.8, TEMPERATURE, accept)
        assert box_p(sampler, target(domain), accept) > 1e-4
    assert box_p(Unadjusted(0.8, TEMPERATURE, accept), target(), accept) < 1e-9


@pytest.mark.parametrize("domain", [lw.Binary(3), lw.Binary(3, -1, 1)], ids=str)
def test_score_is_the_gradient_of_the_surrogate(domain):
    model = lw.Function(lambda x: (x[:, 0] * x[:, 1] - x[:, 2] ** 3) * (1 + x[:, 1]), domain)
    z = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    soft = domain.low + (domain.high - domain.low) * (z / TEMPERATURE).sigmoid()
    (expected,) = torch.autograd.grad((model(soft) - z.square().sum(-1) / 2).sum(), z)
    with torch.no_grad():
        log_prob, score = surrogate(z, TEMPERATURE, model, domain)
    torch.testing.assert_close(log_prob, model(soft).detach())
    torch.testing.assert_close(score, expected)


@pytest.mark.parametrize("domain", [lw.Binary(50), lw.Binary(50, -1, 1)], ids=str)
def test_lift_lands_on_the_state(domain):
    x = domain.uniform(1, torch.Generator().manual_seed(0)).repeat(40, 1)
    position = lift(x, domain)
    assert torch.equal(threshold(position, domain), x)
    assert (position[0] != position[1]).all()  # chains at one x start apart
    # Half-normal: E|z|^2 = 1, variance 2, over 2,000 magnitudes.
    assert abs(position.square().mean().item() - 1) < 5 * (2 / 2000) ** 0.5


def test_stein_direction_is_the_double_sum():
    rng = torch.Generator().manual_seed(0)
    z, score = torch.randn(2, 6, 3, generator=rng, dtype=torch.float64)
    weight = torch.rand(6, generator=rng, dtype=torch.float64).softmax(0)
    pairs = [(z[i] - z[j]).square().sum() for i in range(6) for j in range(i)]
    median = sorted(float(pair) for pair in pairs)[7]  # of 15
    for bandwidth in (1.7, None):
        h = bandwidth or median / torch.tensor(7.0).log().item()
        expected = torch.zeros_like(z)
        for i in range(6):
            for j in range(6):
                end = z[j].clone().requires_grad_()
                kernel = (-(end - z[i]).square().sum() / h).exp()
                (slope,) = torch.autograd.grad(kernel, end)
                expected[i] += weight[j] * (score[j] * kernel.detach() + slope)
        ours = stein_direction(z, score, weight, bandwidth)
        torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-8)


def svgd_error(sampler, steps):
    """Largest error of the particles' marginal means, started with all of them low."""
    bias = torch.tensor([1.5, -0.5, 0.5, -1.5])
    model, rng = lw.Function(lambda x: x @ bias, lw.Binary(4)), torch.Generator()
    with torch.no_grad():
        state = sampler.init(torch.zeros(200, 4), model)
        for _ in range(steps):
            state, _ = sampler.step(state, model, rng)
    return (state.x.mean(0) - bias.sigmoid()).abs().max().item()


def test_svgd_moves_its_particles_to_the_target():
    sampler = lw.DiscreteSVGD(0.5, 1.0)
    assert svgd_error(sampler, 0) > 0.8  # the start
    assert svgd_error(sampler, 300) < 0.1


@pytest.mark.parametrize("particles", [1, 5])
def test_one_svgd_particle_and_several_in_one_place_stay_finite(particles):
    model, rng = target(), torch.Generator()
    sampler = lw.DiscreteSVGD(0.2, 1.0)
    with torch.no_grad():
        state = sampler.init(torch.ones(particles, 2), model)
        state = state._replace(position=state.position[:1].expand_as(state.position).clone())
        for _ in range(50):
            state, _ = sampler.step(state, model, rng)
    assert state.position.isfinite().all()
