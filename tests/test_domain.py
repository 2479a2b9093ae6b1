"""What the domains promise beyond the kernels of test_kernels.py."""

import pytest
import torch
from torch import Generator

import latticework as lw
from latticework.models.chance import draw_categorical

DOMAINS = [
    lw.Binary(3),
    lw.Binary(3, -1, 1),
    lw.Categorical(3, 4),
    lw.Ordinal(3, 4),
    lw.Integer(3),
    lw.Integer(3, 2, 0),
]


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_the_reverse_of_a_move_leads_back(domain):
    rng = Generator().manual_seed(2)
    x = domain.uniform(500, rng)
    logits = torch.randn(500, domain.dim, domain.moves, generator=rng)
    leaving = domain.leaving(x, logits.squeeze(-1))
    index = draw_categorical(leaving.softmax(-1), rng)
    y = domain.move_one(x, index)
    domain.check(y)
    assert ((x != y).flatten(1).any(-1)).all()
    assert torch.equal(domain.move_one(y, domain.reverse(x, index)), x)


@pytest.mark.parametrize("domain", DOMAINS[:4], ids=str)
def test_every_state_is_listed_once(domain):
    states = domain.enumerate()
    domain.check(states)
    assert len(states.unique(dim=0)) == len(states) == len(domain.values()) ** domain.dim


def test_what_cannot_be_listed_is_refused():
    with pytest.raises(ValueError, match="infinitely many"):
        lw.Integer(2).enumerate()
    with pytest.raises(ValueError, match="2\\^22"):
        lw.Binary(23).enumerate()


@pytest.mark.parametrize("values", [(0.0, 1.0), (-1.0, 1.0), (-0.3, 0.7), (0.1, 0.7)])
def test_a_flip_gives_exactly_the_other_value(values):
    """In float32, low + high - x is off by a rounding error for the last two."""
    domain = lw.Binary(2, *values)
    low, high = domain.values()
    x = torch.stack((low, high)).unsqueeze(0)
    assert torch.equal(domain.flip(x), x.flip(1))
    certain = torch.full((1, 2), torch.inf)
    assert torch.equal(domain.move_all(x, certain, Generator().manual_seed(0)), x.flip(1))
