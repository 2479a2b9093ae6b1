"""Made-up files of texts: sentences with references, and film reviews."""

import json
import lzma
from collections.abc import Iterable
from pathlib import Path

import numpy as np

SENTENCES = "bert_gen_sentences"


def write_reviews(folder: Path, texts: Iterable[str]) -> Path:
    """The file of film reviews below `folder`, with these texts."""
    file = folder / "reviews" / "imdb_labelled_50k.jsonl.xz"
    file.parent.mkdir(parents=True)
    with lzma.open(file, "wt") as out:
        out.writelines(json.dumps({"text": text, "label": "pos"}) + "\n" for text in texts)
    return file


def write_texts(folder: Path) -> None:
    """Sentences of 10 to 29 words, one of 20 with an unknown word, and reviews of two sentences."""
    (folder / SENTENCES).mkdir()
    for name in ("tbc.5k.txt", "wiki103.5k.txt"):
        rng = np.random.default_rng(len(name))
        lines = []
        for k in range(100):
            words = [f"w{i}" for i in rng.integers(50, size=8 + k % 20)]
            lines.append(" ".join(["The", *words, "."]))
        lines.append(" ".join(["A", *["@@UNKNOWN@@"] * 18, "."]))
        (folder / SENTENCES / name).write_text("\n".join([*lines, "", lines[7]]) + "\n")
    reviews = [f"Review number {i} is long.<br />It has two sentences!" for i in range(200)]
    write_reviews(folder, reviews)
