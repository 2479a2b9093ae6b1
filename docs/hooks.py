"""What the documentation site shows: the files of the repository, at their own paths.

Links between pages therefore lead on the site where they lead in a checkout. Two kinds of pages are
made: the notebooks of the gallery with the output of their cells, and the API reference.
"""

import ast
import contextlib
import io
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
SHOWN = (
    "*.md", "CITATION.cff", "LICENSE", "models/mini_bert/README.md",
    "docs/*.md", "docs/gallery/*.*", "examples/*.*", "examples/conf/*/*.yaml",
    "docs/results/*.*", "docs/results/tables/*.csv", "docs/results/records/*",
)  # fmt: skip
RESULTS = "docs/results/README.md"
API = {
    "sampling": ("Sampling", "sampling/sample.py", "sampling/*.py", "sampling/tuning/*.py"),
    "samplers": ("Samplers", "samplers/*.py"),
    "models": ("Models", "models/*.py"),
    "measures": ("Measures", "experiments/tasks/measures/*.py"),
    "checking": ("Checking", "sampling/checking/*.py"),
    "data": ("Data", "data/*.py"),
    "tasks": ("Tasks", "experiments/tasks/*.py"),
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The results in the navigation: a group a paper, as docs/results/README.md lists them."""
    _, *papers = re.split(r"^## (.*)\n", (ROOT / RESULTS).read_text(), flags=re.MULTILINE)
    groups = []
    for paper, rows in zip(papers[::2], papers[1::2], strict=True):
        pages = re.findall(r"^\| \[(.+?)\]\((.+?)\)", rows, re.MULTILINE)
        short = [heading.partition(":")[0] for heading, _ in pages]
        groups.append({paper: []})
        for one, (heading, file) in zip(short, pages, strict=True):
            name = one if short.count(one) == 1 else heading
            groups[-1][paper].append({name: f"docs/results/{file}"})
    (results,) = [part["Results"] for part in config.nav if "Results" in part]
    results[1:1] = groups
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The theme's files, the repository's that are shown, and the pages that are made."""
    kept = [file for file in files if file.src_dir != config.docs_dir]
    names = sorted({name for pattern in SHOWN for name in found(pattern)})
    kept += [File(name, str(ROOT), config.site_dir, config.use_directory_urls) for name in names]
    made = {f"{name[:-3]}.md": notebook(ROOT / name) for name in found("docs/gallery/*.py")}
    made |= {f"api/{name}.md": reference(*about) for name, about in API.items()}
    made["docs/results/records/README.md"] = listing("docs/results/records/*.zip")
    return Files([*kept, *(File.generated(config, name, content=made[name]) for name in made)])


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Without badges. Links to a notebook lead to its page, those to a folder to its README."""
    text = re.sub(r"^\[!\[.*\n", "", markdown, flags=re.MULTILINE)
    if page.file.src_uri == "docs/gallery/README.md":
        text = re.sub(r"\]\((\w+)\.py\)", r"](\1.md)", text)
    return re.sub(r"\]\(([^):]+/)\)", r"](\1README.md)", text)


def found(pattern: str) -> list[str]:
    """The files that match, from the root of the repository, in the order of their names."""
    files = (file for file in ROOT.glob(pattern) if file.is_file())
    return sorted(file.relative_to(ROOT).as_posix() for file in files)


def notebook(file: Path) -> str:
    """The page of a Python file with `# %%` cells, which are run: text, code and output."""
    _, *cells = re.split(r"^# %%(.*)\n", file.read_text(), flags=re.MULTILINE)
    space: dict[str, object] = {"__name__": file.stem}
    page = []
    for kind, cell in zip(cells[::2], cells[1::2], strict=True):
        if kind.strip() == "[markdown]":
            page.append(re.sub(r"^# ?", "", cell.strip(), flags=re.MULTILINE))
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(cell, str(file), "exec"), space)
        page.append(f"```python\n{cell.strip()}\n```")
        if output := printed.getvalue().rstrip():
            page.append(f"```text\n{output}\n```")
    return "\n\n".join([*page, f"Download: [{file.name}](./{file.name})"])


def reference(title: str, *patterns: str) -> str:
    """The page of all modules that match and have a docstring, in the order of the patterns."""
    names = dict.fromkeys(name for pattern in patterns for name in found(pattern))
    shown = [name for name in names if ast.get_docstring(ast.parse((ROOT / name).read_text()))]
    places = [name.removesuffix(".py").removesuffix("/__init__") for name in shown]
    modules = [f"latticework.{place.replace('/', '.')}" for place in places]
    return "\n\n".join([f"# {title}", *(f"::: {module}" for module in modules)])


def listing(pattern: str) -> str:
    """The page of a folder: its files."""
    files = [Path(name).name for name in found(pattern)]
    return "\n".join(["# Files", "", *(f"- [{name}]({name})" for name in files)])
