"""Constants and caches of hubs: sums of very many terms of which next to nothing is left.

A hub's log-odds are a sum over 10^4 to 10^5 leaves that nearly cancel. Added one after another in
single precision, the sum is off by nats. Every form and every compiled kernel has a hub here: its
leaves are pinned by strong fields, so its law is known.
"""

import math

import pytest
import torch
from torch import Generator, Tensor

import latticework as lw
from latticework.models.forms import (
    GraphForm,
    PairForm,
    PottsGraphForm,
    PottsPairForm,
    RBMForm,
    change,
)
from latticework.samplers.compiled.registry import SEVERAL, TWINS, find_compiled_kernel
from latticework.samplers.sums import SumRequest
from latticework.sampling.targets import check_target

PIN = 40.0  # field of a leaf, which never moves


def random(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def star(leaves: int) -> Tensor:
    """Edges from site 0 to all others."""
    return torch.stack((torch.zeros(leaves, dtype=torch.long), torch.arange(1, leaves + 1)), 1)


def pinned(leaves: int) -> Tensor:
    """Spins of the leaves: three quarters are up."""
    spins = torch.ones(leaves, dtype=torch.float64)
    spins[torch.randperm(leaves, generator=random())[: leaves // 4]] = -1
    return spins


def graph_hub(leaves: int, weights: Tensor | float) -> tuple[lw.EnergyModel, Tensor]:
    """Spins on a star, and its pinned state. The field of the hub balances its leaves."""
    spins = pinned(leaves)
    pull = torch.as_tensor(weights).double().float().double() * spins
    field = (0.2 - pull.expand(leaves).sum()).view(1)
    model = lw.Graph(star(leaves), weights, torch.cat((field, PIN * spins)))
    return model, torch.cat((torch.zeros(1), (spins.float() + 1) / 2))


def dense_hub(leaves: int, weight: float) -> tuple[lw.EnergyModel, Tensor]:
    graph, x = graph_hub(leaves, weight)
    coupling = torch.zeros(leaves + 1, leaves + 1)
    coupling[0, 1:] = coupling[1:, 0] = weight / 2
    return lw.DenseIsing(coupling, graph.bias), x


def potts_values(leaves: int) -> Tensor:
    """The values of the leaves of a Potts star: they are not equally many."""
    return torch.multinomial(torch.tensor([0.6, 0.3, 0.1]), leaves, True, generator=random())


def potts_bias(values: Tensor, weight: float) -> Tensor:
    """Fields that pin the leaves, and balance them at the hub."""
    bias = PIN * torch.eye(3).double()[torch.cat((values.new_zeros(1), values))]
    exact = float(torch.tensor(weight))
    bias[0] = torch.tensor([0.3, 0.0, -0.2]) - exact * values.bincount(minlength=3)
    return bias


def potts_graph_hub(leaves: int, weight: float) -> tuple[lw.EnergyModel, Tensor]:
    values = potts_values(leaves)
    bias = potts_bias(values, weight).tolist()
    x = torch.eye(3)[torch.cat((values.new_zeros(1), values))]
    return lw.GraphPotts(star(leaves), weight, 3, bias), x


def potts_dense_hub(leaves: int, weight: float) -> tuple[lw.EnergyModel, Tensor]:
    values = potts_values(leaves)
    coupling = torch.zeros(leaves + 1, 3, leaves + 1, 3)
    coupling[0, range(3), 1:, range(3)] = coupling[1:, range(3), 0, range(3)] = weight
    bias = potts_bias(values, weight)
    x = torch.eye(3)[torch.cat((values.new_zeros(1), values))]
    return lw.DensePotts(coupling.view(3 * leaves + 3, -1), 3, bias), x


def rbm_hub(leaves: int, weight: float) -> tuple[lw.EnergyModel, Tensor]:
    """All visible units meet in one hidden unit, whose input hardly moves: the hub is unit 0."""
    spins = pinned(leaves)
    model = lw.RBM(leaves + 1, 1)
    model.weight.fill_(weight)
    model.weight[0] = 1.0
    on = float((spins > 0).sum())
    model.hidden_bias.fill_(-float(torch.tensor(weight)) * on)
    model.visible_bias.copy_(torch.cat((torch.zeros(1), PIN * spins)))
    return model, torch.cat((torch.zeros(1), (spins.float() + 1) / 2))


SCATTERED = 0.1 * torch.randn(10_000, generator=random(3)).abs()
HUBS = {
    "many": lambda: graph_hub(10_000, 0.1),
    "very many": lambda: graph_hub(100_000, 0.1),
    "of all sizes": lambda: graph_hub(10_000, SCATTERED),
    "steep": lambda: graph_hub(1_000, 9.0),
    "dense": lambda: dense_hub(1_500, 0.1),
    "steep and dense": lambda: dense_hub(1_500, 3.0),
    "potts": lambda: potts_graph_hub(10_000, 0.1),
    "very many potts": lambda: potts_graph_hub(100_000, 0.1),
    "steep potts": lambda: potts_graph_hub(1_000, 9.0),
    "dense potts": lambda: potts_dense_hub(500, 0.1),
    "rbm": lambda: rbm_hub(10_000, 0.1),
    "rbm of very many": lambda: rbm_hub(100_000, 0.1),
}


def log_odds_of_hub(model: lw.EnergyModel, x: Tensor) -> Tensor:
    """Log pi of the values of site 0, `[values]`, up to a constant, in float64 from parameters."""
    if isinstance(model, lw.Graph):
        spins = 2 * x.double() - 1
        field = model.bias[0].double() + (model.weights.double() * spins[1:]).sum()
        return torch.stack((-field, field))
    if isinstance(model, lw.DenseIsing):
        spins = 2 * x.double() - 1
        field = model.bias[0].double() + 2 * (model.coupling[0, 1:].double() * spins[1:]).sum()
        return torch.stack((-field, field))
    if isinstance(model, lw.RBM):
        free = x.double().clone()
        free[0] = 0
        low = model.hidden_bias.double() + free @ model.weight.double()
        high = low + model.weight[0].double()
        gain = torch.nn.functional.softplus(high) - torch.nn.functional.softplus(low)
        return torch.cat((torch.zeros(1), model.visible_bias[0].double() + gain))
    if isinstance(model, lw.GraphPotts):
        weighted = model.graph.weights.double().unsqueeze(1) * x[1:].double()
        return model.bias[0].double() + weighted.sum(0)
    flat = x.double().flatten()
    return model.bias[0].double() + model.coupling[:3].double()[:, 3:] @ flat[3:]


@pytest.mark.parametrize("name", HUBS)
def test_a_form_has_the_change_of_a_hub(name):
    model, x = HUBS[name]()
    exact = log_odds_of_hub(model, x)
    values = torch.eye(3) if x.ndim == 2 else torch.tensor([0.0, 1.0])
    states = []
    for value in values:
        y = x.clone()
        y[0] = value
        states.append(y)
    for number in range(1, len(states)):
        found = change(model.form(), states[0], states[number], 0)
        assert abs(found - float(exact[number] - exact[0])) < 2e-3  # of a bias of 10^4 in float32


@pytest.mark.parametrize("shape", [(3,), (3, 4), (2, 2, 3)], ids=str)
@pytest.mark.parametrize("coupling", [0.1, 1e3 / 3, 1e6 / 3])
def test_a_steep_lattice_has_the_log_odds_of_its_sites(shape, coupling):
    """A site has twice its field: with neighbours that cancel, its bias alone is left."""
    bias = torch.linspace(-1, 1, math.prod(shape)).tolist()
    model, form = lw.Lattice(shape, coupling, bias), lw.Lattice(shape, coupling, bias).form()
    for i in range(math.prod(shape)):
        for ones in range(form.degree[i] + 1):
            spins = 2 * ones - int(form.degree[i])
            exact = 2 * float(model.bias[i]) + 4 * coupling * spins
            assert math.isclose(form.odds[form.kind[i], ones], exact, rel_tol=1e-12, abs_tol=1e-7)


# Kernels.

SAMPLERS = {
    lw.Gibbs: lw.Gibbs(), lw.GibbsSweep: lw.GibbsSweep(), lw.MetropolisSweep: lw.MetropolisSweep(),
    lw.HammingBall: lw.HammingBall(2, 1, "systematic"), lw.GWG: lw.GWG(), lw.PAFS: lw.PAFS(1),
    lw.LocallyBalanced: lw.LocallyBalanced(), lw.DULA: lw.DULA(0.4), lw.DMALA: lw.DMALA(0.4),
    lw.DLMC: lw.DLMC(0.5), lw.DLMCf: lw.DLMCf(0.5), lw.RandomWalk: lw.RandomWalk(),
    lw.SwendsenWang: lw.SwendsenWang(),
    lw.ACS: lw.ACS(2.0, 0.2, 3),
}  # fmt: skip
RARE = (lw.Gibbs, lw.HammingBall, lw.RandomWalk)  # a step seldom meets the hub
OF_FORM = {
    GraphForm: ("many", "very many", "of all sizes"),
    PairForm: ("dense",),
    PottsGraphForm: ("potts", "very many potts"),
    PottsPairForm: ("dense potts",),
    RBMForm: ("rbm", "rbm of very many"),
}
CASES = [
    (SAMPLERS[kind], name)
    for kind, form in TWINS
    if kind in SAMPLERS
    for name in OF_FORM.get(form, ())
]
CASES += [
    (sampler, name)
    for sampler in (lw.Gibbs(2), lw.GWG(2))
    for kind, form in SEVERAL
    if kind is type(sampler)
    for name in OF_FORM.get(form, ())[:1]
]


def law_of(sampler: lw.Sampler, log_probs: Tensor) -> Tensor:
    """The stationary law of the hub's values. DULA, which has no correction, has its own."""
    law = log_probs.softmax(0)
    if type(sampler) is not lw.DULA or len(law) > 2:
        return law
    gain, price = float(log_probs[1] - log_probs[0]) / 2, 1 / (2 * sampler.step_size)
    up, down = (1 / (1 + math.exp(price - sign * gain)) for sign in (1, -1))
    return torch.tensor([down, up]).double() / (up + down)


@pytest.mark.slow
@pytest.mark.parametrize(("sampler", "name"), CASES, ids=str)
def test_a_hub_has_its_law(sampler, name):
    """Chains start from the law, so the mean over all steps is exact but for its error."""
    model, x = HUBS[name]()
    law = law_of(sampler, log_odds_of_hub(model, x))
    chains = 20 if len(x) > 20_000 else 100
    steps = 4 * len(x) if isinstance(sampler, RARE) else 40
    rng = random(1)
    start = torch.multinomial(law, chains, True, generator=rng)
    states = x.repeat(chains, *[1] * x.ndim)
    states[:, 0] = torch.eye(3)[start] if x.ndim == 2 else start.float()
    twin = find_compiled_kernel(sampler, model)
    _, sums = twin.advance(twin.at(states, model), model, rng, steps, SumRequest(total=True))
    share = torch.from_numpy(sums.total).double()[:, : len(law)] / steps
    found = share if x.ndim == 2 else torch.stack((1 - share[:, 0], share[:, 0]), 1)
    error = (found.var(0) / chains + 1 / (chains * steps) ** 2).sqrt()
    assert ((found.mean(0) - law).abs() / error < 5).all(), (found.mean(0), law)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "steps", "chains"),
    [
        (lw.GibbsSweep(), 8, 1), (lw.GWG(), 8000, 2), (lw.PAFS(3), 3000, 2),
        (lw.DMALA(0.5), 8, 3), (lw.DULA(0.5), 8, 3), (lw.DLMC(0.5), 8, 3),
    ],
    ids=str,
)  # fmt: skip
def test_what_a_kernel_remembers_of_a_hub_is_that_of_its_state(sampler, steps, chains):
    """All leaves are at 0 and many go to 1: each adds to the log-odds of the hub."""
    model = lw.Graph(star(20_000), 0.1, 0.3)
    twin, rng = find_compiled_kernel(sampler, model), random(1)
    state = twin.at(torch.zeros(chains, 20_001), model)
    state, _ = twin.advance(state, model, rng, steps)
    for c in range(chains):
        assert state.x[c, 1:].sum() > 1000
        exact = log_odds_of_hub(model, state.x[c])
        assert abs(float(state.fields[c, 0]) - float(exact[1] - exact[0])) < 1e-3


# Models.


@pytest.mark.parametrize("name", HUBS)
def test_a_model_has_the_log_odds_of_a_hub(name):
    model, x = HUBS[name]()
    exact, state, site = log_odds_of_hub(model, x), x.unsqueeze(0), torch.zeros(1, dtype=torch.long)
    found = model.site_log_probs(state, model.cache(state), site)[0].double()
    assert ((found - found[0]) - (exact - exact[0])).abs().max() < 1e-2


@pytest.mark.parametrize("sites", [100, 1_000_000])
@pytest.mark.parametrize("beyond", [False, True])
def test_a_target_may_round_otherwise_alone_but_not_differ(sites, beyond):
    """A sum of a million terms that cancel depends on how many chains a library adds together."""
    error = torch.finfo(torch.float32).eps * sites  # of a sum with a term of 1 for each site
    error = 10 * max(error, 1e-3) if beyond else 0.4 * error
    weight = torch.linspace(-1, 1, sites, dtype=torch.float64)

    def function(x: Tensor) -> Tensor:
        return ((x.double() @ weight) + error * (len(x) == 1)).float()

    model, x = lw.Function(function, lw.Binary(sites)), torch.zeros(2, sites)
    x[:, : sites // 4], x[:, -(sites // 4) :] = 1, 1  # the terms add up to 0
    if beyond:
        with pytest.raises(ValueError, match="must not depend on the number of chains"):
            check_target(model, x)
    else:
        check_target(model, x)
