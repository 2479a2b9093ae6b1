"""Pages with transcripts (`transcripts.PAGES`): their examples and commands are run again."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from documented import ROOT, blocks
from transcripts import PAGES, played


def masked(block: str) -> list[str]:
    """The words of a transcript, sorted, with every number, rank and hash replaced by #.

    Rates, times and tuned values depend on the machine, and so do the order of the rows, the marks
    of the best and its ties, and the width of a table.
    """
    text = re.sub(r"^-(?= )", "#", block, flags=re.MULTILINE)
    text = re.sub(r"\b[0-9a-f]{12}\b", "#", text)
    text = re.sub(r"=?[-+]?\d[\d,.]*(?:e[-+]?\d+)?", "#", text)
    text = re.sub(r"# (?:s|min|h)\b", "# s", text)
    return sorted(re.sub(r"(?<=#) [=*]|─+", "", text).split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_transcripts_are_what_the_commands_print(page):
    text = page.read_text()
    with TemporaryDirectory() as folder:  # a short path, since lines with paths are wrapped
        again = played(page, Path(folder))
    pattern = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    before, after = pattern.findall(text), pattern.findall(again)
    assert before
    for one, other in zip(before, after, strict=True):
        assert masked(one) == masked(other)
    assert pattern.sub("", text) == pattern.sub("", again)


def test_a_transcript_that_differs_is_noticed():
    assert masked("rank 1 z -1.5 ab12cd34ef56") == masked("rank =2 z +7e-3 000000000000")
    assert masked("ess 9 *  7 s") == masked("ess 12 =  1.5 min")
    assert masked("invariance fails") != masked("invariance ok")


def test_there_is_a_transcript_of_each_way_in():
    """Four commands: three wrong samplers, three targets; `sample`, and both tables at an end."""
    shown = "\n".join(block for page in PAGES for block in blocks(page, "console"))
    for command in ("latticework why", "latticework trace", "python draw.py"):
        assert f"$ {command}" in shown
    assert len(re.findall(r"^\w+\(\): everything holds", shown, re.MULTILINE)) >= 1
    assert len(re.findall(r"^\w+\(\): failures: \d", shown, re.MULTILINE)) == 3
    raced = set(re.findall(r"^\$ latticework race (\S+)", shown, re.MULTILINE))
    assert len(raced) >= 3
    assert "sampling, ising, dmala, seed 0\n" in shown
    assert "* best, = not significantly different from the best" in shown


def test_the_examples_of_the_library_run(capsys):
    first, second, third = blocks(ROOT / "docs" / "library.md", "python")
    space: dict = {}
    exec(compile(first, "library.md", "exec"), space)
    printed = capsys.readouterr().out
    assert "torch.Size([8, 2000, 20])" in printed
    assert "ess_bulk" in printed
    assert space["data"].posterior.sizes["draw"] == 2000
    exec(compile(second, "library.md", "exec"), space)
    assert "sum over the sites alone" in capsys.readouterr().out
    exec(compile(third, "library.md", "exec"), space)
    assert capsys.readouterr().out.startswith("True\n")
    assert set(space["table"]["sampler"]) == {"dmala", "gwg"}


@pytest.mark.parametrize("name", ["check", "race", "why", "trace"])
def test_each_command_has_a_section(name):
    assert f"\n## {name}\n" in (ROOT / "docs" / "commands.md").read_text()
