"""Who may import whom, read from the source; and figures are drawn without torch."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("conf", "data", "experiments", "models", "run", "samplers", "scripts", "tools")
OURS += ("torchvision_ops",)
NAME = "latticework"

# What a file may import of ours: modules, or packages with everything in them. The rule with the
# longest path counts. A subpackage of experiments/ may use those that come before it here.
# Concrete models and samplers do not import one another, except samplers of one family of models.
NAMES = ["samplers.NAMES", "samplers.find"]  # modules are imported when a name is used
KERNELS = [*NAMES, "samplers.base", "samplers.checks", "samplers.sums"]
KERNELS += ["models.base", "models.chance", "models.domain"]
FORMS = ["models.forms", "models.product"]
RUNNING = ["experiments.running", "experiments.config", "experiments.results"]
MEASURES = ["experiments.measures", *RUNNING, *KERNELS, "data"]
SAMPLING = ["experiments.sampling", *MEASURES]
LEARNING = ["experiments.learning", *SAMPLING]
EXACTNESS = ["experiments.exactness", *SAMPLING]
TUNING = ["experiments.tuning", *SAMPLING]
RESULTS = ["experiments.results", "experiments.measures.diagnostics"]
TABLES = ["experiments.tables", *RESULTS]
FIGURES = ["experiments.figures", *TABLES]
CLAIMS = ["experiments.claims", *FIGURES]
MAY_IMPORT = {
    "__init__.py": [],
    "torchvision_ops.py": [],
    "data": ["data", "torchvision_ops"],
    "models": ["models", "torchvision_ops"],
    "samplers": ["samplers", "models.base", "models.chance", "models.domain"],
    "samplers/compiled": ["samplers", "models.base", "models.domain", *FORMS],
    "samplers/block_gibbs.py": ["samplers.base", "models.base", "models.rbm"],
    "samplers/swendsen_wang.py": ["samplers.base", "models"],
    "samplers/rates.py": [
        "samplers.base",
        "models.base",
        "models.chance",
        "models.rbm",
        "models.rated_rbm",
    ],
    "experiments/config": ["experiments.config"],
    "experiments/config/loading.py": ["experiments.config", *NAMES],
    "experiments/results": ["experiments.results", "experiments.config"],
    "experiments/running": [*RUNNING, "models.base", "samplers.base"],
    "experiments/running/signals.py": [],
    "experiments/measures": MEASURES,
    "experiments/measures/diagnostics.py": [],
    "experiments/sampling": SAMPLING,
    "experiments/sampling/cycle.py": [*SAMPLING, "samplers.acs"],
    "experiments/sampling/engine.py": [*SAMPLING, "samplers.compiled"],
    "experiments/exactness": EXACTNESS,
    "experiments/exactness/targets.py": ["experiments.exactness", *KERNELS, "models.rbm"],
    "experiments/learning": LEARNING,
    "experiments/tuning": TUNING,
    "experiments/tasks": ["experiments.tasks", *LEARNING, *TUNING],
    "experiments/tables": TABLES,
    "experiments/figures": FIGURES,
    "experiments/claims": CLAIMS,
    "experiments/report": [
        "experiments.report",
        "experiments.config",
        "experiments.running.signals",
        *CLAIMS,
    ],
    "run.py": ["experiments.config", "experiments.running", "scripts"],
    "scripts": ["scripts", "experiments", *NAMES],
    "scripts/samplers_table.py": ["experiments", "samplers.base", "samplers.compiled", "models"],
    "tools": [],
    "scripts/peers": ["scripts.peers"],  # what others would write
    "scripts/peers/limits.py": ["models.product"],
    "scripts/bench_contenders.py": ["scripts", "experiments", "samplers", "models"],
    "scripts/bench_learning.py": ["scripts", "experiments", "samplers", "models", "data.base"],
}
WITHOUT_TORCH = (
    "experiments/config/budget.py",
    "experiments/config/folders.py",
    "experiments/config/identity.py",
    "experiments/config/resolvers.py",
    "experiments/results",
    "experiments/running/signals.py",
    "experiments/measures/diagnostics.py",
    "experiments/tables",
    "experiments/figures",
    "experiments/claims",
    "experiments/report",
    "scripts/bench.py",
    "scripts/bench_workers.py",
    "scripts/bench_workloads.py",
    "scripts/bundle.py",
    "scripts/figures.py",
    "scripts/report.py",
    "scripts/reproduce.py",
    "scripts/trace.py",
    "scripts/why.py",
)


def imported(source: str) -> Iterator[str]:
    """Every module that the source imports, wherever in it: `from a import b` gives a and a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(module: str, allowed: str) -> bool:
    return f"{module}.".startswith(f"{allowed}.")


def rule(path: str) -> list[str]:
    """The modules of the project that the file at `path` may import."""
    return MAY_IMPORT[max((r for r in MAY_IMPORT if covers(r, path)), key=len)]


def covers(folder: str, path: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def forbidden(path: str, source: str) -> list[str]:
    """Imports of ours that the rule for `path` does not allow."""
    ours = [m.removeprefix(f"{NAME}.") for m in imported(source) if within(m, NAME)]
    return [m for m in ours if not any(within(m, allowed) for allowed in rule(path))]


def bare(source: str) -> list[str]:
    """Imports of ours without the package's name: such a module would be loaded twice."""
    return [m for m in imported(source) if m.split(".")[0] in OURS]


FILES = sorted(
    str(file.relative_to(ROOT))
    for folder in ("data", "models", "samplers", "experiments", "scripts", "tools")
    for file in (ROOT / folder).rglob("*.py")
) + ["run.py", "torchvision_ops.py", "__init__.py"]
TESTS = sorted(str(file.relative_to(ROOT)) for file in (ROOT / "tests").glob("*.py"))


@pytest.mark.parametrize("path", FILES)
def test_imports_point_the_right_way(path):
    source = (ROOT / path).read_text()
    assert forbidden(path, source) == [], f"{path} may import of ours only {rule(path)}"
    if any(covers(folder, path) for folder in WITHOUT_TORCH):
        assert not [module for module in imported(source) if within(module, "torch")]


def test_torchvision_is_imported_in_one_place():
    users = [
        path
        for path in FILES
        if any(within(module, "torchvision") for module in imported((ROOT / path).read_text()))
    ]
    assert users == ["data/images.py"]


@pytest.mark.parametrize("path", [*FILES, *TESTS])
def test_every_import_of_ours_has_the_packages_name(path):
    assert bare((ROOT / path).read_text()) == []


def test_targets_in_yaml_have_the_packages_name():
    folders = (ROOT / "conf", ROOT / "experiments")
    files = [file for folder in folders for file in folder.rglob("*.yaml")]
    targets = [t for file in files for t in re.findall(r"_target_: *([\w.]+)", file.read_text())]
    assert len(targets) > 100
    assert [target for target in targets if target.split(".")[0] in OURS] == []


def test_a_bare_import_is_caught():
    assert bare("from models.base import EnergyModel")
    assert bare("import experiments.sampling.chain as chain")
    assert not bare("from latticework.models.base import EnergyModel")


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("models/ising.py", "from latticework.samplers.base import State"),
        ("models/ising.py", "import latticework.experiments.sampling.chain"),
        ("samplers/gwg.py", "from latticework.models.ising import Lattice"),
        ("samplers/gwg.py", "from latticework.models import ising"),
        ("samplers/gwg.py", "from latticework.models.rows import add_rows"),
        ("samplers/block_gibbs.py", "from latticework.models.ising import Lattice"),
        (
            "experiments/sampling/chain.py",
            "def f():\n    from latticework.samplers.gwg import GWG",
        ),
        (
            "experiments/sampling/chain.py",
            "from latticework.experiments.learning.negatives import Contrastive",
        ),
        (
            "experiments/figures/curves.py",
            "from latticework.experiments.sampling.chain import run_chain",
        ),
        ("experiments/tables/bnn.py", "from latticework.experiments.figures.curves import curve"),
        ("experiments/results/record.py", "from latticework.experiments.running.run import Run"),
        (
            "experiments/claims/rates.py",
            "from latticework.experiments.report.view import gather",
        ),
        ("data/base.py", "import latticework.models.base"),
        ("run.py", "from latticework.models.base import EnergyModel"),
    ],
)
def test_the_test_can_fail(path, source):
    assert forbidden(path, source)


def test_models_are_asked_for_classes_and_not_probed_for_attributes():
    """What a task needs of a model is a method or a class of models.base."""
    probes = [
        f"{path}:{node.lineno}"
        for path in FILES
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "hasattr"
        and getattr(node.args[0], "id", getattr(node.args[0], "attr", "")) == "model"
    ]
    assert probes == []


def test_a_class_of_the_library_has_a_name_of_its_own():
    names = [
        node.name
        for path in FILES
        if not path.startswith("scripts/")
        for node in ast.parse((ROOT / path).read_text()).body
        if isinstance(node, ast.ClassDef)
    ]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_no_rule_is_left_over():
    assert [path for path in (*MAY_IMPORT, *WITHOUT_TORCH) if not (ROOT / path).exists()] == []


BLOCKED = """
import sys
from importlib import import_module

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch is not to be imported here")

sys.meta_path.insert(0, NoTorch())
for name in {names}:
    import_module(name)
kernels = ("torch.", "latticework.samplers", "latticework.models")
assert not [name for name in sys.modules if name.startswith(kernels)]
"""


def blocked(names: list[str]) -> subprocess.CompletedProcess:
    """Import the modules in a process of their own, in which torch cannot be imported."""
    words = [sys.executable, "-c", BLOCKED.format(names=names)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True)


def test_what_draws_figures_runs_without_torch():
    names = [
        f"{NAME}.{path.removesuffix('.py').replace('/', '.')}"
        for path in FILES
        if any(covers(folder, path) for folder in WITHOUT_TORCH) and "__init__" not in path
    ]
    assert f"{NAME}.scripts.figures" in names
    done = blocked(names)
    assert done.returncode == 0, done.stderr


def test_the_block_holds():
    """Control: what needs torch fails in it."""
    done = blocked([f"{NAME}.experiments.measures.mmd"])
    assert done.returncode != 0
    assert "torch is not to be imported here" in done.stderr
