"""The indirect sampling likelihood against its definition, and as a distribution."""

import math

import numpy as np
import pytest
import torch
from fakes import fake
from torch import Generator

from latticework.data.base import Dataset, some
from latticework.experiments.figures.tables.isl_scores import final_isl
from latticework.experiments.records.budget import Budget
from latticework.experiments.records.record import Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.isl import isl_curve
from latticework.experiments.tasks.measures.sampling_likelihood import (
    best_beta,
    curve,
    histograms,
    log_density,
    own_beta_curve,
    score,
)
from latticework.experiments.tasks.measures.validation_isl import ValidationISL
from latticework.models.rated_rbm import RatedRBM
from latticework.models.rbm import RBM
from latticework.samplers.block_gibbs import BlockGibbs
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
    carry = metric.update(carry, state._replace(x=torch.full((2, 6), 0.3)), None)
    with pytest.raises(ValueError, match=r"grey samples is not defined; .* sampler.emit=sample"):
        metric.read(carry)


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
