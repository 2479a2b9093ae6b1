"""Sweeps by the launchers of conf/hydra/launcher: real processes, and a make-believe Slurm."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from command import command_line
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

CONF = Path(__file__).resolve().parent.parent / "conf"
PLUGINS = {
    "joblib": "hydra_plugins.hydra_joblib_launcher",
    "submitit_local": "hydra_plugins.hydra_submitit_launcher",
    "submitit_slurm": "hydra_plugins.hydra_submitit_launcher",
    "ray": "hydra_plugins.hydra_ray_launcher",
}
pytestmark = pytest.mark.filterwarnings(r"ignore:\s*'hydra/launcher/:UserWarning")
QUICK = ("experiment=rates_sec3", "scale=smoke", "task.steps=5", "task.lambdas=3")


def launcher(name: str, *overrides: str) -> DictConfig:
    pytest.importorskip(PLUGINS[name])
    words = [f"hydra/launcher={name}", *overrides]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", words, return_hydra_config=True).hydra.launcher


def record(folder: Path, coupling: str) -> Path:
    (found,) = folder.glob(f"rates_sec3/smoke/model.coupling={coupling}*")
    return found


def finished(folder: Path, coupling: str) -> dict:
    return json.loads((record(folder, coupling) / "run.json").read_text())


def test_there_is_a_file_for_each_launcher() -> None:
    assert {file.stem for file in (CONF / "hydra/launcher").glob("*.yaml")} == set(PLUGINS)


@pytest.mark.parametrize("name", PLUGINS)
def test_each_composes_for_its_plugin(name: str) -> None:
    assert launcher(name)._target_.startswith(PLUGINS[name])


@pytest.mark.parametrize("name", ["submitit_local", "submitit_slurm"])
def test_a_job_has_a_core_for_each_thread(name: str) -> None:
    assert launcher(name).cpus_per_task == 1
    assert launcher(name, "threads=4").cpus_per_task == 4


def test_ray_gives_a_run_a_core_for_each_thread() -> None:
    assert launcher("ray", "threads=4").ray.remote.num_cpus == 4


def test_joblib_runs_a_sweep_in_other_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of four runs fails: the others finish, the figure is drawn once, the status is 1."""
    pytest.importorskip(PLUGINS["joblib"])
    status = command_line(
        *QUICK, "model.coupling=0.1,0.3,wrong,0.5", "hydra/launcher=joblib",
        "hydra.launcher.n_jobs=2", "--multirun", outputs=tmp_path,
    )  # fmt: skip
    assert status == 1
    for coupling in ("0.1", "0.3", "0.5"):
        assert finished(tmp_path, coupling)["threads"] == 1
    assert "coupling" in (record(tmp_path, "wrong") / "error.txt").read_text()
    told = capsys.readouterr().out
    assert "1 failed:" in told
    assert told.count("sec3.png") == 1


def test_submitit_runs_each_job_in_a_process(tmp_path: Path) -> None:
    pytest.importorskip(PLUGINS["submitit_local"])
    words = ("model.coupling=0.3", "hydra/launcher=submitit_local", "--multirun")
    assert command_line(*QUICK, *words, outputs=tmp_path) == 0
    assert finished(tmp_path, "0.3")["threads"] == 1
    (log,) = (tmp_path / "rates_sec3/smoke/.submitit").glob("*/*_log.out")
    assert "Job completed successfully" in log.read_text()


SBATCH = """#!/bin/sh
cp "$1" "$SLURM_FOLDER/batch.sh"
SLURM_JOB_ID=7 SLURM_NTASKS=1 SLURM_PROCID=0 sh "$SLURM_FOLDER/batch.sh" > /dev/null 2>&1 &
echo $! > "$SLURM_FOLDER/pid"
echo "Submitted batch job 7"
"""
SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do
    case $1 in --output|--error) shift 2 ;; *) shift ;; esac
done
exec "$@"
"""
SACCT = """#!/bin/sh
echo "JobID|State|NodeList"
kill -0 $(cat "$SLURM_FOLDER/pid") && echo "7|RUNNING|node" || echo "7|FAILED|node"
"""


def test_slurm_is_asked_for_what_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell script in place of Slurm takes the batch file, and runs its job here."""
    pytest.importorskip(PLUGINS["submitit_slurm"])
    for name, text in {"sbatch": SBATCH, "srun": SRUN, "sacct": SACCT}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_FOLDER", str(tmp_path))
    status = command_line(
        *QUICK, "model.coupling=0.3", "hydra/launcher=submitit_slurm", "threads=2",
        "hydra.launcher.partition=long", "hydra.launcher.timeout_min=90", "--multirun",
        outputs=tmp_path / "outputs",
    )  # fmt: skip
    assert status == 0
    assert finished(tmp_path / "outputs", "0.3")["threads"] == 2
    asked = (tmp_path / "batch.sh").read_text().splitlines()
    for line in (
        "--cpus-per-task=2", "--job-name=latticework-rates_sec3", "--mem=8GB",
        "--partition=long", "--signal=USR2@120", "--time=90",
    ):  # fmt: skip
        assert f"#SBATCH {line}" in asked


def test_ray_runs_a_sweep(tmp_path: Path) -> None:
    pytest.importorskip(PLUGINS["ray"])
    words = ("model.coupling=0.1,0.3", "hydra/launcher=ray", "--multirun")
    assert command_line(*QUICK, *words, outputs=tmp_path) == 0
    for coupling in ("0.1", "0.3"):
        assert finished(tmp_path, coupling)["threads"] == 1
