"""Fast weights that improve a model: what is measured before and after them."""

import pytest
import torch
from torch import Generator

import latticework as lw
from latticework.data.base import Dataset
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.improvement import headline, improvement
from latticework.experiments.tasks.isl import heat_rbm
from latticework.experiments.tasks.measures.sampling_likelihood import spurious_share
from latticework.experiments.tasks.measures.training_quality import TrainingQuality
from latticework.models.scaled_rbm import ScaledRBM
from latticework.sampling.starts import data_mean

QUALITY = TrainingQuality(
    lw.BlockGibbs(1), ScaledRBM, chains=50, betas=200, burn_in=20, gibbs_chains=10,
    gibbs_steps=100, gibbs_samples=100,
)  # fmt: skip


def two_kinds(rows, seed):
    """Rows of 8 sites: half of them on, with one site in ten flipped."""
    rng = Generator().manual_seed(seed)
    kind = torch.randint(2, (rows, 1), generator=rng).bool()
    return ((torch.arange(8) < 4) ^ kind ^ (torch.rand(rows, 8, generator=rng) < 0.1)).byte()


DATA = Dataset(two_kinds(200, 0), two_kinds(50, 1), two_kinds(50, 2), (8,), "two kinds")


def untrained_model():
    """An RBM that is far from the data: its weights are random."""
    torch.manual_seed(0)
    model = lw.RatedRBM(8, 4)
    model.weight.data.mul_(100)
    model.set_rates([DATA.train.float()])
    model.untrained = False
    return model


def measure(tmp_path, sampler, steps=400):
    run = Run(tmp_path)
    run.path.mkdir(exist_ok=True)
    improvement(
        model=untrained_model(), sampler=sampler, data=DATA, run=run,
        budget=Budget(1, steps, steps // 4), start=data_mean, quality=QUALITY,
    )  # fmt: skip
    return run.notes


def test_the_mean_fast_weights_improve_a_model_that_is_not_optimal(tmp_path):
    facts = measure(tmp_path, lw.RatesFPCD(0.02))
    assert facts["ais_back_after"] > facts["ais_back_before"] + 0.3
    assert facts["ais_forward_after"] > facts["ais_forward_before"] + 0.3
    names = [number.name for number in headline(Record(tmp_path, dict(facts)))]
    assert names[-1] == "distance"


def test_without_fast_weights_nothing_changes(tmp_path):
    facts = measure(tmp_path, lw.RatesFPCD(0.0))
    assert facts["distance"] == 0
    assert facts["ais_back_after"] == pytest.approx(facts["ais_back_before"], abs=0.1)


def test_the_distance_grows_with_the_step(tmp_path):
    small, large = (
        measure(tmp_path / str(size), lw.RatesFPCD(size))["distance"] for size in (0.001, 0.1)
    )
    assert large > 2 * small


@pytest.mark.parametrize(
    ("sampler", "steps", "message"),
    [
        (lw.BlockGibbs(1), 400, "needs a sampler with fast weights"),
        (lw.RatesFPCD(0.02), 3, "even multiple"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path, sampler, steps, message):
    with pytest.raises(ValueError, match=message):
        improvement(
            model=untrained_model(), sampler=sampler, data=DATA, run=Run(tmp_path),
            budget=Budget(1, steps, steps if steps == 3 else 100), start=data_mean,
            quality=QUALITY,
        )  # fmt: skip


def test_a_hot_rbm_has_its_joint_law_flattened():
    model = untrained_model()
    hot = heat_rbm(model, 2.0)
    x = DATA.test.float()
    assert torch.allclose(hot.hidden_inputs(x), model.hidden_inputs(x) / 2)
    assert torch.equal(hot.weight_rates, model.weight_rates)
    with pytest.raises(ValueError, match="must be positive"):
        heat_rbm(model, 0.0)
    with pytest.raises(ValueError, match="needs an RBM with rates"):
        heat_rbm(lw.DenseIsing(torch.zeros(3, 3)), 2.0)


def test_spurious_samples_are_further_from_the_data_than_test_rows():
    rng = Generator().manual_seed(0)
    assert spurious_share(DATA.test, DATA, rng) <= 0.05
    wide = Dataset(
        *(part.repeat(1, 10) for part in (DATA.train, DATA.valid, DATA.test)), (80,), "w"
    )
    noise = torch.randint(2, (300, 80), generator=rng).byte()
    assert spurious_share(noise, wide, rng) > 0.95
    both = torch.cat((wide.train[:100], noise[:100]))
    assert 0.45 < spurious_share(both, wide, rng) <= 0.5
