"""No choice may see test rows: with other test rows, everything that was chosen is the same.

Each test here runs a task twice, on data that differ in the test rows alone. A control in each sees
that the test rows, or the rows that do decide, have an effect.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
import torch
from fakes import fake
from torch import Generator

import latticework as lw
from latticework.data.base import Dataset
from latticework.data.grey import Grey
from latticework.data.sentences import Blanks, Infilling
from latticework.data.splits import split
from latticework.data.text import bag_of_words
from latticework.experiments.papers.claims.rates_step_sizes import decay
from latticework.experiments.records.record import Budget, Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.ais import ais
from latticework.experiments.tasks.ebm_learning import ebm_learning
from latticework.experiments.tasks.isl import isl_curve
from latticework.experiments.tasks.measures.learning_progress import Gap
from latticework.experiments.tasks.measures.sampling_likelihood import ValidationISL
from latticework.experiments.tasks.regression import regression
from latticework.experiments.tasks.target import pretrained
from latticework.experiments.tasks.text_infilling import from_blanks, text_infilling
from latticework.experiments.tasks.train_rbm import train_rbm
from latticework.experiments.tasks.tune import tune
from latticework.sampling.annealing import linear
from latticework.sampling.learning.held_out import log_odds
from latticework.sampling.learning.negatives import Contrastive, Persistent
from latticework.sampling.starts import data_mean, uniform

SITES = 8


def near(prototype, count, noise, seed):
    """Rows near a prototype `[sites]`: each site is another with probability `noise`."""
    flips = torch.rand(count, SITES, generator=Generator().manual_seed(seed)) < noise
    return (prototype.bool() ^ flips).byte()


LEFT = (torch.arange(SITES) < SITES // 2).byte()
DATA = Dataset(
    near(LEFT, 200, 0.1, 0), near(LEFT, 40, 0.1, 1), near(LEFT, 40, 0.1, 2), (SITES,), "left"
)
OTHER_TEST = replace(DATA, test=near(1 - LEFT, 40, 0.4, 3))
OTHER_VALID = replace(DATA, valid=near(1 - LEFT, 40, 0.4, 3))


def run_in(path):
    path.mkdir(parents=True, exist_ok=True)
    return Run(path, outputs=path)


def machine(kind=lw.RBM, toward=LEFT, strength=1.0):
    """An RBM whose visible biases favour a prototype."""
    torch.manual_seed(0)
    model = kind(SITES, 3)
    model.visible_bias.copy_(strength * (2.0 * toward - 1))
    model.untrained = False
    return model


def tasks(path, task):
    """`task` with the data, with other test rows, and with other validation rows."""
    sets = {"as they are": DATA, "test": OTHER_TEST, "valid": OTHER_VALID}
    return [task(run_in(path / name), data) for name, data in sets.items()]


def test_the_betas_of_the_isl_are_chosen_on_validation_rows(tmp_path):
    """That of the samples, and that of the training rows as centres."""

    def task(run, data):
        isl_curve(
            model=machine(), sampler=lw.BlockGibbs(), data=data, run=run,
            budget=Budget(1, 100), start=data_mean,
        )  # fmt: skip
        return run.notes

    notes, test, valid = tasks(tmp_path, task)
    for name in ("beta", "parzen_beta", "validation_isl", "commonest_share", "commonest_on"):
        assert test[name] == notes[name]
    for name in ("beta", "parzen_beta", "validation_isl"):
        assert valid[name] != notes[name]  # control: these rows decide
    for name in ("isl", "parzen"):
        assert test[name] < notes[name] - 1  # control: the test rows are scored


def test_the_state_for_ais_is_chosen_on_validation_rows(tmp_path):
    """The other test rows are nearer to the other state; nothing but their own score changes."""
    states = {name: machine(toward=t).state_dict() for name, t in (("l", LEFT), ("r", 1 - LEFT))}

    def task(run, data):
        ais(
            model=machine(), sampler=lw.BlockGibbs(), data=data, run=run,
            budget=Budget(20, 20, 10), path=lw.ScaledRBM, betas=linear, back=5, burn_in=10,
            trial_steps=10, candidates=lambda **_: states,
        )  # fmt: skip
        score = run.notes["log_likelihood"].pop("test")["mean"]
        return run.notes, score

    (notes, score), (test, other), (valid, _) = tasks(tmp_path, task)
    assert notes["chosen"] == "l"
    assert test == notes  # the scores of the candidates, log Z and its bounds too
    assert other < score - 1  # control
    assert valid["chosen"] == "r"  # control


def test_the_base_of_ais_and_the_start_are_those_of_training_rows():
    for other in (OTHER_TEST, OTHER_VALID):
        assert torch.equal(other.mean, DATA.mean)
        assert torch.equal(log_odds(other), log_odds(DATA))
    assert not torch.equal(replace(DATA, train=1 - DATA.train).mean, DATA.mean)  # control


def test_an_rbm_and_its_rates_are_learned_from_training_rows(tmp_path):
    def task(run, data):
        model = pretrained(
            model=machine(lw.RatedRBM), data=data, run=run, epochs=1, batch=20, learning_rate=0.1,
            negatives=Contrastive(lw.BlockGibbs()),
        )  # fmt: skip
        return torch.cat([value.flatten() for value in model.state_dict().values()])

    state, *others = tasks(tmp_path, task)
    assert all(torch.equal(other, state) for other in others)
    changed = task(run_in(tmp_path / "control"), replace(DATA, train=1 - DATA.train))
    assert not torch.equal(changed, state)


def test_the_training_curve_of_an_rbm_is_that_of_validation_rows(tmp_path):
    """The claim about the best training method chooses the learning rate and the epoch by it."""

    def task(run, data):
        train_rbm(
            model=machine(), sampler=lw.BlockGibbs(), data=data, run=run, epochs=2, batch=20,
            negatives=Persistent(lw.BlockGibbs(), 20), learning_rate=0.1, samples=100, points=30,
        )  # fmt: skip
        return Record(run.path, {}).metrics

    metrics, test, valid = tasks(tmp_path, task)
    pd.testing.assert_frame_equal(test, metrics)
    assert (valid["isl"] != metrics["isl"]).all()  # control
    assert (valid["log_likelihood"] != metrics["log_likelihood"]).all()


def test_an_energy_based_model_is_learned_from_training_rows(tmp_path):
    def task(run, data):
        ebm_learning(
            model=machine(), sampler=lw.Gibbs(), data=data, run=run, iterations=4, every=2,
            snapshots=2, steps=2, batch=10, buffer=20, start=data_mean, ema=0.9,
            optimiser=torch.optim.Adam, evaluations=[Gap(30)],
        )  # fmt: skip
        metrics = Record(run.path, {}).metrics.drop(columns="seconds")
        return (run.path / "ema_000004.safetensors").read_bytes(), metrics

    (model, metrics), (test, read), (valid, gap) = tasks(tmp_path, task)
    assert test == valid == model
    pd.testing.assert_frame_equal(read, metrics)
    assert (gap["above_train"] != metrics["above_train"]).all()  # control


@dataclass(frozen=True)
class Loader:
    """A loader of made-up data, as conf/data names one."""

    name: str

    def load(self):
        return {"as they are": DATA, "test": OTHER_TEST, "valid": OTHER_VALID}[self.name]


def test_settings_are_tuned_on_validation_rows(tmp_path):
    def task(run, data):
        (name,) = (name for name in ("as they are", "test", "valid") if Loader(name).load() is data)
        tune(
            model=machine(), sampler=lw.DULA(0.1), data=data, run=run, objective="isl",
            names={"model": "rbm", "sampler": "dula"}, direction="maximize", goal=None, trials=3,
            search={"dula": {"step_size": {"low": 0.05, "high": 2.0, "log": True}}},
            budget=Budget(2, 30, 30), seconds=None, start=data_mean,
            metrics=[ValidationISL(Loader(name), 30)],
        )  # fmt: skip
        facts = run.notes["tuning"]
        values = Record(run.path, {}).metrics["value"].tolist()
        return run.notes["tuned"], facts["search_value"], facts["held_out"], values

    found, test, valid = tasks(tmp_path, task)
    assert test == found
    assert valid[1:] != found[1:]  # control


def test_the_decay_claim_chooses_a_step_size_by_validation_isl():
    """Test scores that would choose the other step size change the margin, not the choice."""

    def records(test_scores):
        return [
            fake(
                {"step": [1], "isl": [test_scores[size] + alpha]},
                sampler="rates_fpcd", seed=seed, validation_isl=valid,
                settings={"decay": alpha, "fast_step_size": size},
            )
            for alpha in (1.0, 0.95)
            for size, valid in ((0.001, -95.0), (0.01, -80.0), (0.1, -90.0))
            for seed in (0, 1)
        ]  # fmt: skip

    for high in (-95.0, -60.0):
        scores = {0.001: -99.0, 0.01: -81.0, 0.1: high}
        finding = decay(records(scores))
        assert finding.numbers[0].here.mean == pytest.approx(-80.0)
        assert finding.numbers[1].here.mean == pytest.approx(-80.05)


# Tables of numbers.


def test_chains_of_a_regression_do_not_see_test_rows(tmp_path):
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(60, 3)), rng.random(60)
    table = split(features, targets, ("a", "b", "c"), "rows", seed=0)

    def sampled(name, **parts):
        run = run_in(tmp_path / name)
        regression(
            model=lw.synthetic_bayes_net(3, 4), sampler=lw.DULA(0.1), data=replace(table, **parts),
            run=run, budget=Budget(3, 10, 5), burn_in=5, start=uniform, points=5,
        )  # fmt: skip
        record = Record(run.path, {})
        return record.arrays("last")["x"], record.metrics

    x, metrics = sampled("a")
    test = replace(table.test, features=-table.test.features, targets=1 - table.test.targets)
    other, read = sampled("b", test=test)
    np.testing.assert_array_equal(other, x)
    pd.testing.assert_series_equal(read["train_log_likelihood"], metrics["train_log_likelihood"])
    assert (read["test_rmse"] != metrics["test_rmse"]).all()  # control
    train = replace(table.train, targets=1 - table.train.targets)
    assert not np.array_equal(sampled("c", train=train)[0], x)  # control


def test_a_table_is_standardised_by_its_training_rows():
    """Not by those held out either."""
    rng = np.random.default_rng(0)
    features, row = rng.normal(size=(300, 2)), np.arange(300) / 299
    table = split(features, row, ("a", "b"), "rows", seed=0)
    for part in (table.test, table.valid):
        other = features.copy()
        other[(part.targets * 299).round().long().numpy()] = 1e3
        again = split(other, row, ("a", "b"), "rows", seed=0)
        assert torch.equal(again.train.features, table.train.features)
        assert not torch.equal(again.test.features, table.test.features) or part is table.valid
    other = features.copy()
    other[(table.train.targets[:1] * 299).round().long().numpy()] = 1e3
    control = split(other, row, ("a", "b"), "rows", seed=0)
    assert not torch.equal(control.train.features[1:], table.train.features[1:])


# Images and words.


def test_bits_of_a_split_do_not_depend_on_another():
    """Nor are they the same draws: grey values that are alike become other bits."""
    rng = np.random.default_rng(0)
    alike = Grey("grey", *[np.full((20, 4), 128, dtype=np.uint8)] * 3).to_binary("static", 0)
    assert not torch.equal(alike.valid, alike.test)
    assert not torch.equal(alike.train, alike.test)
    assert not torch.equal(alike.train, alike.valid)
    parts = [rng.integers(0, 256, (20, 4), dtype=np.uint8) for _ in range(3)]
    for mode in ("threshold", "static", "dynamic"):
        data = Grey("grey", *parts).to_binary(mode, 0)
        other = Grey("grey", *parts[:2], 255 - parts[2][:5]).to_binary(mode, 0)
        assert torch.equal(other.train, data.train)
        assert torch.equal(other.valid, data.valid)
        assert len(other.test) != len(data.test)


def test_words_are_those_of_training_texts():
    """32 of 40 texts are for training. They hold 35 stems, shared ones included."""
    texts = [f"common words of text{'x' * i}" for i in range(40)]
    splits, stems = bag_of_words([[text] for text in texts], 35, seed=0)
    trained = {len(stem) - len("text") for stem in stems if stem.startswith("text")}
    assert len(trained) == len(splits[0]) == 32
    for i in set(range(40)) - trained:
        texts[i] = "quite another vocabulary"
    other, same = bag_of_words([[text] for text in texts], 35, seed=0)
    assert same == stems
    assert np.array_equal(other[0], splits[0])
    assert not np.array_equal(other[2], splits[2])  # control


def test_sentences_are_filled_and_kept_without_their_references(tmp_path):
    """The likeliest under the language model are kept, whatever they are scored against."""
    words = ["the", "a", "movie", "film", "good", "bad"]
    model = lw.TextInfilling(lw.MaskedLM("mini_bert", words=words), "a [MASK] film .")
    blanks = [Blanks(("this", "is", "a", "good", "movie", "."), (3, 4), "tbc")]

    def task(name, references):
        run = run_in(tmp_path / name)
        data = Infilling(blanks, {"tbc": references, "wt103": references}, "made up")
        text_infilling(
            model=model, sampler=lw.Gibbs(), data=data, run=run, chains=6, steps=3, keep=2,
            start=from_blanks,
        )  # fmt: skip
        return run.notes["generated"], run.notes["scores"]

    found, scores = task("a", [("this", "is", "a", "bad", "film", ".")])
    other, differently = task("b", [("nothing", "of", "this", "kind", "is", "here")])
    assert other == found
    assert differently["corpus_bleu"] != scores["corpus_bleu"]  # control
    log_prob = found[0]["log_prob"]
    assert log_prob == sorted(log_prob, reverse=True)
    assert len(set(log_prob)) > 1
