"""What the project says about itself in several places agrees: versions, workflows, badges."""

import re
import subprocess
import tomllib

import pytest
import yaml
from documented import ROOT
from packaging.specifiers import SpecifierSet

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {
    file.stem: yaml.safe_load(file.read_text()) for file in ROOT.glob(".github/workflows/*.yml")
}
ALLOWED = [
    f"3.{minor}" for minor in range(30) if f"3.{minor}" in SpecifierSet(PROJECT["requires-python"])
]


def commands(workflow: str) -> list[str]:
    jobs = WORKFLOWS[workflow]["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def test_the_version_is_the_same_everywhere():
    changes = re.findall(r"^## \[(\d[^]]*)\] - \d{4}-\d\d-\d\d$", read("CHANGELOG.md"), re.M)
    cited = yaml.safe_load(read("CITATION.cff"))
    assert cited["version"] == PROJECT["version"] == changes[0]


def test_ci_runs_the_tests_on_every_python_that_is_allowed():
    matrix = WORKFLOWS["ci"]["jobs"]["tests"]["strategy"]["matrix"]
    assert matrix["python"] == ALLOWED


def test_ci_on_github_does_what_ci_run_does():
    ours = set(re.findall(r"^make \S+", read(".ci/run"), re.M))
    theirs = {line for run in commands("ci") for line in re.findall(r"^make \S+", run, re.M)}
    assert {"make lint", "make docs", "make test", "make test-avx2"} == ours == theirs


def test_the_badges_say_what_the_project_says():
    page = read("README.md")
    (python,) = re.findall(r"badge/python-(\S+?)-blue\)\]\(pyproject\.toml\)", page)
    assert python.split("_%7C_") == ALLOWED
    assert f"badge/licence-{PROJECT['license']}-blue)](LICENSE)" in page
    for name in re.findall(r"actions/workflows/(\w+)\.yml", page):
        assert name in WORKFLOWS


def test_the_notes_of_a_release_are_its_section_of_the_changelog(tmp_path):
    """The commands of release.yml, in this checkout, as GitHub runs them for the tag."""
    check, wheel, notes, _ = commands("release")
    assert "pip wheel" in wheel  # test_wheel.py builds one
    (tmp_path / "CHANGELOG.md").write_text(read("CHANGELOG.md"))
    (tmp_path / "pyproject.toml").write_text(read("pyproject.toml"))

    def run(script: str, tag: str) -> int:
        shell = ["bash", "-e", "-c", script]
        return subprocess.run(
            shell, cwd=tmp_path, env={"GITHUB_REF_NAME": tag, "PATH": "/usr/bin:/bin"}
        ).returncode

    assert run(check, f"v{PROJECT['version']}") == 0
    assert run(check, "v0.1.9") != 0
    assert run(notes, "v0.1.9") != 0
    assert run(notes, "v0.2.0") == 0
    text = (tmp_path / "notes.md").read_text()
    assert text.startswith("## [0.2.0] - 2026-11-22\n")
    assert "### Fixed" in text
    assert "Unreleased" not in text


@pytest.mark.parametrize(
    "line", [".venv/bin/ruff check", ".venv/bin/ruff format", ".venv/bin/mypy"]
)
def test_pre_commit_runs_the_tools_of_make_lint(line):
    hooks = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"][0]["hooks"]
    assert any(hook["entry"].startswith(line) for hook in hooks)
    assert line.replace(".venv/bin", "$(BIN)") in read("Makefile")


def read(name: str) -> str:
    return (ROOT / name).read_text()
