"""NaN and +infinity as log-probabilities: rejected, counted, told, and the end of a stuck run."""

import logging
import math
import warnings

import pytest
import torch
from torch import Generator, Tensor

import latticework as lw
from latticework.experiments.records.record import Budget
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures.validity import StuckError, Validity
from latticework.experiments.tasks.sampling import sample
from latticework.samplers import NAMES
from latticework.sampling.chain import Chain
from latticework.sampling.naming import parse_sampler
from latticework.sampling.sample import ConvergenceWarning
from latticework.sampling.starts import draw_possible
from latticework.sampling.targets import why_unsupported


class Holed(lw.EnergyModel):
    """Independent bits whose log-probability is `hole` where the first two are both one."""

    def __init__(self, hole: float, dim: int = 4) -> None:
        super().__init__()
        self.domain, self.hole = lw.Binary(dim), hole
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


def tallied(sampler, model, x, steps=20):
    rng = Generator().manual_seed(0)
    chain = Chain(sampler, model, x, rng, every=steps, metrics=[Validity()])
    chain.advance()
    return chain.carries[0]


@pytest.mark.parametrize(
    "sampler", [lw.DMALA(2.0), lw.GWG(), lw.Gibbs(), lw.Gibbs(2), lw.HammingBall(3, 1)], ids=repr
)
def test_what_was_rejected_so_is_counted(sampler):
    x = torch.zeros(50, 4)
    tally = tallied(sampler, Holed(float("nan")), x)
    assert 0 < tally.invalid < 50 * 20
    assert int(tally.invalid) + int(tally.valid.sum()) == 50 * 20
    assert tallied(sampler, Holed(0.0), x).invalid == 0


def test_without_an_acceptance_test_a_chain_stays_where_it_cannot_be_priced():
    model, sampler = Holed(0.0), lw.DULA(1.0)
    start = torch.tensor([[1.0, 1, 0, 0]]).expand(20, 4)
    rng = Generator().manual_seed(0)
    chain = Chain(sampler, model, start, rng, every=5, metrics=[Validity()])
    model.hole = float("nan")  # as where training diverges; no chain may start there
    chain.state = sampler.refresh(chain.state, model)
    chain.advance()
    assert torch.equal(chain.state.x, start)
    assert not chain.carries[0].valid.any()


def test_a_state_whose_neighbours_have_probability_zero_is_valid():
    """The chain cannot leave it. No energy is unknown there, so its steps count as valid."""
    alone = lw.Function(lambda x: torch.where(x.sum(-1) == 0, 0.0, -torch.inf), lw.Binary(4))
    sampler, start = lw.LocallyBalanced(), torch.zeros(5, 4)
    rng = Generator().manual_seed(0)
    state, info = sampler.step(sampler.init(start, alone), alone, rng)
    assert torch.equal(state.x, start)
    assert (info.log_ratio == -torch.inf).all()


# Impossible states, whose gradient is often NaN.


def by_logarithm(x: Tensor) -> Tensor:
    return torch.log(1 - x[:, 0] * x[:, 1]) + x @ torch.linspace(-0.5, 0.7, x.shape[1])


def by_product(x: Tensor) -> Tensor:
    return torch.log((x @ torch.linspace(-0.5, 0.7, x.shape[1])).exp() * (x[:, :2].sum(1) < 2))


def by_mask(x: Tensor) -> Tensor:
    value = x @ torch.linspace(-0.5, 0.7, x.shape[1])
    return value.masked_fill(x[:, :2].sum(1) == 2, -torch.inf)


def of_categories(x: Tensor) -> Tensor:
    """Sites 0 and 1 do not both have the value 0."""
    return torch.log(1 - x[:, 0, 0] * x[:, 1, 0]) + x[..., 1].sum(-1) / 3


TARGETS = {
    "by a logarithm": lambda: lw.Function(by_logarithm, lw.Binary(6)),
    "by a product": lambda: lw.Function(by_product, lw.Binary(6)),
    "by a mask": lambda: lw.Function(by_mask, lw.Binary(6)),
    "of categories": lambda: lw.Function(of_categories, lw.Categorical(4, 3)),
    "of tables": lambda: lw.Factors([((i, i + 1), [[0, 0.5], [0.3, -math.inf]]) for i in range(5)]),
    "of a colouring": lambda: lw.Factors(
        [((i, i + 1), torch.where(torch.eye(3) > 0, -math.inf, 0)) for i in range(5)]
    ),
    "of a Potts graph": lambda: lw.GraphPotts([(i, i + 1) for i in range(5)], -math.inf, 3),
    "of a Potts lattice": lambda: lw.LatticePotts((2, 3), 4, -math.inf),
    "of forbidden values": lambda: lw.GraphPotts(
        [(0, 1), (1, 2)], [-math.inf, 0.5], 3, [[0, 0, -math.inf], [0, 0.3, 0.1], [0.2, 0, 0]]
    ),
}
SAMPLERS = [name for name in NAMES if name not in ("hamming_ball", "tempered", "tempered_gibbs")]
SAMPLERS += ["hamming_ball(sites=4)", "gibbs(sites=2)", "gibbs(sites=2,scan=scopes)"]
SAMPLERS += ["gwg(flips=2)", "tempered(rounds=2)", "tempered(kernel=gibbs,rounds=2)"]
REJECTS_NOTHING = ("dula", "stochastic_dula", "dsvgd")  # and so may enter impossible states


@pytest.mark.parametrize("name", TARGETS)
def test_steps_into_impossible_states_are_valid(name):
    supported = 0
    for text in SAMPLERS:
        model, sampler = TARGETS[name](), parse_sampler(text)
        if text in REJECTS_NOTHING or why_unsupported(sampler, model):
            continue
        x = draw_possible(model, 20, Generator().manual_seed(1))
        tally = tallied(sampler, model, x, steps=60)
        assert int(tally.invalid) == 0, text
        assert (tally.valid == 60).all()
        supported += 1
    assert supported > 3


@pytest.mark.parametrize("hole", [math.nan, math.inf])
def test_steps_into_nan_and_infinity_are_not(hole):
    for sampler in (lw.DMALA(2.0), lw.GWG(), lw.RandomWalk(), lw.RMALA(2.0), lw.PAFS(2)):
        tally = tallied(sampler, Holed(hole), torch.zeros(50, 4))
        assert 0 < tally.invalid < 50 * 20, sampler


@pytest.mark.parametrize("engine", ["eager", "fused"])
@pytest.mark.parametrize("name", ["by a logarithm", "by a mask"])
def test_a_target_that_gives_minus_infinity_has_nothing_to_mend(name, engine, uncompiled):
    for text in ("dmala", "gwg", "gibbs", "random_walk"):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = lw.sample(TARGETS[name](), text, steps=100, engine=engine)
        assert not [each for each in told if "mend the target" in str(each.message)]
        assert found.log_prob.isfinite().all()


@pytest.mark.parametrize(
    ("name", "text"),
    [("by a logarithm", "dula(step_size=2.0)"), ("by a mask", "dula(step_size=2.0)"),
     ("by a mask", "dsvgd")],
)  # fmt: skip
def test_draws_of_probability_zero_are_told(name, text):
    told = r"\d+ of 400 draws are states of probability zero, which \w+\(.* rejects nothing"
    with pytest.warns(ConvergenceWarning, match=told):
        found = lw.sample(TARGETS[name](), text, steps=100)
    assert (found.log_prob == -math.inf).any()


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
        model=model or Holed(hole), sampler=lw.DMALA(2.0), data=None, run=run,
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
    assert len(lw.Record(tmp_path, {}).metrics) == 5


def test_a_run_whose_chains_are_all_stuck_stops(tmp_path):
    with pytest.raises(StuckError, match="all 8 chains are stuck at step 10"):
        sampled(tmp_path, 0.0, zeros, model=Island(0.0))
    assert len(lw.Record(tmp_path, {}).metrics) == 1
