"""Learning by persistent contrastive divergence: its gradient, its parts, and that it learns."""

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import Generator
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import LinearLR

from latticework.data.base import Dataset, some
from latticework.experiments.figures.learning import learning
from latticework.experiments.records.record import Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.ebm_learning import DivergedError, Learner, ebm_learning
from latticework.experiments.tasks.learning.evaluations import CouplingError, Gap
from latticework.models.ising import DenseIsing, Lattice, LearnedIsing
from latticework.models.rbm import RBM
from latticework.models.resnet import ResNet
from latticework.samplers.acs import ACS
from latticework.samplers.base import Info
from latticework.samplers.dlmc import DLMC
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.hamming import HammingBall
from latticework.samplers.langevin import DMALA, DULA
from latticework.samplers.path_auxiliary import PAFS
from latticework.samplers.relaxed import RMALA
from latticework.sampling.starts import data_mean, uniform

TRUTH, TRUTH_8 = Lattice((2, 3), 0.2), Lattice((2, 4), 0.2)


def rows(model, count, seed=0):
    states = model.domain.enumerate()
    law = model(states).softmax(0)
    return states[torch.multinomial(law, count, True, generator=Generator().manual_seed(seed))]


def dataset(model=TRUTH, count=2000):
    x = rows(model, count).byte()
    return Dataset(x, x[:50], x[:50], (x.shape[1],), "made up")


def learned():
    torch.manual_seed(0)
    return LearnedIsing((2, 3), 0.1)


def learner(run, model, data, sampler=None, **settings):
    defaults = {
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
    return Learner(model, sampler or DMALA(0.2), data, run, **{**defaults, **settings})


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
    ebm_learning(model=model, sampler=sampler or DMALA(0.2), data=data, run=run, **settings)
    return Record(run.path, {})


# The gradient.


def network(model=None):
    torch.manual_seed(0)
    model = model or ResNet((2, 4), 3, 2)
    for parameter in model.parameters():
        parameter.normal_(0, 0.5)
    return model


@pytest.mark.parametrize("make", [network, lambda: network(RBM(8, 3))], ids=["net", "rbm"])
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
    assert largest_z(rows(DenseIsing(torch.zeros(8, 8)), count)) > 20  # control: uniform negatives


def test_the_short_way_of_the_ising_model_is_the_long_way(tmp_path):
    model = learned().double()
    positive, negative = rows(TRUTH, 30).double(), rows(TRUTH, 20, seed=1).double()
    value = model.contrast(positive, negative)
    found = model.coupling.grad.clone()
    other = DenseIsing(model.coupling.data).requires_grad_(True)
    loss = other(negative).mean() - other(positive).mean()
    loss.backward()
    torch.testing.assert_close(value, loss.detach())
    torch.testing.assert_close(found, other.coupling.grad)
    default = DenseIsing(model.coupling.data)
    torch.testing.assert_close(default.contrast(positive, negative), value)
    torch.testing.assert_close(default.coupling.grad, found)
    assert not any(parameter.requires_grad for parameter in default.parameters())
    model.contrast(positive, negative)  # adds to what is there
    torch.testing.assert_close(model.coupling.grad, 2 * found)


def test_the_coupling_stays_symmetric_with_an_empty_diagonal(tmp_path):
    model = learned()
    assert [name for name, _ in model.named_parameters()] == ["coupling"]
    learn(Run(tmp_path), model, dataset(), l1=0.01)
    assert torch.equal(model.coupling, model.coupling.T)
    assert not model.coupling.diag().any()
    assert not model.bias.any()


def test_l1_and_the_largest_gradient(tmp_path):
    model, data = learned(), dataset()
    positive, negative = rows(TRUTH, 30), rows(TRUTH, 30, seed=1)
    made = learner(Run(tmp_path), model, data)
    _, norm = made.gradient(positive, negative)
    plain = model.coupling.grad.clone()
    assert norm == pytest.approx(float(plain.norm()))
    learner(Run(tmp_path), model, data, l1=0.3).gradient(positive, negative)
    torch.testing.assert_close(model.coupling.grad, plain + 0.3 * model.coupling.sign())
    made = learner(Run(tmp_path), model, data, largest_gradient=norm / 4)
    assert made.gradient(positive, negative)[1] == pytest.approx(norm)  # as it was
    torch.testing.assert_close(model.coupling.grad, plain / 4, rtol=1e-4, atol=1e-7)


# Learning.


class Still(DULA):
    """Moves nothing."""

    def step(self, state, model, rng):
        return state, Info(state.x.new_ones(len(state.x)))


@pytest.mark.parametrize("settings", [{"buffer": 100}, {"buffer": 300}], ids=["pcd", "replay"])
@pytest.mark.parametrize("sampler", [DMALA(0.3), Gibbs()], ids=repr)
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
    model = network()
    data = dataset(TRUTH_8)
    record = learn(
        Run(tmp_path), model, data, ema=0.9, buffer=30, start=data_mean, evaluations=[Gap(20)]
    )
    table = record.metrics
    assert list(table["step"]) == [0, 10, 20]
    assert list(table) == [
        "step", "seconds", "loss", "gradient", "acceptance", "above_train", "above_negatives",
    ]  # fmt: skip
    assert table["seconds"].is_monotonic_increasing
    assert table.iloc[1:].notna().all(axis=None)
    names = {file.name for file in tmp_path.glob("*.safetensors")}
    assert names == {
        "model.safetensors", "ema.safetensors", "ema_000010.safetensors", "ema_000020.safetensors",
    }  # fmt: skip
    assert record.arrays("buffer")["x"].shape == (30, 8)
    assert np.array_equal(record.arrays("last")["x"], record.arrays("buffer")["x"])
    assert record.arrays("samples_000010")["x"].dtype == np.uint8

    from safetensors.torch import load_file

    stored = {name: load_file(tmp_path / name) for name in names}
    for key, value in model.state_dict().items():
        assert torch.equal(stored["model.safetensors"][key], value)
        assert torch.equal(stored["ema.safetensors"][key], stored["ema_000020.safetensors"][key])
    fresh = network()
    fresh.load_state_dict(stored["ema.safetensors"])
    x = rows(TRUTH_8, 5)
    assert not torch.equal(fresh(x), model(x))


def test_the_average_is_the_exponential_one(tmp_path):
    made = learner(Run(tmp_path), learned(), dataset(), ema=0.9)
    expected = None
    for iteration in range(1, 6):
        made.update(iteration)
        now = made.model.coupling.clone()
        expected = now if expected is None else 0.9 * expected + 0.1 * now
    torch.testing.assert_close(made.best().coupling, expected)
    assert not torch.allclose(expected, made.model.coupling)


def test_the_schedule_warms_up(tmp_path):
    model = learned()
    warm = partial(LinearLR, start_factor=0.1, total_iters=9)
    made = learner(Run(tmp_path), model, dataset(), schedule=warm)
    rates = []
    for iteration in range(1, 13):
        rates.append(made.memory.stepper.param_groups[0]["lr"])
        made.update(iteration)
    expected = [0.01 * min(10, iteration) for iteration in range(1, 13)]
    assert rates == pytest.approx(expected)


def test_batches_are_passes_in_new_orders(tmp_path):
    rows = torch.eye(25, dtype=torch.uint8)
    numbered = Dataset(rows, rows[:1], rows[:1], (25,), "")
    model = DenseIsing(torch.zeros(25, 25))
    made = learner(Run(tmp_path), model, numbered, stepper=SGD([torch.zeros(1)], lr=1))
    drawn = [made.positive().argmax(1).tolist() for _ in range(4)]
    for first, second in (drawn[:2], drawn[2:]):  # of 25 rows, 20 a pass
        assert len({*first, *second}) == 20
    assert drawn[0] != drawn[2]


# The chains.


def test_a_replay_buffer_moves_a_batch_at_a_time_and_puts_it_back(tmp_path):
    made = learner(Run(tmp_path), learned(), dataset(), buffer=200, steps=10)
    before = made.memory.buffer.clone()
    negative = made.negative()
    moved = (made.memory.buffer != before).any(1)
    assert 0 < moved.sum() <= 10
    rest = {tuple(row) for row in negative.tolist()}
    assert all(tuple(row) in rest for row in made.memory.buffer[moved].tolist())
    still = learner(Run(tmp_path), learned(), dataset(), Still(0.1), buffer=200)
    before = still.memory.buffer.clone()
    still.negative()
    assert torch.equal(still.memory.buffer, before)  # each chain where it was taken from


@pytest.mark.parametrize("sampler", [Gibbs(), HammingBall()], ids=repr)
def test_a_scan_goes_on_from_one_batch_to_the_next(sampler):
    model = Lattice((3, 4), 0.2)
    rng = Generator().manual_seed(0)
    state = sampler.init(model.domain.uniform(5, rng), model)
    for _ in range(3):
        state, _ = sampler.step(state, model, rng)
    scan = [part.clone() for part in state.scan]
    x = model.domain.uniform(5, rng)
    moved = sampler.moved_to(x, state, model)
    assert torch.equal(moved.x, x)
    assert all(torch.equal(a, b) for a, b in zip(moved.scan, scan, strict=True))
    sampler.step(moved, model, rng)
    assert torch.equal(x, moved.x) or x.data_ptr() != moved.x.data_ptr()


def test_a_cycle_goes_on_from_one_batch_to_the_next():
    model, sampler = Lattice((3, 4), 0.2), ACS(2.0, 0.2, 4)
    rng = Generator().manual_seed(0)
    state = sampler.init(model.domain.uniform(5, rng), model)
    for _ in range(3):
        state, _ = sampler.step(state, model, rng)
    x = model.domain.uniform(5, rng)
    moved = sampler.moved_to(x, state, model)
    assert moved.phase.item() == 3
    torch.testing.assert_close(moved.log_prob, model.log_prob(x))


@pytest.mark.parametrize("sampler", [DMALA(0.2), PAFS(2), DLMC(0.2), RMALA(0.1, 1.0)], ids=repr)
def test_others_begin_anew_where_they_are_put(sampler):
    model = Lattice((3, 4), 0.2)
    rng = Generator().manual_seed(0)
    state = sampler.init(model.domain.uniform(5, rng), model)
    x = model.domain.uniform(5, rng)
    assert torch.equal(sampler.moved_to(x, state, model).x, x)


def test_too_small_a_buffer_and_no_data_are_told(tmp_path):
    with pytest.raises(ValueError, match="a batch of 10 at least, got 4"):
        learn(Run(tmp_path), learned(), dataset(), buffer=4)
    with pytest.raises(ValueError, match="learning needs a data set"):
        learn(Run(tmp_path), learned(), None)


# Divergence.


class Breaking(LearnedIsing):
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
    assert {"buffer", "stepper", "rng", "clock"} <= set(saved)
    assert saved["buffer"].shape == (10, 6)
    assert list(Record(tmp_path, {}).metrics["step"]) == list(range(8))
    control = LearnedIsing((2, 3))
    learn(Run(tmp_path / "control"), control, dataset(), every=1)
    assert not (tmp_path / "control" / "diverged.pt").exists()


def test_a_loss_beyond_its_bound_stops_it_too(tmp_path):
    model = learned()
    model.coupling.fill_(1e4).fill_diagonal_(0)
    learn(Run(tmp_path / "unbounded"), model, dataset(), iterations=1)
    model.coupling.fill_(1e4).fill_diagonal_(0)
    with pytest.raises(DivergedError, match=r"at update 1 the loss is -?\d+"):
        learn(Run(tmp_path / "bounded"), model, dataset(), iterations=1, largest_loss=1e3)
    assert (tmp_path / "bounded" / "diverged.pt").exists()


def test_an_unbounded_gradient_stops_it_too(tmp_path):
    model = learned()
    model.coupling.fill_(1e36).fill_diagonal_(0)  # finite energies, as a start needs
    with pytest.raises(DivergedError, match="the norm of its gradient inf"):
        learn(Run(tmp_path), model, dataset(), l1=1e38, optimiser=partial(SGD, lr=1.0))


# Readings.


def test_the_coupling_error_is_over_all_entries():
    model = LearnedIsing((2, 3))
    model.coupling.copy_(TRUTH.matrix() + 0.05)
    reading = CouplingError(TRUTH)(model, dataset(), torch.zeros(1, 6))
    assert float(reading["log_rmse"]) == pytest.approx(math.log(0.05), abs=1e-5)


def record_of(tmp_path, sampler, steps, end):
    folder = tmp_path / f"{sampler}{steps}"
    folder.mkdir()
    folder.joinpath("metrics.csv").write_text(f"step,seconds,log_rmse\n0,0,-1\n10,2,{end}\n")
    config = {"sampler": {"_target_": f"samplers.{sampler}"}, "task": {"steps": steps}}
    return Record(folder, {"config": config, "choices": {"sampler": sampler.lower()}})


def test_the_figure_compares_at_the_steps_that_all_have(tmp_path):
    records = [
        record_of(tmp_path, "DMALA", 5, -4), record_of(tmp_path, "DMALA", 10, -5),
        record_of(tmp_path, "GWG", 5, -2), record_of(tmp_path, "GWG", 50, -3),
    ]  # fmt: skip
    settings = {"metric": "log_rmse", "title": "", "setting": "task.steps", "axis": "steps"}
    panels = learning(records, **settings).axes
    assert [line.get_ydata().tolist() for line in panels[0].lines] == [[-1, -2], [-1, -4]]
    assert panels[1].lines[0].get_xdata().tolist() == [0, 2]
    assert panels[2].lines[1].get_xydata().tolist() == [[5, -4], [10, -5]]
    shown = learning(records, **settings, shown=50).axes[0].lines
    assert [line.get_ydata().tolist() for line in shown] == [[-1, -3]]
    with pytest.raises(LookupError, match="have no value of the setting and seed in common"):
        learning(records[1:3], **settings)
    with pytest.raises(LookupError, match="no record holds"):
        learning([], **settings)


def test_learning_compares_at_equal_iterations(tmp_path):
    """The curve of a longer run is drawn whole; final values are at the length of the others."""
    records = [record_of(tmp_path, "DMALA", 5, -4), record_of(tmp_path, "GWG", 5, -2)]
    longer = tmp_path / "longer"
    longer.mkdir()
    longer.joinpath("metrics.csv").write_text("step,seconds,log_rmse\n0,0,-1\n10,2,-2\n20,4,-6\n")
    config = {**records[1].config, "task": {"steps": 5, "iterations": 20}}
    records.append(Record(longer, {"config": config, "choices": {"sampler": "gwg"}}))
    panels = learning(records, "log_rmse", "", "task.steps", "steps").axes
    assert [line.get_ydata().tolist() for line in panels[0].lines] == [[-1, -2, -6], [-1, -4]]
    assert [line.get_ydata().tolist() for line in panels[2].lines] == [[-2], [-4]]


def test_the_gap_is_a_difference_of_means():
    model = DenseIsing(torch.zeros(6, 6), torch.linspace(0, 1, 6))
    data = dataset()
    negatives = torch.zeros(4, 6)
    reading = Gap(30)(model, data, negatives)
    valid = model(some(data.valid, 30).float()).mean()
    train = model(some(data.train, 30).float()).mean()
    assert float(reading["above_train"]) == pytest.approx(float(valid - train), abs=1e-5)
    assert float(reading["above_negatives"]) == pytest.approx(
        float(valid - model(negatives).mean()), abs=1e-5
    )


def test_the_time_that_is_left_is_told(tmp_path, caplog):
    caplog.set_level("INFO")
    run = Run(tmp_path)
    learn(run, copy.deepcopy(learned()), dataset())
    assert "s an update: about" in caplog.text
    assert run.notes["seconds_per_update"] > 0
