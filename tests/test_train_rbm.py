"""Training of RBMs: what each source of negatives promises, and what a record of it holds."""

import json
import math
from typing import ClassVar

import pytest
import torch
from torch import Generator
from torch.optim import SGD

import latticework as lw
from latticework.data.base import Dataset
from latticework.experiments.records.record import Record
from latticework.experiments.records.training_quality import why_not_trained
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures.training_quality import TrainingQuality
from latticework.experiments.tasks.target import pretrained, train
from latticework.experiments.tasks.train_rbm import train_rbm
from latticework.models.scaled_rbm import ScaledRBM
from latticework.samplers.block_gibbs import BlockGibbsState
from latticework.sampling.learning.negatives import (
    Contrastive,
    FastPersistent,
    Herding,
    Persistent,
)

GIBBS = lw.BlockGibbs()
EVERY = [
    Contrastive(GIBBS),
    Persistent(GIBBS, 20),
    FastPersistent(GIBBS, 20, fast_step_size=0.05),
    Herding(20),
]


def stripes(rows=300):
    """Two kinds of rows of 8 sites, with noise, which no independent sites explain."""
    rng = Generator().manual_seed(0)
    kind = torch.randint(2, (rows, 1), generator=rng)
    flips = torch.rand(rows, 8, generator=rng) < 0.1
    return ((torch.arange(8) < 4) ^ kind.bool() ^ flips).byte()


DATA = Dataset(stripes()[:200], stripes()[200:250], stripes()[250:], (8,), "stripes")


def make(run, hidden=4, kind=lw.RBM):
    with run.seed_global_rng("model"):
        return kind(8, hidden)


def log_likelihood(model):
    return float(model(DATA.train.float()).double().mean() - model.log_z_and_mean()[0])


def trained(run, negatives, updates=400, **settings):
    model = make(run)
    settings = {"batch": 20, "learning_rate": 0.05, **settings}
    for _ in train(model, DATA, run, negatives, updates=updates, **settings):
        pass
    return model


@pytest.mark.parametrize("negatives", EVERY[:3], ids=lambda n: type(n).__name__)
def test_every_method_learns_that_there_are_two_modes(tmp_path, negatives):
    """Independent sites reach -8 log 2 at best."""
    model = trained(Run(tmp_path), negatives, updates=800, linear_decay=True)
    independent = -8 * torch.log(torch.tensor(2.0)).item()
    assert log_likelihood(model) > independent + 1
    assert log_likelihood(make(Run(tmp_path))) < independent + 0.1  # control: the start
    assert not any(parameter.requires_grad for parameter in model.parameters())


class Counting(lw.Sampler):
    """A step adds 1, so that a state says how many steps it is away from where."""

    def at(self, x, model):
        return BlockGibbsState(x)

    def step(self, state, model, rng):
        return BlockGibbsState(state.x + 1), lw.Info(state.x.new_ones(len(state.x)))


def test_negatives_start_at_the_batch_or_where_they_were_left(tmp_path):
    """CD at the batch at hand, SML and FPCD where the last update left their own chains."""
    model, rng = make(Run(tmp_path)), Generator().manual_seed(0)
    positive = DATA.train[:5].float()
    for batch in (positive, positive.flip(0)):
        x, memory = Contrastive(Counting()).draw(None, model, batch, rng)
        assert torch.equal(x, batch + 1)
        assert memory is None
    for negatives in (Persistent(Counting(), 7), FastPersistent(Counting(), 7)):
        memory = negatives.start(model, rng)
        drawn = []
        for _ in range(3):
            x, memory = negatives.draw(memory, model, positive, rng)
            drawn.append(x)
        assert len(x) == 7
        assert torch.equal(drawn[1], drawn[0] + 1)
        assert torch.equal(drawn[2], drawn[0] + 2)


class Watched(Herding):
    """Keeps its negatives."""

    drawn: ClassVar[list] = []

    def draw(self, memory, model, positive, rng):
        x, memory = super().draw(memory, model, positive, rng)
        self.drawn.append(x.clone())
        return x, memory


@pytest.mark.slow
def test_herded_samples_have_the_statistics_of_the_data(tmp_path):
    """The parameters do not converge, but the samples drawn meanwhile have the data's moments."""
    trained(Run(tmp_path), Watched(1), 4000, optimiser=SGD, learning_rate=0.001, batch=200)
    x, data = torch.cat(Watched.drawn[1000:]), DATA.train.float()
    assert (x.mean(0) - data.mean(0)).abs().max() < 0.05
    correlations, wanted = torch.corrcoef(x.T), torch.corrcoef(data.T)
    assert (correlations * wanted).sum() > 0.7 * wanted.square().sum()


def test_fast_weights_of_no_step_size_are_sml(tmp_path):
    slow, fast, control = (
        trained(Run(tmp_path), n, updates=50)
        for n in (Persistent(GIBBS, 20), FastPersistent(GIBBS, 20, 0.0), EVERY[2])
    )
    assert torch.equal(slow.weight, fast.weight)
    assert not torch.equal(slow.weight, control.weight)


def test_linear_decay_ends_at_zero(tmp_path):
    rates = []

    class Recorded(SGD):
        def step(self, closure=None):
            rates.append(self.param_groups[0]["lr"])
            return super().step(closure)

    settings = {"optimiser": Recorded, "linear_decay": True, "learning_rate": 0.4}
    trained(Run(tmp_path), EVERY[0], updates=4, **settings)
    assert rates == pytest.approx([0.4, 0.3, 0.2, 0.1])


def test_fast_weights_are_the_decayed_sum_of_the_gradients(tmp_path):
    model, rng = make(Run(tmp_path)), Generator().manual_seed(0)
    negatives = FastPersistent(GIBBS, 5, fast_step_size=0.3, decay=0.5)
    memory, expected = negatives.start(model, rng), torch.zeros(8, 4)
    for _ in range(4):
        _, memory = negatives.draw(memory, model, DATA.train[:5].float(), rng)
        torch.testing.assert_close(memory[1].weight, model.weight + expected)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=rng)
        memory = negatives.learn(memory, model)
        expected = 0.5 * expected - 0.3 * model.weight.grad


def test_visible_biases_start_at_zero_unless_the_data_are_asked_for(tmp_path):
    def bias(**settings):
        settings |= {"updates": 1, "learning_rate": 1e-6}
        return trained(Run(tmp_path), EVERY[0], **settings).visible_bias

    torch.testing.assert_close(bias(visible_bias="data"), DATA.mean.logit(), rtol=0, atol=1e-5)
    torch.testing.assert_close(bias(), torch.zeros(8), rtol=0, atol=1e-5)
    assert DATA.mean.logit().abs().max() > 0.05  # control: the two differ
    with pytest.raises(ValueError, match="visible_bias must be one of"):
        bias(visible_bias="mean")


def pretrain(run, kind=lw.RBM, **settings):
    settings = {"epochs": 1, "batch": 20, "learning_rate": 0.05, **settings}
    return pretrained(model=make(run, kind=kind), data=DATA, run=run, **settings)


def test_a_sampler_alone_means_contrastive_divergence(tmp_path):
    """The artifact's name does not depend on options that were added to training later."""
    names = []

    def made(**settings):
        run = Run(tmp_path, outputs=tmp_path)
        model = pretrain(run, **settings)
        names.extend(run.notes["artifacts"])
        return model

    short, long = (
        made(visible_bias="data", **how)
        for how in ({"sampler": GIBBS}, {"negatives": Contrastive(GIBBS)})
    )
    assert torch.equal(short.weight, long.weight)
    first = json.loads((tmp_path / "artifacts" / names[0] / "spec.json").read_text())
    assert set(first) == {
        "model", "data", "sampler", "updates", "batch", "learning_rate", "seed", "sha256",
    }  # fmt: skip
    made(sampler=GIBBS, visible_bias="data", optimiser=SGD)
    made(sampler=GIBBS, visible_bias="data", linear_decay=True)
    made(sampler=GIBBS)  # biases from zero: another model
    assert len(set(names)) == 5
    with pytest.raises(ValueError, match="needs negatives"):
        made()


def test_a_model_that_carries_rates_gets_those_of_the_training_data(tmp_path):
    run = Run(tmp_path, outputs=tmp_path)
    model = pretrain(run, kind=lw.RatedRBM, sampler=GIBBS)
    expected = lw.RatedRBM(8, 4)
    expected.load_state_dict(model.state_dict())
    expected.set_rates([DATA.train.float()])
    torch.testing.assert_close(model.weight_rates, expected.weight_rates)
    again = pretrain(run, kind=lw.RatedRBM, sampler=GIBBS)  # from disk
    assert torch.equal(again.weight_rates, model.weight_rates)


def test_the_isl_is_read_every_few_epochs_and_after_the_last(tmp_path):
    readings = []
    for every in (1, 3):
        run = Run(tmp_path / str(every))
        run.path.mkdir()
        train_rbm(
            model=make(run, kind=lw.RatedRBM), sampler=lw.RatesFPCD(0.01), data=DATA, run=run,
            negatives=EVERY[2], epochs=8, batch=20, learning_rate=0.05, samples=300, points=50,
            every=every,
        )  # fmt: skip
        readings.append(Record(run.path, {}).metrics.set_index("step"))
    all, some = readings
    assert (list(all.index), list(some.index)) == (list(range(1, 9)), [3, 6, 8])
    assert all.loc[8].equals(some.loc[8])
    found = all["log_likelihood"]
    assert found.max() > found.iloc[0] + 1  # fast weights overshoot now and then
    assert all["isl"].iloc[-1] > all["isl"].iloc[0] + 0.2
    assert Record(run.path, {}).arrays("model")["weight"].shape == (8, 4)


def test_quality_tells_a_trained_model_from_one_whose_samples_are_one_image(tmp_path):
    quality = TrainingQuality(
        lw.BlockGibbs(1), ScaledRBM, chains=50, betas=300, burn_in=50, gibbs_chains=10,
        gibbs_steps=200, gibbs_samples=1000,
    )  # fmt: skip
    run = Run(tmp_path)
    model = pretrain(run, kind=lw.RatedRBM, sampler=GIBBS)
    found = quality.measure(model, DATA, None, run.rng("quality"))
    exact = float(model(DATA.valid.float()).mean() - model.log_z_and_mean()[0])
    assert abs(found["ais_forward"] - exact) < 0.1
    assert abs(found["ais_back"] - exact) < 0.1
    assert why_not_trained(found, exact) != ""  # 256 states: each is more than 1 % of the samples
    assert abs(found["pixel_error"]) < 0.05
    model.visible_bias.data.fill_(-9)
    model.weight.data.zero_()
    blank = quality.measure(model, DATA, None, run.rng("quality"))
    assert blank["commonest_share"] > 0.95
    assert blank["pixel_error"] < -0.1
    reasons = why_not_trained(blank, exact)
    assert all(word in reasons for word in ("below the best", "one state", "pixels"))


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, ""),
        ({"ais_back": -60.1}, "10 nats below the best"),
        ({"ais_forward": -99.0}, "49 nats below the best"),
        ({"commonest_share": 0.01}, "1% of its samples are one state"),
        ({"pixel_error": -0.051}, "share of pixels on off by -0.05"),
        ({"pixel_error": math.nan}, "share of pixels on off by +nan"),
        ({"ais_back": math.nan}, "nan nats below the best"),
    ],
)
def test_a_model_passes_as_trained_within_all_bounds(facts, reason):
    quality = {"ais_forward": -50.0, "ais_back": -51.0, "commonest_share": 0.009}
    assert why_not_trained(quality | {"pixel_error": 0.05} | facts, -50.0) == reason


def test_quality_refuses_samples_that_are_not_whole_rounds():
    with pytest.raises(ValueError, match="gibbs_samples must be a multiple of gibbs_chains"):
        TrainingQuality(lw.BlockGibbs(1), ScaledRBM, gibbs_chains=7)
