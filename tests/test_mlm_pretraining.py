"""Training of the small masked language model: what is masked, batches, resuming, the export."""

import json
import shutil

import numpy as np
import pytest
import torch
from command import command_line

from latticework.data.wordpiece import Encoded
from latticework.experiments.records.record import load_all
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.mlm_pretraining import _plan, corrupt, pad, rate
from latticework.models.masked_lm import MaskedLM

SMOKE = ("experiment=mlm_pretraining", "scale=smoke")


@pytest.fixture(autouse=True)
def _no_data_root(monkeypatch):
    monkeypatch.delenv("LATTICEWORK_DATA", raising=False)


def test_tokens_are_masked_as_bert_was_trained():
    rng = torch.Generator().manual_seed(0)
    batch = torch.randint(5, 100, (200, 50), generator=rng)
    batch[:, 0], batch[:, -1], batch[::2, -2] = 2, 3, 0
    shown, chosen = corrupt(batch, 0.2, 100, rng)
    words = batch >= 5
    assert not (chosen & ~words).any()
    assert torch.equal(shown[~chosen], batch[~chosen])
    n = int(words.sum())
    assert abs(float(chosen.sum()) - 0.2 * n) < 5 * (0.16 * n) ** 0.5
    kept, masked = shown[chosen] == batch[chosen], shown[chosen] == 4
    count = int(chosen.sum())
    assert abs(float(masked.sum()) - 0.8 * count) < 5 * (0.16 * count) ** 0.5
    same = 0.1 + 0.1 / 95  # a random token may be the same
    assert abs(float(kept.sum()) - same * count) < 5 * (same * (1 - same) * count) ** 0.5
    assert int(shown.min()) >= 0


def test_a_pass_takes_every_sentence_once_in_batches_of_a_size(tmp_path):
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 20, size=500)
    corpus = Encoded(
        rng.integers(5, 50, size=lengths.sum()), np.concatenate([[0], lengths.cumsum()])
    )
    plan = _plan(corpus, 100, 1, Run(tmp_path))
    assert sorted(torch.cat(plan).tolist()) == list(range(500))
    sizes = [pad(corpus, rows).numel() for rows in plan]
    assert max(sizes) <= 100
    assert lengths.sum() / sum(sizes) > 0.9  # little padding
    again, other = (_plan(corpus, 100, n, Run(tmp_path)) for n in (1, 2))
    assert all(map(torch.equal, plan, again))
    assert not all(map(torch.equal, plan, other))


def test_the_learning_rate_rises_and_falls():
    assert [rate(p, 0.1) for p in (0.05, 0.1, 0.55, 1.0)] == pytest.approx([0.5, 1, 0.5, 0])


def test_a_stopped_training_goes_on_to_the_same_numbers(tmp_path, monkeypatch):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert command_line(*SMOKE, outputs=whole) == 0
    shutil.copytree(whole / "artifacts", parts / "artifacts")  # the vocabulary

    import latticework.experiments.tasks.mlm_pretraining as module

    calls = []

    def failing(*args):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return corrupt(*args)

    monkeypatch.setattr(module, "corrupt", failing)
    assert command_line(*SMOKE, "checkpoint=0", outputs=parts) == 130
    monkeypatch.setattr(module, "corrupt", corrupt)
    assert command_line(*SMOKE, "checkpoint=0", outputs=parts) == 0
    assert len(calls) == 4
    (first,), (second,) = load_all(whole), load_all(parts)
    assert first.metrics.equals(second.metrics)
    assert first.metrics["step"].tolist() == [2, 4]
    assert "help topics" in first.substitute

    exported = second.path / "model"
    assert json.loads((exported / "config.json").read_text())["hidden_size"] == 16
    language = MaskedLM(str(exported))
    assert language.embeddings.shape[1] == 16
    ids, places = language.tokens(["return", "[MASK]"])
    assert places.tolist() == [len(ids) - 2]
