"""Small models for tests of long runs, and what makes two runs the same."""

import pytest
import torch

import latticework as lw

RING = lw.Graph([[i, (i + 1) % 6] for i in range(6)], 0.2, bias=0.1)
POTTS = lw.GraphPotts([[i, i + 1] for i in range(4)], 0.4, 3)


def same_run(one, other):
    assert torch.equal(one.draws, other.draws)
    torch.testing.assert_close(one.log_prob, other.log_prob)
    torch.testing.assert_close(one.acceptance, other.acceptance)
    assert one.evaluations == pytest.approx(other.evaluations)
