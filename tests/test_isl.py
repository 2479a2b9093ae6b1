"""The indirect sampling likelihood against its definition, and as a distribution."""

import math

import numpy as np
import pytest
import torch
from torch import Generator

import latticework as lw
from latticework.data.base import Dataset, fixed_subset
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.isl import isl_curve, score_curves
from latticework.experiments.tasks.measures.sampling_likelihood import (
    CELLS,
    ValidationISL,
    best_beta,
    histograms,
    score,
)
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


@pytest.mark.parametrize("beta", [0.5, 0.8, 0.99])
@pytest.mark.parametrize("cells", [40, CELLS])
def test_it_is_the_definition(beta, cells):
    samples, points = bits(23, 12), bits(11, 12, seed=1, p=0.3)
    expected = brute(samples, points, beta)
    counted = histograms(samples.byte(), points.byte(), cells)
    assert score(counted, beta) == pytest.approx(expected.mean(), abs=1e-10)
    found = [score(row, beta) for row in counted.split(1)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


def test_many_sites_do_not_underflow():
    """784 sites at beta 0.99, every site wrong: exp of it is 0 in float64 and its log is finite."""
    found = score(histograms(torch.zeros(3, 784), torch.ones(2, 784)), 0.99)
    assert found == pytest.approx(784 * math.log(0.01))


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
    noise = (torch.rand(160, 40, generator=rng) < 0.1).float()
    rows = (prototypes.repeat(40, 1) - noise).abs()
    samples, valid, points, sizes = rows[:100], rows[100:140], rows[140:], [2, 10, 100]
    curves, of_valid = score_curves(samples, valid, points, sizes)
    one, own, betas = (curves[name].tolist() for name in ("isl", "isl_own_beta", "own_beta"))
    for n, shared, found, beta in zip(sizes, one, own, betas, strict=True):
        assert beta == best_beta(histograms(samples[:n], valid))
        assert found == pytest.approx(brute(samples[:n], points, beta).mean(), abs=1e-9)
        assert shared == pytest.approx(brute(samples[:n], points, betas[-1]).mean(), abs=1e-9)
    assert of_valid == pytest.approx(brute(samples, valid, betas[-1]).mean(), abs=1e-9)
    assert betas[0] < betas[-1] - 0.02  # few samples want a wider kernel,
    assert own[0] > one[0] + 1  # and are far worse under that of many


@pytest.mark.parametrize(
    ("samples", "points", "message"),
    [
        (torch.full((2, 3), 0.5), torch.zeros(1, 3), "grey values"),
        (torch.zeros(2, 3), torch.zeros(1, 4), "must be"),
        (torch.zeros(0, 3), torch.zeros(1, 3), "need samples and points"),
    ],
)
def test_bad_arguments_say_so(samples, points, message):
    with pytest.raises(ValueError, match=message):
        histograms(samples, points)


class Loader:
    def load(self):
        return Dataset(*[bits(9, 6, seed=s, p=0.1).byte() for s in (1, 2, 3)], (6,), "bits")


def test_grey_samples_and_other_domains_have_no_online_isl():
    """Distances of spins or of ordinal values to rows of 0 and 1 are no mismatches."""
    metric, model = ValidationISL(Loader(), points=5), lw.RBM(6, 3)
    state = lw.BlockGibbs().init(bits(2, 6), model)
    carry = metric.init(model, state, lw.Reference())
    carry = metric.update(carry, state._replace(x=torch.full((2, 6), 0.3)), None, 1)
    with pytest.raises(ValueError, match=r"grey samples is not defined; .* sampler.emit=sample"):
        metric.read(carry)
    for domain in (lw.Binary(6, -1, 1), lw.Ordinal(6, 3)):
        model = lw.Function(lambda x: x.sum(-1), domain)
        state = lw.Gibbs().init(domain.uniform(2, Generator().manual_seed(0)), model)
        with pytest.raises(ValueError, match="the ISL is defined on samples of 0 and 1"):
            metric.init(model, state, lw.Reference())


def test_the_area_under_the_curve_sees_how_fast_it_rises(monkeypatch):
    """By the trapezoid rule on the log axis, at one beta, whatever the number of chains."""
    monkeypatch.delattr(np, "trapezoid", raising=False)  # NumPy 1.26 has none
    model, sizes = lw.RBM(6, 3), [1, 4, 10, 30]
    model.visible_bias.fill_(-1.0)
    for chains in (1, 2):
        metric, kept = ValidationISL(Loader(), points=5, sizes=sizes), []
        for reading in lw.run_chain(
            lw.BlockGibbs(), model, bits(chains, 6), Generator().manual_seed(0),
            steps=40 // chains, every=1, metrics=[metric],
        ):  # fmt: skip
            kept.append(reading.state.x.clone())
            assert reading.values["isl_area"].isnan() == (reading.step * chains < 30)
        samples, points = torch.cat(kept[1:]), fixed_subset(Loader().load().valid, 5)
        beta = best_beta(histograms(samples, points))
        heights = torch.tensor([brute(samples[:n], points, beta).mean() for n in sizes])
        places = torch.tensor(sizes).log()
        expected = float(torch.trapezoid(heights, places) / places[-1])
        assert reading.values["isl_area"].item() == pytest.approx(expected, abs=1e-5)
        assert reading.values["isl"].item() == pytest.approx(
            score(histograms(samples, points), beta), abs=1e-5
        )
    for wrong in ([3], [4, 2], [0, 5], [2, 2]):
        with pytest.raises(ValueError, match="sizes must be two or more that increase"):
            ValidationISL(Loader(), sizes=wrong)


def task(folder, sampler, model, steps=60):
    data = Dataset(*[bits(30, 6, seed=s, p=0.1).byte() for s in (1, 2, 3)], (6,), "bits")
    folder.mkdir()
    run = Run(folder, outputs=folder)
    isl_curve(
        model=model, sampler=sampler, data=data, run=run, budget=Budget(1, steps), start=data_mean
    )
    return run, Record(folder, {})


def test_the_task_records_both_betas_and_where_herding_was_cut_short(tmp_path):
    model = lw.RatedRBM(6, 5)
    for parameter in model.parameters():
        parameter.normal_(generator=Generator().manual_seed(1))
    model.visible_bias.fill_(-1.0)
    model.untrained = False
    model.set_rates([bits(30, 6, seed=1, p=0.1)])
    run, record = task(tmp_path / "gibbs", lw.BlockGibbs(), model)
    table, parzen = record.metrics, record.arrays("parzen")
    assert {"isl", "isl_own_beta", "own_beta"} <= set(table) & set(parzen)
    assert run.notes["beta"] == pytest.approx(table["own_beta"].iloc[-1])
    assert table["isl_own_beta"].iloc[-1] == pytest.approx(table["isl"].iloc[-1], abs=1e-5)
    assert (table["isl_own_beta"] - table["isl"]).abs().max() > 0.01
    assert parzen["beta"][0] == parzen["own_beta"][-1]
    assert "unsettled" not in run.notes
    for sweeps, expected in ((100, 0.0), (1, None)):
        run, _ = task(tmp_path / str(sweeps), lw.RatesHerding(0.3, sweeps=sweeps), model)
        share = run.notes["unsettled"]
        assert 0 < share < 1 if expected is None else share == expected
