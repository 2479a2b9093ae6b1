"""Play sweeps on a real Slurm: one node on this machine, started for the occasion.

    make test-slurm    # or python -m workshop.slurm

With `hydra/launcher=submitit_slurm`: a sweep, the same sweep by two commands at once, a run that
reaches its time limit, and a node that dies. Each record must have the bits of a run without Slurm.
Needs munged, slurmctld and slurmd (Debian: slurm-wlm and munge) and no rights; accounting is off.
Prints what was seen. Raises AssertionError where something else should have been seen.
"""

import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from latticework.experiments.records.record import load_all
from latticework.models.ising import Lattice
from workshop.compare import first_difference

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo")
MISSING = "skipped: {} is not installed; on Debian: apt-get install slurm-wlm munge"
RUN = Path(__file__).resolve().parent.parent / "run.py"
ON_SLURM = ("hydra/launcher=submitit_slurm", "hydra.launcher.mem_gb=1")
SWEEP = ("model=ising", "sampler=gibbs,dmala", "seed=0,1", "scale=smoke")
PAUSE = "LATTICEWORK_PAUSE"  # seconds
LONG = (
    "model._target_=workshop.slurm.Pausing", "engine=eager", "scale=smoke",
    "budget.steps=440", "budget.every=10", "checkpoint=1",
)  # fmt: skip
# A step's credential must expire before Slurm starts a requeued job again.
CONFIGURATION = """
ClusterName=one
SlurmctldHost={host}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
{node} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class Pausing(Lattice):
    """An Ising model whose gradients wait, so that a run of DMALA takes as long as it should."""

    def gradient(self, x: Tensor) -> Tensor:
        time.sleep(float(os.environ.get(PAUSE, 0)))
        return super().gradient(x)


class Node:
    """A cluster of one node in `folder`. The commands of Slurm find it by SLURM_CONF."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen] = {}
        for name in ("state", "spool"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.start(
            "munged", "--foreground", "--force", f"--key-file={key}",
            f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid",
            f"--seed-file={folder}/seed", f"--log-file={folder}/munged.log",
        )  # fmt: skip
        node = next(line for line in output("slurmd", "-C").splitlines() if "NodeName" in line)
        file = folder / "slurm.conf"
        file.write_text(
            CONFIGURATION.format(
                host=socket.gethostname(), user=getpass.getuser(), folder=folder, node=node,
                ports=free_ports(2),
            )
        )  # fmt: skip
        os.environ["SLURM_CONF"] = str(file)
        until(lambda: (folder / "munge.socket").exists())
        self.start("slurmctld", "-D")
        self.start("slurmd", "-D")
        until(lambda: self.state() == "idle")

    def start(self, program: str, *words: str) -> None:
        with (self.folder / f"{program}.out").open("a") as log:
            self.running[program] = subprocess.Popen([program, *words], stdout=log, stderr=log)

    def state(self) -> str:
        return output("sinfo", "--noheader", "--format=%T").strip()

    def dies(self) -> None:
        """Kill the node's daemon and all processes of its jobs, as a loss of power does."""
        pids = [int(line.split()[0]) for line in output("scontrol", "listpids").splitlines()[1:]]
        pids = [pid for pid in pids if pid > 0]
        for pid in {*pids, *map(parent, pids), self.running["slurmd"].pid}:
            os.kill(pid, signal.SIGKILL)
        self.running["slurmd"].wait()

    def stop(self) -> None:
        for process in reversed(self.running.values()):
            process.terminate()
        for process in self.running.values():
            process.wait()


@contextmanager
def node() -> Iterator[Node]:
    """A node that ends with the block."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        Path(folder).chmod(0o755)  # munged refuses a socket in a folder that others cannot enter
        made = Node(Path(folder))
        try:
            yield made
        finally:
            made.stop()


def output(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def until(condition: Callable[[], object], *processes: subprocess.Popen) -> None:
    """Wait for the condition. Raises AssertionError if one of the processes ends before it."""
    while not condition():
        assert all(each.poll() is None for each in processes), "a command ended too early"
        time.sleep(0.5)


def start_command(outputs: Path, *words: str, pause: float = 0) -> subprocess.Popen:
    """Start `python run.py <words>`; what it says goes to `outputs`.txt."""
    environment = {**os.environ, PAUSE: str(pause)}
    with outputs.with_suffix(".txt").open("a") as log:
        call = [sys.executable, str(RUN), "--multirun", f"outputs={outputs}", *words]
        return subprocess.Popen(call, env=environment, stdout=log, stderr=subprocess.STDOUT)


def ended(process: subprocess.Popen, outputs: Path) -> str:
    """The output of the command. Raises AssertionError if it failed."""
    said = outputs.with_suffix(".txt")
    assert process.wait() == 0, said.read_text()
    return said.read_text()


def equal(plain: Path, outputs: Path) -> int:
    """The number of records in `outputs`, each of which has the bits of that in `plain`."""
    made = {Path(str(r.path)).relative_to(outputs): r for r in load_all(outputs)}
    known = {Path(str(r.path)).relative_to(plain): r for r in load_all(plain)}
    assert made, f"no record in {outputs}"
    for name, record in made.items():
        differ = first_difference(known[name].metrics, record.metrics)
        assert not differ, f"{name}: {differ}"
    return len(made)


def resumed(outputs: Path) -> list[str]:
    """The iterations at which the processes of the run resumed, from its log."""
    (log,) = outputs.rglob("run.log")
    return re.findall(r"resumes from iteration (\d+)", log.read_text())


def sweeps(folder: Path) -> None:
    """A sweep by one command, and by two at once."""
    plain, single, double = (folder / name for name in ("plain", "one", "two"))
    ended(start_command(plain, *SWEEP), plain)
    said = ended(start_command(single, *SWEEP, *ON_SLURM), single)
    assert "sacct" not in said, said
    print(f"a sweep: {equal(plain, single)} runs, equal to those without Slurm", flush=True)
    both = [start_command(double, *SWEEP, *ON_SLURM) for _ in range(2)]
    for each in both:
        ended(each, double)
    assert equal(plain, double) == len(load_all(plain))
    assert not (double / "superseded").exists()
    print(f"two commands at once: {len(load_all(double))} records, equal to the others", flush=True)


def interruptions(folder: Path, cluster: Node) -> None:
    """A run that reaches its time limit, and one whose node dies."""
    plain, late, lost = (folder / name for name in ("undisturbed", "late", "lost"))
    ended(start_command(plain, *LONG), plain)
    limit = ("hydra.launcher.timeout_min=2", "hydra.launcher.signal_delay_s=30")
    ended(start_command(late, *LONG, *ON_SLURM, *limit, pause=0.25), late)
    equal(plain, late)
    assert (rounds := resumed(late)), "the run was not requeued"
    print(f"a time limit: requeued, resumed from iteration {', '.join(rounds)}; equal", flush=True)

    process = start_command(lost, *LONG, *ON_SLURM, pause=0.1)
    until(lambda: list(lost.rglob("checkpoints/*.pt")), process)
    cluster.dies()
    until(lambda: cluster.state().startswith("down"), process)
    cluster.start("slurmd", "-D")
    ended(process, lost)
    equal(plain, lost)
    assert (rounds := resumed(lost)), "the run was not started again"
    print(f"a dead node: resumed from iteration {', '.join(rounds)}; equal", flush=True)


def main() -> int:
    """Return the exit status: 0 also where Slurm is not installed, which is said."""
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        print(MISSING.format(missing[0]))
        return 0
    torch.set_num_threads(1)
    with node() as cluster, tempfile.TemporaryDirectory() as folder:
        sweeps(Path(folder))
        interruptions(Path(folder), cluster)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
