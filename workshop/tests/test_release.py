"""What `make release` refuses, and the tag that it makes otherwise."""

import subprocess

import pytest

from workshop import release

FILES = {
    "pyproject.toml": '[project]\nname = "it"\nversion = "0.3.0"\n',
    "CITATION.cff": "title: It\nversion: 0.3.0\ndate-released: 2026-12-01\nlicense: MIT\n",
    "CHANGELOG.md": "## [Unreleased]\n\n## [0.3.0] - 2026-12-01\n\n- new\n\n## [0.2.0] - 2026\n",
}


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "build", lambda root: None)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    release.git(tmp_path, "init", "--quiet")
    for key, value in (("user.name", "A"), ("user.email", "a@b.c"), ("tag.gpgSign", "false")):
        release.git(tmp_path, "config", key, value)
    commit(tmp_path)
    return tmp_path


def commit(folder):
    release.git(folder, "add", "--all")
    release.git(folder, "-c", "commit.gpgSign=false", "commit", "--quiet", "--message", "it")


def tags(folder):
    return release.git(folder, "tag", "--list")


def test_a_release_is_tagged_once(checkout, capsys):
    assert release.main([], checkout) == 0
    assert tags(checkout) == "v0.3.0"
    assert "git push origin v0.3.0" in capsys.readouterr().out
    assert release.main([], checkout) == 1
    assert "the tag v0.3.0 exists" in capsys.readouterr().err
    assert release.main(["--no-tag"], checkout) == 0


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("pyproject.toml", "0.3.0", "0.3.1", "CITATION.cff must have the line `version: 0.3.1`"),
        ("CITATION.cff", "version: 0.3.0", "version: 0.2.0", "`version: 0.3.0`"),
        ("CITATION.cff", "12-01", "12-02", "`date-released: 2026-12-01`"),
        ("CHANGELOG.md", "## [0.3.0] - 2026-12-01\n", "", "must be `## [0.3.0] - date`"),
        ("CHANGELOG.md", "Unreleased]\n", "Unreleased]\n\n- more\n", "it is [Unreleased]"),
        ("CHANGELOG.md", "- new\n", "", "must be `## [0.3.0] - date`"),
    ],
)
def test_versions_that_differ_are_refused(checkout, file, old, new, told, capsys):
    text = (checkout / file).read_text()
    assert old in text
    (checkout / file).write_text(text.replace(old, new, 1))
    commit(checkout)
    assert release.main([], checkout) == 1
    assert told in capsys.readouterr().err
    assert not tags(checkout)


@pytest.mark.parametrize("name", ["README.md", "pyproject.toml"])
def test_files_that_are_not_committed_are_refused(checkout, name, capsys):
    with (checkout / name).open("a") as file:
        file.write("# more\n")
    assert release.main([], checkout) == 1
    assert f"commit or remove what git does not have: {name}" in capsys.readouterr().err
    assert not tags(checkout)


def test_packages_that_cannot_be_built_are_not_tagged(checkout, monkeypatch):
    def fails(root):
        raise subprocess.CalledProcessError(1, "build")

    monkeypatch.setattr(release, "build", fails)
    with pytest.raises(subprocess.CalledProcessError):
        release.main([], checkout)
    assert not tags(checkout)
