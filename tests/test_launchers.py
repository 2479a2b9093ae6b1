"""Sweeps by the launchers of conf/hydra/launcher: real processes, and a make-believe Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import command_line
from documented import composed, names
from omegaconf import DictConfig

from latticework.experiments.records.record import load_all

PLUGINS = {
    "joblib": "hydra_plugins.hydra_joblib_launcher",
    "submitit_local": "hydra_plugins.hydra_submitit_launcher",
    "submitit_slurm": "hydra_plugins.hydra_submitit_launcher",
    "ray": "hydra_plugins.RayLauncher",
}
pytestmark = pytest.mark.filterwarnings(r"ignore:\s*'hydra/launcher/:UserWarning")
QUICK = ("experiment=rates_sec3", "scale=smoke", "task.steps=5", "task.lambdas=3")


def launcher(name: str, *overrides: str) -> DictConfig:
    if name != "ray":  # which is ours
        pytest.importorskip(PLUGINS[name])
    return composed(f"hydra/launcher={name}", *overrides).hydra.launcher


def record(folder: Path, coupling: str) -> Path:
    (found,) = folder.glob(f"rates_sec3/smoke/model.coupling={coupling}*")
    return found


def finished(folder: Path, coupling: str) -> dict:
    return json.loads((record(folder, coupling) / "run.json").read_text())


def test_there_is_a_file_for_each_launcher() -> None:
    assert names("hydra/launcher") == sorted(PLUGINS)


@pytest.mark.parametrize("name", PLUGINS)
def test_each_composes_for_its_plugin_with_a_core_for_each_thread(name: str) -> None:
    found = launcher(name, "threads=4")
    assert found._target_.startswith(PLUGINS[name])
    assert 4 in (found.get("cpus_per_task"), found.get("num_cpus")) or name == "joblib"


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


@pytest.mark.slow
def test_submitit_tells_each_run_in_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its runs print into logs of their own; two of three finish."""
    pytest.importorskip(PLUGINS["submitit_local"])
    words = ("model.coupling=0.1,wrong,0.3", "hydra/launcher=submitit_local", "--multirun")
    assert command_line(*QUICK, *words, outputs=tmp_path) == 1
    told = capfd.readouterr().out.splitlines()
    lines = [line for line in told if " of 3 runs: " in line]
    assert [line.partition(" ")[0] for line in lines] == ["1", "2", "3"]
    assert sum(": failed: " in line for line in lines) == 1
    assert not list(tmp_path.rglob(".sweep-*"))


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


@pytest.mark.slow
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


RAY = "Ray is not installed: pip install -e '.[ray]' -c constraints.txt"
ON_RAY = ("hydra/launcher=ray", "hydra.launcher.init.num_cpus=2", "--multirun")


def test_ray_runs_a_sweep(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """On a cluster of two cores. One of three runs fails, the others finish."""
    pytest.importorskip("ray", reason=RAY)
    words = ("model.coupling=0.1,wrong,0.3", *ON_RAY)
    assert command_line(*QUICK, *words, outputs=tmp_path) == 1
    for coupling in ("0.1", "0.3"):
        assert finished(tmp_path, coupling)["threads"] == 1
    told = capfd.readouterr().out
    assert "1 failed:" in told
    assert told.count("sec3.png") == 1


def test_a_run_on_ray_whose_process_dies_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 1 dies of SIGKILL in its second iteration; Ray starts it again."""
    pytest.importorskip("ray", reason=RAY)
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))  # fakes, in the cluster's processes
    folder = tmp_path / "conf" / "task"
    folder.mkdir(parents=True)
    folder.joinpath("dying.yaml").write_text("_target_: fakes.dying\n_partial_: true\n")
    words = (f"hydra.searchpath=[file://{folder.parent}]", "task=dying", "model.shape=[2,2]")
    words += ("+task.death=SIGKILL", "checkpoint=0", "seed=0,1")
    assert command_line(*words, *ON_RAY, outputs=tmp_path / "outputs") == 0
    found = {r.config["seed"]: r.metrics["processes"].tolist() for r in load_all(tmp_path)}
    assert found == {0: [1, 1, 1], 1: [1, 2, 2]}


def test_without_ray_the_command_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # importing it fails
    assert command_line(*QUICK, "model.coupling=0.1,0.3", *ON_RAY, outputs=tmp_path) == 1
    assert "hydra/launcher=ray needs Ray: pip install -e '.[ray]'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_launcher_of_ours_needs_no_package_of_plugins(tmp_path: Path) -> None:
    """Installed as `make demo` does it: without the extras that bring Hydra's plugins."""
    code = """
import sys
sys.modules["hydra_plugins"] = sys.modules["ray"] = None  # importing them fails
from latticework.scripts.command_line import main
main()
"""
    words = [sys.executable, "-c", code, *QUICK, f"outputs={tmp_path}", *ON_RAY]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "hydra/launcher=ray needs Ray" in ran.stderr, "it was found, and Ray was not"
