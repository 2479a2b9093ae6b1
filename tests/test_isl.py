"""The indirect sampling likelihood against its definition, and as a distribution."""

import math

import numpy as np
import pytest
import torch
from fakes import fake
from torch import Generator

from latticework.data.base import Dataset, some
from latticework.experiments.figures.tables.isl_scores import final_isl
from latticework.experiments.figures.tables.models import models
from latticework.experiments.records.budget import Budget
from latticework.experiments.records.record import Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.isl import isl_curve
from latticework.experiments.tasks.measures.sampling_likelihood import (
    best_beta,
    curve,
    histograms,
    log_density,
    mismatches,
    own_beta_curve,
    prefix_sizes,
    score,
)
from latticework.experiments.tasks.measures.validation_isl import ValidationISL
from latticework.models.base import Function
from latticework.models.domain import Binary, Ordinal
from latticework.models.rated_rbm import RatedRBM
from latticework.models.rbm import RBM
from latticework.samplers.block_gibbs import BlockGibbs
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.rates import RatesHerding
from latticework.sampling.chain import run_chain
from latticework.sampling.metrics import Reference
from latticework.sampling.starts import data_mean


def bits(count, dim, seed=0, p=0.5):
    rng = Generator().manual_seed(seed)
    return (torch.rand(count, dim, generator=rng) < p).float()


def brute(samples, points, beta):
    """The definition, pair by pair in float64: log p_S of each point."""
    result = []
    for t in points.double():
        kernels = [
            math.prod(beta if a == b else 1 - beta for a, b in zip(s, t, strict=True))
            for s in samples.double()
        ]
        result.append(math.log(sum(kernels) / len(kernels)))
    return np.array(result)


@pytest.mark.parametrize("beta", [0.3, 0.5, 0.8, 0.99])
def test_it_is_a_distribution(beta):
    """p_S sums to one over all states, for every prefix."""
    states = Binary(7).enumerate()
    log_p = log_density(bits(9, 7), states, beta, [1, 4, 9])
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(3, dtype=torch.float64))
    assert abs(log_density(bits(9, 7), states[1:], beta, [9]).exp().sum() - 1) > 1e-6  # control


@pytest.mark.parametrize("beta", [0.3, 0.8, 0.99])
def test_it_is_the_definition(beta):
    samples, points = bits(23, 12), bits(11, 12, seed=1, p=0.3)
    sizes = [1, 2, 10, 23]
    expected = np.array([brute(samples[:n], points, beta) for n in sizes])
    found = log_density(samples, points, beta, sizes).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(curve(samples, points, beta, sizes), expected.mean(-1), atol=1e-6)
    if beta >= 0.5:
        assert abs(score(histograms(samples, points), beta) - expected[-1].mean()) < 1e-10


def test_neither_chunks_nor_storage_matter():
    samples, points = bits(200, 30), bits(17, 30, seed=1)
    whole = log_density(samples, points, 0.9, [3, 50, 200])
    for cells in (1, 40, 17 * 7, 10**6):
        parts = log_density(samples.byte(), points.byte(), 0.9, [3, 50, 200], cells)
        torch.testing.assert_close(parts, whole, rtol=0, atol=1e-6)
        assert torch.equal(histograms(samples, points, cells), histograms(samples, points))


def test_mismatches_are_counted():
    samples, points = bits(5, 784), bits(6, 784, seed=1)
    expected = (samples.unsqueeze(1) != points).sum(-1).float()
    assert torch.equal(mismatches(samples, points), expected)
    counted = histograms(samples, points)
    assert torch.equal(counted[2], torch.bincount(expected[:, 2].long(), minlength=785))


def test_many_sites_do_not_underflow():
    """784 sites at beta 0.99, every site wrong: exp of it is 0 in float64 and its log is finite."""
    samples, points = torch.zeros(3, 784), torch.ones(2, 784)
    found = log_density(samples, points, 0.99, [3])
    torch.testing.assert_close(found, torch.full_like(found, 784 * math.log(0.01)))


def test_beta_is_the_best_of_a_fine_grid():
    prototypes, rng = bits(4, 40), Generator().manual_seed(5)
    noise = (torch.rand(300, 40, generator=rng) < 0.1).float()
    rows = (prototypes.repeat(75, 1) - noise).abs()
    counted = histograms(rows[:200], rows[200:])
    beta = best_beta(counted)
    fine = max(np.linspace(0.501, 0.999, 999), key=lambda b: score(counted, b))
    assert abs(beta - fine) < 1e-3
    assert score(counted, beta) >= score(counted, fine) - 1e-9
    # The points themselves as centres: the sharper the better, up to the largest beta.
    assert best_beta(histograms(rows, rows)) > best_beta(histograms(rows[:200], rows[200:]))
    assert best_beta(histograms(rows[:1], rows[:1])) > 0.999


def test_prefixes_get_the_beta_of_their_own_size():
    prototypes, rng = bits(4, 40), Generator().manual_seed(5)
    noise = (torch.rand(300, 40, generator=rng) < 0.1).float()
    rows = (prototypes.repeat(75, 1) - noise).abs()
    samples, valid, points, sizes = rows[:200], rows[200:250], rows[250:], [2, 20, 200]
    betas, scores = own_beta_curve(samples, valid, points, sizes)
    for size, beta, found in zip(sizes, betas.tolist(), scores.tolist(), strict=True):
        assert beta == best_beta(histograms(samples[:size], valid))
        assert found == pytest.approx(brute(samples[:size], points, beta).mean(), abs=1e-9)
    one = curve(samples, points, float(betas[-1]), sizes)
    assert scores[-1] == pytest.approx(float(one[-1]), abs=1e-5)
    assert betas[0] < betas[-1] - 0.02  # few samples want a wider kernel,
    assert scores[0] > one[0] + 1  # and are far worse under that of many


def test_more_samples_of_the_truth_score_better():
    """And samples of one mode of two score worse, which is what the ISL is for."""
    low, high = bits(400, 30, seed=1, p=0.1), bits(400, 30, seed=2, p=0.9)
    points = torch.cat([bits(50, 30, seed=3, p=0.1), bits(50, 30, seed=4, p=0.9)])
    both, one = torch.stack([low, high], 1).flatten(0, 1), torch.cat([low, low])
    scores = curve(both, points, 0.85, [2, 20, 200, 800])
    assert (scores.diff()[:2] > 0.1).all()
    assert scores[-1] > curve(one, points, 0.85, [800])[0] + 5


def test_prefix_sizes():
    assert prefix_sizes(1) == [1]
    sizes = prefix_sizes(200_000)
    assert sizes[0] == 1
    assert sizes[-1] == 200_000
    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.full((2, 3), 0.5), torch.zeros(1, 3), 0.9, [2]), "grey values"),
        ((torch.zeros(2, 3), torch.zeros(1, 4), 0.9, [2]), "must be"),
        ((torch.zeros(2, 3), torch.zeros(1, 3), 1.0, [2]), "beta must be"),
        ((torch.zeros(2, 3), torch.zeros(1, 3), 0.9, [3]), "at most 2 samples"),
        ((torch.zeros(2, 3), torch.zeros(1, 3), 0.9, [2, 1]), "sizes must increase"),
        ((torch.zeros(0, 3), torch.zeros(1, 3), 0.9, [1]), "need samples and points"),
    ],
)
def test_bad_arguments_say_so(arguments, message):
    with pytest.raises(ValueError, match=message):
        log_density(*arguments)


def test_the_online_metric_is_the_estimator():
    class Loader:
        def load(self):
            return Dataset(*[bits(9, 6, seed=s, p=0.1).byte() for s in (1, 2, 3)], (6,), "bits")

    model, sampler, rng = RBM(6, 3), BlockGibbs(), Generator().manual_seed(0)
    model.visible_bias.fill_(-1.0)  # the best beta is not 1/2, under which all samples score alike
    metric, kept = ValidationISL(Loader(), points=5), []
    for reading in run_chain(sampler, model, bits(2, 6), rng, steps=20, every=1, metrics=[metric]):
        kept.append(reading.state.x)
        if reading.step == 0:
            assert reading.values["isl"].isnan()
    counted = histograms(torch.cat(kept[1:]), some(Loader().load().valid, 5))
    assert reading.values["isl"].item() == pytest.approx(score(counted, best_beta(counted)))


def test_grey_samples_have_no_online_isl():
    class Loader:
        def load(self):
            return Dataset(*[bits(9, 6, seed=s, p=0.1).byte() for s in (1, 2, 3)], (6,), "bits")

    metric = ValidationISL(Loader(), points=5)
    state = BlockGibbs().init(bits(2, 6), model := RBM(6, 3))
    carry = metric.init(model, state, Reference())
    carry = metric.update(carry, state._replace(x=torch.full((2, 6), 0.3)), None, 1)
    with pytest.raises(ValueError, match=r"grey samples is not defined; .* sampler.emit=sample"):
        metric.read(carry)


def test_other_domains_have_no_online_isl():
    """Distances of spins or of ordinal values to rows of 0 and 1 are no mismatches."""

    class Loader:
        def load(self):
            return Dataset(*[bits(9, 6, seed=s, p=0.1).byte() for s in (1, 2, 3)], (6,), "bits")

    for domain in (Binary(6, -1, 1), Ordinal(6, 3)):
        model = Function(lambda x: x.sum(-1), domain)
        state = Gibbs().init(domain.uniform(2, Generator().manual_seed(0)), model)
        with pytest.raises(ValueError, match="the ISL is defined on samples of 0 and 1"):
            ValidationISL(Loader(), points=5).init(model, state, Reference())


def test_the_area_under_the_curve_sees_how_fast_it_rises(monkeypatch):
    """By the trapezoid rule on the log axis, at one beta, whatever the number of chains."""
    monkeypatch.delattr(np, "trapezoid", raising=False)  # NumPy 1.26 has none

    class Loader:
        def load(self):
            return Dataset(*[bits(9, 6, seed=s, p=0.1).byte() for s in (1, 2, 3)], (6,), "bits")

    model, sizes = RBM(6, 3), [1, 4, 10, 30]
    model.visible_bias.fill_(-1.0)
    for chains in (1, 2):
        metric, kept = ValidationISL(Loader(), points=5, sizes=sizes), []
        for reading in run_chain(
            BlockGibbs(), model, bits(chains, 6), Generator().manual_seed(0),
            steps=40 // chains, every=1, metrics=[metric],
        ):  # fmt: skip
            kept.append(reading.state.x.clone())
            assert reading.values["isl_area"].isnan() == (reading.step * chains < 30)
        samples, points = torch.cat(kept[1:]), some(Loader().load().valid, 5)
        beta = best_beta(histograms(samples, points))
        heights, places = curve(samples, points, beta, sizes), torch.tensor(sizes).log()
        expected = float(torch.trapezoid(heights, places) / places[-1])
        assert reading.values["isl_area"].item() == pytest.approx(expected, abs=1e-5)
        assert reading.values["isl"].item() == pytest.approx(
            score(histograms(samples, points), beta), abs=1e-5
        )
    for wrong in ([3], [4, 2], [0, 5], [2, 2]):
        with pytest.raises(ValueError, match="sizes must be two or more that increase"):
            ValidationISL(Loader(), sizes=wrong)


def scored(folder, sampler, model, steps=60):
    data = Dataset(*[bits(30, 6, seed=s, p=0.1).byte() for s in (1, 2, 3)], (6,), "bits")
    folder.mkdir()
    run = Run(folder, outputs=folder)
    isl_curve(
        model=model, sampler=sampler, data=data, run=run, budget=Budget(1, steps), start=data_mean
    )
    return run, Record(folder, {})


def test_the_task_records_both_betas_and_where_herding_was_cut_short(tmp_path):
    model = RatedRBM(6, 5)
    for parameter in model.parameters():
        parameter.normal_(generator=Generator().manual_seed(1))
    model.visible_bias.fill_(-1.0)
    model.untrained = False
    model.set_rates([bits(30, 6, seed=1, p=0.1)])
    run, record = scored(tmp_path / "gibbs", BlockGibbs(), model)
    table, parzen = record.metrics, record.arrays("parzen")
    assert {"isl", "isl_own_beta", "own_beta"} <= set(table) & set(parzen)
    assert run.notes["beta"] == pytest.approx(table["own_beta"].iloc[-1])
    assert table["isl_own_beta"].iloc[-1] == pytest.approx(table["isl"].iloc[-1], abs=1e-5)
    assert (table["isl_own_beta"] - table["isl"]).abs().max() > 0.01
    assert parzen["beta"][0] == parzen["own_beta"][-1]
    assert "unsettled" not in run.notes
    for sweeps, expected in ((100, 0.0), (1, None)):
        run, _ = scored(tmp_path / str(sweeps), RatesHerding(0.3, sweeps=sweeps), model)
        share = run.notes["unsettled"]
        assert 0 < share < 1 if expected is None else share == expected


def test_the_table_of_models_puts_the_best_first():
    def trained(score, method, hidden, seed=0, **negatives):
        return fake(
            {"step": [1, 2], "isl": [-200, score]}, seed=seed, choices={"negatives": method},
            config={
                "model": {"hidden": hidden}, "task": {"learning_rate": 0.5},
                "negatives": negatives,
            },
        )  # fmt: skip

    table = models(
        [
            trained(-95, "sml", 200),
            trained(-90, "fpcd", 500, fast_step_size=1.0),
            trained(-92, "fpcd", 500, seed=1, fast_step_size=1.0),
            trained(-93, "fpcd", 200, fast_step_size=1.0),
        ]
    )
    assert list(table["training"]) == ["fpcd", "fpcd", "sml"]
    assert list(table["hidden units"]) == [500, 200, 200]
    assert list(table["fast rate"]) == ["1", "1", ""]
    assert table["validation ISL"].iloc[0].mean == -91
    assert table["validation ISL"].iloc[0].runs == 2
    with pytest.raises(LookupError, match="train_rbm"):
        models([fake()])


def final(sampler, scores, seed=0, **data):
    """A record with the ISL of 1, 10, 100 and 1000 samples."""
    return fake(
        {"step": [1, 10, 100, 1000], "isl": scores}, sampler=sampler, seed=seed,
        stored={"parzen": {}}, isl=scores[-1], parzen=-80.0, commonest_share=0.5,
        data={"variant": "usps", **data},
    )  # fmt: skip


def test_the_table_counts_the_samples_that_are_as_good():
    records = [
        final("block_gibbs", [-100, -95, -90, -80]),
        final("block_gibbs", [-100, -95, -93, -92], 1),
        final("rates_fpcd", [-100, -95, -85, -78]),
        final("rates_fpcd", [-100, -95, -87, -78], 1),
    ]
    table = final_isl(records, "usps").set_index("samples of")
    count = "samples as good as 100 of rates-FPCD"
    assert table.loc["Block Gibbs", count].mean == 1000  # the aim is -86
    assert table.loc["Block Gibbs", "reached"] == "1 of 2"
    assert table.loc["rates-FPCD", "reached"] == "2 of 2"
    assert table.loc["rates-FPCD", "ISL"].mean == -78
    assert table.loc["rates-FPCD", "paper"].mean == -78.5
    assert table.loc["training set", "ISL"].mean == -80
    with pytest.raises(LookupError, match="rates-FPCD"):
        final_isl(records[:2], "usps")


def test_substitute_data_stand_beside_no_isl_of_the_paper():
    own = final("rates_fpcd", [-100, -95, -85, -78])
    other = final("rates_fpcd", [-100, -95, -85, -78], variant="digits", substitute=True)
    assert final_isl([own], "usps")["variant"].tolist() == ["usps"] * 2
    table = final_isl([other], "usps")
    assert table["paper"].tolist() == [None, None]
    assert table["variant"].tolist() == ["SUBSTITUTE: digits"] * 2
