"""Mistakes end in a message that says what was given, what is near it, and a status of 1."""

import errno
import io
import json
import math
import shlex
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from command import command_line
from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import InstantiationException
from hydra.types import RunMode
from hydra.utils import instantiate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import latticework.experiments.finish.finish
import latticework.run
from latticework.experiments.runs import checks, errors, groups
from latticework.experiments.runs.errors import ConfigurationError, summary
from latticework.sampling.annotations import fits, words
from latticework.sampling.devices import find_device
from latticework.sampling.messages import nearest

TINY = ("scale=smoke", "model.shape=[2,2]", "device=cpu")


def told(capsys, *command, outputs):
    """What a command that must fail says; nothing of it is a traceback."""
    assert command_line(*command, outputs=outputs) == 1
    captured = capsys.readouterr()
    text = captured.out + captured.err
    assert "Traceback" not in text
    return text


MISTAKES = {
    # Names that are not there, with the nearest.
    "sampler=dmal": "sampler=dmal is not known: did you mean dmala or",
    "model=isng": "model=isng is not known: did you mean ising",
    "data=minst": "data=minst is not known: did you mean mnist or",
    "task=samplng": "task=samplng is not known: did you mean sampling",
    "experiment=rbm_samplin": "did you mean rbm_sampling or",
    "logger=zzz": "logger=zzz is not known: there is files, tensorboard, wandb",
    "hydra/launcher=zzz": "hydra/launcher=zzz is not known: there is basic",
    "scale=papr": "scale=papr is not known: did you mean paper?",
    "modle=ising": "the configuration has no field modle: did you mean model",
    "sampler.step=1": "sampler has no field step: did you mean step_size?",
    "task.start.zzz=1": "task.start has no field zzz: there is _partial_, _target_",
    "sampler.step_size.x=1": "sampler.step_size has no field x: there is none",
    "+sampler.stp=1": (
        "sampler has no field stp (latticework.samplers.langevin.DMALA): did you mean step_size?"
    ),
    "+step_size=0.3": "no run reads step_size; did you mean sampler.step_size=0.3?",
    "++steps=9": "++steps=9: no run reads steps; did you mean budget.steps=9?",
    "+smapler=gwg": "+smapler=gwg: no run reads smapler; did you mean sampler or",
    "sampler.step_size=${zzz}": "sampler.step_size: Interpolation key 'zzz' not found",
    # Syntax.
    "sampler": "'sampler' cannot be read (missing EQUAL at '<EOF>'): overrides are key=value",
    "chek": "; commands are check, race, trace, why, and come first",
    "model.shape=[2,": "'model.shape=[2,' cannot be read (no viable alternative at input '[2,')",
    "a^b=[": "'a^b=[' cannot be read (",
    "task.text=The [MASK] sat.": """inside quotes: 'task.text="The [MASK] sat."'\n""",
    "data=null": "Got NoneType, in data=null: a group such as data takes the name of one",
    "seed=1,2": "which is a sweep and needs --multirun: python run.py --multirun",
    "seed=range(2)": "which is a sweep and needs --multirun: python run.py --multirun",
    "experiment=ising_dula,bias_step_size": "and a command has one experiment: give a command for",
    "sampler=[dmala,gwg]": (
        "sampler=[dmala,gwg] is a list, and a run has one sampler: sampler=dmala,gwg with --multi"
    ),
    "sampler=../model/ising": (
        "sampler=../model/ising is a path, and sampler takes the name of one of its options: "
    ),
    "experiment=../../rbm_samplin": "takes the name of one of its options: did you mean rbm_samp",
    "name=größe": """needs quotes inside quotes: 'name="größe"'\n""",
    "hydra.run.dir=/dev/null/run": "hydra.run.dir must lead to a folder in ",
    "~zzz": "Could not delete from config. 'zzz' does not exist.",
    "hydra.job.chdir=abc": "hydra.job.chdir: Value 'abc' is not a valid bool",
    # Types.
    "sampler.step_size=abc": "sampler.step_size must be a number, got 'abc'",
    "sampler.step_size=": "sampler.step_size must be a number, got ''",
    "sampler.step_size=true": "sampler.step_size must be a number, got True",
    "sampler.step_size=nan": "sampler.step_size must be a finite number of 64 bits, got nan",
    "model.coupling=inf": "model.coupling must be a finite number of 64 bits, got inf",
    "model.shape=[2,x]": "model.shape must be a list of integers, got [2, 'x']",
    "task.metrics=[3]": "task.metrics must be a list, got [3]",
    "task.start=uniform": "task.start must be a function (a group with a _target_), got 'uniform'",
    "seed=1.5": "seed must be an integer, got 1.5",
    "seed=???": "Missing mandatory value: seed",
    "force=1": "force must be true or false, got 1",
    "threads=many": "threads must be an integer or auto, got 'many'",
    "device=gpu": "device must be auto, cpu, cuda or cuda:1, got 'gpu'",
    "outputs=": "outputs is missing: it must be a string",
    "~model.shape": "model.shape is missing: latticework.models.ising.Lattice needs it",
    "+logger.zzz=3": "logger must be a mapping, got {'zzz': 3}",
    # Ranges.
    "threads=0": "threads must be positive, got 0",
    "threads=4000000000": "threads must be at most 4096, got 4000000000",
    "budget.every=7": "task.budget: steps must be a multiple of every, got 20 and 7",
    "name=../../x": "name must be the name of one folder in outputs, got '../../x'",
    f"name={'a' * 300}": "name must have at most 255 bytes, as the name of a folder, got 300",
    "name=..": "name must be the name of one folder in outputs, got '..'",
    "checkpoint=-1": "checkpoint must be 0 or more seconds, got -1",
    "budget.chains=0": "task.budget.chains must be positive, got 0",
    "scales.smoke.steps=-1": "task.budget.steps must be positive, got -1",
    "budget.every=0": "task.budget.every must be positive, got 0",
    f"model_seed={2**64}": f"model_seed must be a finite number of 64 bits, got {2**64}",
}


@pytest.mark.parametrize("word", MISTAKES)
def test_a_mistake_is_told_and_nothing_is_written(tmp_path, capsys, word):
    assert MISTAKES[word] in told(capsys, *TINY, word, outputs=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text", ["The [MASK] cat sat.", 'A "[MASK]", she said', "It's [MASK], C:\\dir", "[MASK] cats"]
)
def test_a_text_given_as_the_message_says_is_read(text, tmp_path, capsys):
    """A shell that reads the word in the message passes on the intended text."""
    message = told(capsys, *TINY, f"task.text={text}", outputs=tmp_path)
    *_, word = message.strip().split("inside quotes: ")
    (argument,) = shlex.split(word)
    with initialize_config_dir(str(latticework.run.CONF), version_base="1.3"):
        config = compose("config", ["task=text_infilling", argument])
    assert config.task.text == text


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("seed=range(0)", "seed=range(0) is an empty sweep: give it one value or more"),
        ("sampler=glob(zzz*)", "sampler=glob(zzz*) is an empty sweep"),
        ("seed=choice()", "empty choice is not legal"),
        ("seed=interval(0,1)", "BasicSweeper does not support sweep type : INTERVAL_SWEEP"),
        ("threads=0", "threads must be positive, got 0"),
        ("hydra.sweep.dir=/dev/null", "hydra.sweep.dir must lead to a folder in "),
        ("hydra.sweep.subdir=../x", "hydra.sweep.subdir must lead to a folder in "),
    ],
)
def test_a_sweep_that_cannot_begin_writes_nothing(tmp_path, capsys, word, message):
    assert message in told(capsys, *TINY, word, "--multirun", outputs=tmp_path)
    assert not list(tmp_path.rglob("run.json"))
    assert not list(tmp_path.rglob("error.txt"))


@pytest.mark.parametrize(
    "words",
    [
        ("+mine=0.3", "sampler.step_size=${mine}"),
        ("+mine=0.3", "sampler.step_size=${oc.select:mine,1}"),
        ("++seed=0",),
        ("++task.budget.steps=20",),
        ("+target=ising_5x5",),
        ("+target=ising_5x5,sk_16",),  # of a sweep, which composes without it first
        ("+start@task.start=uniform",),
        ("hydra.searchpath=[file://OWN]", "+mine=one"),
    ],
)
def test_an_added_key_that_a_run_reads_is_accepted(words, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "one.yaml").write_text("# @package _global_\nmodel_seed: 3\n")
    words = [word.replace("OWN", str(tmp_path)) for word in words]
    monkeypatch.setattr(ConfigLoaderImpl, "get_group_options", groups._hydras_own)
    groups.list_quickly()  # as in a command
    with initialize_config_dir(str(latticework.run.CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        config = loader.load_configuration("config", words, run_mode=RunMode.MULTIRUN)
        checks.check_added(config)


@pytest.mark.parametrize(
    "word",
    [
        "experiment=ising_dula,bias_step_size",  # each has a sweep, which would be left out
        "experiment=glob(bias*)",
        "scale=smoke,quick",  # the table at the end would have runs of another scale
        "threads=1,2",  # one record for both
        "device=cpu,cuda",
        "name=a,b",
        "force=true,false",
        "data.root=a,b",
    ],
)
def test_what_does_not_tell_records_apart_is_not_swept(tmp_path, capsys, word):
    key = word.partition("=")[0]
    command = ("scale=smoke", "data=mnist", word, "--multirun")
    message = f"{word} gives several values, and a command has one {key}: give a command for each"
    assert message in told(capsys, *command, outputs=tmp_path)
    assert not list(tmp_path.rglob("run.json"))


def test_a_sweep_composes_a_run_for_each_choice_of_options_before_it_starts(monkeypatch):
    composed: list[list[str]] = []
    monkeypatch.setattr(groups, "_hydras_validation", lambda _, batch: composed.extend(batch))
    samplers, steps, seeds = ("gwg", "dmala"), (0.1, 0.2), range(9)
    groups._validate(
        None,
        [
            [f"sampler={name}", f"sampler.step_size={step}", f"seed={seed}"]
            for name in samplers for step in steps for seed in seeds
        ],
    )  # fmt: skip
    assert [words[0] for words in composed] == ["sampler=gwg", "sampler=dmala"]


def test_keys_without_a_part_in_the_name_of_a_run_are_not_swept():
    with initialize_config_dir(str(latticework.run.CONF), version_base="1.3"):
        config = compose("config", return_hydra_config=True)
    left_out = set(config.hydra.job.config.override_dirname.exclude_keys)
    assert left_out <= set(errors.SINGLE)


def test_an_empty_sweep_of_an_experiment_yields_to_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(latticework.run, "prepare", lambda config, run: lambda: None)
    empty = ("experiment=bias_step_size", "scale=smoke", "scales.smoke.seeds='range(0)'")
    assert "seed=range(0) is an empty sweep" in told(capsys, *empty, outputs=tmp_path)
    command_line(*empty, "seed=3", "model.low=0", outputs=tmp_path)
    (record,) = tmp_path.rglob("run.json")
    assert json.loads(record.read_text())["config"]["seed"] == 3


def test_a_mistake_in_one_run_of_a_sweep_leaves_the_others(tmp_path, capsys):
    command = (*TINY, "sampler.step_size=0.2,abc,-1", "--multirun")
    text = told(capsys, *command, outputs=tmp_path)
    assert "2 failed:" in text
    assert "sampler.step_size must be a number, got 'abc'" in text
    assert (
        "sampler (latticework.samplers.langevin.DMALA): step_size must be positive, got -1" in text
    )
    (record,) = tmp_path.rglob("run.json")
    assert "step_size=0.2" in record.parent.name


@pytest.mark.parametrize(
    ("words", "seeds"),
    [
        (("seed=1",), {1: 1}),
        (("seed=1,2,3", "--multirun"), {0: 1, 1: 1, 2: 1, 3: 1}),  # 0: the command, before the runs
        (("seed=1,x", "--multirun"), {0: 1, 1: 1, "x": 1}),
    ],
)
def test_the_configuration_of_a_run_is_checked_once(tmp_path, monkeypatch, words, seeds):
    """A finished run that is found again is checked once as well."""
    check, seen = checks._check_settings, []
    monkeypatch.setattr(checks, "_check_settings", lambda d: (seen.append(d["seed"]), check(d)))
    monkeypatch.setattr(latticework.run, "prepare", lambda config, run: lambda: None)
    for _ in range(2):
        seen.clear()
        command_line(*TINY, *words, outputs=tmp_path)
        assert Counter(seen) == seeds


def failure(capsys, *command, outputs):
    """The first line of a failed run's error.txt; the command has printed it as well."""
    text = told(capsys, *command, outputs=outputs)
    (file,) = outputs.rglob("error.txt")
    line, *rest = file.read_text().splitlines()
    assert any("Traceback" in other for other in rest)
    assert line in text
    return line


def test_what_a_class_refuses_is_told_with_its_place(tmp_path, capsys):
    line = failure(capsys, *TINY, "sampler.step_size=-1", outputs=tmp_path)
    assert (
        line == "sampler (latticework.samplers.langevin.DMALA): step_size must be positive, got -1"
    )


def test_a_sampler_that_cannot_serve_the_model(tmp_path, capsys):
    line = failure(capsys, *TINY, "sampler=block_gibbs", outputs=tmp_path)
    assert line.startswith("UnsupportedModelError: BlockGibbs needs a restricted Boltzmann machine")
    assert "got Lattice on" in line
    assert "choose another sampler or model" in line


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:7"])
def test_a_gpu_that_is_not_there(tmp_path, capsys, device):
    line = failure(capsys, *TINY, f"device={device}", outputs=tmp_path)
    assert f"device={device} is not available: this PyTorch sees no CUDA device" in line


def test_gpus_of_apple_are_refused(tmp_path, capsys):
    line = failure(capsys, *TINY, "device=mps", outputs=tmp_path)
    assert "device=mps is not supported, because GPUs of Apple have no double precision" in line
    assert "take device=cpu" in line


def test_a_pytorch_without_cuda_is_told(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for version, told in ((None, True), ("13.0", False)):
        monkeypatch.setattr(torch.version, "cuda", version)
        with pytest.raises(ValueError, match="sees no CUDA device.*; device=auto takes") as raised:
            find_device("cuda")
        assert ("it is built without CUDA (docs/installation.md)" in str(raised.value)) is told


def test_memory_that_runs_out(tmp_path, capsys):
    line = failure(capsys, *TINY, "budget.chains=100000000000000", outputs=tmp_path)
    assert line.startswith("memory ran out (RuntimeError: ")
    assert "take a smaller model, fewer chains, a smaller batch, or fewer runs at once" in line


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
        MemoryError("Unable to allocate 7.11 PiB for an array"),
    ],
    ids=repr,
)
def test_memory_of_a_gpu_and_of_numpy_that_runs_out(error):
    line = summary(error)
    assert line.startswith(f"memory ran out ({type(error).__name__}: {error})")
    assert "take a smaller model, fewer chains" in line


def test_a_full_disk_is_told_with_its_folders(tmp_path, capsys, monkeypatch):
    """The error of `write` names no file."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(latticework.run, "prepare", full)
    line = failure(capsys, *TINY, outputs=tmp_path / "outputs")
    assert line.startswith("No space left on device (")
    assert f"{tmp_path / 'outputs'} has " in line
    assert "make room there, or choose other folders by outputs=... and TMPDIR" in line


DATA = ("data=usps", "data.download=false", "data.strict=true")


def test_missing_data(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    root = (f"data.root={tmp_path / 'data'}", f"data.cache={tmp_path / 'data'}")
    line = failure(capsys, *TINY, *DATA, *root, outputs=tmp_path)
    assert line.startswith("MissingFileError: usps.bz2 is missing: looked in ")
    assert "downloading is switched off (data.download=false). Get it from http" in line


def test_a_data_root_that_is_none(tmp_path, capsys):
    line = failure(capsys, *TINY, *DATA, "data.root=/nowhere", outputs=tmp_path)
    assert "the data root /nowhere is not a folder: set data.root to one; " in line


def test_a_data_root_of_the_environment_that_is_none(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("LATTICEWORK_DATA", "/nowhere")
    line = failure(capsys, *TINY, *DATA, "data.root=null", outputs=tmp_path)
    assert "set LATTICEWORK_DATA to one; unset LATTICEWORK_DATA to do without" in line


def test_another_file_in_place_of_the_data(tmp_path, capsys):
    root = tmp_path / "data"
    for folder in ("usps", "."):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "usps.bz2").write_bytes(b"not images")
    line = failure(capsys, *TINY, *DATA, f"data.root={root}", outputs=tmp_path)
    assert line.startswith("DamagedFileError: ")
    assert "usps.bz2 (10 bytes) is truncated or is another file: expected md5" in line


def test_an_outputs_folder_that_is_a_file(tmp_path, capsys):
    (tmp_path / "taken").write_text("mine")
    text = told(capsys, *TINY, outputs=tmp_path / "taken")
    assert "Not a directory" in text or "File exists" in text
    assert "set the folder for records by outputs or LATTICEWORK_OUTPUTS" in text
    assert (tmp_path / "taken").read_text() == "mine"


def test_another_file_is_not_blamed_on_the_outputs_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / "target.py").write_text("weights = open('weights.txt')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["latticework", "race", "target.py:weights"])
    with pytest.raises(SystemExit):
        latticework.run.main()
    text = capsys.readouterr().err
    assert "weights.txt" in text
    assert "folder for records" not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("learned_ising", "shape=[-1,2]"), "shape must be positive side lengths, got [-1, 2]"),
        (("random_graph", "dim=1"), "dim must be at least 2, got 1"),
        (("potts_dense", "num_values=1"), "num_values must be at least 2, got 1"),
        (("quadratic_ising", "high=-1"), "Binary needs dim >= 1 and low < high"),
        (("resnet", "shape=[4]"), "shape must be the height and width of images, got [4]"),
    ],
)
def test_models_refuse_what_is_out_of_range(tmp_path, capsys, words, message):
    model, value = words
    line = failure(
        capsys, "scale=smoke", "device=cpu", f"model={model}", f"model.{value}", outputs=tmp_path
    )
    assert line.startswith("model (latticework.models.")
    assert message in line


def test_a_target_that_is_not_there(tmp_path, capsys):
    target = "task.start._target_=latticework.sampling.starts.unifrm"
    line = failure(capsys, *TINY, target, outputs=tmp_path)
    assert line.startswith("task.start (latticework.sampling.starts.unifrm): ")
    assert "Error loading 'latticework.sampling.starts.unifrm'" in line


def test_tracebacks_are_shown_to_who_asks(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    for word, message in (("sampler=dmal", "did you mean dmala"), ("seed=x", "seed must be an")):
        assert command_line(*TINY, word, outputs=tmp_path) == 1
        captured = capsys.readouterr().err
        assert "Traceback" in captured
        assert message in captured


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ("--help", "Experiments (experiment=...)"),
        ("--cfg=job", "_target_: latticework.samplers.langevin.DMALA"),
        ("--info=defaults", "sampler/dmala"),
        ("--hydra-help", "Hydra"),
    ],
)
def test_the_other_uses_of_the_command_line(tmp_path, capsys, option, shown):
    assert command_line(option, outputs=tmp_path) == 0
    assert shown in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_their_mistakes_are_told_too(tmp_path, capsys):
    text = told(capsys, "sampler.step_size=${zzz}", "--cfg=job", "--resolve", outputs=tmp_path)
    assert "Interpolation key 'zzz' not found" in text
    assert "did you mean dmala" in told(capsys, "sampler=dmal", "--info=all", outputs=tmp_path)


def test_a_figure_that_cannot_be_drawn_is_told_after_the_failures(tmp_path, capsys, monkeypatch):
    def broken(*_: object) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr(latticework.experiments.finish.finish, "drawn", broken)
    text = told(capsys, *TINY, "sampler=gwg,block_gibbs", "--multirun", outputs=tmp_path)
    assert "figures and tables: RuntimeError: no ink" in text
    assert "1 failed:" in text
    assert len(list(tmp_path.rglob("run.json"))) == 1


# The words of a message.


def test_the_nearest_names():
    assert nearest("dmal", ["gwg", "dmala"]) == "did you mean dmala?"
    assert nearest("GWG", ["gwg", "dmala"]) == "did you mean gwg?"
    assert nearest("zzz", ["gwg", "dmala"]) == "there is dmala, gwg"
    assert nearest("zzz", []) == "there is none"


def test_a_launcher_that_is_not_installed_is_told_with_its_command():
    error = RuntimeError("Unknown plugin class : 'hydra_plugins.joblib.JoblibLauncher'")
    assert errors._explained(error, []).endswith('is not installed: pip install -e ".[sweeps]"')


def refused(threshold: float) -> None:
    raise KeyError("two\nlines")


def test_the_summary_of_an_error_is_one_line():
    node = {"_target_": "test_bad_input.refused", "threshold": 1}
    with pytest.raises(InstantiationException) as raised:
        instantiate({"part": node})
    assert summary(raised.value) == "part (test_bad_input.refused): KeyError: 'two\\nlines'"
    assert summary(ValueError("one\n  two")) == "ValueError: one two"
    assert summary(ConfigurationError("seed must be an integer")) == "seed must be an integer"


NODE = {"_target_": "latticework.samplers.gwg.GWG"}


@pytest.mark.parametrize(
    ("hint", "good", "bad", "phrase"),
    [
        (int, [0, -3], [True, 1.5, "1", None, 2**63], "an integer"),
        (float, [0, 1.5], [True, "1", None, math.inf, math.nan, 10**30, [1.0]], "a number"),
        (bool, [True], [0, "true", None], "true or false"),
        (str, ["", "a"], [1, None, True], "a string"),
        (str | None, ["a", None], [1], "a string or null"),
        (Literal["a", 1], ["a", 1], ["b", True, None], "a or 1"),
        (Sequence[int], [[], [1, 2]], [[1.5], 1, "12", {"a": 1}], "a list of integers"),
        (tuple[float, ...], [[1, 2.0]], [["x"]], "a list of numbers"),
        (float | Sequence[float], [1, [1]], ["x", ["x"]], "a number or a list of numbers"),
        (dict[str, float], [{"a": 1}], [{"a": "x"}, [1]], "a mapping"),
        (Callable[..., int], [NODE], [1, "f", None], "a function (a group with a _target_)"),
        (torch.Tensor, [NODE], [1, [1.0]], "a Tensor (a group with a _target_)"),
    ],
)
def test_values_fit_annotations(hint, good, bad, phrase):
    assert words(hint) == phrase
    assert all(fits(value, hint) for value in good)
    assert not any(fits(value, hint) for value in bad)


def test_what_is_not_annotated_takes_anything():
    assert all(fits(value, hint) for hint in (Any, object, "unseen") for value in (1, [2], None))
    assert fits({"a": [1]}, Mapping)


# Overrides at random.

GOOD = {
    "seed": ["0", "7"],
    "scale": ["smoke", "quick"],
    "sampler": ["gwg", "dmala", "gibbs"],
    "model": ["ising", "potts"],
    "task": ["sampling", "law"],
    "data": ["digits"],
    "sampler.step_size": ["0.5", "1e-3"],
    "model.shape": ["[2,3]", "[4]"],
    "budget.chains": ["3"],
    "budget.steps": ["20"],
    "threads": ["1", "auto"],
    "force": ["true"],
}
JUNK = [
    "", "abc", "-1", "0", "1.5", "nan", "-inf", "1e400", "true", "null", "???", "[1,2]", "[",
    "{a:1}", "{a", "${zzz}", "${seed}", "${zzz:1}", "${", "1,2", "range(0)", "range(3", "glob(*)",
    "choice(1)", "'", '"a b"', "a=b", "a b", "\\", "dmal", "é", "../x", "_target_",
    "{_target_: zzz.zzz}", "{_target_: os.getcwd}", str(2**70),
]  # fmt: skip
NAMES = [
    *GOOD, "sampler.flips", "sampler.zzz", "sampler._target_", "task.start", "task.metrics.0",
    "task.metrics", "logger", "device", "checkpoint", "scales", "budget", "experiment", "zzz",
    "hydra", "hydra.zzz", "hydra/launcher", "model@zzz", "", ".", "a b",
]  # fmt: skip

valid = st.sampled_from([f"{key}={value}" for key, values in GOOD.items() for value in values])
junk = st.builds(
    "{}{}={}".format,
    st.sampled_from(["", "", "+", "++", "~"]),
    st.sampled_from(NAMES),
    st.sampled_from(JUNK) | st.text("ab1.,=[]{}()$'\" ", max_size=6),
)
command = st.lists(valid | junk | st.text("ab=.,[]~+{}", max_size=6), min_size=1, max_size=4)


def stubbed(*command: str) -> tuple[int, str, int]:
    """Status, text and finished records of a command whose run does nothing."""
    with (
        tempfile.TemporaryDirectory() as folder,
        redirect_stdout(io.StringIO()) as text,
        redirect_stderr(text),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(latticework.run, "prepare", lambda config, run: lambda: None)
        code = command_line(*command, outputs=Path(folder))
        return code, text.getvalue(), len(list(Path(folder).rglob("run.json")))


FUZZ = {
    "derandomize": True,
    "database": None,
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much],
}


@settings(max_examples=40, **FUZZ)
@given(command, st.sampled_from([(), (), ("--multirun",)]))
def test_no_overrides_end_in_a_traceback(overrides, mode):
    code, text, finished = stubbed("scale=smoke", *overrides, *mode)
    assert "Traceback" not in text, text
    assert "NoneType: None" not in text
    assert (code == 0) == (finished > 0 and "failed:" not in text), (code, finished, text)
    assert code == 0 or text.strip()


WRONG = st.sampled_from(
    [
        ("seed", ["x", "1.5", "null", "true", "[1]", "{a: 1}"]),
        ("threads", ["x", "0", "-1", "1.5", "null", "[1]"]),
        ("device", ["x", "1", "cpu:x", "[cpu]", "null"]),
        ("scale", ["x", "1", "null", "[smoke]"]),
        ("sampler.step_size", ["x", "null", "true", "nan", "[0.1]", "-inf"]),
        ("model.shape", ["x", "1", "null", "[1.5]", "[x]", "[true]"]),
        ("model.coupling", ["x", "inf", "null", "[1]"]),
        ("model.periodic", ["x", "1", "null"]),
        ("budget.chains", ["x", "0", "-1", "1.5", "null", "true"]),
        ("task.start", ["x", "1", "null", "[1]"]),
    ]
).flatmap(lambda pair: st.tuples(st.just(pair[0]), st.sampled_from(pair[1])))


@settings(max_examples=15, **FUZZ)
@given(WRONG)
def test_a_value_of_the_wrong_kind_is_named(wrong):
    key, value = wrong
    code, text, finished = stubbed("scale=smoke", f"{key}={value}")
    assert (code, finished) == (1, 0), text
    assert key in text
    assert len(text.strip().splitlines()) == 1


def test_an_interrupt_outside_of_any_loop_ends_in_a_line(capfd):
    with pytest.raises(SystemExit) as end, errors.told():
        raise KeyboardInterrupt
    assert end.value.code == 130
    assert capfd.readouterr().err == (
        "interrupted: the same command continues with what is missing\n"
    )
