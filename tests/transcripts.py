"""Play the transcripts of docs/commands.md: make its files, run its commands, take their output.

`python tests/transcripts.py` writes the page with the output of now.
"""

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

import pytest
from command import command_line
from documented import ROOT

import latticework.run
from latticework.experiments.running import recording

PAGE = ROOT / "docs" / "commands.md"
BLOCK = re.compile(
    r"(?:Create `(?P<file>[^`]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<content>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def said(command: str) -> str:
    """What `latticework ...` prints, in lines of 80 columns."""
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(sys, "argv", shlex.split(command))
        patch.setenv("COLUMNS", "80")
        with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(SystemExit):
            latticework.run.main()
    return "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())


def played(text: str, folder: Path) -> str:
    """The page with the output that its commands have in `folder`."""

    def block(found: re.Match) -> str:
        content = found["content"]
        if found["file"]:
            (folder / found["file"]).write_text(content)
        elif found["kind"] == "sh":
            (line,) = content.splitlines()
            _, script, *words = shlex.split(line)
            assert script == "run.py"
            assert command_line(*words, outputs=folder / "outputs") == 0
        elif found["kind"] == "console":
            commands = [line[2:] for line in content.splitlines() if line.startswith("$ ")]
            shown = "\n\n".join(f"$ {command}\n{said(command)}" for command in commands)
            return f"```console\n{shown}\n```"
        return found[0]

    before = Path.cwd()
    os.chdir(folder)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LATTICEWORK_OUTPUTS", "outputs")
            patch.setattr(recording, "commit", lambda: {"commit": "0" * 40, "dirty": False})
            return BLOCK.sub(block, text)
    finally:
        os.chdir(before)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        PAGE.write_text(played(PAGE.read_text(), Path(place)))
