"""Data that Gibbs sweeps generate."""

import pytest
import torch

import latticework as lw
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.examples import examples


def test_examples_are_of_zeros_and_ones(tmp_path):
    """A byte holds -1 as 255."""
    model = lw.Function(lambda x: x.sum(-1), lw.Binary(3, -1, 1))
    with pytest.raises(ValueError, match=r"need a model on \{0, 1\}\^dim, got Function on Binary"):
        examples(run=Run(tmp_path), model=model, sampler=lw.Gibbs(), chains=4, steps=1)


def test_examples_are_made_once_and_follow_the_model(tmp_path):
    """The mean of s_i s_j over neighbours against enumeration."""
    model = lw.Lattice((3, 3), 0.2)
    settings = {"model": model, "chains": 1500, "steps": 30}
    data = examples(run=Run(tmp_path), sampler=lw.GibbsSweep(), **settings)
    assert data.train.shape == (1500, 9)
    assert (len(data.valid), len(data.test)) == (0, 0)
    again = examples(run=Run(tmp_path, seed=5), sampler=lw.GibbsSweep(), **settings)
    assert torch.equal(again.train, data.train)  # by the model seed alone
    other = examples(run=Run(tmp_path, model_seed=5), sampler=lw.GibbsSweep(), **settings)
    assert not torch.equal(other.train, data.train)

    def pair(rows):  # [n], s_0 s_1
        spins = 2 * rows[:, :2].double() - 1
        return spins.prod(-1)

    states = model.domain.enumerate()
    exact = (model(states).double().softmax(0) * pair(states)).sum()
    error = (1 - exact**2).sqrt() / 1500**0.5
    assert (pair(data.train).mean() - exact).abs() / error < 4.5
    short = examples(run=Run(tmp_path), sampler=lw.GibbsSweep(), **{**settings, "steps": 0})
    assert (pair(short.train).mean() - exact).abs() / error > 10  # control: uniform rows
