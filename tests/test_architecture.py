"""Who may import whom, read from the source; and that figures get by without torch."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("conf", "data", "experiments", "models", "run", "samplers", "scripts", "torchvision_ops")

# What a file may import of ours: modules, or packages with all that is in them. The rule of the
# longest path counts. Concrete models and samplers meet in YAML and nowhere else, but for those
# samplers that by their nature serve one family of models.
MAY_IMPORT = {
    "data": ["data", "torchvision_ops"],
    "models": ["models", "torchvision_ops"],
    "torchvision_ops.py": [],
    "samplers": ["samplers", "models.base", "models.chance", "models.domain"],
    "samplers/block_gibbs.py": ["samplers.base", "models.base", "models.rbm"],
    "samplers/rates.py": ["samplers.base", "models.base", "models.rbm", "models.rated_rbm"],
    "experiments": [
        "experiments",
        "samplers.base",
        "samplers.checks",
        "models.base",
        "models.chance",
        "models.domain",
        "data",
    ],
    "experiments/figures": [
        "experiments.figures",
        "experiments.grouping",
        "experiments.published",
        "experiments.tables",
        "experiments.record",
        "experiments.diagnostics",
    ],
    "experiments/tables": [
        "experiments.figures.style",
        "experiments.grouping",
        "experiments.tables",
        "experiments.published",
        "experiments.record",
        "experiments.diagnostics",
    ],
    "experiments/record.py": [],
    "experiments/identity.py": [],
    "experiments/grouping.py": [
        "experiments.figures.style",
        "experiments.identity",
        "experiments.record",
    ],
    "experiments/claims": [
        "experiments.claims",
        "experiments.figures",
        "experiments.grouping",
        "experiments.tables",
        "experiments.published",
        "experiments.record",
    ],
    "experiments/report": [
        "experiments.report",
        "experiments.claims",
        "experiments.figures",
        "experiments.folders",
        "experiments.grouping",
        "experiments.identity",
        "experiments.tables.table",
        "experiments.published",
        "experiments.record",
        "experiments.resolvers",
    ],
    "experiments/bundle.py": [
        "experiments.claims",
        "experiments.figures.draw",
        "experiments.record",
    ],
    "experiments/published.py": ["experiments.tables.table"],
    "experiments/diagnostics.py": [],
    "run.py": ["experiments"],
    "scripts": ["scripts", "experiments"],
    "scripts/bench.py": ["scripts", "experiments", "samplers", "models"],  # pairs, side by side
    "scripts/bench_learning.py": ["scripts", "experiments", "samplers", "models", "data.base"],
}
WITHOUT_TORCH = (
    "experiments/figures",
    "experiments/tables",
    "experiments/record.py",
    "experiments/identity.py",
    "experiments/folders.py",
    "experiments/grouping.py",
    "experiments/published.py",
    "experiments/diagnostics.py",
    "experiments/claims",
    "experiments/report",
    "experiments/bundle.py",
    "experiments/sweep.py",
    "experiments/resolvers.py",
    "scripts/bundle.py",
    "scripts/figures.py",
    "scripts/report.py",
    "scripts/reproduce.py",
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
    ours = [module for module in imported(source) if module.split(".")[0] in OURS]
    return [m for m in ours if not any(within(m, allowed) for allowed in rule(path))]


FILES = sorted(
    str(file.relative_to(ROOT))
    for folder in ("data", "models", "samplers", "experiments", "scripts")
    for file in (ROOT / folder).rglob("*.py")
) + ["run.py", "torchvision_ops.py"]


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


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("models/ising.py", "from samplers.base import State"),
        ("models/ising.py", "import experiments.chain"),
        ("samplers/gwg.py", "from models.ising import Lattice"),
        ("samplers/gwg.py", "from models import ising"),
        ("samplers/gwg.py", "from models.rows import add_rows"),
        ("samplers/block_gibbs.py", "from models.ising import Lattice"),
        ("experiments/chain.py", "def f():\n    from samplers.gwg import GWG"),
        ("experiments/figures/curves.py", "from experiments.chain import run_chain"),
        ("experiments/record.py", "from experiments.context import Run"),
        ("experiments/claims/rates.py", "from experiments.report.view import gather"),
        ("data/base.py", "import models.base"),
        ("run.py", "from models.base import EnergyModel"),
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
assert not [name for name in sys.modules if name.startswith(("torch.", "samplers", "models"))]
"""


def blocked(names: list[str]) -> subprocess.CompletedProcess:
    """Import the modules in a process of their own, in which torch cannot be imported."""
    words = [sys.executable, "-c", BLOCKED.format(names=names)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True)


def test_what_draws_figures_runs_without_torch():
    names = [
        path.removesuffix(".py").replace("/", ".")
        for path in FILES
        if any(covers(folder, path) for folder in WITHOUT_TORCH) and "__init__" not in path
    ]
    assert "scripts.figures" in names
    done = blocked(names)
    assert done.returncode == 0, done.stderr


def test_the_block_holds():
    """Control: a module that needs torch fails."""
    done = blocked(["experiments.mmd"])
    assert done.returncode != 0
    assert "torch is not to be imported here" in done.stderr
