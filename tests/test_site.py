"""The documentation site shows pages as GitHub does, and notebooks with their output."""

import re
import sys
from types import SimpleNamespace

import pytest
from documented import ROOT
from markdown import markdown
from markdown_it import MarkdownIt

PAGES = [
    page
    for pattern in ("*.md", "docs/*.md", "docs/gallery/*.md", "docs/results/*.md", "examples/*.md")
    for page in sorted(ROOT.glob(pattern))
]
ELEMENTS = ("a", "blockquote", "code", "em", "h1", "h2", "h3", "img", "li", "ol", "strong", "ul")
TABLES = ("table", "td", "th", "tr")


def counts(html: str) -> dict[str, int]:
    """How often each element occurs, outside blocks of code."""
    html = re.sub(r"<pre.*?</pre>", "", html, flags=re.DOTALL)
    return {name: len(re.findall(rf"<{name}[ >]", html)) for name in (*ELEMENTS, *TABLES)}


def on_the_site(text: str) -> dict[str, int]:
    return counts(markdown(text, extensions=["tables", "sane_lists", "fenced_code", "md_in_html"]))


def on_github(text: str) -> dict[str, int]:
    return counts(MarkdownIt("commonmark").enable("table").render(text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_the_same_parts_on_the_site_and_on_github(page):
    assert on_the_site(page.read_text()) == on_github(page.read_text())


def test_a_list_that_only_github_shows_is_noticed():
    text = "Two:\n- one\n- two\n"
    assert on_github(text)["li"] == 2
    assert on_the_site(text)["li"] == 0


@pytest.fixture
def hooks(monkeypatch):
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed; CI runs `make docs`")
    monkeypatch.syspath_prepend(ROOT / "docs")
    monkeypatch.delitem(sys.modules, "hooks", raising=False)
    import hooks

    return hooks


def test_a_notebook_becomes_a_page_with_its_output(hooks, tmp_path):
    file = tmp_path / "two.py"
    file.write_text("# %% [markdown]\n# # Two\n#\n# Text.\n\n# %%\na = 1\n\n# %%\nprint(a + 1)\n")
    assert hooks.notebook(file) == (
        "# Two\n\nText.\n\n```python\na = 1\n```\n\n```python\nprint(a + 1)\n```\n\n"
        "```text\n2\n```\n\nDownload: [two.py](./two.py)"
    )


def test_links_to_notebooks_and_folders_lead_to_pages(hooks):
    def shown(name: str) -> str:
        page = SimpleNamespace(file=SimpleNamespace(src_uri=name))
        return hooks.on_page_markdown(
            "[![CI](a.svg)](b)\n[a](own.py) [b](records/) [c](a.png)", page
        )

    assert shown("docs/gallery/README.md") == "[a](own.md) [b](records/README.md) [c](a.png)"
    assert shown("examples/README.md") == "[a](own.py) [b](records/README.md) [c](a.png)"


def test_the_reference_names_modules_that_have_a_docstring(hooks):
    modules = re.findall(r"^::: (.*)$", hooks.reference("Title", "data/*.py"), re.MULTILINE)
    assert "latticework.data.files" in modules
    assert "latticework.data.__init__" not in modules
