"""What the domains promise beyond the kernels of test_kernels.py."""

import pytest
import torch
from exactness import TABLE
from targets import TARGETS
from torch import Generator

import latticework as lw
from latticework.models.distributions import draw_categorical

DOMAINS = [
    lw.Binary(3),
    lw.Binary(3, -1, 1),
    lw.Categorical(3, 4),
    lw.Ordinal(3, 4),
    lw.Mixed([3, 2, 4]),
    lw.Mixed([2, 2], num_values=3),
    lw.Subset(5, 2),
    lw.Subset(4, 3, -0.1, 0.7),
    lw.Integer(3),
    lw.Integer(3, 2, 0),
]


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_the_reverse_of_a_move_leads_back(domain):
    rng = Generator().manual_seed(2)
    x = domain.uniform(500, rng)
    logits = torch.randn(500, domain.movers, domain.moves, generator=rng)
    leaving = domain.leaving_logits(x, logits.squeeze(-1))
    index = draw_categorical(leaving.softmax(-1), rng)
    y = domain.move_one(x, index)
    domain.check(y)
    assert ((x != y).flatten(1).any(-1)).all()
    assert torch.equal(domain.move_one(y, domain.reverse(x, index)), x)


@pytest.mark.parametrize("domain", DOMAINS[:8], ids=str)
def test_every_state_is_listed_once(domain):
    states = domain.enumerate()
    domain.check(states)
    assert len(states.unique(dim=0)) == len(states) == domain.count()


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_uniform_states_are_states_and_have_equal_shares(domain):
    x = domain.uniform(6000, Generator().manual_seed(1))
    domain.check(x)
    found, counts = x.unique(dim=0, return_counts=True)
    share = 1 / len(found) if isinstance(domain, lw.Integer) else 1 / domain.count()
    assert (counts / 6000 - share).abs().max() < 5 * (share / 6000) ** 0.5


def test_what_a_site_or_a_subset_does_not_allow_is_refused():
    for domain, x, told in [
        (lw.Mixed([2, 3]), torch.eye(3)[[2, 0]].unsqueeze(0), "site 0 has 2 values"),
        (lw.Subset(3, 1), torch.tensor([[1.0, 0, 1]]), r"exactly 1 sites .* got \[2\]"),
        (lw.Subset(3, 1), torch.tensor([[1.0, 0, 2]]), "must be 0 or 1"),
    ]:
        with pytest.raises(ValueError, match=told):
            domain.check(x)
    for make, told in [
        (lambda: lw.Mixed([]), "two or more"),
        (lambda: lw.Mixed([2, 1]), "leave out sites of one value"),
        (lambda: lw.Mixed([2, 4], num_values=3), "must be 4 or more"),
        (lambda: lw.Subset(3, 3), "from 1 to dim - 1"),
        (
            lambda: lw.Function(len, lw.Subset(3, 1)).condition_on({0: 1}),
            "leave 0 ones for 2 free sites",
        ),
        (lambda: lw.Function(len, lw.Ordinal(3, 3)).with_ones(1), "two values a site"),
    ]:
        with pytest.raises(ValueError, match=told):
            make()


def test_samplers_without_swaps_refuse_a_subset():
    """Those of the table that have no row for it; and gibbs with blocks that cannot swap."""
    model = TARGETS["subset"].model
    x = model.domain.uniform(2, Generator().manual_seed(0))
    serving = {type(row.sampler) for row in TABLE if "subset" in row.targets}
    refusing = [row.sampler for row in TABLE if type(row.sampler) not in serving]
    assert len(refusing) > 20
    for sampler in [*refusing, lw.Gibbs(), lw.Gibbs(2), lw.Gibbs(1, "random"), lw.GWG(2)]:
        with pytest.raises(lw.UnsupportedModelError):
            sampler.init(x, model)
    with pytest.raises(lw.UnsupportedModelError, match="use random_walk, gwg"):
        lw.DMALA(0.2).init(x, model)


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
