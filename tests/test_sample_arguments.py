"""`latticework.sample` refuses faulty targets and arguments at the door."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from linear_target import Linear, draw
from torch import nn

import latticework as lw
from latticework.models.base import NotDifferentiableError

pytestmark = pytest.mark.filterwarnings("ignore::latticework.sampling.sample.ConvergenceWarning")


def test_starts_without_probability_are_refused_with_advice():
    """All sites of the first half are on and no other, which no random state has."""
    half = torch.arange(200) < 100

    def half_on(x):
        return (x.sum(-1) * 0).masked_fill((x != half).any(-1), -torch.inf)

    told = r"-inf at the start of \d of 4 chains.* positive probability .*sample\(..., x=states\)"
    with pytest.raises(ValueError, match=told):
        draw(half_on, sites=200)
    told = "gradient of Function is NaN or inf .*finite penalties in place of -inf, or a sampler"
    with pytest.raises(ValueError, match=told):
        draw(lambda x: (x.sum(-1) - 2).abs().sqrt(), "dmala", x=torch.ones(4, 5).tril(-1)[[2] * 4])


ONE_HOT = r"x is one-hot: x.argmax\(-1\) gives the values 0 to 2 .* values=range\(3\) makes"
WITH_NUMPY = "compute with torch functions.*lambda x: torch.as_tensor"
TABLE = torch.ones(5, 3)


@pytest.mark.parametrize(
    ("function", "values", "told"),
    [
        (lambda x: TABLE[torch.arange(5), x.long()].sum(-1), 3, ONE_HOT),
        (lambda x: (x[:, 1:] == x[:, :-1]).float().sum(-1), 3, ONE_HOT),
        (lambda x: x.sum(-1), 3, ONE_HOT),
        (lambda x: np.sum(np.asarray(x), axis=-1), (0, 1), WITH_NUMPY),
        (lambda x: np.sum(np.asarray(x), axis=(1, 2)), 3, WITH_NUMPY),
        (lambda x: np.sum(x), (0, 1), WITH_NUMPY),
    ],
)
@pytest.mark.parametrize("sampler", ["gibbs", "random_walk", "gwg"])
def test_what_a_target_misreads_is_told_with_a_remedy(function, values, told, sampler):
    with pytest.raises(ValueError, match=told):
        draw(function, sampler, values=values)


@pytest.mark.parametrize(
    "kind", [list, tuple, np.array, pd.Index, pd.Series, dict.fromkeys, lambda words: iter(words)]
)
def test_names_are_any_sequence_of_words(kind):
    found = draw(names=kind(["a", "b", "c", "d", "e"]))
    assert found.names == ("a", "b", "c", "d", "e")
    assert list(found.summary().index)[1:] == [f"x[{name}]" for name in "abcde"]
    with pytest.raises(ValueError, match="got 'a' more than once"):
        draw(names=["a", "b", "c", "d", "a"])


def doubles(x):
    x *= 2
    return x.sum(-1)


def copies_a_site(x):
    """No state of equal sites shows it."""
    x[:, 0] = x[:, 1]
    return x.sum(-1)


FAULTS = {
    "doubles x": (doubles, "Function writes into the states that it is given.* x = x.clone"),
    "copies a site": (copies_a_site, "Function writes into the states"),
    "other sites": (
        lambda x: x @ torch.ones(7),
        r"could not evaluate x of shape \[4, 5\] .*Runtime",
    ),
    "mixes chains": (
        lambda x: x.sum(-1) + x.mean(),
        "of chain .* beside some chains and .* beside others; each chain's",
    ),
    "counts the rows": (
        lambda x: x.sum(-1) + 1e-3 * torch.arange(len(x)),
        "of chain .* beside some chains and .* beside others; each chain's",
    ),
    "depends on their number": (
        lambda x: x.sum(-1) + len(x),
        "of chain 0 is .* among 4 chains and .* alone; it must not depend on the number",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_target_is_refused(fault):
    target, match = FAULTS[fault]
    with pytest.raises(ValueError, match=match):
        draw(target)


def test_rounding_of_many_terms_is_no_fault():
    """Terms of 10^5 sites cancel in the sum, and their rounding does not."""
    sites = 100_000

    def target(x, step):
        return x.sum(-1) - sites / 2 + step * torch.arange(len(x))

    draw(lambda x: target(x, 1e-3), "gibbs", sites=sites, steps=1, diagnose=False)
    with pytest.raises(ValueError, match="beside some chains"):
        draw(lambda x: target(x, 0.1), "gibbs", sites=sites, steps=1, diagnose=False)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"x": torch.zeros(5)}, r"x must have shape \[chains, 5\].* x.unsqueeze\(0\) is one chain"),
        ({"x": torch.zeros(4, 5), "chains": 3}, "x has 4 chains and chains is 3"),
        ({"steps": 2.0}, "steps must be an integer of at least 1"),
        ({"steps": 10, "thin": 3}, "steps must be a multiple of thin, got 10 and 3"),
        ({"burn_in": -1}, "burn_in must be a whole number of steps"),
        ({"sites": None}, "the states of linear are not known: give domain="),
        ({"sites": None, "values": 3}, "values needs sites"),
        ({"values": (1, 5, 9)}, r"values must be two .* got \(1, 5, 9\)"),
        ({"domain": lw.Binary(5)}, "either domain or sites"),
        ({"sites": 20.0}, "sites must be an integer of at least 1, got 20.0"),
        ({"values": 2.0}, r"values must be two numbers, range\(k\), or .* got 2.0; give domain="),
        ({"values": (0, None)}, r"values must be two numbers, .* got \(0, None\)"),
        ({"seed": 2**70}, "seed must be an integer of at most 64 bits, such as 0, got 118"),
        ({"device": "gpu"}, r"device must be cpu, cuda, cuda:1 \.\.\. or auto, got 'gpu'$"),
        ({"sampler": "dmalla"}, "sampler 'dmalla' is not known: did you mean dmala"),
        ({"sampler": "gwg(flip=2)"}, "gwg has no setting flip: did you mean flips"),
        ({"sampler": "gwg(2)"}, r"'gwg\(2\)' is not a sampler with settings; write gwg\(field=va"),
        ({"values": (0, 1e20)}, "the values of a site must be less than .* apart, got 0.0 and 1e"),
        (
            {"adapt": "best"},
            "adapt must be .* acceptance, cycle, locally_balanced, random_walk, got",
        ),
        ({"adapt": 5}, "target must be between 0 and 1, got 5"),
        ({"adapt": np.float32(5)}, "target must be between 0 and 1, got 5.0"),
        ({"adapt": [0.5]}, r"target must be a number or one of .*, got \[0.5\]"),
        ({"x": torch.zeros(4, 5).half()}, r"single or double precision, .*float16; use x.float"),
        (
            {"x": torch.full((4, 5), 2.0**23 + 1), "domain": lw.Integer(5), "sites": None},
            "integers above 8.39e.06 are not exact in torch.float32",
        ),
        ({"start": "warm"}, "start must be uniform or annealed, without x, got 'warm'"),
        ({"start": "annealed", "x": torch.zeros(4, 5)}, "start must be .* without x"),
    ],
    ids=str,
)
def test_faulty_arguments_are_refused(given, match):
    with pytest.raises(ValueError, match=match):
        draw(**given)


def test_a_random_target_is_refused():
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(50, 1, bias=False), nn.Flatten(0))
    with pytest.raises(ValueError, match=r"random or changes from call to call.* module.eval\(\)"):
        draw(module, sites=50)
    assert draw(module.eval(), sites=50).draws.shape == (4, 20, 50)


@pytest.mark.parametrize("given", [lambda m: m, lambda m: lambda x: m(x)], ids=["itself", "inside"])
def test_batch_normalisation_in_training_mode_is_refused_and_left_as_it_was(given):
    module = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 1), nn.Flatten(0))
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(ValueError, match=r"^the target calls BatchNorm1d in .*module.eval\(\)"):
        draw(given(module))
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert draw(module.eval().requires_grad_(False)).draws.shape == (4, 20, 5)


@pytest.mark.parametrize("sampler", ["dmala", "gwg"])
def test_a_module_without_a_gradient_in_x_is_refused(sampler):
    class Rounding(Linear):
        def forward(self, x):
            return (x > 0.5).float() @ self.weights

    with pytest.raises(NotDifferentiableError, match="cannot be differentiated in x; use diff"):
        draw(Rounding(), sampler)
    assert draw(Rounding(), "gibbs").draws.shape == (4, 20, 5)


def test_other_types_are_refused():
    with pytest.raises(TypeError, match=r"got <class .*DMALA'>; write DMALA\(...\)"):
        draw(sampler=lw.DMALA)
    with pytest.raises(TypeError, match="the target must be a function"):
        draw(torch.zeros(3))
    with pytest.raises(ValueError, match="Lattice has the domain"):
        lw.sample(lw.Lattice((3, 2), 0.2, 0.1), "dmala", domain=lw.Binary(4))
    with pytest.raises(lw.UnsupportedModelError, match="BlockGibbs needs"):
        draw(sampler="block_gibbs")


def test_the_number_of_threads_is_checked():
    with pytest.raises(ValueError, match="threads"):
        draw(threads=0)
