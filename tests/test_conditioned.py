"""Conditioned models: the renormalised law of the free sites, for every kind of model."""

import pytest
import torch
from plain import agree
from targets import FORBIDDING, TARGETS
from torch import Generator

import latticework as lw
from latticework.models.conditioned import Conditioned
from latticework.sampling.checking.targets import Asymmetric
from latticework.sampling.exact import distribution

NAN = float("nan")
LEFT_OUT = ("integers", "naturals", "given")  # not finite, or conditioned already
MODELS = {
    **{name: TARGETS[name].model for name in TARGETS if name not in LEFT_OUT},
    "potts": lw.LatticePotts((2, 2), 3, 0.7),
    "function": lw.Function(lambda x: x[:, 0] * x[:, 1:].sum(1), lw.Binary(4)),
}
SMALLER = {  # the kinds that stay of their kind, or become a graph
    "lattice": lw.Graph, "ring": lw.Graph, "sheet": lw.Graph, "graph": lw.Graph,
    "network": lw.Factors, "tables": lw.Factors, "ragged": lw.Factors, "either": lw.Factors,
    "ferromagnet": lw.Graph, "dense_ising": lw.DenseIsing, "rbm": lw.RBM,
    "free": lw.Graph, "isolated": lw.Graph, "zero_ring": lw.Graph, "zero_sheet": lw.Graph,
    "zero_rbm": lw.RBM, "zero_tables": lw.Factors,
}  # fmt: skip
each = pytest.mark.parametrize("name", MODELS)


def known(model: lw.EnergyModel) -> dict[int, float]:
    """The highest value of the last site, and the lowest of the first where there are three."""
    if isinstance(model.domain, lw.Mixed):
        return {model.domain.dim - 1: model.domain.sizes[-1] - 1}
    values = model.domain.values()
    numbers = range(len(values)) if values.ndim > 1 else values.tolist()
    found = {model.domain.dim - 1: float(max(numbers))}
    return found | ({0: float(min(numbers))} if model.domain.dim > 2 else {})


@each
def test_the_law_is_the_renormalised_one(name):
    model = MODELS[name]
    fixed = known(model)
    smaller = model.condition_on(fixed)
    states, law = distribution(model)
    free, share = distribution(smaller)
    full = smaller.complete(free)
    assert smaller.domain.dim == model.domain.dim - len(fixed)
    for site, value in fixed.items():
        at = full[:, site]
        assert ((at.argmax(-1) if at.ndim > 1 else at) == value).all()
    place = (states.flatten(1).unsqueeze(0) == full.flatten(1).unsqueeze(1)).all(-1)
    assert (place.sum(1) == 1).all()
    expected = place.double() @ law
    torch.testing.assert_close(share, expected / expected.sum(), rtol=1e-5, atol=1e-7)
    assert type(smaller) is SMALLER.get(name, Conditioned)


WITHOUT_ZEROS = [name for name in MODELS if name not in ("either", *FORBIDDING)]


@pytest.mark.parametrize("name", WITHOUT_ZEROS)
def test_all_methods_are_those_of_the_function(name):
    smaller = MODELS[name].condition_on(known(MODELS[name]))
    x = smaller.domain.uniform(6, Generator().manual_seed(0))
    agree(smaller, lw.Function(smaller.forward, smaller.domain), x, 1e-4)


def test_known_values_are_named_given_as_a_tensor_or_in_two_steps():
    graph = lw.Graph([[0, 1], [1, 2], [2, 3]], [0.5, -1.0, 0.3], 0.2, names="abcd")
    x = lw.Binary(2).enumerate()
    ways = [
        graph.condition_on({"a": 1, "c": 0}),
        graph.condition_on({0: 1, 2: 0}),
        graph.condition_on(torch.tensor([1.0, NAN, 0.0, NAN])),
        graph.condition_on({"c": 0}).condition_on({"a": 1}),
    ]
    for smaller in ways:
        assert smaller.names == ("b", "d")
        assert smaller.complete(x).tolist() == [[1, b, 0, d] for b, d in x.tolist()]
        torch.testing.assert_close(smaller(x), graph(smaller.complete(x)))


def test_colours_of_the_free_sites():
    class Chain(lw.Lattice):
        def restrict(self, evidence):
            return None

    smaller = Chain((6,), 0.3).condition_on({1: 1, 3: 0, 5: 1})
    assert smaller.colours().tolist() == [0, 0, 0]


def test_a_subclass_with_a_target_of_its_own_is_no_smaller_model_of_its_kind():
    class Twice(lw.RBM):
        def forward(self, x):
            return 2 * super().forward(x)

        log_prob_and_grad = lw.EnergyModel.log_prob_and_grad

    model = Twice(3, 2)
    smaller = model.condition_on({0: 1})
    x = lw.Binary(2).enumerate()
    torch.testing.assert_close(smaller(x), model(smaller.complete(x)))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({0: 1, 1: 0, 2: 1}, "all 3 sites are known"),
        ({3: 1}, "from 0 to 2, got 3"),
        ({"a": 1}, "from 0 to 2, got 'a'"),
        ({0: 0.5}, "0 or 1"),
        (torch.zeros(2, 4), r"a tensor \[3\], or \[chains, 3\], .* got \[2, 4\]"),
        (torch.tensor([[0, NAN, NAN], [0, NAN, 1]]), "known values of site 2 for some chains only"),
        (torch.tensor([[0, NAN, 1], [0, NAN, 2]]), "0 or 1"),
    ],
)
def test_what_no_site_can_have_is_refused(given, told):
    with pytest.raises(ValueError, match=told):
        Asymmetric(lw.Binary(3)).condition_on(given)


def test_a_site_known_twice_is_refused():
    graph = lw.Graph([[0, 1]], 1.0, names="ab")
    with pytest.raises(ValueError, match="site 0 is known twice, the second time as 0"):
        graph.condition_on({"a": 1, 0: 0})


@pytest.mark.parametrize(
    "model",
    [
        Asymmetric(lw.Binary(3)),
        Asymmetric(lw.Categorical(3, 3), scale=0.5),
        Asymmetric(lw.Mixed([2, 4, 2]), scale=0.5),
        TARGETS["subset"].model,
        TARGETS["rbm"].model,
    ],
    ids=lambda model: str(model.domain),
)
@pytest.mark.parametrize("sampler", [lw.Gibbs(2, "random"), lw.GWG(), lw.RandomWalk()], ids=str)
def test_every_chain_has_its_own_known_values(model, sampler):
    """Half of the chains know one value of the last site, half another; each has its law."""
    half = 4000
    known = torch.full((2 * half, model.domain.dim), NAN)
    known[:, -1] = torch.arange(2.0).repeat_interleave(half)
    if isinstance(model.domain, lw.Subset):
        known[:, 0] = 1 - known[:, -1]  # as many ones in all chains
    smaller = model.condition_on(known)
    draws = lw.sample(smaller, sampler, steps=1, burn_in=30, seed=1, diagnose=False).draws[:, 0]
    full = smaller.complete(draws)
    for chains, row in [(slice(half), 0), (slice(half, None), -1)]:
        one = model.condition_on({i: v for i, v in enumerate(known[row].tolist()) if v == v})
        states, law = distribution(one)
        found = (draws[chains].flatten(1).unsqueeze(1) == states.flatten(1)).all(-1).sum(0)
        z = (found / half - law) / (law * (1 - law) / half).sqrt()
        assert z.abs().max() < 5
        torch.testing.assert_close(full[chains], one.complete(draws[chains]))
    again = smaller.complete(draws.repeat_interleave(3, 0))
    torch.testing.assert_close(again, full.repeat_interleave(3, 0))
    with pytest.raises(ValueError, match="those of 8000 chains, got 5 states"):
        smaller(draws[:5])


def test_categories_are_numbers_from_0():
    model = Asymmetric(lw.Categorical(2, 3))
    for wrong in (3, -1, 0.5):
        with pytest.raises(ValueError, match="from 0 to 2"):
            model.condition_on({0: wrong})


def test_sampling_given_a_part_of_an_image():
    """Block Gibbs on an RBM: the visible units that are left, then the whole image."""
    rbm = TARGETS["rbm"].model
    smaller = rbm.condition_on({1: 1})
    result = lw.sample(smaller, "block_gibbs", chains=200, steps=200, burn_in=20, diagnose=False)
    states, law = distribution(smaller)
    mean = law @ states.double()
    found = result.draws.double().mean(1)
    error = found.std(0) / len(found) ** 0.5
    assert ((found.mean(0) - mean).abs() < 5 * error).all()
    assert (smaller.complete(result.draws.flatten(0, 1))[:, 1] == 1).all()


@pytest.mark.parametrize("per_chain", [False, True])
def test_states_are_as_wide_as_the_free_sites_need(per_chain):
    """The widest site is known, so that states are narrower and samplers propose nothing more."""
    domain = lw.Mixed([2, 5, 3])
    model = Asymmetric(domain, scale=0.5)
    known = torch.tensor([torch.nan, 4.0, torch.nan])
    smaller = model.condition_on(known.expand(4, 3) if per_chain else known)
    assert smaller.domain == lw.Mixed([2, 3])
    assert smaller.domain.num_values == 3
    x = smaller.domain.uniform(4, Generator().manual_seed(0))
    whole = smaller.complete(x)
    domain.check(whole)
    assert (whole[:, 1, 4] == 1).all()
    torch.testing.assert_close(smaller.log_prob(x), model.log_prob(whole))
    twice = smaller.condition_on({1: 2})
    assert twice.domain == lw.Mixed([2])
    domain.check(twice.complete(twice.domain.uniform(4, Generator().manual_seed(0))))
    for name in ("gibbs", "gibbs(sites=2)", "dmala", "gwg", "random_walk", "locally_balanced"):
        found = lw.sample(smaller, name, chains=4, steps=5, diagnose=False)
        domain.check(smaller.complete(found.draws.flatten(0, 1)))
