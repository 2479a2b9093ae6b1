"""Every configuration composes, and every YAML says of its class exactly what the class takes."""

import dataclasses
import functools
import importlib
import inspect
import itertools
import re

import pytest
import torch
from documented import CONF, composed, names
from hydra import compose, initialize_config_dir
from hydra.utils import get_class, get_method, instantiate
from omegaconf import OmegaConf

from latticework.experiments.runs import configuration
from latticework.experiments.runs.validation import validate_config
from latticework.samplers import NAMES, find_sampler_class
from latticework.samplers.base import Sampler, UnsupportedModelError, Wrapper
from latticework.samplers.skeleton import Skeleton

SCALES = ("paper", "quick", "smoke")
configuration.register()


@functools.cache
def part(group, name):
    """One file of a group, with what it inherits; much quicker than the whole."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(f"{group}/{name}")[group]


once = functools.cache(composed)


def at(scale, *words):
    """The configuration of the words at a scale, which is a value and needs no composition."""
    config = once(*words)
    config.scale = scale
    return config


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("experiment", names("experiment"))
def test_every_experiment_composes_at_each_scale(experiment, scale):
    document = validate_config(at(scale, f"experiment={experiment}"))
    assert document["name"] == experiment
    lines = [line.split() for line in configuration.experiments().splitlines()]
    assert any(first == experiment and len(rest) > 2 for first, *rest in lines), "no line of help"
    assert set(document["scales"]) >= set(SCALES)
    columns = {frozenset(document["scales"][scale]) for scale in SCALES}
    assert len(columns) == 1, "every scale must have the same keys"
    drawn = (*document["figures"].values(), *document["tables"].values())
    for figure in filter(None, drawn):  # null leaves out what a part draws
        assert set(figure) - {"_target_"} < parameters(figure["_target_"])
    assert parameters(document["task"]["_target_"]) >= set(document["task"]) - {
        "_target_",
        "_partial_",
    }


def test_a_number_reaches_its_field_in_one_hop():
    """Whatever stands in a column of `scales` is read by `${scaled:...}`, and in no other way.

    A whole column may stand for another.
    """
    texts = {file: file.read_text() for file in CONF.rglob("*.yaml")}
    read = set(re.findall(r"\$\{scaled:(\w+)", "".join(texts.values())))
    for file, text in texts.items():
        assert not re.search(r"\$\{scales\.\w+\.", text), file
        columns = (OmegaConf.to_container(OmegaConf.create(text)).get("scales") or {}).values()
        for column in columns:
            assert column == "${scales.cpu}" or set(column) <= read, file


RATES = [name for name in names("experiment") if name.startswith(("rates_", "tune_rates"))]


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("experiment", sorted(set(RATES) - {"rates_sec3"}))
def test_models_of_the_rates_paper_are_trained_as_it_says(experiment, scale):
    """Visible biases from zero, and FPCD's fast rate above the slow one (Section 2)."""
    task = at(scale, f"experiment={experiment}", "negatives=fpcd").task
    training = task.get("pretrain") or task
    assert training.visible_bias == "zero"
    assert training.negatives.fast_step_size > training.learning_rate


def options(*groups):
    return [[f"{group}={name}" for name in names(group)] for group in groups]


# Neither an adaptation nor a task goes with every other; of the rest, one of each at a time.
ALONE = [(word,) for word in itertools.chain(*options("adapt", "task"))]
TOGETHER = [
    tuple(filter(None, words))
    for words in itertools.zip_longest(*options("data", "logger", "model", "sampler"))
]


@pytest.mark.slow
@pytest.mark.parametrize("words", ALONE + TOGETHER, ids=",".join)
def test_every_choice_composes(words):
    validate_config(composed(*words))


def parameters(target):
    """The names that the class or function at `target` can be given."""
    signature = inspect.signature(get_method(target))
    assert not any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    return set(signature.parameters)


def keys(group, name):
    return set(part(group, name)) - {"_target_"}


@pytest.mark.parametrize("name", names("sampler"))
def test_the_file_of_a_sampler_lists_the_fields_and_defaults_of_its_class(name):
    cls, fields = find_sampler_class(name)
    assert issubclass(cls, Sampler)
    assert cls.__dataclass_params__.frozen
    config = OmegaConf.to_container(part("sampler", name), resolve=True)
    assert get_class(config.pop("_target_")) is cls
    defaults = dataclasses.asdict(cls(**fields))
    assert config == defaults
    assert {key: type(value) for key, value in config.items()} == {
        key: type(value) for key, value in defaults.items()
    }


@pytest.mark.parametrize("group", ["model", "data"])
def test_the_keys_of_a_model_or_data_set_are_its_arguments(group):
    for name in names(group):
        target = part(group, name)._target_
        assert keys(group, name) <= parameters(target), name
        required = {
            p.name
            for p in inspect.signature(get_method(target)).parameters.values()
            if p.default is p.empty
        }
        assert keys(group, name) >= required, name


TUNED = sorted((CONF / "tuned").rglob("*.yaml"))


@pytest.mark.parametrize("file", TUNED, ids=lambda file: "-".join(file.parts[-2:]))
def test_a_tuned_file_sets_fields_of_its_sampler_and_names_a_source(file):
    folder, sampler = file.relative_to(CONF / "tuned").with_suffix("").parts
    experiments = [path.read_text() for path in (CONF / "experiment").rglob("*.yaml")]
    assert folder in names("model") or any(f"/tuned: {folder}/" in text for text in experiments)
    numbers = OmegaConf.load(file)
    assert set(numbers) <= keys("sampler", sampler)
    first, *others = file.read_text().splitlines()
    assert first == "# @package sampler"
    assert "#" in "".join(others)


def test_tuned_numbers_belong_to_the_pair_and_yield_to_the_command_line():
    assert composed("model=ising", "sampler=dmala").sampler.step_size == 0.4
    assert composed("model=rbm", "sampler=dmala").sampler.step_size == 0.2
    assert composed("model=ising", "sampler=dmala", "sampler.step_size=9").sampler.step_size == 9


@functools.cache
def built(name):
    """A model of conf/model, small where its size is free."""
    config = part("model", name).copy()
    if "hidden" in config:
        config.hidden = 5
    if "visible" in config:
        config.visible = 20
    if "maps" in config:
        config.maps = 4
    if "language" in config:
        config.language.checkpoint, config.language.words = "mini_bert", ["the", "a", "of"]
    return instantiate(config)


def test_every_sampler_has_a_name():
    for file in CONF.parent.glob("samplers/*.py"):
        importlib.import_module(f"latticework.samplers.{file.stem}")
    left, classes = [Sampler], set()
    while left:
        found = left.pop().__subclasses__()
        left += found
        ours = {f for f in found if f.__module__.startswith("latticework.samplers.")}
        classes |= {f for f in ours if ".compiled." not in f.__module__}
    assert list(NAMES) == names("sampler")
    named = {find_sampler_class(name)[0] for name in NAMES}
    own = {c for c in classes if not inspect.isabstract(c) and not issubclass(c, Wrapper)}
    assert own - {Skeleton} == named  # which is there to be copied


def models():
    """An option for each class; those that only inherit from another option are of its class."""
    found = {}
    for name in names("model"):
        text = (CONF / "model" / f"{name}.yaml").read_text()
        for target in re.findall(r"^_target_: (\S+)", text, re.MULTILINE):
            found.setdefault(target, name)
    return found.values()


@pytest.mark.slow
@pytest.mark.parametrize("model", models())
@pytest.mark.parametrize("name", names("sampler"))
def test_every_pair_runs_or_says_why_not(name, model, monkeypatch):
    config, model = part("sampler", name), built(model)
    if name == "pavg":  # what it learns costs seconds on a large model
        monkeypatch.setattr("latticework.samplers.pavg.MAX_STATE_NUMBERS", 100)
        config.burn_in = 1
    if name.startswith("tempered"):  # as is what these learn
        config.schedule = [0.0, 0.5, 1.0]
    sampler = instantiate(config, _convert_="all")
    rng = torch.Generator().manual_seed(0)
    x = model.domain.uniform(3, rng)
    try:
        state = sampler.init(x, model)
    except UnsupportedModelError as error:
        assert type(sampler).__name__ in str(error)  # noqa: PT017
        return
    except ValueError as error:  # a block that is larger than the model
        assert config.sites > model.domain.dim  # noqa: PT017
        assert "does not fit" in str(error)  # noqa: PT017
        return
    for _ in range(2):
        state, info = sampler.step(state, model, rng)
    assert state.x.shape == x.shape
    assert info.accept_prob.shape == (3,)
