"""Energies that are NaN or infinite: rejected, counted, told, and the end of a stuck run."""

import logging
import math

import pytest
import torch
from torch import Generator, Tensor

from latticework.experiments.records.budget import Budget
from latticework.experiments.records.record import Record
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures.nonfinite import StuckError, Tally, Validity, watch
from latticework.experiments.tasks.sampling import sample
from latticework.models.base import EnergyModel, Function
from latticework.models.domain import Binary
from latticework.samplers.base import Info
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.gwg import GWG
from latticework.samplers.hamming import HammingBall
from latticework.samplers.langevin import DMALA, DULA
from latticework.samplers.locally_balanced import LocallyBalanced
from latticework.sampling.chain import Chain, run_chain
from latticework.sampling.metrics import Reference, Steps


class Holed(EnergyModel):
    """Independent bits whose log-probability is `hole` where the first two are both one."""

    def __init__(self, hole: float, dim: int = 4) -> None:
        super().__init__()
        self.domain, self.hole = Binary(dim), hole
        self.register_buffer("bias", torch.linspace(-0.5, 0.7, dim))

    def forward(self, x: Tensor) -> Tensor:
        value = x @ self.bias
        return torch.where(x[:, :2].sum(1) == 2, value.new_full((), self.hole), value)

    def gradient(self, x: Tensor) -> Tensor:
        value = 0.0 if math.isfinite(self.hole) else torch.nan
        inside = (x[:, :2].sum(1) == 2).unsqueeze(1)
        return torch.where(inside, value, self.bias.expand_as(x))

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self(x), self.gradient(x)


EXACT = [DMALA(2.0), GWG(), Gibbs(), Gibbs(2), HammingBall(3, 1), LocallyBalanced()]


@pytest.mark.parametrize("sampler", EXACT, ids=repr)
@pytest.mark.parametrize("hole", [float("nan"), float("inf"), float("-inf")])
def test_chains_keep_out_and_have_the_law_of_the_rest(sampler, hole):
    if hole == float("inf") and isinstance(sampler, Gibbs | HammingBall | LocallyBalanced):
        pytest.skip("prices a block at once: infinite probability is where it goes")
    model, rng = Holed(hole), Generator().manual_seed(0)
    x = torch.zeros(2000, 4)
    total = torch.zeros(4)
    for reading in run_chain(sampler, model, x, rng, steps=60, every=1):
        assert not (reading.state.x[:, :2].sum(1) == 2).any()
        if reading.step > 20:
            total += reading.state.x.mean(0) / 40
    states = model.domain.enumerate()
    inside = states[states[:, :2].sum(1) < 2]
    law = model(inside).softmax(0)
    assert (total - law @ inside).abs().max() < 0.02


def tallied(sampler, model, x, steps=20):
    rng = Generator().manual_seed(0)
    chain = Chain(sampler, model, x, rng, every=steps, metrics=[Validity()])
    chain.advance()
    return chain.carries[0]


@pytest.mark.parametrize(
    "sampler", [DMALA(2.0), GWG(), Gibbs(), Gibbs(2), HammingBall(3, 1)], ids=repr
)
def test_what_was_rejected_so_is_counted(sampler):
    x = torch.zeros(50, 4)
    tally = tallied(sampler, Holed(float("nan")), x)
    assert 0 < tally.invalid < 50 * 20
    assert int(tally.invalid) + int(tally.valid.sum()) == 50 * 20
    assert tallied(sampler, Holed(0.0), x).invalid == 0


def test_only_a_ratio_of_nan_or_plus_infinity_is_invalid():
    """A ratio of -infinity is a proposal of probability zero."""
    metric, state = Validity(), GWG().init(torch.zeros(4, 4), Holed(0.0))
    ratio = torch.tensor([0.0, -torch.inf, torch.inf, torch.nan])
    carry = metric.init(Holed(0.0), state, Reference())
    for _ in range(2):
        steps = Steps.of_one(state.x, state, Info(torch.ones(4), ratio), metric.wanted)
        carry = metric.update(carry, state, steps, 1)
    assert carry.invalid == 4
    assert carry.valid.tolist() == [2, 2, 0, 0]


def test_without_an_acceptance_test_a_chain_stays_where_it_cannot_be_priced():
    model, sampler = Holed(0.0), DULA(1.0)
    start = torch.tensor([[1.0, 1, 0, 0]]).expand(20, 4)
    rng = Generator().manual_seed(0)
    chain = Chain(sampler, model, start, rng, every=5, metrics=[Validity()])
    model.hole = float("nan")  # as where training diverges; no chain may start there
    chain.state = sampler.refresh(chain.state, model)
    chain.advance()
    assert torch.equal(chain.state.x, start)
    assert not chain.carries[0].valid.any()


@pytest.mark.parametrize("sampler", [Gibbs(), Gibbs(2), HammingBall(3, 1)], ids=repr)
def test_a_block_keeps_its_value_where_nothing_can_be_drawn(sampler):
    domain, rng = Binary(4), Generator().manual_seed(0)
    start = domain.uniform(50, rng)
    unknown = Function(lambda x: x.sum(-1) * torch.nan, domain)
    state, info = sampler.step(sampler.at(start, unknown), unknown, rng)
    assert torch.equal(state.x, start)
    assert info.log_ratio.isnan().all()
    known = Function(lambda x: x.sum(-1), domain)  # control
    state, info = sampler.step(sampler.at(start, known), known, rng)
    assert not torch.equal(state.x, start)
    assert info.log_ratio is None or not info.log_ratio.any()


# In a run.


class Island(Holed):
    """Zero bits alone have a probability; the gradient leads away from them at once."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x.sum(1) == 0, 0.0, torch.nan)

    def gradient(self, x: Tensor) -> Tensor:
        return torch.full_like(x, 100.0)


def sampled(tmp_path, hole, start, steps=40, model=None):
    tmp_path.mkdir(exist_ok=True)
    run = Run(tmp_path)
    sample(
        model=model or Holed(hole), sampler=DMALA(2.0), data=None, run=run,
        budget=Budget(chains=8, steps=steps, every=10), start=start, metrics=(),
    )  # fmt: skip
    return run


def zeros(model, chains, rng, data):
    return torch.zeros(chains, 4)


def test_a_run_counts_and_warns(tmp_path, caplog):
    run = sampled(tmp_path, float("nan"), zeros)
    assert run.notes["invalid_steps"] > 0
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert f"{run.notes['invalid_steps']} steps of chains were rejected because" in told[-1]
    assert len(Record(tmp_path, {}).metrics) == 5
    caplog.clear()
    assert "invalid_steps" not in sampled(tmp_path / "control", 0.0, zeros).notes
    assert "rejected" not in caplog.text


def test_a_run_whose_chains_are_all_stuck_stops(tmp_path):
    with pytest.raises(StuckError, match="all 8 chains are stuck at step 10"):
        sampled(tmp_path, 0.0, zeros, model=Island(0.0))
    assert len(Record(tmp_path, {}).metrics) == 1


def test_one_chain_that_moves_is_enough(tmp_path):
    run = Run(tmp_path)
    tally = Tally(torch.tensor(9), torch.tensor([0, 0, 1]))
    watch(run, tally, 5)
    assert run.notes["invalid_steps"] == 9
    assert tally.invalid == 0
    watch(run, Tally(torch.tensor(2), torch.tensor([0, 1])), 10)
    assert run.notes["invalid_steps"] == 11
