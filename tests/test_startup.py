"""What a command imports: --help needs no torch, and a small run only what it uses.

The modules are listed, not timed: each of those below takes tenths of a second to import.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from documented import ROOT
from sources import PACKAGE, files

RUN = Path(__file__).resolve().parent.parent / "run.py"
DRAWING = {"pandas", "matplotlib", "PIL"}
OTHERS = {
    "arviz", "nltk", "optuna", "rich", "scipy", "sklearn", "tensorboard",
    "tokenizers", "torch._dynamo", "torch._inductor", "torchvision", "transformers", "wandb",
}  # fmt: skip
LISTED = """
import atexit, json, runpy, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def printed(code, *words):
    """The set that `code` prints last for `python run.py <words>`, which must succeed."""
    command = [sys.executable, "-c", code, str(RUN), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


def modules(*words):
    """The modules imported by `python run.py <words>`."""
    return printed(LISTED, *words)


ENTERED = """
import hydra, pandas, torch  # before calls are watched, which takes long
import json, runpy, sys
codes, sys.argv = set(), sys.argv[1:]
sys.setprofile(lambda frame, event, _: codes.add(frame.f_code) if event == "call" else None)
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    sys.setprofile(None)
    functions = [code for code in codes if code.co_flags & 2 and code.co_name[0] != "<"]
    print(json.dumps(sorted({code.co_filename for code in functions})), file=sys.stderr)
"""


def test_the_help_imports_no_torch():
    assert not modules("--help") & {"torch", "numpy", *DRAWING, *OTHERS}


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "its_own"), [("eager", set()), ("compiled", {"scipy"})])
def test_a_small_run_imports_what_it_uses(engine, its_own, tmp_path):
    """The table at its end reads the record with pandas. numba looks for BLAS in SciPy."""
    metrics = "[{_target_: latticework.sampling.metrics.Acceptance}]"
    words = ("model=ising", "sampler=gibbs", "scale=smoke", f"outputs={tmp_path}")
    words += (f"engine={engine}", f"task.metrics={metrics}")
    its_own = its_own | {"pandas", "rich"}
    imported = modules(*words)
    assert list(tmp_path.rglob("run.json"))
    assert imported >= {"torch", "latticework.samplers.gibbs"}  # the list is a list
    assert not imported & {*DRAWING, *OTHERS, "latticework.samplers.svgd"} - its_own
    assert ("numba" in imported) is (engine == "compiled")


@pytest.mark.slow
@pytest.mark.parametrize("own", [None, "ACTIVE"])
def test_threads_that_wait_sleep_unless_the_user_says_otherwise(tmp_path, own):
    """As the library says itself when it is loaded."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    environment |= {"OMP_DISPLAY_ENV": "VERBOSE"} | ({"OMP_WAIT_POLICY": own} if own else {})
    words = ("scale=smoke", "sampler.step_size=x")  # refused, but only after PyTorch is imported
    done = subprocess.run(
        [sys.executable, str(RUN), *words, f"outputs={tmp_path}"],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    spins = re.search(r"GOMP_SPINCOUNT = '(\w+)'", done.stderr)  # before a thread sleeps
    if spins is None:
        pytest.skip("this PyTorch's OpenMP library does not show its settings")
    assert (spins[1] == "0") is (own is None)


@pytest.mark.slow
def test_a_run_enters_few_files(tmp_path):
    """How many of our files one opens who follows a command. Lower the bar where it gets fewer."""
    words = ("experiment=rbm_sampling", "sampler=dmala", "scale=smoke", f"outputs={tmp_path}")
    words += ("data.download=false", "data.root=null")
    source = RUN.parent / "src" / "latticework"
    ours = {file for file in printed(ENTERED, *words) if file.startswith(f"{source}/")}
    assert str(source / "samplers" / "langevin.py") in ours
    # One idea a file: checks, outcomes, tables, kinds of images and parts of a figure are apart.
    # `latticework.fit` shares updates, seeds and rows with the tasks, so they are apart too.
    assert len(ours) <= 70


# What draws figures runs without torch.

LIGHT = ("configuration", "outcomes", "signals", "sweeps", "validation")
WITHOUT_TORCH = [f"experiments/runs/{name}.py" for name in LIGHT]
WITHOUT_TORCH += ["sampling/diagnostics.py", "sampling/intervals.py", "sampling/tuning/ranking.py"]
WITHOUT_TORCH += [f"experiments/{room}" for room in ("records", "figures", "papers")]
WITHOUT_TORCH += ["experiments/callback.py", "experiments/result_tables.py"]
WITHOUT_TORCH += [f"workshop/bench{part}.py" for part in ("", "_workers", "_workloads")]
SCRIPTS = ("bundle", "claim", "figures", "report", "reproduce", "trace")
WITHOUT_TORCH += [f"scripts/{name}.py" for name in SCRIPTS]


def covers(folder: str, path: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


BLOCKED = """
import sys
from importlib import import_module

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch is blocked")

sys.meta_path.insert(0, NoTorch())
for name in {names}:
    import_module(name)
kernels = ("torch.", "latticework.samplers", "latticework.models")
assert not [name for name in sys.modules if name.startswith(kernels)]
try:  # control
    import latticework.sampling.metrics
except ImportError:
    sys.exit()
sys.exit("torch was not blocked")
"""


def module_name(path: str) -> str:
    dotted = path.removesuffix(".py").replace("/", ".")
    return dotted if path.startswith("workshop/") else f"latticework.{dotted}"


def test_what_draws_figures_runs_without_torch():
    assert [path for path in WITHOUT_TORCH if not (ROOT / path).exists()] == []
    names = [
        module_name(path)
        for path in files(*PACKAGE)
        if any(covers(folder, path) for folder in WITHOUT_TORCH) and "__init__" not in path
    ]
    words = [sys.executable, "-c", BLOCKED.format(names=names)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
