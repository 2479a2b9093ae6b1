"""Make a release: check that all files name one version, build sdist and wheel, check them, tag.

    make release     # or python -m workshop.release
    make packages    # without the tag, as the workflow of a pushed tag does

The version is that of pyproject.toml. CITATION.cff and the newest section of CHANGELOG.md must have
it too, with one date. The packages are in build/dist. Nothing is pushed or uploaded: what to type
for that is printed.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UPLOAD = """
{tag} is tagged here, its packages are in build/dist. To publish:
  git push origin {tag}            # the workflow makes the release on GitHub
  python -m twine upload build/dist/*    # PyPI, with an API token as its password
To take it back: git tag -d {tag}"""


def refusals(root: Path, tag: bool) -> list[str]:
    """Why no release can be made of the checkout at `root`; with `tag`, none that is tagged."""
    version, reasons = version_of(root), []
    cited = (root / "CITATION.cff").read_text()
    if f"\nversion: {version}\n" not in cited:
        reasons.append(
            f"CITATION.cff must have the line `version: {version}`, as pyproject.toml has"
        )
    section = r"^## \[([^\n]+?)\](?: - ([^\n]+))?\n(.*?)(?=^## |\Z)"
    sections = re.findall(section, (root / "CHANGELOG.md").read_text(), re.MULTILINE | re.DOTALL)
    if sections and sections[0][0] == "Unreleased" and not sections[0][2].strip():
        del sections[0]
    newest, date, text = sections[0] if sections else ("", "", "")
    if newest != version or not text.strip():
        reasons.append(
            f"the newest section of CHANGELOG.md must be `## [{version}] - date`, and what it says "
            f"under Unreleased belongs there; it is [{newest}]"
        )
    elif f"\ndate-released: {date}\n" not in cited:
        reasons.append(
            f"CITATION.cff must have the line `date-released: {date}`, as CHANGELOG.md has"
        )
    if tag and (changed := git(root, "status", "--porcelain")):
        reasons.append(
            f"commit or remove what git does not have: {', '.join(changed.split()[1::2])}"
        )
    if tag and git(root, "tag", "--list", f"v{version}"):
        reasons.append(f"the tag v{version} exists: set the next version in pyproject.toml")
    return reasons


def version_of(root: Path) -> str:
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]


def git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.rstrip("\n")


def build(root: Path) -> None:
    """Build sdist and wheel in build/dist, and check them. Raises CalledProcessError."""
    place = root / "build" / "dist"
    shutil.rmtree(place, ignore_errors=True)
    python = [sys.executable, "-m"]
    subprocess.run([*python, "build", "--no-isolation", "--outdir", place, root], check=True)
    subprocess.run([*python, "twine", "check", "--strict", *sorted(place.iterdir())], check=True)


def main(words: list[str] | None = None, root: Path = ROOT) -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(description="Check, build and tag a release")
    parser.add_argument("--no-tag", action="store_true", help="check and build alone")
    tag = not parser.parse_args(words).no_tag
    if reasons := refusals(root, tag):
        print("no release:", *reasons, sep="\n  ", file=sys.stderr)
        return 1
    build(root)
    if tag:
        name = f"v{version_of(root)}"
        git(root, "tag", "--annotate", name, "--message", f"Latticework {name[1:]}")
        print(UPLOAD.format(tag=name))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
