"""Play the transcripts of pages: make their files, run their commands, take the output.

A block of code after "Create `file`:" is a file. A `console` block holds commands after `$`, and
what they print. `python tests/transcripts.py` writes the pages with the output of now.
"""

import contextlib
import io
import os
import re
import runpy
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from command import command_line
from documented import ROOT

from latticework.experiments.runs import environment as machine
from latticework.experiments.runs import errors
from latticework.scripts.command_line import main

NAMES = ("README", "docs/commands", "docs/library", "docs/logging", "examples/README")
PAGES = [ROOT / f"{name}.md" for name in NAMES]
BLOCK = re.compile(
    r"(?:Create `(?P<file>[^`]+)`:\n\n)?^```(?P<kind>\w+)\n(?P<content>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def said(command: str) -> str:
    """What `latticework ...` or `python file.py` prints, in lines of at most 80 columns."""
    words = shlex.split(os.path.expandvars(command))
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        if words[0] == "PYTHONPATH=.":
            patch.syspath_prepend(Path.cwd())
            del words[0]
        program, first, *_ = words
        patch.setattr(sys, "argv", words)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            if program == "python":
                runpy.run_path(first, run_name="__main__")
            elif first in errors.COMMANDS:
                with contextlib.suppress(SystemExit):
                    main()
            else:
                status = command_line(*words[1:], outputs=Path("outputs"))
                assert status == 0, err.getvalue()
    shown = out.getvalue().replace(f"{Path.cwd()}/", "")
    return "\n".join(line.rstrip() for line in shown.strip().splitlines())


def played(page: Path, folder: Path) -> str:
    """The page with the output that its commands have in `folder`."""

    def block(found: re.Match) -> str:
        content = found["content"]
        if found["file"]:
            (folder / found["file"]).write_text(content)
        elif found["kind"] == "console":
            commands = [line[2:] for line in content.splitlines() if line.startswith("$ ")]
            shown = "\n\n".join(f"$ {command}\n{said(command)}" for command in commands)
            return f"```console\n{shown}\n```"
        return found[0]

    before = Path.cwd()
    if page.parent.name == "examples":
        shutil.copytree(page.parent, folder, dirs_exist_ok=True)
    os.chdir(folder)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PWD", str(folder))
            patch.setenv("LATTICEWORK_OUTPUTS", "outputs")
            patch.setattr(machine, "commit", lambda: {"commit": "0" * 40, "dirty": False})
            return BLOCK.sub(block, page.read_text())
    finally:
        os.chdir(before)


if __name__ == "__main__":
    for page in [ROOT / name for name in sys.argv[1:]] or PAGES:
        with tempfile.TemporaryDirectory() as place:
            page.write_text(played(page, Path(place)))
