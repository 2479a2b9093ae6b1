"""What the documentation site shows: the files of the repository, at their own paths.

Links between pages therefore lead on the site where they lead in a checkout. Two kinds of pages are
made: the notebooks of the gallery with the output of their cells, and the API reference, which has
a page a sampler. The gallery's table becomes cards with the notebooks' first figures.
"""

import ast
import contextlib
import csv
import io
import re
from pathlib import Path

import matplotlib.pyplot as plt
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from latticework.experiments.records.escapes import escape_markdown
from latticework.experiments.records.labels import SAMPLERS as LOOKS
from latticework.samplers import NAMES

plt.switch_backend("agg")
SAMPLERS = {name: place for name, place in NAMES.items() if isinstance(place, str)}
ROOT = Path(__file__).resolve().parents[1]
SHOWN = (
    "*.md", "CITATION.cff", "LICENSE", "models/mini_bert/README.md",
    "docs/*.md", "docs/site.css", "docs/gallery/*.*", "examples/*.*", "examples/conf/*/*.yaml",
    "docs/results/*.*", "docs/results/tables/*.csv", "docs/results/records/*",
    "experiments/papers/tables.*s",
)  # fmt: skip
RESULTS = "docs/results/README.md"
GALLERY = "docs/gallery/README.md"
API = {  # pages of the public names, whose modules begin like this
    "sampling": ("Sampling", "sampling", "experiments"),
    "samplers": ("For samplers", "samplers.base"),
    "models": ("Models", "models"),
}
COLUMNS = {  # of the benchmark's table, on the page of a sampler
    "target": "target",
    "rank/evaluation": "rank by evaluations",
    "rank/second": "rank by seconds",
    "worst site, ESS/evaluation": "ESS per evaluation",
    "worst site, ESS/second": "ESS per second",
    "settings": "settings",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """In the navigation, a group of results a paper, as RESULTS lists them, and the samplers."""
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
    (named,) = [part["Reference"] for part in config.nav if "Reference" in part]
    named.append({"Samplers": [{label_of(name): sampler_page(name)} for name in SAMPLERS]})
    config.mdx_configs["pymdownx.superfences"] = {
        "custom_fences": [{"name": "math", "class": "math", "format": mathml}]
    }
    return config


def mathml(source: str, *_: object, **__: object) -> str:
    """An equation in LaTeX as MathML, which browsers show without a script."""
    return f"<p class='math'>{convert(source, display='block')}</p>"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The theme's files, the repository's that are shown, and the pages that are made."""
    kept = [file for file in files if file.src_dir != config.docs_dir]
    names = sorted({name for pattern in SHOWN for name in found(pattern)})
    kept += [File(name, str(ROOT), config.site_dir, config.use_directory_urls) for name in names]
    made: dict[str, str | bytes] = {}
    for name in found("docs/gallery/*.py"):
        made |= notebook(name)
    made |= {f"api/{name}.md": reference(*about) for name, about in API.items()}
    made |= {sampler_page(name): sampler(name) for name in SAMPLERS}
    made["docs/results/records/README.md"] = listing("docs/results/records/*.zip")
    return Files([*kept, *(File.generated(config, name, content=made[name]) for name in made)])


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Without badges; the gallery as cards. Links to a folder lead to its README."""
    text = re.sub(r"^\[!\[.*\n", "", markdown, flags=re.MULTILINE)
    if page.file.src_uri == GALLERY:
        text = cards(text)
    return re.sub(r"\]\(([^):]+/)\)", r"](\1README.md)", text)


def found(pattern: str) -> list[str]:
    """The files that match, from the root of the repository, in the order of their names."""
    files = (file for file in ROOT.glob(pattern) if file.is_file())
    return sorted(file.relative_to(ROOT).as_posix() for file in files)


def cards(text: str) -> str:
    """The gallery's table with a card a row: the notebook's first figure, its title, its line."""
    head, _, rows = text.partition("\n| file |")
    shown = ['<div class="grid cards" markdown>', ""]
    for name, line in re.findall(r"^\| \[\w+\.py\]\((\w+)\.py\) \| (.*) \|$", rows, re.MULTILINE):
        first = (ROOT / GALLERY).with_name(f"{name}.py").read_text().splitlines()[1]
        title = first.removeprefix("# # ")
        shown.append(f"- [![{title}]({name}-1.png)]({name}.md)\n    **[{title}]({name}.md)**\n")
        shown.append(f"    {line}\n")
    return "\n".join([head, *shown, "</div>"])


def notebook(name: str) -> dict[str, str | bytes]:
    """The page of a Python file with `# %%` cells, which are run, and its figures as PNG.

    By the paths of their files: the first figure of `name.py` is `name-1.png`.
    """
    file = ROOT / name
    _, *cells = re.split(r"^# %%(.*)\n", file.read_text(), flags=re.MULTILINE)
    space: dict[str, object] = {"__name__": file.stem}
    page: list[str] = []
    figures: dict[str, bytes] = {}
    for kind, cell in zip(cells[::2], cells[1::2], strict=True):
        if kind.strip() == "[markdown]":
            page.append(re.sub(r"^# ?", "", cell.strip(), flags=re.MULTILINE))
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(cell, str(file), "exec"), space)
        page.append(f"```python\n{cell.strip()}\n```")
        if output := printed.getvalue().rstrip():
            page.append(f"```text\n{output}\n```")
        for number in plt.get_fignums():
            plt.figure(number).savefig(picture := io.BytesIO(), dpi=144)
            plt.close(number)
            stem = f"{file.stem}-{len(figures) + 1}.png"
            figures[f"docs/gallery/{stem}"] = picture.getvalue()
            page.append(f"![The figure of this cell]({stem})")
    page.append(f"Download: [{file.name}](./{file.name})")
    return {f"{name[:-3]}.md": "\n\n".join(page), **figures}


def public() -> dict[str, str]:
    """The module of each public name; those of `latticework.sample` are the first."""
    nodes = ast.parse((ROOT / "src/latticework/__init__.pyi").read_text()).body
    names = {a.name: str(n.module) for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names}
    first = ("sample", "SampleResult", "ConvergenceWarning", "check", "race")
    return {name: names[name] for name in (*first, *names)}


def reference(title: str, *places: str) -> str:
    """The page of the public names whose modules begin with one of `places`."""
    wanted = tuple(f"latticework.{place}" for place in places)
    names = [(name, module) for name, module in public().items() if module.startswith(wanted)]
    return "\n\n".join([f"# {title}", *(documented(*name) for name in names)])


def documented(name: str, module: str) -> str:
    """What mkdocstrings replaces by the documentation of a public name."""
    options = f"heading: latticework.{name}\n      toc_label: {name}"
    return f"::: {module}.{name}\n    options:\n      {options}"


def label_of(name: str) -> str:
    """What figures call a sampler, or else the name of its class."""
    return LOOKS[name].label if name in LOOKS else SAMPLERS[name].rpartition(".")[2]


def sampler_page(name: str) -> str:
    return f"api/samplers/{name}.md"


def sampler(name: str) -> str:
    """The page of a sampler: equation and paper, models, benchmark, figures, and its class."""
    module, _, kind = SAMPLERS[name].rpartition(".")
    label = label_of(name)
    equations = re.split(r"\n(?=\*\*|## )", (ROOT / "docs/samplers.md").read_text())
    (told,) = [text for text in equations if f"`{name}`" in text[:160] and text[:2] == "**"]
    told = re.sub(r"\]\((\w+\.md)", r"](../../docs/\1", told)
    head, rule, *rows = table("docs/supported.md", "`sampler=`")
    row = [row for row in rows if row.startswith(f"| `{name}` |")]
    parts = [f"# {label}", told, "## Where it runs", "\n".join([head, rule, *row])]
    with (ROOT / "docs/results/tables/benchmark-efficiency.csv").open() as file:
        found = [row for row in csv.DictReader(file) if row["sampler"] == label]
    if found:
        lines = [list(COLUMNS.values()), ["---"] * len(COLUMNS)]
        lines += [[escape_markdown(row[column]) for column in COLUMNS] for row in found]
        text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        parts += ["## In the [benchmark](../../docs/results/benchmark.md)", text]
    pages = re.findall(r"^\| \[(.+?)\]\((.+?)\)", (ROOT / RESULTS).read_text(), re.MULTILINE)
    word = re.compile(rf"(?<![\w-]){re.escape(label)}(?![\w-])")
    shown = [one for one in pages if word.search((ROOT / "docs/results" / one[1]).read_text())]
    if shown:
        links = [f"- [{heading}](../../docs/results/{file})" for heading, file in shown]
        parts += ["## In figures and tables", "\n".join(links)]
    return "\n\n".join([*parts, documented(kind, f"latticework.samplers.{module}")])


def table(page: str, first: str) -> list[str]:
    """The lines of the table of a page whose first column has this head."""
    text = (ROOT / page).read_text()
    return text[text.index(f"| {first} |") :].partition("\n\n")[0].splitlines()


def listing(pattern: str) -> str:
    """The page of a folder: its files."""
    files = [Path(name).name for name in found(pattern)]
    return "\n".join(["# Files", "", *(f"- [{name}]({name})" for name in files)])
