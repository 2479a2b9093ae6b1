"""Every task keeps to its scale without an experiment: a smoke run takes seconds."""

import pytest
from documented import composed, names
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError

from latticework.experiments.runs import configuration
from latticework.experiments.runs.errors import ConfigurationError
from latticework.experiments.runs.validation import validate_config

configuration.register()

# Each task with the smallest command that it takes.
RBM = ("model=rbm", "model.hidden=4", "data=digits")
TASKS = {
    "sampling": (),
    "benchmark": (),
    "tune": (),
    "ais": (),
    "log_z": (),
    "calibration": ("model=reference",),
    "bias": ("model=quadratic_ising", "sampler=dula"),
    "law": ("model.shape=[2,2]",),
    "stochastic_proposal": ("model.shape=[2,2]",),
    "preconditioning": ("model=log_quadratic",),
    "unlearning": ("model.shape=[2,3]",),
    "ebm_learning": RBM,
    "train_rbm": RBM,
    "improvement": (
        "model=rated_rbm",
        "model.visible=64",
        "model.hidden=4",
        "data=digits",
        "sampler=rates_fpcd",
    ),
    "isl": (*RBM, "pretrain=random"),
    "regression": ("model=bayes_net", "model.hidden=3", "data=compas"),
    "text_infilling": ("model=mini_bert", "data=sentences"),
}
# Whole numbers of a task that are work, and how much of each smoke may have.
WORK = {
    "back", "batch", "buffer", "chains", "count", "epochs", "every", "iterations", "points",
    "samples", "sentences", "snapshots", "steps", "trial_steps", "trials", "updates",
    "validation_points",
}  # fmt: skip
LARGEST = 200


def test_no_task_is_left_out():
    assert sorted(TASKS) == names("task")


@pytest.mark.parametrize("task", TASKS)
def test_a_smoke_run_without_an_experiment_is_small(task):
    words = (f"task={task}", "scale=smoke", *TASKS[task])
    document = validate_config(composed(*words))
    settings = document["task"] | document["task"].get("budget", {})
    work = {key: settings[key] for key in WORK & set(settings)}
    assert all(value is not None and value <= LARGEST for value in work.values()), work


MINE = ("+scales.mine={chains: 4, steps: 20, every: 10}", "scale=mine")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task=ebm_learning"], "no default for scale=mine"),
        (["pretrain=cd"], "scale=mine has no cd: add it to scales.mine of the experiment"),
    ],
)
def test_a_scale_of_ones_own_gives_every_number_itself(words, message):
    with pytest.raises(ConfigurationError, match=message) as error:
        validate_config(composed(*MINE, *words))
    assert "raised while resolving" not in str(error.value)
    given = "+scales.mine={cd: 1, epochs: 1}"
    assert (
        validate_config(composed(*MINE, given, "pretrain=cd"))["budget"]["chains"] == 4
    )  # control


def test_a_number_may_depend_on_a_choice():
    """`steps: {gibbs: 50, others: 20}` of a column, or one number for every choice."""
    scaled = {"scale": "mine", "x": "${scaled:steps,${name}}", "name": "gibbs"}
    columns = {"mine": {"steps": {"gibbs": 50, "others": 20}}}
    config = OmegaConf.create({**scaled, "scales": columns})
    assert config.x == 50
    assert OmegaConf.merge(config, {"name": "dmala"}).x == 20
    assert OmegaConf.merge(config, {"name": None}).x == 20
    assert OmegaConf.merge(config, {"scales": {"mine": {"steps": 7}}}).x == 7
    strict = OmegaConf.create({**scaled, "name": "gwg", "scales": {"mine": {"steps": {"dula": 1}}}})
    with pytest.raises(InterpolationResolutionError, match=r"scale=mine has no steps\.gwg: add it"):
        strict.x  # noqa: B018
