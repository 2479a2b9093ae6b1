"""Rules on source and pages: a table, with examples that break each rule.

ruff, mypy and `mkdocs build --strict` check the rest, such as links, formats and types.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pytest
import yaml
from documented import ROOT
from packaging.specifiers import SpecifierSet

NAME = "latticework"
OURS = ("conf", "data", "experiments", "models", "run", "samplers", "sampling")
OURS += ("scripts", "torchvision_ops")

LIGHT = ("configuration", "outcomes", "signals", "sweeps", "validation")
WITHOUT_TORCH = [f"experiments/runs/{name}.py" for name in LIGHT]
WITHOUT_TORCH += ["sampling/diagnostics.py", "sampling/tuning/ranking.py"]
WITHOUT_TORCH += [f"experiments/{room}" for room in ("records", "figures", "papers")]
WITHOUT_TORCH += ["experiments/callback.py", "experiments/result_tables.py"]
WITHOUT_TORCH += [f"workshop/bench{part}.py" for part in ("", "_workers", "_workloads")]
SCRIPTS = ("bundle", "figures", "report", "reproduce", "trace")
WITHOUT_TORCH += [f"scripts/{name}.py" for name in SCRIPTS]

FOLDERS = ("data", "experiments", "models", "samplers", "sampling", "scripts")
PACKAGE = ("run.py", "src/latticework/*.py", *(f"{folder}/**/*.py" for folder in FOLDERS))
PACKAGE += ("workshop/*.py",)
SOURCE = (*PACKAGE, "tests/*.py", "tests/made_records/*.py", "workshop/tests/*.py")
PAGES = ("*.md", "docs/*.md", "docs/gallery/*", "docs/results/**/*.md", "examples/**/*.*")
YAML = ("conf/**/*.yaml", "experiments/**/*.yaml")


@cache
def read(path: str) -> str:
    return (ROOT / path).read_text()


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


@cache
def files(*patterns: str) -> list[str]:
    found = {file for pattern in patterns for file in ROOT.glob(pattern) if file.is_file()}
    return sorted(str(file.relative_to(ROOT)) for file in found)


# Functions of a file's path and text. They return what breaks a rule.


def matches(pattern: str) -> Callable[[str, str], list[str]]:
    return lambda path, text: [found[0] for found in re.finditer(pattern, text)]


def vague(path: str, text: str) -> list[str]:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    nodes = (node for node in ast.walk(parsed(text)) if isinstance(node, kinds))
    lines = [(ast.get_docstring(node) or "").partition("\n")[0] for node in nodes]
    return [line for line in lines if re.match(r"(Of|The same)\b", line)]


@cache
def imported(source: str) -> list[str]:
    """Every module that the source imports, wherever in it: `from a import b` gives a.b."""
    found = []
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{'.' * node.level}{node.module}.{alias.name}" for alias in node.names]
    return found


def within(module: str, allowed: str) -> bool:
    return f"{module}.".startswith(f"{allowed}.")


def covers(folder: str, path: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def bare(path: str, text: str) -> list[str]:
    return [module for module in imported(text) if module.split(".")[0] in ("", *OURS)]


def bare_targets(path: str, text: str) -> list[str]:
    return [t for t in re.findall(r"_target_: *([\w.]+)", text) if t.split(".")[0] in OURS]


def undocumented(path: str, text: str) -> list[str]:
    """The classes and functions that an option names, and that have no docstring."""
    found = []
    for module, name in re.findall(rf"^_target_: *{NAME}\.([\w.]+)\.(\w+)", text, re.MULTILINE):
        source = parsed(read(f"{module.replace('.', '/')}.py"))
        found += [n for n in source.body if getattr(n, "name", "") == name]
    return [node.name for node in found if not ast.get_docstring(node)]


class Rule(NamedTuple):
    files: tuple[str, ...]  # patterns
    find: Callable[[str, str], list[str]]
    instead: str  # what to write
    broken: dict[str, str]  # texts that break it, by path


SAMPLER = r"(DULA|DMALA|GWG(-\d)?|Gibbs(-\d)?|LB-1|HB-10-1|DSVGD|R-MALA|SP|rates-\w+|\w*log\w*|ISL)"
RULES = {
    "docstrings name their subject": Rule(
        SOURCE,
        vague,
        "say what it is about in the docstring's first words",
        {"a.py": 'def f():\n    """Of each chain."""', "b.py": '"""The same\n\n    for B."""'},
    ),
    "margins are differences": Rule(
        ("experiments/papers/claims/*.py", "experiments/papers/*.*"),
        matches(f"{SAMPLER} less {SAMPLER}"),
        "A - B",
        {"a.py": '"log RMSE, GWG-1 less DMALA"'},
    ),
    "costs are per evaluation": Rule(
        (*PACKAGE, "docs/*.md"),
        matches(r"for an evaluation|evaluations? (?:by|of) a (?:chain|second)"),
        "per evaluation",
        {"a.md": "its ESS for an evaluation"},
    ),
    "no paths of a machine": Rule(
        (*SOURCE, *PAGES, *YAML, "Makefile", ".ci/*", ".github/**/*.yml"),
        matches(r"(?<![\w.>}])/(?:home|work|root|Users)/\w+"),
        "a path relative to the repository, or a placeholder",
        {"a.md": f"in `/{'home'}/me`"},
    ),
    "imports name the package": Rule(
        SOURCE,
        bare,
        f"from {NAME}.models.base: without the name, a module is loaded twice",
        {
            "a.py": "from models.base import EnergyModel",
            "b.py": "import sampling.chain as chain",
            "c.py": "from .base import EnergyModel",
        },
    ),
    "targets name the package": Rule(
        YAML, bare_targets, f"{NAME}.models...", {"a.yaml": "_target_: models.potts.Potts"}
    ),
    "models are asked for classes": Rule(
        PACKAGE,
        matches(r"hasattr\((?:\w+\.)*model,"),
        "isinstance(model, ...) of a class of models.base",
        {"a.py": 'hasattr(self.model, "lattice")'},
    ),
    "options are documented": Rule(
        ("conf/*/*.yaml",),
        undocumented,
        "a docstring, which the site shows",
        {"a.yaml": f"_target_: {NAME}.sampling.metrics.MarginalSums"},
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_files_keep_the_rule(name):
    rule = RULES[name]
    paths = files(*rule.files)
    assert len(paths) > 1
    broken = {path: found for path in paths if (found := rule.find(path, read(path)))}
    assert not broken, f"{name}: {rule.instead}"


@pytest.mark.parametrize("name", RULES)
def test_a_file_that_breaks_the_rule_is_found(name):
    for path, text in RULES[name].broken.items():
        assert RULES[name].find(path, text), text


def test_classes_have_names_of_their_own():
    paths = [path for path in files(*PACKAGE) if not path.startswith("workshop/")]
    nodes = [node for path in paths for node in parsed(read(path)).body]
    names = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    assert sorted({name for name in names if names.count(name) > 1}) == []


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
    return dotted if path.startswith("workshop/") else f"{NAME}.{dotted}"


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


# Facts that the project states in several places.


def test_versions_pythons_and_tools_agree():
    project = tomllib.loads(read("pyproject.toml"))["project"]
    changes = re.findall(r"^## \[(\d[^]]*)\] - \d{4}-\d\d-\d\d$", read("CHANGELOG.md"), re.M)
    assert yaml.safe_load(read("CITATION.cff"))["version"] == project["version"] == changes[0]
    allowed = [f"3.{n}" for n in range(30) if f"3.{n}" in SpecifierSet(project["requires-python"])]
    ci = read(".github/workflows/ci.yml")
    assert yaml.safe_load(ci)["jobs"]["tests"]["strategy"]["matrix"]["python"] == allowed
    (badge,) = re.findall(r"badge/python-(\S+?)-blue", read("README.md"))
    assert badge.split("_%7C_") == allowed
    assert f"badge/licence-{project['license']}-blue)](LICENSE)" in read("README.md")
    made = " ".join(re.findall(r"^make (.+)$", read(".ci/run"), re.M)).split()
    ours = {f"make {word}" for word in made if word[0] not in "-."}  # no option and no file
    told = set(re.findall(r"make [\w-]+", ci)) - {"make test-slurm"}  # needs Slurm
    assert {"make lint", "make docs", "make test-all"} < ours == told


def test_actions_are_pinned_by_commit():
    """A tag can be moved to other code; a comment says which release the commit is."""
    lines = [line for file in (ROOT / ".github/workflows").glob("*.yml")
             for line in file.read_text().splitlines() if "uses:" in line]  # fmt: skip
    pinned = re.compile(r".*uses: [\w-]+/[\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+")
    assert len(lines) > 15
    assert [line for line in lines if not pinned.fullmatch(line)] == []


def test_the_notes_of_a_release_are_its_section_of_the_changelog(tmp_path):
    """The commands of release.yml, in this checkout, as GitHub runs them for the tag."""
    steps = yaml.safe_load(read(".github/workflows/release.yml"))["jobs"]["release"]["steps"]
    check, _, notes, _ = [step["run"] for step in steps if "run" in step]
    for name in ("CHANGELOG.md", "pyproject.toml"):
        (tmp_path / name).write_text(read(name))

    def run(script: str, tag: str) -> bool:
        env = {"GITHUB_REF_NAME": tag, "PATH": "/usr/bin:/bin"}
        return not subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=env).returncode

    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert [run(check, f"v{version}"), run(check, "v0.1.9"), run(notes, "v0.1.9")] == [1, 0, 0]
    assert run(notes, "v0.2.0")
    text = (tmp_path / "notes.md").read_text()
    assert text.startswith("## [0.2.0] - 2026-11-22\n")
    assert "### Fixed" in text
    assert "Unreleased" not in text
