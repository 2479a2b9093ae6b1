"""Tempering with a scale of the kernel for each level: laws, acceptance, learning."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from replicas import SCALES, joint_p
from targets import TARGETS
from torch import Generator

import latticework as lw
from latticework.samplers.compiled.registry import find_compiled_kernel
from latticework.samplers.scale import with_scales

pytestmark = pytest.mark.usefixtures("no_grad")


SCALED = [
    (lw.DMALA(0.5), "binary"),
    (lw.DMALA(0.5), "categorical"),
    (lw.DMALA(0.5, [0.5, 2.0]), "ordinal"),
    (lw.DMALA(0.5), "rbm"),
    (lw.DLMC(0.5), "ordinal"),
    (lw.DLMCf(0.5, "barker"), "binary"),
    (lw.AVG(0.8), "categorical"),
    (lw.DHAMS(0.7, 0.8, 0.3), "spins"),
    (lw.EDLP(0.6, 0.7, 0.5), "spins"),
]


@pytest.mark.parametrize(("kernel", "name"), SCALED)
def test_levels_with_scales_of_their_own_keep_the_joint_law(kernel, name):
    sampler = lw.Tempered(kernel, schedule=[0.0, 0.3, 1.0], scales=SCALES)
    assert joint_p(sampler, name) > 1e-4


@pytest.mark.parametrize("kernel", [lw.DMALA(0.5), lw.DLMC(0.5), lw.AVG(0.8), lw.EDLP(0.6)])
def test_a_scale_for_each_chain_is_the_scale_of_that_chain(kernel):
    """Chains with a scale each move as chains that all have it, bit by bit up to rounding."""
    model, scales = TARGETS["ordinal"].model, torch.tensor([0.2, 0.9])
    x = model.domain.uniform(2, Generator().manual_seed(1)).float()
    each = with_scales(kernel, scales)
    state, info = each.step(each.at(x, model), model, Generator().manual_seed(2))
    for row, scale in enumerate(scales.tolist()):
        one = replace(kernel, **{kernel.scale: scale})
        alone, its = one.step(one.at(x, model), model, Generator().manual_seed(2))
        assert torch.equal(state.x[row], alone.x[row])
        torch.testing.assert_close(info.accept_prob[row], its.accept_prob[row])


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_acceptance_of_each_level_is_that_aimed_at(compiled):
    """Where a scale can reach it. One scale for all accepts more at low b."""
    model = lw.erdos_renyi(16, 4, 0.2)
    kernel = partial(find_compiled_kernel, model=model) if compiled else lambda sampler: sampler
    shares = {}
    for goal in (None, 0.6):
        sampler = lw.Tempered(lw.DMALA(0.4), acceptance=goal, levels=5)
        sampler = replace(sampler, **kernel(sampler).learn_fields(torch.zeros(1, 16), model))
        assert sampler.learning_steps == 0
        sampler = kernel(sampler)
        state, total = sampler.init(torch.zeros(32, 16), model), 0
        rng, scales = Generator().manual_seed(0), state.scales.clone()
        for number in range(150):
            level = state.level
            state, info = sampler.step_replicas(state, model, rng)
            if number >= 50:
                by_level = info.accept_prob.view_as(level).gather(0, level.argsort(0))
                total = total + by_level.mean(1) / 100
        shares[goal] = total
        assert torch.equal(state.scales, scales)  # frozen
    assert (shares[0.6] - 0.6).abs().max() < 0.06
    assert shares[None].max() - shares[None].min() > 0.12
    assert scales[1] > 2 * scales[-1]


def test_scales_are_learned_on_a_fixed_schedule():
    target = TARGETS["naturals"]
    given = [0.5, 1.0]
    sampler = lw.Tempered(lw.DMALA(0.4), schedule=given, acceptance=0.7, rounds=3)
    x = torch.zeros(2, *target.domain.shape)
    fields = sampler.learn_fields(x, target.model)
    assert fields["schedule"].tolist() == given
    assert (fields["scales"] != 0.4).all()
    assert len(replace(sampler, **fields).init(x, target.model).scales) == 2
