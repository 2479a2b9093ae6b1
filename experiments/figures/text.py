"""Text infilling: Table 3, and Figures 6 and 10 of Zhang et al. (2022), pages of sentences.

Generated words are blue. They are red if another sentence shown for the same sampler has the same
word at the same blank. A page is a figure for PNG and PDF, with its content as HTML.
"""

from collections import defaultdict
from collections.abc import Sequence
from textwrap import shorten
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from latticework.experiments.figures.plot import Plot
from latticework.experiments.records import estimates, grouping, labels
from latticework.experiments.records.escapes import escape_html
from latticework.experiments.records.record import Record

Entries = dict[str, dict[str, Any]]  # by sampler, a sentence with its completions

COLUMNS = {  # columns of the scores in a record, in the paper's order
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
    scored = [r for r in records if "scores" in r.document and not r.config["task"].get("text")]
    if not scored:
        raise LookupError("no record holds scores; run task=text_infilling")
    return scored


def language(record: Record) -> str:
    """The checkpoint that was used; if it is a substitute, also the one that was asked for."""
    asked, used = record.document["language"]["asked"], record.document["language"]["used"]
    return used if asked == used else f"{used}, in place of {asked}"


def groups_by_language(records: list[Record]) -> list[tuple[str, grouping.Group]]:
    """Each language model with each sampler and setting. LookupError if no record fits."""
    pairs = []
    by_language = grouping.group_by(language, infilling_records(records))
    for name, runs in by_language.items():
        for group in grouping.groups(runs):
            pairs.append((name, group))
    return pairs


def score_estimate(records: list[Record], score: str) -> estimates.Estimate:
    """A score over the seeds of `records`."""
    return estimates.estimate([record.document["scores"][score] for record in records])


def table3(records: list[Record]) -> pd.DataFrame:
    """One row per model and setting, averaged over seeds, followed by the paper's rows.

    All scores but perplexity are percentages. The paper's numbers are in separate rows, because
    they are for other models. `acceptance` and `sites changed` (per step) are means over sentences.
    Raises LookupError if no record fits.
    """
    rows = []
    for name, group in groups_by_language(records):
        label = labels.sampler_style(group.key[0]).label
        sampler = grouping.join_label(label, group.differs)
        row: dict[str, object] = {"model": name, "sampler": sampler}
        for score, heading in COLUMNS.items():
            row[heading] = score_estimate(group.records, score)
        for metric, heading in (("acceptance", "acceptance"), ("changed", "sites changed")):
            means = [run.metrics[metric].mean() for run in group.records]
            row[heading] = estimates.estimate(means)
        rows.append({**row, "sentences": group.records[0].variant})
    for model, name in PUBLISHED.items():
        for sampler in ("gibbs", "gwg", "dula", "dmala"):
            label = labels.sampler_style(sampler).label
            row = {"model": f"{name}, published", "sampler": label}
            for score, heading in COLUMNS.items():
                row[heading] = estimates.published_estimate("table3", model, sampler, score)
            rows.append(row)
    return pd.DataFrame(rows)


def paper_comparison(records: list[Record]) -> pd.DataFrame:
    """Scores in percent as in Zhang et al. (2022), Table 3: `here / paper`.

    A row for each model and sampler, at its first setting. Beside a model that is not the paper's
    are the numbers of BERT base, unless it replaces another one. Raises LookupError if no record
    fits.
    """
    paper_models = {used: key for key, used in PUBLISHED.items()}
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for name, group in groups_by_language(records):
        sampler, runs = group.key[0], group.records
        entry = "table3", paper_models.get(name, "bert_base"), sampler
        row = {"model here": name, "sampler": labels.sampler_style(sampler).label}
        for score, heading in COLUMNS.items():
            if estimates.published_estimate(*entry, score):  # perplexity is ours alone
                row[heading] = score_estimate(runs, score).text()
                if printed := estimates.published_if_same_data(runs, *entry, score):
                    row[heading] += f" / {printed.mean:.2f}"
        rows.setdefault((name, sampler), row)
    return pd.DataFrame(rows.values())


class Word(NamedTuple):
    text: str
    kind: str  # a key of COLOURS


def sentences(
    records: list[Record], count: int = 3, first: int = 0, each: int = 5, title: str = ""
) -> Plot:
    """The completions by each sampler and setting of `count` sentences, from number `first` on.

    For each language model and sampler, the `each` most likely completions of the run with the
    smallest seed. If there are too few sentences, the last ones are shown. Raises LookupError if no
    record has any.
    """
    texts: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(dict)  # by model and sampler
    for name, group in groups_by_language(records):
        label = "Gibbs" if group.key == ("gibbs", 1) else labels.sampler_label(group.key)
        sampler = grouping.join_label(label, group.differs)
        run = min(group.records, key=lambda record: record.config["seed"])
        texts[name][sampler] = generated(run)
    parts = []
    for name, by_sampler in texts.items():
        total = min(map(len, by_sampler.values()))
        start = max(0, min(first, total - count))
        for number in range(start, min(start + count, total)):
            prompts: dict[str, Entries] = defaultdict(dict)  # runs of other data have others
            for sampler, text in by_sampler.items():
                prompts[_prompt(text[number])][sampler] = text[number]
            for entries in prompts.values():
                parts.append((name, entries))
    return Plot(_draw_page(parts, each, title), html=_html(parts, each, title))


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
            again = sum(sentence[blank] == piece for sentence in shown) > 1
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


def _html(parts: Sequence[tuple[str, Entries]], each: int, title: str) -> str:
    """The web page of the sentences."""
    body = []
    for name, entries in parts:
        entry = next(iter(entries.values()))
        body.append(f"<h2>{escape_html(_prompt(entry))}</h2>")
        original = "" if "[MASK]" in entry["words"] else escape_html(" ".join(entry["words"]))
        origin, model = escape_html(entry["origin"]), escape_html(name)
        body.append(f'<p class="source">{origin}: {original}<br>{model}</p>')
        for sampler, completions in entries.items():
            body.append(f"<h3>{escape_html(sampler)}</h3>")
            for line in mark_words(completions, each):
                body.append(f"<p>{' '.join(map(_html_of_word, line))}</p>")
    legend = '<p><span class="written">written</span> <span class="repeated">repeated</span></p>'
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape_html(title)}'
        f"</title>\n<style>{STYLE}</style></head>\n<body><h1>{escape_html(title)}</h1>{legend}\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _html_of_word(word: Word) -> str:
    text = escape_html(word.text)
    return text if word.kind == "given" else f'<span class="{word.kind}">{text}</span>'


def _draw_page(parts: Sequence[tuple[str, Entries]], each: int, title: str) -> Figure:
    """Draw lines in a fixed-width font, so that a word's position is its column."""
    lines = _page_lines(parts, each)
    height = 0.19 * (len(lines) + 3)
    figure = plt.figure(figsize=(0.077 * WIDTH, height))
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
                antialiased=False,  # few colours make a small PNG
            )
            place += len(word.text) + 1
    return figure


def _page_lines(parts: Sequence[tuple[str, Entries]], each: int) -> list[list[Word]]:
    """The lines of the page: for each prompt a heading, then the completions by each sampler."""
    lines: list[list[Word]] = []
    for name, entries in parts:
        entry = next(iter(entries.values()))
        heading = shorten(f"{name}, {entry['origin']}: {_prompt(entry)}", 3 * WIDTH)
        lines += _wrap_line([Word(word, "given") for word in heading.split()])
        for sampler, completions in entries.items():
            for line in mark_words(completions, each):
                margin = f"{sampler:8}"
                for words in _wrap_line(line, WIDTH - 9):
                    lines.append([Word(margin, "given"), *words])
                    margin = " " * 8
        lines.append([])
    return lines


def _wrap_line(words: Sequence[Word], width: int = WIDTH) -> list[list[Word]]:
    """The words in lines of at most `width` characters."""
    lines: list[list[Word]] = [[]]
    used = 0
    for word in words:
        if lines[-1] and used + len(word.text) > width:
            lines.append([])
            used = 0
        lines[-1].append(word)
        used += len(word.text) + 1
    return lines
