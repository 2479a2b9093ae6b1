"""Table 3 of Zhang et al. (2022): diversity and quality of text infilling."""

import pandas as pd

from latticework.experiments.records.grouping import by, groups, look, named
from latticework.experiments.records.numbers import comparable, estimate, published
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


def filled(records: list[Record]) -> list[Record]:
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
    return by(language, records)


def table3(records: list[Record]) -> pd.DataFrame:
    """One row per model and setting, averaged over seeds, followed by the paper's rows.

    All scores but perplexity are percentages. The paper's numbers are in separate rows, because
    they are for other models. `acceptance` and `sites changed` (per step) are means over sentences.
    Raises LookupError if no record fits.
    """
    rows = []
    for name, group in by_language(filled(records)).items():
        for part in groups(group):
            runs, sampler = part.records, named(look(part.key[0]).label, part.differs)
            row: dict[str, object] = {"model": name, "sampler": sampler}
            for score, heading in COLUMNS.items():
                row[heading] = estimate(r.document["scores"][score] for r in runs)
            for metric, heading in (("acceptance", "acceptance"), ("changed", "sites changed")):
                values = [run.metrics[metric].mean() for run in runs]
                row[heading] = estimate(values)
            rows.append({**row, "sentences": runs[0].variant})
    for model, name in PUBLISHED.items():
        for sampler in ("gibbs", "gwg", "dula", "dmala"):
            numbers = {h: published("table3", model, sampler, s) for s, h in COLUMNS.items()}
            rows.append({"model": f"{name}, published", "sampler": look(sampler).label, **numbers})
    return pd.DataFrame(rows)


def beside(records: list[Record]) -> pd.DataFrame:
    """Scores in percent as in Zhang et al. (2022), Table 3: `here / paper`.

    A row for each model and sampler, at its first setting. Beside a model that is not the paper's
    are the numbers of BERT base, unless it replaces another one. Raises LookupError if no record
    fits.
    """
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for name, group in by_language(filled(records)).items():
        model = next((key for key, used in PUBLISHED.items() if used == name), "bert_base")
        for part in groups(group):
            sampler = part.key[0]
            row = {"model here": name, "sampler": look(sampler).label}
            for score, heading in COLUMNS.items():
                if published("table3", model, sampler, score):  # perplexity is ours alone
                    here = estimate(r.document["scores"][score] for r in part.records)
                    paper = comparable(part.records, "table3", model, sampler, score)
                    row[heading] = f"{here.text()} / {paper.mean:.2f}" if paper else here.text()
            rows.setdefault((name, sampler), row)
    return pd.DataFrame(rows.values())
