"""What the documentation site shows: the files of the repository, at their own paths.

Links between pages therefore lead on the site where they lead in a checkout. Two kinds of pages are
made: the notebooks of the gallery with the output of their cells, and the API reference, which has
a page a sampler. The gallery's table becomes cards with the notebooks' first figures.
"""

import ast
import csv
import re
from collections import Counter
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from latticework.experiments.papers.exhibits import catalogue
from latticework.experiments.records.escapes import escape_markdown
from latticework.experiments.records.labels import SAMPLERS as LOOKS
from latticework.samplers import NAMES
from workshop.notebooks import run_cells

SAMPLERS = {name: place for name, place in NAMES.items() if isinstance(place, str)}
ROOT = Path(__file__).resolve().parents[1]
SHOWN = (
    "*.md", "CITATION.cff", "LICENSE", "models/mini_bert/README.md",
    "docs/*.md", "docs/gallery/*.*", "examples/*.*", "examples/conf/*/*.yaml",
    "docs/results/*.*", "docs/results/tables/*.csv", "docs/results/records/*",
    "experiments/papers/site.css",
)  # fmt: skip
RESULTS = "docs/results"
GALLERY = "docs/gallery/README.md"
API = {  # pages of the public names, whose modules begin like this
    "sampling": ("Sampling", "sampling", "experiments"),
    "samplers": ("For samplers", "samplers.base"),
    "models": ("Models", "models"),
}
COLUMNS = {  # columns of the benchmark's table that a sampler's page shows
    "target": "target",
    "rank/evaluation": "rank by evaluations",
    "rank/second": "rank by seconds",
    "worst site, ESS/evaluation": "ESS per evaluation",
    "worst site, ESS/second": "ESS per second",
    "settings": "settings",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add to the navigation the results of each paper and the samplers."""
    for group in config.nav:
        if "Results" in group:
            group["Results"][1:1] = results_by_paper()
        if "Reference" in group:
            pages = [{label_of(name): sampler_page(name)} for name in SAMPLERS]
            group["Reference"].append({"Samplers": pages})
    config.mdx_configs["pymdownx.superfences"] = {
        "custom_fences": [{"name": "math", "class": "math", "format": mathml}]
    }
    return config


def results_by_paper() -> list[dict[str, list[dict[str, str]]]]:
    """The pages of figures and tables, a group a paper, under the paper's names of them."""
    exhibits = catalogue().exhibits
    counts = Counter((exhibit.cited, exhibit.place) for exhibit in exhibits)
    papers: dict[str, list[dict[str, str]]] = {}
    for exhibit in exhibits:
        is_unique = exhibit.place and counts[exhibit.cited, exhibit.place] == 1
        name = exhibit.place if is_unique else exhibit.heading
        pages = papers.setdefault(exhibit.cited, [])
        pages.append({name: f"{RESULTS}/{exhibit.name}.md"})
    return [{paper: pages} for paper, pages in papers.items()]


def mathml(source: str, *_: object, **__: object) -> str:
    """An equation in LaTeX as MathML, which browsers show without a script."""
    return f"<p class='math'>{convert(source, display='block')}</p>"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The theme's files, the repository's that are shown, and the pages that are made."""
    shown = [file for file in files if file.src_dir != config.docs_dir]
    names: set[str] = set()
    for pattern in SHOWN:
        names.update(find_files(pattern))
    for name in sorted(names):
        shown.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    generated: dict[str, str | bytes] = {}
    for name in find_files("docs/gallery/*.py"):
        generated |= notebook(name)
    for name, (title, *places) in API.items():
        generated[f"api/{name}.md"] = reference(title, *places)
    for name in SAMPLERS:
        generated[sampler_page(name)] = sampler(name)
    generated[f"{RESULTS}/records/README.md"] = listing(f"{RESULTS}/records/*.zip")
    for name, content in generated.items():
        shown.append(File.generated(config, name, content=content))
    return Files(shown)


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Without badges; the gallery as cards. Links to a folder lead to its README."""
    text = re.sub(r"^\[!\[.*\n", "", markdown, flags=re.MULTILINE)
    if page.file.src_uri == GALLERY:
        text = cards(text)
    return re.sub(r"\]\(([^):]+/)\)", r"](\1README.md)", text)


def find_files(pattern: str) -> list[str]:
    """The files that match, from the root of the repository, in the order of their names."""
    names = []
    for file in ROOT.glob(pattern):
        if file.is_file():
            names.append(file.relative_to(ROOT).as_posix())
    return sorted(names)


def cards(text: str) -> str:
    """The gallery's table with a card a row: the notebook's first figure, its title, its line."""
    head, _, following = text.partition("\n| file |")
    rows, _, tail = following.partition("\n\n")
    shown = ['<div class="grid cards" markdown>', ""]
    for name, line in re.findall(r"^\| \[\w+\.py\]\((\w+)\.py\) \| (.*) \|$", rows, re.MULTILINE):
        first = (ROOT / GALLERY).with_name(f"{name}.py").read_text().splitlines()[1]
        title = first.removeprefix("# # ")
        shown.append(f"- [![{title}]({name}-1.png)]({name}.md)\n    **[{title}]({name}.md)**\n")
        shown.append(f"    {line}\n")
    return "\n".join([head, *shown, "</div>", "", tail])


def notebook(name: str) -> dict[str, str | bytes]:
    """The page of a Python file with `# %%` cells, which are run, and its figures as PNG.

    By the paths of their files: the first figure of `name.py` is `name-1.png`.
    """
    file = ROOT / name
    page: list[str] = []
    figures: dict[str, bytes] = {}
    for cell, output in run_cells(file, 144):
        page.append(cell.source if cell.is_markdown else f"```python\n{cell.source}\n```")
        if output.text:
            page.append(f"```text\n{output.text}\n```")
        for figure in output.figures:
            stem = f"{file.stem}-{len(figures) + 1}.png"
            figures[f"docs/gallery/{stem}"] = figure
            page.append(f"![The figure of this cell]({stem})")
    formats = [file.name]
    if file.with_suffix(".ipynb").exists():
        formats.append(f"{file.stem}.ipynb")
    page.append("Download: " + ", ".join(f"[{each}](./{each})" for each in formats))
    return {f"{name[:-3]}.md": "\n\n".join(page), **figures}


def public() -> dict[str, str]:
    """The module of each public name; those of `latticework.sample` are the first."""
    modules = {}
    for node in ast.parse((ROOT / "src/latticework/__init__.pyi").read_text()).body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                modules[alias.name] = str(node.module)
    first = ("sample", "SampleResult", "ConvergenceWarning", "check", "race")
    return {name: modules[name] for name in (*first, *modules)}


def reference(title: str, *places: str) -> str:
    """The page of the public names whose modules begin with one of `places`."""
    parts = [f"# {title}"]
    for name, module in public().items():
        if module.startswith(tuple(f"latticework.{place}" for place in places)):
            parts.append(documentation_of(name, module))
    return "\n\n".join(parts)


def documentation_of(name: str, module: str) -> str:
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
    parts = [f"# {label}", equations_of(name), "## Where it runs", models_of(name)]
    if rows := benchmark_rows(label):
        parts += ["## In the [benchmark](../../docs/results/benchmark.md)", rows]
    if links := exhibits_with(label):
        parts += ["## In figures and tables", "\n".join(links)]
    return "\n\n".join([*parts, documentation_of(kind, f"latticework.samplers.{module}")])


def equations_of(name: str) -> str:
    """The paragraphs of docs/samplers.md about a sampler."""
    paragraphs = re.split(r"\n(?=\*\*|## )", (ROOT / "docs/samplers.md").read_text())
    (text,) = [text for text in paragraphs if f"`{name}`" in text[:160] and text[:2] == "**"]
    return re.sub(r"\]\((\w+\.md)", r"](../../docs/\1", text)


def models_of(name: str) -> str:
    """The row of docs/supported.md that says on which models a sampler runs."""
    head, rule, *rows = table("docs/supported.md", "`sampler=`")
    return "\n".join([head, rule, *(row for row in rows if row.startswith(f"| `{name}` |"))])


def benchmark_rows(label: str) -> str:
    """The rows of the benchmark's table with a sampler; "" if there are none."""
    lines = [list(COLUMNS.values()), ["---"] * len(COLUMNS)]
    with (ROOT / RESULTS / "tables/benchmark-efficiency.csv").open() as file:
        for row in csv.DictReader(file):
            if row["sampler"] == label:
                lines.append([escape_markdown(row[column]) for column in COLUMNS])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if len(lines) > 2 else ""


def exhibits_with(label: str) -> list[str]:
    """Links to the pages of figures and tables that name a sampler."""
    word = re.compile(rf"(?<![\w-]){re.escape(label)}(?![\w-])")
    links = []
    for exhibit in catalogue().exhibits:
        file = f"{RESULTS}/{exhibit.name}.md"
        if word.search((ROOT / file).read_text()):
            links.append(f"- [{exhibit.heading}](../../{file})")
    return links


def table(page: str, first: str) -> list[str]:
    """The lines of the table of a page whose first column has this head."""
    text = (ROOT / page).read_text()
    return text[text.index(f"| {first} |") :].partition("\n\n")[0].splitlines()


def listing(pattern: str) -> str:
    """The page of a folder: its files."""
    lines = ["# Files", ""]
    for name in find_files(pattern):
        lines.append(f"- [{Path(name).name}]({Path(name).name})")
    return "\n".join(lines)
