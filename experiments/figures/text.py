"""Text infilling: Table 3, and Figures 6 and 10 of Zhang et al. (2022), pages of sentences.

Generated words are blue. They are red if another sentence shown for the same sampler has the same
word at the same blank. A Page is a figure for PNG and PDF that also holds its content as HTML.
"""

from collections import defaultdict
from collections.abc import Sequence
from textwrap import shorten
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from latticework.experiments.records.escapes import escape_html
from latticework.experiments.records.estimates import (
    estimate,
    published_estimate,
    published_if_same_data,
)
from latticework.experiments.records.grouping import group_by, groups, join_label
from latticework.experiments.records.labels import sampler_label, sampler_style
from latticework.experiments.records.record import Record

COLUMNS = {  # of the scores in a record, in the paper's order
    "self_bleu": "self-BLEU",
    "self_2": "unique 2-grams, self",
    "self_3": "unique 3-grams, self",
    "wt103_2": "2, WT103",
    "wt103_3": "3, WT103",
    "tbc_2": "2, TBC",
    "tbc_3": "3, TBC",
    "corpus_bleu": "corpus BLEU",
    "perplexity": "perplexity",
}
PUBLISHED = {"bert_base": "bert-base-uncased", "bert_large": "bert-large-uncased"}
COLOURS = {"given": "#222222", "written": "#0072B2", "repeated": "#B04600"}
WIDTH = 104  # characters of a line
STYLE = """body {font: 15px/1.5 sans-serif; max-width: 60em; margin: 2em auto; color: #222}
.written {color: #0072B2} .repeated {color: #B04600; text-decoration: underline}
h3 {margin-bottom: 0} p {margin: .2em 0} .source {color: #666}"""


def infilling_records(records: list[Record]) -> list[Record]:
    """The runs of task=text_infilling on the data's sentences. LookupError if there is none."""
    found = [r for r in records if "scores" in r.document and not r.config["task"].get("text")]
    if not found:
        raise LookupError("no record holds scores; run task=text_infilling")
    return found


def language(record: Record) -> str:
    """The checkpoint that was used; if it is a substitute, also the one that was asked for."""
    asked, used = (record.document["language"][key] for key in ("asked", "used"))
    return used if asked == used else f"{used}, in place of {asked}"


def by_language(records: list[Record]) -> dict[str, list[Record]]:
    return group_by(language, records)


def table3(records: list[Record]) -> pd.DataFrame:
    """One row per model and setting, averaged over seeds, followed by the paper's rows.

    All scores but perplexity are percentages. The paper's numbers are in separate rows, because
    they are for other models. `acceptance` and `sites changed` (per step) are means over sentences.
    Raises LookupError if no record fits.
    """
    rows = []
    for name, group in by_language(infilling_records(records)).items():
        for part in groups(group):
            runs, sampler = part.records, join_label(sampler_style(part.key[0]).label, part.differs)
            row: dict[str, object] = {"model": name, "sampler": sampler}
            for score, heading in COLUMNS.items():
                row[heading] = estimate(r.document["scores"][score] for r in runs)
            for metric, heading in (("acceptance", "acceptance"), ("changed", "sites changed")):
                values = [run.metrics[metric].mean() for run in runs]
                row[heading] = estimate(values)
            rows.append({**row, "sentences": runs[0].variant})
    for model, name in PUBLISHED.items():
        for sampler in ("gibbs", "gwg", "dula", "dmala"):
            numbers = {
                h: published_estimate("table3", model, sampler, s) for s, h in COLUMNS.items()
            }
            rows.append(
                {"model": f"{name}, published", "sampler": sampler_style(sampler).label, **numbers}
            )
    return pd.DataFrame(rows)


def paper_comparison(records: list[Record]) -> pd.DataFrame:
    """Scores in percent as in Zhang et al. (2022), Table 3: `here / paper`.

    A row for each model and sampler, at its first setting. Beside a model that is not the paper's
    are the numbers of BERT base, unless it replaces another one. Raises LookupError if no record
    fits.
    """
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for name, group in by_language(infilling_records(records)).items():
        model = next((key for key, used in PUBLISHED.items() if used == name), "bert_base")
        for part in groups(group):
            sampler = part.key[0]
            row = {"model here": name, "sampler": sampler_style(sampler).label}
            for score, heading in COLUMNS.items():
                if published_estimate("table3", model, sampler, score):  # perplexity is ours alone
                    here = estimate(r.document["scores"][score] for r in part.records)
                    paper = published_if_same_data(part.records, "table3", model, sampler, score)
                    row[heading] = f"{here.text()} / {paper.mean:.2f}" if paper else here.text()
            rows.setdefault((name, sampler), row)
    return pd.DataFrame(rows.values())


class Word(NamedTuple):
    text: str
    kind: str  # a key of COLOURS


class Page(Figure):
    """A figure with a web page, which `experiments.papers.draw` writes as well."""

    html: str = ""


def sentences(
    records: list[Record], count: int = 3, first: int = 0, each: int = 5, title: str = ""
) -> Page:
    """The completions by each sampler and setting of `count` sentences, from number `first` on.

    For each language model and sampler, the `each` most likely completions of the run with the
    smallest seed. If there are too few sentences, the last ones are shown. Raises LookupError if no
    record has any.
    """
    parts = []
    for name, group in by_language(infilling_records(records)).items():
        runs = {
            join_label(
                "Gibbs" if part.key == ("gibbs", 1) else sampler_label(part.key), part.differs
            ): min(part.records, key=lambda record: record.config["seed"])
            for part in groups(group)
        }
        texts = {sampler: generated(run) for sampler, run in runs.items()}
        total = min(map(len, texts.values()))
        start = max(0, min(first, total - count))
        for number in range(start, min(start + count, total)):
            prompts: dict[str, dict[str, Any]] = defaultdict(dict)  # runs of other data have others
            for sampler, text in texts.items():
                prompts[_prompt(text[number])][sampler] = text[number]
            parts += [(name, entries) for entries in prompts.values()]
    page = _draw(parts, each, title)
    page.html = _html(parts, each, title)
    return page


def generated(record: Record) -> list[dict[str, Any]]:
    """The sentences of a run with their completions. LookupError if a bundle leaves them out."""
    if "generated" in record.document.get("entries_left_out", ()):
        raise LookupError(
            f"the bundle holds no sentences of {record.path.name}, only those that its figures show"
        )
    return record.document["generated"]


def mark_words(entry: dict[str, Any], each: int) -> list[list[Word]]:
    """The `each` most likely sentences, their words marked by kind; word pieces are joined."""
    shown = entry["written"][:each]
    lines = []
    for written in shown:
        line: list[Word] = []
        fills = dict(zip(entry["masked"], enumerate(written), strict=True))
        for i, word in enumerate(entry["words"]):
            if i not in fills:
                line.append(Word(word, "given"))
                continue
            blank, piece = fills[i]
            again = sum(other[blank] == piece for other in shown) > 1
            kind = "repeated" if again else "written"
            if piece.startswith("##") and line:
                line[-1] = Word(line[-1].text + piece.removeprefix("##"), kind)
            else:
                line.append(Word(piece, kind))
        lines.append(line)
    return lines


def _prompt(entry: dict[str, Any]) -> str:
    words = ["[MASK]" if i in entry["masked"] else w for i, w in enumerate(entry["words"])]
    return " ".join(words)


def _html(parts: Sequence[tuple[str, dict[str, dict[str, Any]]]], each: int, title: str) -> str:
    body = []
    for name, entries in parts:
        entry = next(iter(entries.values()))
        body.append(f"<h2>{escape_html(_prompt(entry))}</h2>")
        original = "" if "[MASK]" in entry["words"] else escape_html(" ".join(entry["words"]))
        origin, model = escape_html(entry["origin"]), escape_html(name)
        body.append(f'<p class="source">{origin}: {original}<br>{model}</p>')
        for sampler, own in entries.items():
            body.append(f"<h3>{escape_html(sampler)}</h3>")
            for line in mark_words(own, each):
                words = [
                    escape_html(w.text) if w.kind == "given"
                    else f'<span class="{w.kind}">{escape_html(w.text)}</span>'
                    for w in line
                ]  # fmt: skip
                body.append(f"<p>{' '.join(words)}</p>")
    legend = '<p><span class="written">written</span> <span class="repeated">repeated</span></p>'
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape_html(title)}'
        f"</title>\n<style>{STYLE}</style></head>\n<body><h1>{escape_html(title)}</h1>{legend}\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _draw(parts: Sequence[tuple[str, dict[str, dict[str, Any]]]], each: int, title: str) -> Page:
    """Draw lines in a fixed-width font, so that a word's position is its column."""
    lines: list[list[Word]] = []
    for name, entries in parts:
        entry = next(iter(entries.values()))
        heading = shorten(f"{name}, {entry['origin']}: {_prompt(entry)}", 3 * WIDTH)
        lines += _wrapped([Word(word, "given") for word in heading.split()])
        for sampler, own in entries.items():
            for line in mark_words(own, each):
                first, *rest = _wrapped(line, WIDTH - 9)
                lines.append([Word(f"{sampler:8}", "given"), *first])
                lines += [[Word(" " * 8, "given"), *more] for more in rest]
        lines.append([])
    height = 0.19 * (len(lines) + 3)
    figure = plt.figure(figsize=(0.077 * WIDTH, height), FigureClass=Page)
    assert isinstance(figure, Page)
    column = 0.98 / WIDTH
    figure.text(0.01, 1 - 0.19 / height, title, weight="bold", fontsize=10, va="top")
    for row, line in enumerate(lines):
        place = 0
        for word in line:
            figure.text(
                0.01 + column * place,
                1 - 0.19 * (row + 3) / height,
                word.text,
                color=COLOURS[word.kind],
                family="monospace",
                weight="bold" if word.kind == "repeated" else "normal",
                fontsize=9,
                parse_math=False,
            )
            place += len(word.text) + 1
    return figure


def _wrapped(words: Sequence[Word], width: int = WIDTH) -> list[list[Word]]:
    lines: list[list[Word]] = [[]]
    used = 0
    for word in words:
        if lines[-1] and used + len(word.text) > width:
            lines.append([])
            used = 0
        lines[-1].append(word)
        used += len(word.text) + 1
    return lines
