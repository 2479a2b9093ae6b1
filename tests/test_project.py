"""Facts that are stated in several places: versions, Pythons, actions, notes of a release."""

import re
import subprocess
import tomllib

import yaml
from documented import ROOT
from packaging.specifiers import SpecifierSet
from sources import read

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
    assert ours == {f"make {name}" for name in ("lint", "docs", "test-quick")}
    whole = ("lint", "docs", "test-all", "test-avx2", "test-slurm")
    assert set(re.findall(r"make [\w-]+", ci)) == {f"make {name}" for name in whole}


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
