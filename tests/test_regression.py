"""task=regression: what it records, and the scores of its predictions."""

import numpy as np
import pytest
import torch

from latticework.data.published_tables import sklearn_table
from latticework.data.splits import count_repeated, split
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.regression import (
    between,
    calibration_error,
    coverage,
    mean_squared_errors,
    regression,
    rmse,
)
from latticework.models.bayes_net import synthetic_bayes_net
from latticework.models.regression import synthetic_regression
from latticework.samplers.langevin import DMALA, DULA
from latticework.sampling.starts import uniform

MODEL = synthetic_bayes_net(1, 8)
SETTINGS = {"burn_in": 20, "start": uniform, "points": 5}


def table(binary=True):
    content, name = sklearn_table(binary)
    features = content.features.to_numpy(np.float64)
    return split(features, content.targets, tuple(content.features), name, seed=0, limit=150)


def sampled(path, sampler, data, seed=0, steps=40, **changes):
    path.mkdir(exist_ok=True)
    run, settings = Run(path, seed=seed), {**SETTINGS, **changes}
    budget = Budget(chains=6, steps=steps, every=4)
    regression(model=MODEL, sampler=sampler, data=data, run=run, budget=budget, **settings)
    return run


def test_what_is_recorded_is_what_the_states_predict(tmp_path):
    data = table()
    run = sampled(tmp_path, DMALA(0.1), data)
    record = Record(tmp_path, {})
    assert list(record.metrics["step"]) == list(range(0, 41, 4))
    counts = {"train": len(data.train), "test": len(data.test), "repeated": count_repeated(data)}
    assert run.notes["rows"] == {**counts, "between": 0}
    assert (record.metrics.coverage == 0).all()  # all targets are 0 and 1

    model = MODEL.on(data.train.features, data.train.targets)
    x = torch.from_numpy(record.arrays("last")["x"]).float()
    fitted, last = model(x), record.metrics.iloc[-1]
    assert last.train_log_likelihood == pytest.approx(float(fitted.mean()) / model.scale, rel=1e-4)
    each = model.predict(x, data.test.features)
    errors = (each - data.test.targets).square()
    assert last.test_log_likelihood == pytest.approx(-float(errors.mean()), rel=1e-4)
    error = (each.mean(0) - data.test.targets).square().mean().sqrt()
    assert last.test_rmse == pytest.approx(float(error), rel=1e-4)
    assert last.test_rmse < errors.mean().sqrt()  # control: a mean predicts better than its parts

    stored = record.arrays("predictions")
    averaged = np.sqrt(np.mean((stored["averaged"] - stored["targets"]) ** 2))
    assert last.test_rmse_averaged == pytest.approx(averaged, rel=1e-4)
    assert np.abs(stored["averaged"] - stored["last"]).max() > 1e-3
    before = record.metrics[record.metrics.step <= 20]
    assert before.test_rmse_averaged.isna().all()
    assert record.metrics.train_log_likelihood.iloc[-1] > record.metrics.train_log_likelihood[0]


def test_the_average_is_of_the_readings_after_burn_in(tmp_path):
    data = table()
    sampled(tmp_path / "short", DULA(0.1), data, steps=4, burn_in=0)
    sampled(tmp_path / "long", DULA(0.1), data, steps=8, burn_in=0)
    sampled(tmp_path / "late", DULA(0.1), data, steps=8, burn_in=4)
    short, long, late = (
        Record(tmp_path / name, {}).arrays("predictions") for name in ("short", "long", "late")
    )
    np.testing.assert_allclose(long["averaged"], (short["last"] + long["last"]) / 2, atol=1e-6)
    np.testing.assert_allclose(late["averaged"], long["last"], atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"burn_in": 40}, "burn_in must be 0 or more and less than steps, got 40 and 40"),
        ({"data": None}, "needs a table, such as data=compas.*got NoneType and BayesNet"),
        ({"model": synthetic_regression(9, 3)}, "such as model=bayes_net; got Table and BinaryReg"),
    ],
)
def test_bad_settings_say_so(tmp_path, changes, message):
    given = {"model": MODEL, "sampler": DULA(0.1), "data": table(), **SETTINGS, **changes}
    given["budget"] = Budget(chains=6, steps=40, every=4)
    with pytest.raises(ValueError, match=message):
        regression(run=Run(tmp_path), **given)


# Numbers of predictions, by hand.


def test_errors_of_predictions():
    each, targets = torch.tensor([[0.0, 1.0], [1.0, 0.5]]), torch.tensor([0.0, 1.0])
    torch.testing.assert_close(mean_squared_errors(each, targets), torch.tensor([0.0, 0.625]))
    assert rmse(each.mean(0), targets) == pytest.approx(((0.25 + 0.0625) / 2) ** 0.5)


def test_calibration_error():
    """Bins 0.2-0.3 and 0.9-1: gaps |0.25 - 1/4| and |0.95 - 1/2| of 4 and 2 of 6 rows."""
    mean = torch.tensor([0.25] * 4 + [0.95] * 2)
    targets = torch.tensor([1.0, 0, 0, 0, 1, 0])
    assert calibration_error(mean, targets) == pytest.approx(0.45 * 2 / 6)
    assert calibration_error(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0])) == 0
    # Gaps of opposite signs in two bins do not cancel.
    assert calibration_error(torch.tensor([0.25, 0.75]), torch.tensor([1.0, 0.0])) == 0.75


def test_coverage():
    """Quantiles 0.25 and 0.75 of 0, 1, .., 4 are 1 and 3."""
    each = torch.arange(5.0).unsqueeze(1).expand(5, 4) / 4
    assert coverage(each, torch.tensor([0.0, 0.25, 0.75, 0.9]), level=0.5) == 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sigmoid_that_is_rounded_to_a_target_does_not_cover_it(dtype):
    """Outputs of 40, 110 and -800 round to 1, 1 and 0; no exact prediction is either."""
    outputs = torch.tensor([40.0, 110.0, -800.0, 0.0], dtype=dtype).expand(5, 4)
    targets = torch.tensor([1.0, 1.0, 0.0, 0.5], dtype=dtype)
    predictions = outputs.sigmoid()
    assert (predictions[0] == targets).all()
    assert coverage(predictions, targets) == 0.25
    assert between(targets).tolist() == [False, False, False, True]


def test_coverage_reaches_the_share_of_targets_that_are_between(tmp_path):
    """Three of the test rows have targets of 0 or 1; chains from fair coins cover most others."""
    data = table(binary=False)
    data.test.targets[:3] = torch.tensor([0.0, 1.0, 1.0])
    run = sampled(tmp_path, DULA(0.1), data)
    record = Record(tmp_path, {})
    assert run.notes["rows"]["between"] == len(data.test) - 3
    most = run.notes["rows"]["between"] / run.notes["rows"]["test"]
    assert 0 < record.metrics.coverage.max() <= most
