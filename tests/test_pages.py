"""What README.md, docs/ and examples/ show is so: their code, transcripts and tables."""

import hashlib
import importlib
import json
import re
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import transcripts
from command import command_line
from documented import CONF, PAGES, ROOT, blocks, commands, names, table, typed
from markdown import markdown
from markdown_it import MarkdownIt
from omegaconf import OmegaConf
from transcripts import BLOCK, played

import latticework
from latticework.experiments.records.record import load_all
from latticework.experiments.runs import configuration
from latticework.sampling.exact import exact
from workshop import gpu, notebooks, samplers_table, shorter

configuration.register()

# Code: the examples of pages and the notebooks of the gallery.


def sampled(own, printed):
    """The last states have the target's means, and the uniform start is far from them."""
    steps = ["0", "200", "400", "600", "800", "1000"]
    assert re.findall(r"^\d+(?= \S+ tensor)", printed, re.M) == steps
    truth = exact(own["model"]).mean.float()

    def largest_z(x):
        return ((x.mean(0) - truth) / (truth * (1 - truth) / len(x)).sqrt()).abs().max()

    return largest_z(own["reading"].state.x) < 4.5 and largest_z(own["x"]) > 10


def examples(page):
    """The Python blocks of a page that are no files."""
    found = BLOCK.finditer(page.read_text())
    return [each["content"] for each in found if each["kind"] == "python" and not each["file"]]


@pytest.mark.slow
def test_pages_with_code_of_their_own_show_what_they_say(capsys):
    """`make docs` runs the notebooks of the gallery."""
    pages = [page for page in PAGES if not page.name.startswith("adding_") and examples(page)]
    printed, own = {}, {}
    for page in pages:
        own[page.name] = {"latticework": latticework}
        exec(compile("\n".join(examples(page)), page.name, "exec"), own[page.name])
        printed[page.name] = capsys.readouterr().out
    assert set(printed) == {"library.md", "long_runs.md"}
    assert "sum over the sites alone" in printed["library.md"]
    assert sampled(own["library.md"], printed["library.md"])
    assert set(own["library.md"]["table"]["sampler"]) == {"dmala", "gwg"}
    assert own["long_runs.md"]["result"].converged
    draws = own["long_runs.md"]["result"].draws.shape[1]
    assert own["long_runs.md"]["more"].draws.shape[1] == draws + 1000


def test_the_gallery_lists_its_notebooks_and_each_checks_what_it_says():
    gallery = ROOT / "docs" / "gallery"
    listed = re.findall(r"\((\w+)\.py\)", (gallery / "README.md").read_text())
    assert set(listed) == {file.stem for file in gallery.glob("*.py")}
    for name in listed:
        assert "\nassert " in (gallery / f"{name}.py").read_text(), name


def test_the_notebooks_are_those_of_their_files():
    """`python -m workshop.notebooks` makes them; a changed cell makes them old."""
    for name in notebooks.NOTEBOOKS:
        file = notebooks.GALLERY / f"{name}.ipynb"
        made = json.loads(file.read_text())
        cells = notebooks.read_cells(file.with_suffix(".py"))
        sources = ["".join(cell["source"]) for cell in made["cells"]]
        assert sources == [cell.source for cell in cells]
        kinds = ["markdown" if cell.is_markdown else "code" for cell in cells]
        assert [cell["cell_type"] for cell in made["cells"]] == kinds
        outputs = [output for cell in made["cells"] for output in cell.get("outputs", ())]
        assert {output["output_type"] for output in outputs} == {"stream", "display_data"}
        assert len({cell["id"] for cell in made["cells"]}) == len(cells)
        assert file.stat().st_size < 200_000


@pytest.mark.slow
@pytest.mark.parametrize("name", notebooks.NOTEBOOKS)
@pytest.mark.filterwarnings("ignore::latticework.sampling.sample.ConvergenceWarning")
def test_the_notebooks_show_what_their_cells_print(name):
    file = notebooks.GALLERY / f"{name}.ipynb"
    again, before = notebooks.make_notebook(file.with_suffix(".py")), json.loads(file.read_text())
    for one, other in zip(before["cells"], again["cells"], strict=True):
        printed = [
            ["".join(output["text"]) for output in cell.get("outputs", ()) if "text" in output]
            for cell in (one, other)
        ]
        assert [masked(text) for text in printed[0]] == [masked(text) for text in printed[1]]
        assert len(one.get("outputs", ())) == len(other.get("outputs", ()))


def test_the_gallery_counts_lines_before_and_after():
    rows = table(shorter.PAGE, "problem")
    assert shorter.table() in shorter.PAGE.read_text()
    assert len(rows) == 5
    for link, before, after in rows:
        assert (shorter.PAGE.parent / re.findall(r"\((.*)\)", link)[0]).is_file()
        assert int(before) > int(after)


def test_the_index_for_language_models_names_files_that_exist():
    linked = re.findall(r"\]\(([^)]+)\)", (ROOT / "llms.txt").read_text())
    assert len(linked) > 10
    assert [link for link in linked if not (ROOT / link).is_file()] == []


# Transcripts.


def masked(block: str) -> list[str]:
    """The rows and words of a transcript, sorted, with every number, rank and hash replaced by #.

    Rates, times and tuned values depend on the machine, and so do the order of the rows, the marks
    of the best and its ties, the width of a column, the ends of lines and whether a number has a
    spread, which whole numbers of two runs may lack. Cells keep two spaces
    between them, and an indented line keeps its indent.
    """
    text = re.sub(r"^-(?= )", "#", block, flags=re.MULTILINE)
    text = re.sub(r"\b(?:[0-9a-f]{8}|[0-9a-f]{12})\b", "#", text)
    text = re.sub(r"=?[-+]?\d[\d,.]*(?:e[-+]?\d+)?", "#", text)
    text = re.sub(r"# (?:s|min|h)\b", "# s", text)
    text = text.replace("# ± #", "#")  # equal numbers have no spread
    found = []
    for line in re.sub(r"(?<=#) [=*]|─+", "", text).splitlines():
        cells = re.split(r" {2,}", line.strip())
        if len(cells) > 1:
            found.append("  ".join(cells))
        else:  # words, since with other numbers the line may end elsewhere
            indent = re.match(r" {0,4}(?=\S)", line)  # a deeper one is that of a heading set right
            first, *more = cells[0].split(" ")
            found += [f"{indent[0] if indent else ''}{first}", *more]
    return sorted(found)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("page", transcripts.PAGES, ids=lambda page: page.name)
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


def test_readme_quotes_the_page_of_commands():
    page = (ROOT / "docs" / "commands.md").read_text()
    (quoted,) = blocks(ROOT / "README.md", "text")
    assert quoted.splitlines()
    assert [line for line in quoted.splitlines() if line not in page] == []


def test_a_transcript_that_differs_is_found():
    assert masked("rank 1 z -1.5 ab12cd34ef56") == masked("rank =2 z +7e-3 000000000000")
    assert masked("ess 9 *  7 s") == masked("ess 12 =  1.5 min")
    assert masked("one  1.5 =  0.25") == masked("one     12  0.5")
    assert masked("invariance fails") != masked("invariance ok")
    assert masked("time   7 s") != masked("time 7 s")
    assert masked("  after one step") != masked("after one step")
    assert masked("a\n\nb") != masked("a\nb")


# Tables.


@pytest.mark.slow
def test_the_tables_of_samplers_and_state_spaces_are_the_generated_ones():
    """The generator restores a cell that was changed, and changes nothing else."""
    page = (ROOT / "docs/supported.md").read_text()
    wrong = page.replace("| `gibbs` | yes", "| `gibbs` | ·")
    assert wrong != page
    assert samplers_table.refreshed(wrong) == page


@pytest.mark.parametrize(
    ("page", "first", "column", "group"),
    [
        ("docs/supported.md", "`model=`", 0, "model"),
        ("docs/supported.md", "`task=`", 0, "task"),
        ("docs/reproducing.md", "id", 1, "experiment"),
    ],
)
def test_a_table_lists_every_option(page, first, column, group):
    cells = " ".join(row[column] for row in table(ROOT / page, first))
    assert set(re.findall(r"`(\w+)`", cells)) == set(names(group))


def test_every_sampler_and_its_fields_are_in_the_docs():
    text = (ROOT / "docs" / "samplers.md").read_text()
    for name in names("sampler"):
        keys = OmegaConf.load(CONF / "sampler" / f"{name}.yaml").keys() - {"_target_", "defaults"}
        assert not [word for word in (name, *keys) if f"`{word}`" not in text], name


def test_the_tables_of_gpus_are_those_of_their_files():
    page = (ROOT / "docs" / "gpu.md").read_text()
    results = ROOT / "docs" / "results"
    assert gpu.fill_page(page, results) == page
    assert gpu.fill_page(page.replace("| NVIDIA H200", "| another"), results) == page


# docs/adding_a_sampler.md, from outside the repository.


@pytest.mark.slow
def test_the_documented_sampler_runs_from_outside(tmp_path, monkeypatch):
    """In its own checkout, test_adding.py tests its law."""
    page = ROOT / "docs" / "adding_a_sampler.md"
    source, *_ = blocks(page, "python")
    (yaml,) = blocks(page, "yaml")
    (tmp_path / "conf" / "sampler").mkdir(parents=True)
    (tmp_path / "lazy_walk.py").write_text(source)
    outside = yaml.replace("latticework.samplers.lazy_walk", "lazy_walk")
    (tmp_path / "conf" / "sampler" / "lazy_walk.yaml").write_text(outside)
    monkeypatch.syspath_prepend(str(tmp_path))
    (command,) = [c for c in commands() if "<repository>" in c.text]
    _, _, *words = typed(command, tmp_path)
    words = [word.replace("=quick", "=smoke") for word in words]
    assert command_line(*words, "seed=0", outputs=tmp_path / "outputs") == 0
    chosen = {record.choices["sampler"] for record in load_all(tmp_path / "outputs")}
    assert chosen == {"lazy_walk", "dmala"}


# The site.

SHOWN = ("*.md", "docs/*.md", "docs/gallery/*.md", "docs/results/*.md", "examples/*.md")
ELEMENTS = "a|blockquote|code|em|h1|h2|h3|img|li|ol|strong|ul|table|td|th|tr"


def counts(html: str) -> Counter:
    """How often each element occurs, outside blocks of code."""
    html = re.sub(r"<pre.*?</pre>", "", html, flags=re.DOTALL)
    return Counter(re.findall(rf"<({ELEMENTS})[ >]", html))


def on_the_site(text: str) -> Counter:
    return counts(markdown(text, extensions=["tables", "sane_lists", "fenced_code", "md_in_html"]))


def on_github(text: str) -> Counter:
    return counts(MarkdownIt("commonmark").enable("table").render(text))


def test_pages_have_the_same_parts_on_the_site_and_on_github():
    for page in (page for pattern in SHOWN for page in ROOT.glob(pattern)):
        text = page.read_text()
        assert on_the_site(text) == on_github(text), page
    only_on_github = "Two:\n- one\n- two\n"  # control
    assert (on_the_site(only_on_github)["li"], on_github(only_on_github)["li"]) == (0, 2)


@pytest.fixture
def hooks(monkeypatch):
    """docs/hooks.py, which makes pages of the site."""
    for module in ("mkdocs", "latex2mathml"):
        pytest.importorskip(module, reason="the extra `docs` is not installed; CI runs `make docs`")
    monkeypatch.syspath_prepend(ROOT / "docs")
    monkeypatch.delitem(sys.modules, "hooks", raising=False)
    return importlib.import_module("hooks")


def test_every_sampler_has_a_page_with_its_equations_and_its_class(hooks):
    for name, place in hooks.SAMPLERS.items():
        page = hooks.sampler(name)
        assert page.count(f"| `{name}` |") == 1
        assert re.search(rf"^\*\*.*`{name}`", page, re.MULTILINE | re.DOTALL)
        assert f"::: latticework.samplers.{place}\n" in page
    assert "| ising_5x5 |" in hooks.sampler("dmala")
    assert hooks.reference(*hooks.API["sampling"]).split()[2:4] == [
        ":::",
        "latticework.sampling.sample.sample",
    ]


def test_a_sampler_s_page_shows_names_of_the_benchmark_as_text(hooks, monkeypatch):
    hostile = "<img src=x> ![i](figures/x.png) a|b"
    row = dict.fromkeys(hooks.COLUMNS, hostile) | {"sampler": hooks.label_of("dmala")}
    monkeypatch.setattr(hooks.csv, "DictReader", lambda _: [row])
    page = hooks.sampler("dmala")
    (shown,) = [line for line in page.splitlines() if "src=x" in line]
    assert shown.count("|") == len(hooks.COLUMNS) + 1
    assert "<img" not in shown
    assert "![" not in shown


def test_a_notebook_becomes_a_page_with_its_output(hooks, tmp_path):
    file = tmp_path / "two.py"
    file.write_text("# %% [markdown]\n# # Two\n#\n# Text.\n\n# %%\na = 1\n\n# %%\nprint(a + 1)\n")
    (page,) = hooks.notebook(str(file)).values()
    assert page == (
        "# Two\n\nText.\n\n```python\na = 1\n```\n\n```python\nprint(a + 1)\n```\n\n"
        "```text\n2\n```\n\nDownload: [two.py](./two.py)"
    )


def test_figures_are_drawn_from_the_committed_records():
    """A figure that can no longer be drawn stays as it was, beside tables of newer records."""
    results = ROOT / "docs" / "results"
    proofs = [json.loads(file.read_text()) for file in sorted(results.glob("*.json"))]
    stale = [
        (proof["figure"], name)
        for proof in proofs
        for name, digest in proof["records"].items()
        if hashlib.sha256((results / "records" / name).read_bytes()).hexdigest() != digest
    ]
    assert len(proofs) > 30
    assert not stale
