"""`latticework.sample`: any target with any sampler in one call, checked at the door."""

import subprocess
import sys

import arviz
import numpy as np
import pytest
import torch
from torch import nn

import latticework
from latticework.experiments.measures.exact import exact
from latticework.experiments.measures.reference import Reference
from latticework.experiments.sampling.chain import run_chain
from latticework.experiments.sampling.sample import ChainAcceptance
from latticework.experiments.sampling.targets import parsed_domain
from latticework.models.base import Function, NotDifferentiableError
from latticework.models.domain import Binary, Categorical, Integer, Ordinal
from latticework.models.ising import Lattice
from latticework.samplers.avg import AVG
from latticework.samplers.base import Info, UnsupportedModelError
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.gwg import GWG
from latticework.samplers.hamming import HammingBall
from latticework.samplers.langevin import DMALA

WEIGHTS = torch.linspace(-1, 1, 5)


def linear(x):
    return x @ WEIGHTS


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(WEIGHTS.clone())

    def forward(self, x):
        return x @ self.weights


def draw(target=linear, sampler="dmala", **given):
    settings = {"sites": 5, "steps": 20, **given}
    return latticework.sample(target, sampler, **settings)


# The law.


@pytest.mark.parametrize("precision", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("values", [(0.1, 0.7), (0.2, 0.9), (-0.3, 1.1)], ids=str)
@pytest.mark.parametrize(
    "sampler", [Gibbs(), Gibbs(2), HammingBall(2, 1), GWG(), DMALA(0.5), AVG(0.5)], ids=str
)
def test_any_two_values_are_sampled(sampler, values, precision):
    """Draws hold exactly these two values, with the right frequency."""
    domain, slope = Binary(3, *values), 3.0
    x = domain.uniform(200, torch.Generator().manual_seed(1)).to(precision)
    found = latticework.sample(
        lambda x: slope * x.sum(-1), sampler, domain=domain, x=x, steps=100, burn_in=50
    )
    assert set(found.draws.unique().tolist()) == {domain.low, domain.high}
    high = torch.tensor(slope * (domain.high - domain.low)).sigmoid()
    assert abs((found.draws == domain.high).float().mean() - high) < 0.02


def test_a_start_of_higher_precision_is_refused_with_advice():
    x = torch.full((4, 5), 0.1, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"higher precision; x.float\(\) rounds them"):
        draw(values=(0.1, 0.7), x=x)


def test_chains_start_where_the_target_is_positive():
    """Seven eighths of all states are impossible, so some of 50 uniform starts would be."""
    found = draw(lambda x: linear(x).masked_fill(x[:, :3].sum(-1) < 3, -torch.inf), chains=50)
    assert found.log_prob.isfinite().all()


def test_the_log_probability_keeps_its_precision():
    found = draw(lambda x: linear(x).double() + 1e9, "gwg", steps=200)
    assert found.log_prob.dtype == torch.float64
    assert found.summary().loc["log_prob", "sd"] > 0.1
    assert draw().log_prob.dtype == torch.float32


# What comes back.


def test_shapes_and_values():
    found = draw(chains=3, steps=30, thin=2, burn_in=7)
    assert found.draws.shape == (3, 15, 5)
    torch.testing.assert_close(found.log_prob, linear(found.draws))
    assert found.acceptance.shape == (3,)
    assert ((found.acceptance > 0) & (found.acceptance <= 1)).all()
    assert found.evaluations == 37  # one a step, with the burn-in
    assert found.seconds > 0


def test_the_draws_are_those_of_the_chain():
    """Every second state after the third step of run_chain, from the same start."""
    x = Binary(5).uniform(4, torch.Generator().manual_seed(9))
    found = draw(sampler=DMALA(0.4), x=x, steps=6, thin=2, burn_in=3, seed=1)
    rng = torch.Generator().manual_seed(1)
    model = Function(linear, Binary(5))
    readings = list(run_chain(DMALA(0.4), model, x, rng, steps=9, every=1))
    for number, step in enumerate((5, 7, 9)):
        assert torch.equal(found.draws[:, number], readings[step].state.x)


def test_acceptance_is_that_after_the_burn_in_of_each_chain():
    x = torch.zeros(3, 5)
    found = draw(sampler=DMALA(4.0), x=x, steps=4, burn_in=2, seed=1)
    model, rng = Function(linear, Binary(5)), torch.Generator().manual_seed(1)
    state, probabilities = DMALA(4.0).init(x, model), []
    for _ in range(6):
        state, info = DMALA(4.0).step(state, model, rng)
        probabilities.append(info.accept_prob.clone())
    torch.testing.assert_close(found.acceptance, torch.stack(probabilities[2:]).mean(0))
    assert len(set(found.acceptance.tolist())) == 3


def test_the_acceptance_of_a_long_run_is_not_rounded():
    """In single precision the sum of a chain stands still at 2^24 steps."""
    metric, x = ChainAcceptance(), torch.zeros(2, 5)
    state = DMALA(0.4).init(x, model := Function(linear, Binary(5)))
    carry = metric.init(model, state, Reference())
    carry.total.fill_(2**24)
    for _ in range(4):
        carry = metric.update(carry, state, Info(torch.full((2,), 0.25)))
    assert carry.total.tolist() == [2**24 + 1] * 2


def test_numbers_may_be_numpys():
    numbers = {"steps": np.int64(6), "thin": np.int32(2), "burn_in": np.int64(1)}
    found = draw(**numbers, chains=np.int64(3), seed=np.int64(2))
    assert found.draws.shape == (3, 3, 5)
    potts = latticework.sample(
        lambda x: x[..., 0].sum(-1), "gwg", sites=2, values=np.int64(3), steps=2
    )
    assert potts.domain == Categorical(2, 3)


def test_same_seed_same_draws():
    one, same, other = draw(seed=4), draw(seed=4), draw(seed=5)
    assert torch.equal(one.draws, same.draws)
    assert torch.equal(one.log_prob, same.log_prob)
    assert not torch.equal(one.draws, other.draws)


def test_the_mean_is_the_exact_one():
    found = draw(chains=100, steps=100, burn_in=50)
    truth = exact(Function(linear, Binary(5))).mean.float()
    summary = found.summary(digits=None)
    mean, error = (summary[name].to_numpy()[1:] for name in ("mean", "mcse_mean"))
    assert np.abs((mean - truth.numpy()) / error).max() < 4.5
    assert np.abs((mean - 0.5) / error).max() > 10  # control: the uniform start's mean


@pytest.mark.parametrize(
    ("target", "given"),
    [
        (linear, {"domain": Binary(5)}),
        (Linear(), {"sites": 5}),
        (Lattice((3, 2), 0.2, 0.1), {}),
    ],
    ids=["function", "module", "model"],
)
def test_targets_of_each_kind(target, given):
    found = latticework.sample(target, "gibbs", steps=10, **given)
    assert found.draws.shape[:2] == (4, 10)
    assert found.local_evaluations == 10


def test_a_module_and_its_function_give_the_same_draws():
    assert torch.equal(draw(Linear()).draws, draw(linear).draws)


@pytest.mark.parametrize(
    ("given", "domain"),
    [
        ({"sites": 3}, Binary(3)),
        ({"sites": 3, "values": (-1, 1)}, Binary(3, -1, 1)),
        ({"sites": 3, "values": 4}, Categorical(3, 4)),
        ({"sites": 3, "values": range(4)}, Ordinal(3, 4)),
        ({"domain": Integer(3)}, Integer(3)),
    ],
    ids=str,
)
def test_ways_to_say_the_domain(given, domain):
    found = latticework.sample(lambda x: -x.flatten(1).square().sum(-1), "gwg", steps=4, **given)
    assert found.domain == domain
    assert found.draws.shape == (4, 4, *domain.shape)


def test_domains_of_a_command_line():
    assert parsed_domain("spins:7") == Binary(7, -1, 1)
    assert parsed_domain("categorical:7,3") == Categorical(7, 3)
    assert parsed_domain("naturals:2") == Integer(2, 1, 0)
    for wrong in ("binary", "binary:x", "ternary:3", "categorical:4"):
        with pytest.raises(ValueError, match="is not a domain; write binary:SITES"):
            parsed_domain(wrong)


# Diagnostics.


def test_the_summary_names_stuck_sites():
    def frozen(x):  # the first site is always 1
        return linear(x).masked_fill(x[:, 0] < 0.5, -torch.inf)

    x = torch.ones(4, 5)
    summary = draw(frozen, Gibbs(), x=x, steps=400).summary()
    assert summary.attrs["stuck"] == ["x[0]"]
    assert summary.loc["x[0]", ["ess_bulk", "r_hat"]].isna().all()
    assert summary.loc["x[1]", ["ess_bulk", "ess_tail", "r_hat", "mcse_mean"]].notna().all()
    assert list(summary.index) == ["log_prob", *(f"x[{site}]" for site in range(5))]


def test_the_summary_fits_a_terminal():
    found = draw(steps=100)
    lines = str(found.summary()).splitlines()
    assert "ess_bulk" in lines[0]
    assert max(map(len, lines)) <= 80
    exact_one = found.summary(digits=None)
    assert (exact_one.round(4)["mean"] == found.summary()["mean"]).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # ArviZ folds a fair coin to a constant
def test_the_summary_is_arvizs():
    found = draw(chains=2, steps=40)
    columns = ["mean", "sd", "mcse_mean", "ess_bulk", "ess_tail", "r_hat"]
    ours = found.summary(digits=None).loc["x[0]":, columns]
    theirs = arviz.summary(found.to_arviz(), round_to="none").loc[:, columns]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)  # single precision


@pytest.mark.parametrize(("chains", "steps"), [(1, 1), (1, 3), (4, 2)])
def test_too_few_draws_have_a_mean_and_no_diagnostics(chains, steps, caplog, recwarn):
    summary = draw(chains=chains, steps=steps).summary()
    assert summary["mean"].notna().all()
    assert summary["sd"].notna().all() == (chains * steps > 1)
    assert summary[["mcse_mean", "ess_bulk", "ess_tail", "r_hat"]].isna().all(axis=None)
    assert not caplog.records
    assert not recwarn.list


def test_entries_of_one_hot_states_have_two_indices():
    found = draw(lambda x: x[..., 0].sum(-1), "gwg", sites=2, values=3, steps=8)
    assert list(found.summary().index[1:3]) == ["x[0, 0]", "x[0, 1]"]


def test_independent_draws_have_full_size():
    """DMALA without the step term draws independently from a flat target."""
    found = draw(lambda x: x.sum(-1) * 0, DMALA(torch.inf), steps=1000)
    sizes = found.summary().loc["x[0]":, "ess_bulk"]
    assert sizes.between(3000, 5200).all()
    assert (found.summary().loc["x[0]":, "r_hat"] < 1.01).all()


def test_arviz_gets_chains_and_draws():
    found = draw(chains=3, steps=10)
    data = found.to_arviz()
    assert dict(data.posterior.sizes) == {"chain": 3, "draw": 10, "x_dim_0": 5}
    np.testing.assert_array_equal(data.posterior["x"].to_numpy(), found.draws.numpy())
    np.testing.assert_array_equal(data.sample_stats["lp"].to_numpy(), found.log_prob.numpy())


# The door.

FAULTS = {
    "drops the chains": (lambda x: x.sum(), r"must have shape \[4\], .* got \[\]; sum over the si"),
    "[n, 1]": (lambda x: x.sum(-1, keepdim=True), r"got \[4, 1\]; squeeze\(-1\)"),
    "NaN": (lambda x: x.sum(-1) * torch.nan, "NaN at the start of 4 of 4 chains"),
    "too few rows": (lambda x: x.sum(-1)[:1], r"must have shape \[4\], .* got \[1\]"),
    "other sites": (
        lambda x: x @ torch.ones(7),
        r"could not evaluate x of shape \[4, 5\] .*Runtime",
    ),
    "mixes chains": (
        lambda x: x.sum(-1) + x.mean(),
        "of chain .* among 4 chains and .* among fewer; each chain's",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_target_is_refused(fault):
    target, match = FAULTS[fault]
    with pytest.raises(ValueError, match=match):
        draw(target)


def test_chains_are_compared_where_the_first_one_gives_nothing_away():
    x = torch.tensor([[0.0] * 5, [1.0] * 5])
    with pytest.raises(ValueError, match="of chain 1 is 2.5 among 2 chains and 5 among fewer"):
        draw(lambda x: x.sum(-1) * x.mean(), "gibbs", x=x)


def test_a_sum_over_the_chains_is_refused_where_shapes_agree():
    with pytest.raises(ValueError, match=r"gave \[5\] for 5 chains and \[5\] for one chain"):
        draw(lambda x: x.sum(0), chains=5)
    with pytest.raises(ValueError, match="of chain .* among fewer"):
        draw(lambda x: x.sum(0)[: len(x)], chains=5)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"x": torch.zeros(5)}, r"x must have shape \[chains, 5\].* x.unsqueeze\(0\) is one chain"),
        ({"x": torch.zeros(4, 6)}, r"x must have shape \[chains, 5\].* got \[4, 6\]"),
        ({"x": torch.full((4, 5), 2.0)}, r"must be 0 or 1, got values such as \[2.0"),
        ({"x": torch.zeros(4, 5, dtype=torch.long)}, "use x.float"),
        ({"x": [[0.0] * 5]}, "x must have shape .* got list"),
        ({"x": torch.zeros(4, 5), "chains": 3}, "x has 4 chains and chains is 3"),
        ({"steps": 2.0}, "steps must be an integer of at least 1"),
        ({"chains": 0}, "chains must be an integer of at least 1"),
        ({"steps": 10, "thin": 3}, "steps must be a multiple of thin, got 10 and 3"),
        ({"burn_in": -1}, "burn_in must be a whole number of steps"),
        ({"sites": None}, "the states of linear are not known: give domain="),
        ({"sites": None, "values": 3}, "values needs sites"),
        ({"values": (1, 5, 9)}, r"values \[1.0, 5.0, 9.0\] are no domain"),
        ({"domain": Binary(5)}, "either domain or sites"),
        ({"sites": 20.0}, "sites must be an integer of at least 1, got 20.0"),
        ({"sites": True}, "sites must be an integer of at least 1, got True"),
        ({"sites": 0}, "sites must be an integer of at least 1, got 0"),
        ({"values": 2.0}, r"values must be two numbers, range\(k\), or .* got 2.0; give domain="),
        ({"values": "ab"}, "values must be two numbers, .* got 'ab'; give domain="),
        ({"values": True}, "values must be two numbers, .* got True"),
        ({"values": (0, None)}, r"values must be two numbers, .* got \(0, None\)"),
        ({"seed": None}, "seed must be an integer of at most 64 bits, such as 0, got None"),
        ({"seed": 1.5}, "seed must be an integer of at most 64 bits, such as 0, got 1.5"),
        ({"seed": 2**70}, "seed must be an integer of at most 64 bits, such as 0, got 118"),
        ({"device": "gpu"}, r"device must be cpu, cuda, cuda:1 \.\.\. or auto, got 'gpu'$"),
        ({"device": None}, "device must be cpu, .* got None"),
        ({"sampler": "dmalla"}, "sampler 'dmalla' is not known: did you mean dmala"),
    ],
    ids=str,
)
def test_faulty_arguments_are_refused(given, match):
    with pytest.raises(ValueError, match=match):
        draw(**given)


def test_a_random_target_is_refused():
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(50, 1, bias=False), nn.Flatten(0))
    with pytest.raises(ValueError, match=r"the target is random: .* module.eval\(\)"):
        draw(module, sites=50)
    assert draw(module.eval(), sites=50).draws.shape == (4, 20, 50)


def test_seeds_of_64_bits_are_taken():
    for seed in (-(2**63), 2**64 - 1):
        assert draw(seed=seed, steps=1).seed == seed


class Mixing(Lattice):
    """A model whose log-probability depends on the other chains."""

    def forward(self, x):
        return super().forward(x) * x.mean()


def test_a_model_that_mixes_chains_is_refused():
    with pytest.raises(
        ValueError, match=r"of chain .* among 4 chains and .* among fewer; each chain's"
    ):
        latticework.sample(Mixing((3, 2), 0.2, 0.1), "gibbs")


def test_a_module_that_cannot_evaluate_one_chain_is_refused():
    module = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 1), nn.Flatten(0))
    with pytest.raises(ValueError, match=r"could not evaluate x of shape \[1, 5\] \(ValueError"):
        draw(module)
    with pytest.raises(ValueError, match=r"could not evaluate x of shape \[1, 5\] \(ValueError"):
        draw(module, chains=1)
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
        draw(sampler=DMALA)
    with pytest.raises(TypeError, match="the target must be a function"):
        draw(torch.zeros(3))
    with pytest.raises(ValueError, match="Lattice has the domain"):
        latticework.sample(Lattice((3, 2), 0.2, 0.1), "dmala", domain=Binary(4))
    with pytest.raises(UnsupportedModelError, match="BlockGibbs needs"):
        draw(sampler="block_gibbs")


def test_importing_the_package_is_light():
    code = (
        "import sys, latticework\n"
        "assert 'torch' not in sys.modules\n"
        "assert callable(latticework.sample)\n"
        "assert 'torch' in sys.modules\n"
        "heavy = {'arviz', 'pandas', 'matplotlib', 'optuna'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AttributeError, match="has no attribute 'sampel'"):
        latticework.sampel  # noqa: B018
