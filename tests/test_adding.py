"""The pages docs/adding_*.md, followed word for word in a copy of the repository.

All six additions are made in one copy, in turn. "Create `file`:" and "In `file`, below `line`:"
(or above, or replace) say what to do with the code block that comes next. Then each page's commands
are run: pytest as printed, run.py at smoke scale.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from documented import ROOT, Command, printed, typed

from workshop.changed_tests import list_project_files

pytestmark = pytest.mark.slow

PAGES = [
    "adding_a_sampler.md",
    "adding_a_model.md",
    "adding_a_task.md",
    "adding_a_figure.md",
    "adding_a_data_set.md",
    "adding_an_experiment.md",
]
# Commands of the pages that are not run as printed, each with its reason.
ELSEWHERE = {
    r"PYTHONPATH=\. python <repository>/run.py .*": "from outside: tests/test_pages.py",
    r"ruff .*": "test_the_additions_are_clean, for all pages at once",
    r"python -m workshop\.samplers_table": "in the fixture, where the page is followed",
    r"python -m latticework\.scripts\.report --committed": "minutes; the fixture adds its row",
    r"python -m latticework\.scripts\.figures": "inline, a remark",
    r"python run\.py --help": "inline, a remark",
}
STEP = re.compile(
    r"^(?:Create `(?P<new>[^`]+)`|In `(?P<old>[^`]+)`, (?P<where>below|above|replace) "
    r"(?P<ticks>`+) ?(?P<anchor>.+?) ?(?P=ticks)):\n\n```\w+\n(?P<block>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# Run in the copy: what a page prints, each as in a process of its own but with one import of torch.
DRIVER = """
import sys
from pathlib import Path
import pytest
sys.path.insert(0, "tests")
from command import command_line, compile_nothing
compile_nothing(pytest.MonkeyPatch())  # kernels would be compiled anew for the copy
for number, (kind, *words) in enumerate({steps}):
    if kind == "run":
        outputs = Path({outputs!r}, str(number))
        assert command_line(*words, "scale=smoke", outputs=outputs) == 0, words
        assert list(outputs.rglob("run.json")), words
        if any(word.startswith("+figures") for word in words):
            assert list(outputs.rglob("figures/**/*.png")), words
    else:
        assert pytest.main([*words, "-p", "no:cacheprovider"]) == 0, words
"""


class Edit(NamedTuple):
    """What a page says to do with a code block."""

    file: str
    where: str  # new, below, above or replace
    anchor: str  # part of the line to go below or above; the text to replace
    block: str


def edits(text: str) -> list[Edit]:
    return [
        Edit(m["new"] or m["old"], m["where"] or "new", m["anchor"] or "", m["block"])
        for m in STEP.finditer(text)
    ]


def follow(edit: Edit, root: Path) -> None:
    """Make the edit. AssertionError where the page does not fit the repository."""
    file = root / edit.file
    if edit.where == "new":
        assert not file.exists(), f"{edit.file} is there already"
        file.write_text(edit.block)
        return
    text = file.read_text()
    if edit.where == "replace":
        assert text.count(edit.anchor) == 1, f"{edit.anchor} is in {edit.file} once"
        file.write_text(text.replace(edit.anchor, edit.block.rstrip("\n") + " "))
        return
    lines = text.splitlines(keepends=True)
    (place,) = [i for i, line in enumerate(lines) if edit.anchor in line]
    block = edit.block
    if edit.where == "above":  # a new paragraph, or a new definition
        block += "\n" if file.suffix == ".md" else "\n\n"
    lines.insert(place + (edit.where == "below"), block)
    file.write_text("".join(lines))


def in_copy(copy: Path, *words: str) -> None:
    """Run Python in the copy, which comes first on the path. AssertionError unless it succeeds."""
    paths = {"PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}"}
    done = subprocess.run(
        [sys.executable, *words], cwd=copy, env={**os.environ, **paths},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


GENERATED = """
from dataclasses import replace
from pathlib import Path
from latticework.experiments.papers.docs_blocks import times
from latticework.experiments.papers.exhibits import catalogue
from workshop.samplers_table import main
main()
page, known = Path("docs/reproducing.md"), catalogue()
assert "potts_energy" in known.aside
row = times(replace(known, exhibits=(), aside=["potts_energy"])).splitlines()[-1]
page.write_text(page.read_text().replace("\\n\\n<!-- /times -->", f"\\n{row}\\n\\n<!-- /times -->"))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """The repository's files, changed as all pages say."""
    root = tmp_path_factory.mktemp("adding") / "latticework"
    for file in list_project_files():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, root / file, follow_symlinks=False)
    before = (root / "docs" / "supported.md").read_text()
    for page in PAGES:
        for edit in edits((ROOT / "docs" / page).read_text()):
            follow(edit, root)
    in_copy(root, "-c", GENERATED)
    after = (root / "docs" / "supported.md").read_text()
    assert "| `lazy_walk` | yes | yes | · | · | · | · | · | yes | yes | yes | yes |" in after
    assert "`curie_weiss`, " in after
    assert "lazy_walk" not in before
    return root


def steps(page: str) -> list[tuple[str, ...]]:
    """What a page tells to run: ("run", words of run.py...) or ("pytest", words...)."""
    found = []
    for line in printed(ROOT / "docs" / page):
        if any(re.fullmatch(pattern, line) for pattern in ELSEWHERE):
            continue
        if line.startswith("python "):
            _, script, *words = typed(Command(line, page), ROOT)
            assert script == "run.py", line
            found.append(("run", *[word for word in words if not word.startswith("scale=")]))
        elif line.startswith("pytest "):
            found.append(("pytest", *typed(Command(f"python {line[7:]}", page), ROOT)[1:]))
    return found


def test_the_additions_are_clean(copy):
    in_copy(copy, "-m", "ruff", "check", "--no-cache", ".")
    in_copy(copy, "-m", "ruff", "format", "--no-cache", "--check", ".")


def test_the_pages_work_when_they_are_followed(copy, tmp_path):
    """In one process, which names the words that fail."""
    chosen = {page: steps(page) for page in PAGES}
    for page, of_page in chosen.items():
        assert {"pytest", "run"} <= {kind for kind, *_ in of_page}, page
        assert edits((ROOT / "docs" / page).read_text()), page
    in_copy(copy, "-c", DRIVER.format(steps=sum(chosen.values(), []), outputs=str(tmp_path)))


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_is_used(page):
    """A Python or YAML block that no step names would be left out unseen."""
    text = (ROOT / "docs" / page).read_text()
    blocks = len(re.findall(r"^```(?:python|yaml|markdown|text)$", text, re.MULTILINE))
    assert blocks == len(edits(text))
