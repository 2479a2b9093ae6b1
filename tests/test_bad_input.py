"""Mistakes end in a message that says what was given, what is near it, and a status of 1."""

import io
import shutil
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch
from command import command_line
from documented import CONF, composed
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import latticework.experiments.callback
import latticework.run
from latticework.experiments.runs import errors, validation

pytestmark = pytest.mark.usefixtures("eager")

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
    "experiment=rbm_samplin": "did you mean rbm_sampling or",
    "experiment=nope": "experiment=nope is not known: the nearest of ",
    "hydra/launcher=zzz": "hydra/launcher=zzz is not known: there is basic",
    "scale=papr": "scale=papr is not known: did you mean paper?",
    "modle=ising": "the configuration has no field modle: did you mean model",
    "experimnt=rbm_sampling": "has no field experimnt: did you mean experiment",
    "sampler.step=1": "sampler has no field step: did you mean step_size?",
    "steps=100": "did you mean budget.steps=100?",
    "sampler.step_size.x=1": "sampler.step_size has no field x: there is none",
    "+sampler.stp=1": (
        "sampler has no field stp (latticework.samplers.langevin.DMALA): did you mean step_size?"
    ),
    "+step_size=0.3": "no run reads step_size; did you mean sampler.step_size=0.3?",
    "+smapler=gwg": "+smapler=gwg: no run reads smapler; did you mean sampler or",
    "sampler=dml": "(latticework --help lists all)",
    "+zz=1": "+zz=1: no run reads zz; there is budget, checkpoint, data, device, engine, figures",
    "sampler.step_size=${zzz}": "sampler.step_size: Interpolation key 'zzz' not found",
    # Syntax, in Hydra's words.
    "chek": "'chek' is neither a command nor key=value: did you mean check",
    "a^b=[": "'a^b=[' cannot be read (",
    **{
        f"{group}=null": f"{group}=null names no option of {group}: leave it out, or choose "
        for group in (
            "adapt",
            "data",
            "experiment",
            "hydra/launcher",
            "logger",
            "model",
            "pretrain",
            "sampler",
            "task",
        )
    },  # fmt: skip
    "logger=": "logger= names no option of logger: leave it out, or choose files, tensorboard or",
    "+model=potts": "Multiple values for model. To override a value use",
    "seed=1,2": "To sweep over it, add --multirun to your command line",
    "~zzz": "Could not delete from config. 'zzz' does not exist.",
    # What Hydra would take silently.
    "sampler=[dmala,gwg]": (
        "sampler=[dmala,gwg] is a list, and a run has one sampler: sampler=dmala,gwg with --multi"
    ),
    "sampler=../model/ising": (
        "sampler=../model/ising is a path, and sampler takes the name of one of its options: "
    ),
    "hydra.run.dir=/dev/null/run": "hydra.run.dir must lead to a folder in ",
    # Types.
    "sampler.step_size=abc": "sampler.step_size must be a number, got 'abc'",
    "sampler.step_size=nan": "sampler.step_size must be a finite number of 64 bits, got nan",
    "model.shape=[2,x]": "model.shape must be a list of integers, got [2, 'x']",
    "task.start=uniform": "task.start must be a function (a group with a _target_), got 'uniform'",
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
    "name=../../x": "name must be the name of one folder in outputs, of at most 255",
    f"name={'a' * 300}": "name must be the name of one folder in outputs, of at most 255 bytes",
    "checkpoint=-1": "checkpoint must be 0 or more seconds, got -1",
    "budget.chains=0": "task.budget.chains must be positive, got 0",
    "scales.smoke.steps=-1": "task.budget.steps must be positive, got -1",
}


@pytest.mark.slow
@pytest.mark.parametrize("word", MISTAKES)
def test_a_mistake_is_told_and_nothing_is_written(tmp_path, capsys, word):
    assert MISTAKES[word] in told(capsys, *TINY, word, outputs=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("seed=range(0)", "seed=range(0) is an empty sweep: give it one value or more"),
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
def test_an_added_key_that_a_run_reads_is_accepted(words, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "one.yaml").write_text("# @package _global_\nmodel_seed: 3\n")
    words = [word.replace("OWN", str(tmp_path)) for word in words]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        config = loader.load_configuration("config", words, run_mode=RunMode.MULTIRUN)
        validation.check_added_keys(config)


@pytest.mark.parametrize(
    "word", ["experiment=ising_dula,bias_step_size", "scale=smoke,quick", "threads=1,2"]
)
def test_what_does_not_tell_records_apart_is_not_swept(tmp_path, capsys, word):
    key = word.partition("=")[0]
    command = ("scale=smoke", word, "--multirun")
    message = f"{word} gives several values, and a command has one {key}: give a command for each"
    assert message in told(capsys, *command, outputs=tmp_path)
    assert not list(tmp_path.rglob("run.json"))


def test_slurm_is_refused_where_there_is_none(tmp_path, capsys, monkeypatch):
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    words = (*TINY, "hydra/launcher=submitit_slurm", "seed=0,1", "-m")
    assert "this machine has no sbatch and srun" in told(capsys, *words, outputs=tmp_path)


def test_keys_without_a_part_in_the_name_of_a_run_are_not_swept():
    left_out = set(composed().hydra.job.config.override_dirname.exclude_keys)
    assert left_out <= set(validation.UNSWEPT_KEYS)


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


def failure(capsys, *command, outputs):
    """The first line of a failed run's error.txt; the command has printed it as well."""
    text = told(capsys, *command, outputs=outputs)
    (file,) = outputs.rglob("error.txt")
    line, *rest = file.read_text().splitlines()
    assert any("Traceback" in other for other in rest)
    assert line in text
    return line


FAILURES = {
    ("sampler.step_size=-1",): (
        "sampler (latticework.samplers.langevin.DMALA): step_size must be positive, got -1"
    ),
    ("sampler=block_gibbs",): (
        "UnsupportedModelError: BlockGibbs needs a restricted Boltzmann machine, got Lattice on"
    ),
    ("device=mps",): "device=mps is not supported, because GPUs of Apple have no double precision",
    ("budget.chains=100000000000000",): "memory ran out (RuntimeError: ",
    (
        "data=usps",
        "data.download=false",
        "data.strict=true",
        "data.root=EMPTY",
        "data.cache=EMPTY",
    ): ("MissingFileError: usps.bz2 is missing: looked in "),
    ("data=usps", "data.root=/nowhere"): (
        "the data root /nowhere is not a folder: set data.root to one; "
    ),
    ("task.start._target_=latticework.sampling.starts.unifrm",): (
        "task.start (latticework.sampling.starts.unifrm): "
    ),
    ("task=bias",): "need a model with log_quadratic(), such as model=quadr",
    ("task=law", "model.shape=[5,5]"): (
        "this domain has 33554432: take a smaller model, such as model.shape=[3,3]"
    ),
    ("task=text_infilling",): (
        "task=text_infilling needs a masked language model, such as model=mini"
    ),
    ("task=text_infilling", "model=mini_bert"): (
        "and data=sentences, got TextInfilling and NoneType"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("words", FAILURES, ids=" ".join)
def test_what_a_part_refuses_is_told_with_its_place(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "EMPTY").mkdir()
    own = any(word.startswith("model=") for word in words)
    words_before = TINY[:1] if own else TINY
    line = failure(capsys, *words_before, *words, outputs=tmp_path / "outputs")
    assert FAILURES[words] in line


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(tmp_path, capsys):
    line = failure(capsys, *TINY, "device=cuda:7", outputs=tmp_path)
    assert "device=cuda:7 is not available: this PyTorch sees no CUDA device" in line


def test_an_outputs_folder_that_is_a_file(tmp_path, capsys):
    (tmp_path / "taken").write_text("mine")
    assert str(tmp_path / "taken") in told(capsys, *TINY, outputs=tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"


def test_tracebacks_are_shown_to_who_asks(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    for word, message in (("sampler=dmal", "did you mean dmala"), ("seed=x", "seed must be an")):
        assert command_line(*TINY, word, outputs=tmp_path) == 1
        captured = capsys.readouterr().err
        assert "Traceback" in captured
        assert message in captured


def test_a_figure_that_cannot_be_drawn_is_told_after_the_failures(tmp_path, capsys, monkeypatch):
    def broken(*_: object) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr(latticework.experiments.callback, "_draw", broken)
    words = ("+figures.map=null", "sampler=gwg,block_gibbs", "--multirun")
    text = told(capsys, *TINY, *words, outputs=tmp_path)
    assert "figures and tables: RuntimeError: no ink" in text
    assert "1 failed:" in text
    assert len(list(tmp_path.rglob("run.json"))) == 1


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


@pytest.mark.slow
@settings(max_examples=40, **FUZZ)
@given(command, st.sampled_from([(), (), ("--multirun",)]))
def test_no_overrides_end_in_a_traceback(overrides, mode):
    code, text, finished = stubbed("scale=smoke", *overrides, *mode)
    assert "Traceback" not in text, text
    assert "NoneType: None" not in text
    assert (code == 0) == (finished > 0 and "failed:" not in text), (code, finished, text)
    assert code == 0 or text.strip()


def test_an_interrupted_script_ends_without_a_traceback(capsys):
    with pytest.raises(SystemExit) as caught, errors.one_line_errors():
        raise KeyboardInterrupt
    assert caught.value.code == 130
    assert "stopped by SIGINT" in capsys.readouterr().err
