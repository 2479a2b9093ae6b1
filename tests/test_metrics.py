"""Metrics of a run, by hand and by brute force."""

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from latticework.data.base import Dataset, fixed_subset
from latticework.experiments.records.record import Budget
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.sampling import sample
from latticework.models.base import Function
from latticework.models.domains import Binary, Categorical, Ordinal
from latticework.models.ising import Lattice
from latticework.samplers.base import Info
from latticework.samplers.gibbs import Gibbs
from latticework.samplers.sums import SumRequest
from latticework.sampling.chain import Chain, run_chain
from latticework.sampling.drawing import ChainAcceptance
from latticework.sampling.engine import select_kernel
from latticework.sampling.metrics import (
    Acceptance,
    Changed,
    EnsembleError,
    MarginalError,
    Proposed,
    Reference,
    Steps,
    Trace,
    second_half,
)
from latticework.sampling.mmd import MMD, mmd_squared

EVERY = SumRequest(changed=True)


class At(NamedTuple):
    """The part of a sampler's state that a metric may read."""

    x: Tensor
    logits: Tensor | None = None


def model(domain):
    return Function(lambda x: x.flatten(1).sum(-1), domain)


def follow(metric, states, *, accept=(1.0,), domain=None, reference=Reference()):  # noqa: B008
    """What `metric` reads after a chain went through `states`, each `[chains, *shape]`."""
    first, *rest = (torch.as_tensor(x) for x in states)
    target = model(domain or Binary(first.shape[1]))
    carry = metric.init(target, At(first), reference)
    before = first.clone()
    for step, x in enumerate(rest):
        info = Info(torch.full((len(x),), accept[step % len(accept)]))
        carry = metric.update(carry, At(x), Steps.of_one(before, At(x), info, EVERY), 1)
        before = x
    return metric.arrays(carry) if isinstance(metric, Trace) else metric.read(carry)


# Marginals, acceptance, changes.

STATES = [  # three steps of two chains of two sites
    [[0.0, 0.0], [1.0, 0.0]],
    [[1.0, 0.0], [1.0, 0.0]],
    [[1.0, 1.0], [0.0, 1.0]],
    [[1.0, 1.0], [0.0, 0.0]],
]


def test_marginal_error_by_hand():
    """Running means (3/4, 2/4) and (2/4, 1/4), against (0.5, 0.25), twice that as spins."""
    error = follow(MarginalError(), STATES, reference=Reference(mean=torch.tensor([0.5, 0.25])))
    squares = [0.25**2, 0.25**2, 0.0, 0.0]
    assert float(error["log_rmse"]) == pytest.approx(math.log(2 * math.sqrt(sum(squares) / 4)))


def test_ensemble_error_is_that_of_the_current_states_alone():
    """The last states have means (1/2, 1/2), against (0.5, 0.25): errors 0 and 1/2 as spins."""
    reference = Reference(mean=torch.tensor([0.5, 0.25]))
    error = follow(EnsembleError(), STATES, reference=reference)
    assert float(error["log_rmse_ensemble"]) == pytest.approx(math.log(math.sqrt(0.5**2 / 2)))
    again = follow(EnsembleError(), [STATES[0], STATES[3]], reference=reference)
    assert error == again  # what came before does not count


def test_marginal_error_of_spins_is_in_their_units():
    """A chain has the same error in {-1, 1} as in {0, 1}: there the mean is the mean spin."""
    spins = [2 * torch.tensor(x) - 1 for x in STATES]
    errors = [
        follow(MarginalError(), states, domain=domain, reference=Reference(mean=mean))["log_rmse"]
        for states, domain, mean in [
            (STATES, Binary(2), torch.tensor([0.5, 0.25])),
            (spins, Binary(2, -1, 1), torch.tensor([0.0, -0.5])),
        ]
    ]
    assert float(errors[0]) == pytest.approx(float(errors[1]))


def test_acceptance_by_hand():
    assert float(follow(Acceptance(), STATES, accept=(0.2, 0.4, 0.9))["acceptance"]) == (
        pytest.approx(0.5)
    )


def test_changed_by_hand():
    """Chain 1 changes 1, 1, 0 sites and chain 2 changes 0, 2, 1."""
    assert float(follow(Changed(), STATES)["changed"]) == pytest.approx(5 / 6)


def test_a_one_hot_site_changes_once():
    index = torch.tensor([[[0, 1, 2]], [[0, 2, 2]], [[1, 0, 2]]])
    states = torch.nn.functional.one_hot(index, 3).float()  # 1 site, then 2
    read = follow(Changed(), states, domain=Categorical(3, 3))
    assert float(read["changed"]) == pytest.approx(1.5)


@pytest.mark.parametrize("draws", [0, 1, 3])
def test_proposed_is_the_mean_over_proposals(draws):
    """Against the sum over all outcomes of sigmoids, and over all ordered draws."""
    logits = torch.tensor([[0.3, -1.0, 0.8], [0.0, 0.5, -2.0]])
    expected = []
    for row in logits:
        if draws == 0:
            expected.append(float(row.sigmoid().sum()))
            continue
        p = row.softmax(0)
        every = torch.cartesian_prod(*[torch.arange(3)] * draws).view(-1, draws)
        expected.append(float(sum(p[d].prod() * len(set(d.tolist())) for d in every)))
    metric, state = Proposed(draws), At(torch.zeros(2, 3), logits)
    steps = Steps.of_one(state.x, state, Info(torch.ones(2)), SumRequest())
    carry = metric.update(metric.init(model(Binary(3)), state, Reference()), state, steps, 1)
    assert float(metric.read(carry)["proposed"]) == pytest.approx(np.mean(expected), rel=1e-5)


# Maximum mean discrepancy.


def bits(count, dim, seed, p=0.5):
    rng = Generator().manual_seed(seed)
    return (torch.rand(count, dim, generator=rng) < p).float()


def brute_force(x, y):
    """The definition, pair by pair."""

    def k(a, b):
        return math.exp(-sum(p != q for p, q in zip(a, b, strict=True)) / len(a))

    x, y = x.tolist(), y.tolist()
    n, m = len(x), len(y)
    across = sum(k(a, b) for a in x for b in y) / (n * m)
    biased = sum(k(a, b) for a in x for b in x) / n**2 + sum(k(a, b) for a in y for b in y) / m**2
    unbiased = sum(k(x[i], x[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    unbiased += sum(k(y[i], y[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    return biased - 2 * across, unbiased - 2 * across


@pytest.mark.parametrize("samples", [2, 7])
def test_mmd_is_its_definition(samples):
    x, y = bits(samples, 5, 0), bits(4, 5, 1, 0.3)
    for ours, theirs in zip(mmd_squared(x, y), brute_force(x, y), strict=True):
        assert float(ours) == pytest.approx(theirs, abs=1e-6)


def test_a_run_with_data_notes_how_far_its_last_states_are_from_the_test_rows(tmp_path):
    rows = bits(2000, 6, 3).to(torch.uint8)
    data = Dataset(1 - rows, 1 - rows, rows, (6,), "some")
    run = Run(tmp_path)
    sample(
        model=Lattice((2, 3), 0.2, 0.1), sampler=Gibbs(), data=data, run=run, metrics=(),
        budget=Budget(chains=8, steps=20, every=10),
        start=lambda model, chains, rng, data: model.domain.uniform(chains, rng),
    )  # fmt: skip
    with np.load(tmp_path / "last.npz") as stored:
        _, unbiased = mmd_squared(
            torch.from_numpy(stored["x"]).float(), fixed_subset(rows, 1000).float()
        )
    assert run.notes["mmd_to_data"] == pytest.approx(float(unbiased))
    assert run.notes["seconds_per_step"] > 0
    assert "cpu_share" in run.notes


def test_mmd_metric_reads_the_current_states_and_its_floor():
    truth, floor = bits(30, 6, 1), bits(9, 6, 2)
    reference = Reference(samples=truth, floor=floor)
    states = [bits(8, 6, 3), bits(8, 6, 4)]
    read = follow(MMD(), states, reference=reference)
    biased, unbiased = mmd_squared(states[-1], truth)
    assert read["mmd_v"] == biased
    assert read["log_mmd"] == biased.log()
    assert read["mmd_u"] == unbiased
    assert read["log_mmd_floor"] == mmd_squared(floor[:8], truth)[0].log()  # as many as chains


def test_mmd_of_one_hot_states_is_that_of_the_share_of_sites_that_differ():
    """Enumerated pairs of 4 sites of 3 values, against the means of exp(-share)."""
    rng = Generator().manual_seed(0)
    index = [torch.randint(3, (n, 4), generator=rng) for n in (5, 6, 5)]

    def mean(a, b):
        return (a.unsqueeze(1) != b).float().mean(-1).neg().exp().mean()

    x, y, _ = index
    expected = mean(x, x) + mean(y, y) - 2 * mean(x, y)
    hot = [torch.nn.functional.one_hot(some, 3).float() for some in index]
    reference = Reference(samples=hot[1], floor=hot[2])
    read = follow(MMD(), [hot[0]], domain=Categorical(4, 3), reference=reference)
    torch.testing.assert_close(read["mmd_v"], expected)


# Traces.


def test_a_trace_holds_whole_numbers_of_any_size():
    found = follow(Trace(draws=1, chains=1), [[[255.0]]] * 2, domain=Ordinal(1, 300))
    assert found["trace"].tolist() == [[[255]]]
    with pytest.raises(ValueError, match="a trace holds whole numbers"):
        follow(Trace(draws=1, chains=1), [[[0.0]]], domain=Binary(1, 0.0, 0.5))


def test_averages_go_on_after_2_to_the_24_steps():
    """Single precision would stop counting there."""
    state = At(torch.ones(1, 2))
    steps = Steps.of_one(
        state.x, state, Info(torch.full((1,), 0.5), torch.zeros(1)), SumRequest(invalid=True)
    )
    for metric, total, count in (
        (MarginalError(), 1.0, "states"), (Acceptance(), 0.5, "steps"), (ChainAcceptance(), 0.5, "")
    ):  # fmt: skip
        carry = metric.init(model(Binary(2)), state, Reference(mean=torch.full((2,), 0.5)))
        carry.total.fill_(2**24)
        if count:
            getattr(carry, count).fill_(2**24)
        for _ in range(4):
            carry = metric.update(carry, state, steps, 1)
        assert carry.total.unique().tolist() == [2**24 + 4 * total]
        assert not count or int(getattr(carry, count)) == 2**24 + 4


@pytest.mark.parametrize("thin", [1, 2, 3])
@pytest.mark.parametrize("steps", [5, 6, 7, 8, 12, 13])
@pytest.mark.parametrize("draws", [2, 9])
def test_a_thinned_trace_keeps_states_of_equal_distance(thin, steps, draws):
    """The last draw is that of the last step; the others end the windows of `thin` steps.

    Rows that no step has written would count as draws of zeros in means and ESS.
    """
    states = [torch.full((2, 2), float(step)) for step in range(steps + 1)]
    trace = follow(Trace(draws, chains=1, thin=thin), states, domain=Ordinal(2, 20))["trace"]
    ends = [*range(thin, steps, thin), steps]
    assert trace[:, 0, 0].tolist() == ends[-draws:]


@pytest.mark.parametrize("steps", [40, pytest.param(61, marks=pytest.mark.slow)])
def test_a_thinned_trace_of_many_steps_a_call_is_the_same_on_two_threads(steps):
    """PyTorch divides large copies among threads, in no order."""
    empty = torch.empty(0)
    metric, start = Trace(draws=20, chains=50, thin=3), torch.zeros(50, 700)
    carry = metric.init(model(Ordinal(700, 100)), At(start), Reference())
    expected, rng = carry.buffer.clone(), Generator().manual_seed(0)
    torch.set_num_threads(2)
    for call in range(4):
        rows = torch.randint(100, (steps, 50, 700), dtype=torch.int8, generator=rng)
        for number, row in enumerate(rows, call * steps):
            expected[number // 3 % 20] = row
        sums = Steps(empty, rows, empty, empty, empty, empty)
        carry = metric.update(carry, At(start), sums, steps)
        assert torch.equal(carry.buffer, expected)


REFERENCE = Reference(samples=torch.ones(30, 2), floor=torch.ones(7, 2))


@pytest.mark.parametrize(
    ("metric", "states", "given", "match"),
    [
        (MarginalError(), STATES, {}, "MarginalError needs the reference `mean`; set task.truth"),
        (MMD(), STATES, {}, "MMD needs the reference `samples`; set task.truth"),
        (MMD(), torch.ones(1, 3, 2), {"domain": Binary(2, -1, 1)}, "defined on states of 0 and 1"),
        # The V-statistic of fewer samples is larger.
        (MMD(), torch.ones(1, 8, 2), {"reference": REFERENCE}, "as there are chains, 8, got 7"),
        (Trace(2**25), torch.zeros(1, 4, 16), {}, r"2\.[0-9] GB; keep fewer draws, thin more"),
    ],
    ids=str,
)
def test_what_a_metric_cannot_use_is_refused(metric, states, given, match):
    with pytest.raises(ValueError, match=match):
        follow(metric, states, **given)


@pytest.mark.parametrize(
    ("steps", "trace"),
    [
        (1, Trace(1, 4, 1)),
        (20, Trace(10, 4, 1)),
        (2000, Trace(1000, 4, 1)),
        (10_000, Trace(1000, 4, 5)),
        (10_500, Trace(875, 4, 6)),
    ],
)
def test_the_second_half_of_a_run_is_kept_in_a_thousand_draws(steps, trace):
    assert second_half(steps) == trace
    assert trace.draws * trace.thin <= max(1, steps / 2)


def test_the_error_of_log_rmse_over_chains_is_that_of_repeated_runs():
    """The standard deviation of log RMSE over 400 repetitions of 50 chains, and its estimate."""
    target, generator = model(Binary(4)), Generator().manual_seed(0)
    truth = Reference(mean=torch.full((4,), 0.5))
    metric, values, errors = MarginalError(), [], []
    for _ in range(400):
        states = torch.rand((10, 50, 4), generator=generator).lt(0.5).float()
        carry = metric.init(target, At(states[0]), truth)
        total = states[1:].sum(0).flatten(1)
        carry = metric.update(carry, At(states[-1]), Steps(total, *[total] * 5), 9)
        values.append(float(metric.read(carry)["log_rmse"]))
        errors.append(float(metric.errors(carry)["log_rmse"]))
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)


# In the loop.


def test_a_kernel_of_many_steps_leaves_the_trace_of_single_steps():
    """The compiled kernel's draws do not depend on how its steps are divided into calls."""
    target = Lattice((3, 2), 0.1, 0.2)

    def trace(metric, every):
        kernel, _ = select_kernel(Gibbs(), target, "compiled", [metric])
        chain = Chain(kernel, target, torch.zeros(3, 6), Generator(), every=every, metrics=[metric])
        for _ in range(28 // every):
            chain.advance()
        return metric.arrays(chain.carries[0])["trace"]

    states = trace(Trace(draws=28, chains=2), 28)
    for thin in (1, 3, 5):
        ends = [*range(thin, 28, thin), 28][-4:]
        for every in (1, 4, 14, 28):
            found = trace(Trace(draws=4, chains=2, thin=thin), every)
            assert torch.equal(found, states[[end - 1 for end in ends]])


def test_metrics_see_every_step_however_seldom_they_are_read():
    target, metrics = model(Binary(4)), (Changed(), Acceptance(), Trace(draws=12, chains=3))
    finals, traces = [], []
    for every in (1, 4, 12):
        rng = Generator().manual_seed(0)
        chain = run_chain(
            Gibbs(), target, torch.zeros(3, 4), rng, steps=12, every=every, metrics=metrics
        )
        readings = [(r.step, {k: float(v) for k, v in r.values.items()}, r.carries) for r in chain]
        assert [step for step, _, _ in readings] == list(range(0, 13, every))
        assert math.isnan(readings[0][1]["changed"])  # no step yet
        finals.append(readings[-1][1])
        traces.append(metrics[2].arrays(readings[-1][2][2])["trace"])
    assert finals[0] == finals[1] == finals[2]
    assert torch.equal(traces[0], traces[1])
    moved = (traces[0][1:] != traces[0][:-1]).sum() + (traces[0][0] != 0).sum()
    assert finals[0]["changed"] == pytest.approx(float(moved) / (12 * 3), rel=1e-5)
