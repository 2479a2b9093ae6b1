"""Learning by persistent contrastive divergence: its gradient, its parts, and that it learns."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tapes import OnTape
from torch import Generator
from torch.optim import SGD, Adam

import latticework as lw
from latticework.data.base import Dataset, fixed_subset
from latticework.experiments.records.record import Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.buffer_learning import DivergedError, Learning
from latticework.experiments.tasks.ebm_learning import ebm_learning
from latticework.experiments.tasks.measures.learning_progress import CouplingError, Gap
from latticework.sampling.starts import data_mean, uniform

TRUTH, TRUTH_8 = lw.Lattice((2, 3), 0.2), lw.Lattice((2, 4), 0.2)


def rows(model, count, seed=0):
    states = model.domain.enumerate()
    law = model(states).softmax(0)
    return states[torch.multinomial(law, count, True, generator=Generator().manual_seed(seed))]


def dataset(model=TRUTH, count=2000):
    x = rows(model, count).byte()
    return Dataset(x, x[:50], x[:50], (x.shape[1],), "made up")


def learned():
    torch.manual_seed(0)
    return lw.LearnedIsing((2, 3), 0.1)


def learner(run, model, data, sampler=None, **settings):
    defaults = {
        "iterations": 5,
        "steps": 2,
        "batch": 10,
        "l1": 0.0,
        "largest_gradient": math.inf,
        "largest_loss": math.inf,
        "stepper": SGD(model.parameters(), lr=0.1),
        "schedule": None,
        "ema": None,
        "chains": model.domain.uniform(settings.pop("buffer", 10), run.rng("start")),
    }
    return Learning(model, sampler or lw.DMALA(0.2), data, run, **{**defaults, **settings})


def learn(run, model, data, sampler=None, **settings):
    run.path.mkdir(exist_ok=True)
    defaults = {
        "iterations": 20,
        "every": 10,
        "snapshots": 10,
        "steps": 2,
        "batch": 10,
        "buffer": 10,
        "start": uniform,
        "optimiser": partial(Adam, lr=0.01),
    }
    settings = {**defaults, **settings}
    ebm_learning(model=model, sampler=sampler or lw.DMALA(0.2), data=data, run=run, **settings)
    return Record(run.path, {})


# The gradient.


def network(model=None):
    torch.manual_seed(0)
    model = model or lw.ResNet((2, 4), 3, 2)
    for parameter in model.parameters():
        parameter.normal_(0, 0.5)
    return model


@pytest.mark.parametrize("make", [network, lambda: network(lw.RBM(8, 3))], ids=["net", "rbm"])
def test_the_loss_has_the_gradient_of_the_likelihood(tmp_path, make):
    """With exact negatives, each entry within its own sampling error of the exact gradient."""
    model, count = make(), 20_000
    data = rows(TRUTH_8, 40)
    states = model.domain.enumerate()
    model.requires_grad_(True)
    parameters = list(model.parameters())

    def gradient(value):
        return torch.cat([g.flatten() for g in torch.autograd.grad(value, parameters)])

    each = torch.stack([gradient(model(state[None])[0]) for state in states]).double()
    law = model(states).detach().double().softmax(0)
    exact = law @ each - gradient(model(data).mean()).double()
    spread = (law @ (each - law @ each).square() / count).sqrt()
    model.requires_grad_(False)

    def largest_z(negative):
        made = learner(Run(tmp_path), model, dataset(TRUTH_8))
        made.gradient(data, negative)
        found = torch.cat([p.grad.flatten() for p in parameters]).double()
        return ((found - exact) / (spread + 1e-6)).abs().max()

    assert largest_z(rows(model, count)) < 4.5  # of 50 to 300 entries
    assert (
        largest_z(rows(lw.DenseIsing(torch.zeros(8, 8)), count)) > 20
    )  # control: uniform negatives


def test_the_short_way_of_the_ising_model_is_the_long_way():
    model = learned().double()
    positive, negative = rows(TRUTH, 30).double(), rows(TRUTH, 20, seed=1).double()
    default = lw.DenseIsing(model.coupling.data)
    torch.testing.assert_close(
        default.contrast(positive, negative), model.contrast(positive, negative)
    )
    torch.testing.assert_close(default.coupling.grad, model.coupling.grad)
    assert not any(parameter.requires_grad for parameter in default.parameters())
    model.contrast(positive, negative)  # adds to what is there
    torch.testing.assert_close(model.coupling.grad, 2 * default.coupling.grad)


def test_l1_and_the_largest_gradient(tmp_path):
    model, data = learned(), dataset()
    positive, negative = rows(TRUTH, 30), rows(TRUTH, 30, seed=1)
    made = learner(Run(tmp_path), model, data)
    made.gradient(positive, negative)
    norm = made.clip_gradient()
    plain = model.coupling.grad.clone()
    assert norm == pytest.approx(float(plain.norm()))
    made = learner(Run(tmp_path), model, data, l1=0.3)
    made.gradient(positive, negative)
    made.clip_gradient()
    torch.testing.assert_close(model.coupling.grad, plain + 0.3 * model.coupling.sign())
    made = learner(Run(tmp_path), model, data, largest_gradient=norm / 4)
    made.gradient(positive, negative)
    assert made.clip_gradient() == pytest.approx(norm)  # as it was
    torch.testing.assert_close(model.coupling.grad, plain / 4, rtol=1e-4, atol=1e-7)


# Learning.


class Still(lw.DULA):
    """Moves nothing."""

    def step(self, state, model, rng):
        return state, lw.Info(state.x.new_ones(len(state.x)))


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"buffer": 100}, {"buffer": 300}], ids=["pcd", "replay"])
@pytest.mark.parametrize("sampler", [lw.DMALA(0.3), lw.Gibbs()], ids=repr)
def test_a_small_ising_model_is_recovered(tmp_path, sampler, settings):
    settings = {"iterations": 400, "every": 100, "steps": 6, "batch": 100, **settings}
    settings["evaluations"] = [CouplingError(TRUTH)]
    record = learn(Run(tmp_path), learned(), dataset(), sampler, **settings)
    error = record.metrics["log_rmse"].apply(math.exp)
    assert error.iloc[0] > 0.1
    assert error.iloc[-1] < 0.04  # 2,000 rows determine an entry to about 0.01
    still = learn(Run(tmp_path / "still"), learned(), dataset(), Still(0.1), **settings)
    assert still.metrics["log_rmse"].apply(math.exp).iloc[-1] > 0.1  # control


def test_a_record_holds_what_it_says(tmp_path):
    model, data = network(), dataset(TRUTH_8)
    record = learn(
        Run(tmp_path), model, data, ema=0.9, buffer=30, start=data_mean, evaluations=[Gap(20)]
    )
    table = record.metrics
    assert list(table["step"]) == [0, 10, 20]
    assert list(table) == [
        "step", "seconds", "loss", "gradient", "acceptance", "above_train", "above_negatives",
    ]  # fmt: skip
    assert table.iloc[1:].notna().all(axis=None)
    stored = {file.stem: load_file(file) for file in tmp_path.glob("*.safetensors")}
    assert set(stored) == {"model", "ema", "ema_000010", "ema_000020"}
    assert record.arrays("buffer")["x"].shape == (30, 8)
    assert np.array_equal(record.arrays("last")["x"], record.arrays("buffer")["x"])
    assert record.arrays("samples_000010")["x"].dtype == np.uint8
    for key, value in model.state_dict().items():
        assert torch.equal(stored["model"][key], value)
        assert torch.equal(stored["ema"][key], stored["ema_000020"][key])
    assert any(not torch.equal(stored["ema"][key], value) for key, value in stored["model"].items())


def test_the_average_is_the_exponential_one(tmp_path):
    made = learner(Run(tmp_path), learned(), dataset(), ema=0.9)
    expected = None
    for iteration in range(1, 6):
        made.learn(iteration)
        now = made.model.coupling.clone()
        expected = now if expected is None else 0.9 * expected + 0.1 * now
    torch.testing.assert_close(made.averaged_model().coupling, expected)
    assert not torch.allclose(expected, made.model.coupling)


def test_batches_are_passes_in_new_orders(tmp_path):
    rows = torch.eye(25, dtype=torch.uint8)
    numbered = Dataset(rows, rows[:1], rows[:1], (25,), "")
    model = lw.DenseIsing(torch.zeros(25, 25))
    made = learner(Run(tmp_path), model, numbered, stepper=SGD([torch.zeros(1)], lr=1))
    drawn = [made.positive().argmax(1).tolist() for _ in range(4)]
    for first, second in (drawn[:2], drawn[2:]):  # of 25 rows, 20 a pass
        assert len({*first, *second}) == 20
    assert drawn[0] != drawn[2]


# The chains.


def test_a_replay_buffer_moves_a_batch_at_a_time_and_puts_it_back(tmp_path):
    made = learner(Run(tmp_path), learned(), dataset(), buffer=200, steps=10)
    before = made.negatives.buffer.clone()
    negative = made.negative(torch.empty(0))
    moved = (made.negatives.buffer != before).any(1)
    assert 0 < moved.sum() <= 10
    rest = {tuple(row) for row in negative.tolist()}
    assert all(tuple(row) in rest for row in made.negatives.buffer[moved].tolist())
    still = learner(Run(tmp_path), learned(), dataset(), Still(0.1), buffer=200)
    before = still.negatives.buffer.clone()
    still.negative(torch.empty(0))
    assert torch.equal(still.negatives.buffer, before)  # each chain where it was taken from


@pytest.mark.parametrize("sampler", [lw.Gibbs(), lw.HammingBall()], ids=repr)
def test_a_scan_goes_on_from_one_batch_to_the_next(sampler):
    model = lw.Lattice((3, 4), 0.2)
    rng = Generator().manual_seed(0)
    state = sampler.init(model.domain.uniform(5, rng), model)
    for _ in range(3):
        state, _ = sampler.step(state, model, rng)
    scan = [part.clone() for part in state.scan]
    x = model.domain.uniform(5, rng)
    moved = sampler.relocate(x, state, model)
    assert torch.equal(moved.x, x)
    assert all(torch.equal(a, b) for a, b in zip(moved.scan, scan, strict=True))
    sampler.step(moved, model, rng)
    assert torch.equal(x, moved.x) or x.data_ptr() != moved.x.data_ptr()


@pytest.mark.slow
@pytest.mark.parametrize("buffer", [10, 30], ids=["pcd", "replay"])
def test_fused_chains_make_the_updates_of_eager_ones(tmp_path, buffer, plain_tape, monkeypatch):
    """Without a new compilation, and without a step that no update uses."""
    if buffer == 30:  # the same block; PyTorch interprets it
        monkeypatch.setattr("torch._inductor.compile", lambda graph, given, options: graph)
    fused = learner(Run(tmp_path, engine="fused"), learned(), dataset(), buffer=buffer, steps=4)
    (block,) = fused.replay.sampler.compiled.values()
    assert block.steps == 4
    sampler = OnTape(lw.DMALA(0.2))
    eager = learner(Run(tmp_path), learned(), dataset(), sampler, buffer=buffer, steps=4)
    before = eager.model.coupling.clone()
    for iteration in range(1, 6):
        fused.learn(iteration)
        eager.learn(iteration)
    assert not torch.allclose(before, eager.model.coupling, atol=0.01)
    torch.testing.assert_close(fused.model.coupling, eager.model.coupling)
    assert torch.equal(fused.negatives.buffer, eager.negatives.buffer)
    accepted, expected = (made.negatives.carries[0].total for made in (fused, eager))
    torch.testing.assert_close(accepted, expected)
    assert len(fused.replay.sampler.compiled) == 1


# Divergence.


class Breaking(lw.LearnedIsing):
    """Its loss is not a number from some update on."""

    left = 7

    def contrast(self, positive, negative):
        self.left -= 1
        return super().contrast(positive, negative) * (math.nan if self.left < 0 else 1.0)


def test_a_loss_that_is_not_a_number_stops_with_the_state_before_it(tmp_path):
    torch.manual_seed(0)
    model = Breaking((2, 3))
    with pytest.raises(DivergedError, match="at update 8 the loss is nan"):
        learn(Run(tmp_path), model, dataset(), every=1)
    saved = torch.load(tmp_path / "diverged.pt", weights_only=True)
    assert torch.equal(saved["model"]["coupling"], model.coupling)
    assert model.coupling.isfinite().all()
    assert {"buffer", "state", "carries"} == set(saved["negatives"])
    assert {"stepper", "rng", "clock"} <= set(saved)
    assert list(Record(tmp_path, {}).metrics["step"]) == list(range(8))


@pytest.mark.parametrize(
    ("coupling", "settings", "message"),
    [
        (1e4, {"largest_loss": 1e3}, r"at update 1 the loss is -?\d+"),
        (1e36, {"l1": 1e38, "optimiser": partial(SGD, lr=1.0)}, "the norm of its gradient inf"),
    ],
)
def test_a_loss_or_a_gradient_beyond_its_bound_stops_it_too(tmp_path, coupling, settings, message):
    model = learned()
    model.coupling.fill_(coupling).fill_diagonal_(0)
    with pytest.raises(DivergedError, match=message):
        learn(Run(tmp_path), model, dataset(), iterations=1, **settings)
    if coupling == 1e4:  # control
        model.coupling.fill_(coupling).fill_diagonal_(0)
        learn(Run(tmp_path / "unbounded"), model, dataset(), iterations=1)


# Readings.


def test_the_coupling_error_is_over_all_entries():
    model = lw.LearnedIsing((2, 3))
    model.coupling.copy_(TRUTH.matrix() + 0.05)
    reading = CouplingError(TRUTH)(model, dataset(), torch.zeros(1, 6))
    assert float(reading["log_rmse"]) == pytest.approx(math.log(0.05), abs=1e-5)


def test_the_gap_is_a_difference_of_means():
    model = lw.DenseIsing(torch.zeros(6, 6), torch.linspace(0, 1, 6))
    data = dataset()
    negatives = torch.zeros(4, 6)
    reading = Gap(30)(model, data, negatives)
    valid = model(fixed_subset(data.valid, 30).float()).mean()
    train = model(fixed_subset(data.train, 30).float()).mean()
    assert float(reading["above_train"]) == pytest.approx(float(valid - train), abs=1e-5)
    assert float(reading["above_negatives"]) == pytest.approx(
        float(valid - model(negatives).mean()), abs=1e-5
    )
