"""Means of sites given the rest: against enumeration, and the columns of `summary`."""

import numpy as np
import pytest
import torch
from targets import TARGETS

import latticework as lw
from latticework.models.domains import Binary, Categorical, Mixed, Ordinal
from latticework.sampling.checking.targets import Target
from latticework.sampling.conditional_means import conditional_means
from latticework.sampling.exact import distribution, exact
from workshop.exact_efficiency import measure_efficiency
from workshop.laws.blocks import gibbs

HAVE_VALUES = Binary | Categorical | Ordinal
FINITE = [
    name
    for name, target in TARGETS.items()
    if isinstance(target.model.domain, HAVE_VALUES) and np.isfinite(target.log_prob).all()
]
CLOSED = [name for name, target in TARGETS.items() if target.model.closed_differences]
OTHERS = [name for name in TARGETS if name not in CLOSED]


@pytest.mark.parametrize("name", FINITE)
def test_their_expectation_is_the_mean_and_their_values_are_conditional(name):
    model = TARGETS[name].model
    states, law = distribution(model)
    means = conditional_means(model, states.unsqueeze(0))[0]
    expected = torch.tensordot(law, means, 1)
    torch.testing.assert_close(expected, exact(model).mean, rtol=1e-5, atol=1e-6)
    same = (states[:, 1:] == states[:1, 1:]).flatten(1).all(1)  # equal but for site 0
    weights = law[same] / law[same].sum()
    by_hand = torch.tensordot(weights, states[same, 0].double(), 1)
    torch.testing.assert_close(means[0, 0], by_hand, rtol=1e-5, atol=1e-6)


def test_blocks_of_draws_give_the_same(monkeypatch):
    model = TARGETS["lattice_potts"].model
    draws = model.domain.uniform(30, torch.Generator().manual_seed(0)).unflatten(0, (3, 10))
    whole = conditional_means(model, draws)
    monkeypatch.setattr("latticework.sampling.conditional_means.MAX_NUMBERS", draws[:, :4].numel())
    torch.testing.assert_close(conditional_means(model, draws), whole)


def test_chains_with_laws_of_their_own():
    whole = TARGETS["rbm"].model
    known = torch.full((3, whole.domain.dim), torch.nan)
    known[:, 0] = torch.tensor([0.0, 1.0, 1.0])
    model = whole.condition_on(known)
    draws = model.domain.uniform(12, torch.Generator().manual_seed(0)).unflatten(0, (3, 4))
    means = conditional_means(model, draws)
    for chain in range(3):
        alone = whole.condition_on({0: known[chain, 0].item()})
        expected = conditional_means(alone, draws[chain : chain + 1])
        torch.testing.assert_close(means[chain : chain + 1], expected)


def sample(model, sampler="gibbs", **settings):
    given = {"chains": 4, "steps": 400, "diagnose": False} | settings
    return lw.sample(model, sampler, **given)


def entries_of(values, result):
    """The entries of a state that have a row: those of values that their sites have."""
    if isinstance(result.domain, Mixed):
        values = values[result.domain.allowed_values(torch.arange(result.domain.dim))]
    return values.flatten().numpy()


@pytest.mark.parametrize("name", CLOSED)
def test_summary_has_them_where_differences_are_in_closed_form(name):
    result = sample(TARGETS[name].model)
    table = result.summary(digits=None)
    truth = entries_of(exact(TARGETS[name].model).mean, result)
    error = np.abs(table["mean_rb"].to_numpy()[1:] - truth)
    assert np.isnan(table["mean_rb"].iloc[0])
    rounding = 1e-5  # all error of a site that does not depend on others
    if name in FINITE:  # with impossible states, Gibbs of a site need not reach all others
        assert (error < 6 * np.nan_to_num(table["mcse_rb"].to_numpy()[1:]) + rounding).all()
    assert table.attrs["mean_rb"].startswith("averages the mean of x_i given the rest")
    assert not {"mean_rb", "mcse_rb"} & set(result.summary(of={"sum": lambda x: x.sum(-1)}))


@pytest.mark.parametrize("name", OTHERS)
def test_other_targets_have_none_unless_asked(name):
    model = TARGETS[name].model
    result = sample(model, "locally_balanced", steps=40)
    assert "mean_rb" not in result.summary()
    if name in FINITE:
        asked = result.summary(digits=None, every=10)
        means = conditional_means(model, result.draws[:, ::10]).mean((0, 1))
        np.testing.assert_allclose(asked["mean_rb"].to_numpy()[1:], entries_of(means, result))
    elif not isinstance(model.domain, HAVE_VALUES):
        with pytest.raises(ValueError, match="every=10 asks for means given the rest, but"):
            result.summary(every=10)


def test_a_biased_sampler_and_a_loaded_file_have_none(tmp_path):
    model = TARGETS["lattice"].model
    biased = sample(model, "dula")
    assert "mean_rb" not in biased.summary()
    with pytest.raises(ValueError, match="does not sample the target exactly"):
        biased.summary(every=1)
    result = sample(model)
    result.save(tmp_path / "draws.npz")
    loaded = lw.SampleResult.load(tmp_path / "draws.npz")
    assert "mean_rb" not in loaded.summary()
    with pytest.raises(ValueError, match="loaded from a file"):
        loaded.summary(every=1)
    with pytest.raises(ValueError, match="every"):
        result.summary(every=0)


def variance_ratios(target, kernel):
    """The asymptotic variance of a mean of draws over that of conditional means, by site."""
    ratios = []
    means = conditional_means(target.model, target.states[None])[0]
    for raw, sharper in zip(target.z.T, means.numpy().T, strict=True):
        steps = measure_efficiency(kernel, target.law, np.stack((raw, sharper), 1)).inefficiency
        variances = [np.cov(h, aweights=target.law, ddof=0) for h in (raw, sharper)]
        ratios.append(steps[0] * variances[0] / (steps[1] * variances[1]))
    return np.array(ratios)


def test_their_variance_is_smaller_by_the_ratio_of_the_laws():
    """Exact ratios at six sites, with Gibbs of a random site: no draws."""
    rng = np.random.default_rng(1)
    pairs = [[i, j] for i in range(6) for j in range(i)]
    glass = lw.Graph(pairs, (1.5 * rng.standard_normal(len(pairs)) / 6**0.5).tolist())
    ring = lw.Graph([[i, (i + 1) % 6] for i in range(6)], 0.5)
    rbm = lw.RBM(6, 4)
    rbm.weight.data.copy_(torch.from_numpy(0.2 * rng.standard_normal((6, 4))))
    for model, least, most in ((glass, 1.2, 4), (ring, 2, 2.3), (rbm, 20, np.inf)):
        target = Target(model)
        ratios = variance_ratios(target, gibbs(lw.Gibbs(1, "random"), target).after[0])
        assert least < ratios.min() <= ratios.max() < most, ratios


def test_intervals_cover_and_are_smaller():
    ref = lw.reference("rbm_24x16")
    result = sample(ref.model, "block_gibbs", chains=16, steps=600, burn_in=200)
    table = result.summary(digits=None).iloc[1:]
    error = np.abs(table["mean_rb"] - ref.mean.numpy())
    assert (error < 4.5 * table["mcse_rb"]).all()
    assert (table["mcse_mean"] / table["mcse_rb"]).median() > 1.5
