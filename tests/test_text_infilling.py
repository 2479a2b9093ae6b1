"""The infilling task from the command line: its record, one's own text, its table and pages."""

import re

import pytest
from command import command_line
from fakes import fake

from latticework.experiments.figures.text import mark_words, paper_comparison, sentences, table3
from latticework.experiments.records.record import load_all
from latticework.experiments.tasks.text_infilling import perplexity, sentences_of

SMOKE = ("experiment=text_infilling", "scale=smoke", "data.root=null")
ENTRY = {
    "words": ["the", "[MASK]", "cat", "sat", "[MASK]", "."], "masked": [1, 4], "origin": "text",
    "written": [["old", "down"], ["old", "##s"], ["<b>", "up"]], "log_prob": [-2.0, -4.0, -9.0],
}  # fmt: skip


pytestmark = pytest.mark.usefixtures("root")


def test_a_text_of_ones_own_on_the_embedded_model(tmp_path):
    words = (*SMOKE, "model=mini_bert", "sampler=gibbs,dmala", "seed=0")
    text = "task.text='The [MASK] cat sat on the [MASK].'"
    assert command_line(*words, text, outputs=tmp_path) == 0
    for record in load_all(tmp_path):
        assert record.document["language"] == {
            "asked": "mini_bert", "used": "mini_bert", "substitute": False
        }  # fmt: skip
        (entry,) = record.document["generated"]
        assert entry["words"] == ["the", "[MASK]", "cat", "sat", "on", "the", "[MASK]", "."]
        assert entry["masked"] == [1, 6]
        assert [len(words) for words in entry["written"]] == [2, 2, 2]
        assert entry["log_prob"] == sorted(entry["log_prob"], reverse=True)
        assert record.metrics["sites"].tolist() == [2]
        with pytest.raises(LookupError):  # nothing of the table's sentences
            table3([record])


def test_one_sentence_is_not_compared_with_itself(tmp_path, capsys):
    words = (*SMOKE, "model=mini_bert", "sampler=gibbs", "seed=0", "task.text='The [MASK] cat.'")
    assert command_line(*words, "task.keep=1", outputs=tmp_path) == 1
    assert "self-BLEU compares two sentences or more" in " ".join(capsys.readouterr().out.split())
    assert command_line(*words, "task.keep=0", outputs=tmp_path) == 1
    assert "task.keep must be positive, got 0" in capsys.readouterr().err


@pytest.mark.slow
def test_the_record_says_what_stood_in_and_serves_table_and_pages(tmp_path):
    assert command_line(*SMOKE, "seed=0,1", "sampler=gwg", outputs=tmp_path) == 0
    records = load_all(tmp_path)
    for record in records:
        assert record.document["language"] == {
            "asked": "bert-base-uncased", "used": "mini_bert", "substitute": True
        }  # fmt: skip
        assert record.substitute  # of the sentences, too
        assert set(record.document["scores"]) >= {"self_bleu", "wt103_2", "corpus_bleu"}
        assert len(record.document["generated"]) == 2
    frame = table3(records)
    ours = frame[frame["model"] == "mini_bert, in place of bert-base-uncased"]
    assert ours["self-BLEU"].iloc[0].runs == 2
    assert "help topics" in ours["sentences"].iloc[0]
    (row,) = paper_comparison(records).to_dict("records")
    assert row["self-BLEU"] == ours["self-BLEU"].iloc[0].text()  # a substitute: no paper's number
    folder = tmp_path / "text_infilling" / "smoke"
    page = (folder / "figures" / "fig6.html").read_text()
    assert "in place of bert-base-uncased" in page
    assert 'class="written"' in page
    assert "self-BLEU (spread)" in (folder / "tables" / "table3.csv").read_text()


def test_words_are_marked_as_written_or_repeated():
    first, second, third = mark_words(ENTRY, 3)
    assert [(w.text, w.kind) for w in first] == [
        ("the", "given"), ("old", "repeated"), ("cat", "given"), ("sat", "given"),
        ("down", "written"), (".", "given"),
    ]  # fmt: skip
    assert [w.text for w in second] == ["the", "old", "cat", "sats", "."]
    assert second[3].kind == "written"
    assert third[1].kind == "written"
    assert [w.kind for w in mark_words(ENTRY, 1)[0]].count("repeated") == 0


def test_each_sentence_stands_under_its_own_heading():
    """Runs of other data have other sentences at the same number."""
    other = {**ENTRY, "words": ["a", "[MASK]", "dog", "ran", "[MASK]", "."]}
    told = {"asked": "mini_bert", "used": "mini_bert"}
    records = [
        fake(sampler=name, scores={}, generated=[entry], language=told)
        for name, entry in (("gibbs", ENTRY), ("dmala", other), ("gwg", ENTRY))
    ]
    html = sentences(records).html
    headings = re.findall("<h2>(.*?)</h2>|<h3>(.*?)</h3>", html)
    assert [one or two for one, two in headings] == [
        "the [MASK] cat sat [MASK] .", "Gibbs", "GWG-1", "a [MASK] dog ran [MASK] .", "DMALA"
    ]  # fmt: skip


def test_the_kept_sentences_and_their_perplexity():
    kept = sentences_of([ENTRY], 2)
    assert kept == [("the", "old", "cat", "sat", "down", "."), ("the", "old", "cat", "sats", ".")]
    assert perplexity([ENTRY], 2) == pytest.approx(2.718281828 ** (6 / 4))
