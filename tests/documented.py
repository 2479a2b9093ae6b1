"""What README.md, docs/ and comments of the configuration show: code, tables, commands to type."""

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "AGENTS.md",
    ROOT / "models" / "mini_bert" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "results").glob("*.md")),
]
COMMENTED = [CONF / "config.yaml", *sorted(CONF.glob("*/**/*.yaml"))]
PROGRAM = r"(?:[A-Z_]+=\S+ )?(?:python|make|pip|pytest|ray|grep|\S+/pip) "
SETTINGS = r"(?:[\w/@.+~]+=\S+ ){1,}[\w/@.+~]+=\S+"  # two words key=value, or more

# What a page leaves to the reader to put in.
PLACEHOLDERS = {
    "<repository>": str(ROOT),
    "<experiment>": "ising_sampling",
    "/a/folder/with/a/masked/language/model": str(ROOT / "models" / "mini_bert"),
    "python3.12 ...": "python3.12 help",
}
SHELL = """
python() { printf 'python\\0'; printf '%s\\0' "$@"; }
make() { printf 'make\\0'; printf '%s\\0' "$@"; }
"""


class Command(NamedTuple):
    text: str  # as it is printed
    page: str  # where it is printed first


def names(group: str) -> list[str]:
    """The options of a configuration group, sorted."""
    return sorted(file.stem for file in (CONF / group).glob("*.yaml"))


def composed(*words: str) -> DictConfig:
    """A whole run, as run.py is given it for `words`; what it says of Hydra is read from it."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", list(words), return_hydra_config=True)
    HydraConfig.instance().set_config(config)
    return config


def table(page: Path, first: str) -> list[list[str]]:
    """The rows of the table whose first column is named `first`, cell by cell."""
    text = page.read_text().split(f"| {first} |", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines()[2:]]


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in `language`, a regular expression."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def printed(page: Path) -> list[str]:
    """Lines of shell code blocks, and inline code. Some of them are commands."""
    text = page.read_text()
    if page.suffix == ".yaml":
        return comments(page, text)
    shown = re.sub(r"\\\n\s*", "", "\n".join(blocks(page, "(?:sh)?")))
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    inline = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)]
    with_settings = [c for c in inline if re.match(r"experiment=\w+ \S", c)]
    return [*shown.splitlines(), *inline, *(f"python run.py {words}" for words in with_settings)]


def comments(page: Path, text: str) -> list[str]:
    """The commands in a YAML file's comments; an experiment's comments may omit the beginning."""
    if (CONF / "experiment" / page.name).exists():  # one, or the part of it
        joined = re.sub(r"\n#", "", "\n".join(re.findall(r"^#.*", text, re.MULTILINE)))
        found = [words.rstrip(".,;") for words in re.findall(SETTINGS, joined)]
        return [f"python run.py experiment={page.stem} {words}" for words in found]
    return [line.strip() for line in re.findall(r"python run\.py .*", text)]


def commands() -> list[Command]:
    """Each distinct command, where it is printed first."""
    found: dict[str, Command] = {}
    for page in (*PAGES, *COMMENTED):
        for line in printed(page):
            if re.match(PROGRAM, line):
                text = re.sub(r"(?: +#|  +\S).*$", "", line).strip()  # a comment, a remark
                found.setdefault(text, Command(text, str(page.relative_to(ROOT))))
    return list(found.values())


def typed(command: Command, folder: Path) -> list[str]:
    """The words that a shell in `folder` passes on: the program (`python`, `make`) and the rest."""
    text = command.text
    for placeholder, value in PLACEHOLDERS.items():
        text = text.replace(placeholder, value)
    done = subprocess.run(
        ["sh", "-c", SHELL + text], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command.page}: {command.text}: {done.stderr}"
    return done.stdout.split("\0")[:-1]
