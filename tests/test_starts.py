"""Where chains start, and the sampled truth that they are compared with."""

import torch
from torch import Generator

from latticework.data.base import Dataset
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.truths import sampled
from latticework.models.rbm import RBM
from latticework.samplers.block_gibbs import BlockGibbs
from latticework.sampling.starts import bernoulli, data_mean, uniform

CHAINS = 20_000


def largest_z(x, mean):
    """Starts have the sites' frequencies; a mean of 0 or 1 leaves no choice."""
    spread = (mean * (1 - mean) / len(x)).sqrt()
    return ((x.mean(0) - mean).abs() / (spread + 1e-9)).max()


def test_each_start_has_the_frequencies_that_it_states():
    model, rng = RBM(4, 2), Generator().manual_seed(0)
    rows = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1]]).byte()
    data = Dataset(rows, 1 - rows, 1 - rows, (4,), "rows")
    half = torch.full((4,), 0.5)
    found = {
        "uniform": (uniform(model, CHAINS, rng, None), half),
        "bernoulli": (bernoulli(model, CHAINS, rng, None, logit=0.4), torch.full((4,), 0.598688)),
        "data mean": (data_mean(model, CHAINS, rng, data), torch.tensor([0, 0.25, 0.25, 1])),
    }
    for x, mean in found.values():
        model.domain.check(x)
        assert largest_z(x, mean) < 4.5
    assert largest_z(found["bernoulli"][0], half) > 10  # control


def test_the_floor_of_a_sampled_truth_is_of_other_chains(tmp_path):
    """Chains of 64 nearly independent sites are never in one state by chance."""
    model = RBM(64, 2)
    reference = sampled(
        model, Run(tmp_path, outputs=tmp_path), sampler=BlockGibbs(), samples=30, floor=20, steps=2
    )
    assert (len(reference.samples), len(reference.floor)) == (30, 20)
    assert len(torch.cat((reference.samples, reference.floor)).unique(dim=0)) == 50
