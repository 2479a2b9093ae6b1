"""Training of the small masked language model: what is masked, batches, resuming, the export."""

import numpy as np
import pytest
import torch

from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.mlm_pretraining import Encoded, _plan, corrupt, pad, rate

pytestmark = pytest.mark.usefixtures("root")


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
