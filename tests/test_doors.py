"""docs/library.md and docs/commands.md, with their examples and transcripts run again."""

import re

import pytest
from documented import ROOT, blocks
from transcripts import PAGE, played


def masked(block: str) -> list[str]:
    """The words of a transcript, sorted, with every number, rank and hash replaced by #.

    Rates and tuned values depend on the machine, and so does the order of the race's rows.
    """
    text = re.sub(r"^-(?= )", "#", block, flags=re.MULTILINE)
    text = re.sub(r"\b[0-9a-f]{12}\b", "#", text)
    text = re.sub(r"=?[-+]?\d[\d,.]*(?:e[-+]?\d+)?", "#", text)
    return sorted(text.split())


def test_the_transcripts_are_what_the_commands_print(tmp_path):
    text = PAGE.read_text()
    again = played(text, tmp_path)
    pattern = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    before, after = pattern.findall(text), pattern.findall(again)
    assert len(before) == 4
    for one, other in zip(before, after, strict=True):
        assert masked(one) == masked(other)
    assert pattern.sub("", text) == pattern.sub("", again)


def test_a_transcript_that_differs_is_noticed():
    assert masked("rank 1 z -1.5 ab12cd34ef56") == masked("rank =2 z +7e-3 000000000000")
    assert masked("invariance fails") != masked("invariance ok")


def test_the_examples_of_the_library_run(capsys):
    first, second = blocks(ROOT / "docs" / "library.md", "python")
    space: dict = {}
    exec(compile(first, "library.md", "exec"), space)
    printed = capsys.readouterr().out
    assert "torch.Size([8, 2000, 20])" in printed
    assert "ess_bulk" in printed
    assert space["data"].posterior.sizes["draw"] == 2000
    exec(compile(second, "library.md", "exec"), space)
    assert "sum over the sites alone" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["check", "race", "why", "trace"])
def test_each_command_has_a_section(name):
    assert f"\n## {name}\n" in PAGE.read_text()
