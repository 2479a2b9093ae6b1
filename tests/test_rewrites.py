"""Every rewrite of a target keeps log pi, constants included: the table of models and rewrites.

`condition_on` drops known sites, compiled forms drop all but differences, a path changes the target
and comes back. A constant that is lost there is a wrong log Z, and no sampler notices it. Truth is
the log-probability that the model was written with, at all states.
"""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from targets import TARGETS, scattered
from torch import Tensor

import latticework as lw
from latticework.models import base, conditioned
from latticework.models.annealed import GeometricPath
from latticework.models.forms import IMPOSSIBLE, change, temper_form
from latticework.models.graph_files import read_graph
from latticework.models.paths import path_of
from latticework.sampling.exact import exact

LEFT_OUT = ("integers", "naturals")  # infinitely many states


def wave(x: Tensor) -> Tensor:
    return x[:, 0] * x[:, 1:].sum(1) - 7.5


def residual() -> lw.ResNet:
    torch.manual_seed(0)
    return scattered(lw.ResNet((2, 2), 2, 1), std=0.3)


def variable_selection() -> lw.VariableSelection:
    rng = torch.Generator().manual_seed(1)
    features = torch.randn(12, 4, generator=rng)
    targets = features @ torch.tensor([1.0, 0.0, -0.5, 0.2]) + torch.randn(12, generator=rng)
    return lw.VariableSelection(features, targets, inclusion=0.3, names="abcd")


def named() -> lw.Factors:
    tables = [((0,), np.log([0.3, 0.7])), ((0, 1), np.log([[0.9, 0.1], [0.2, 0.8]])), ((), -1.5)]
    return lw.Factors(tables, names="ab", labels=[["no", "yes"]] * 2)


MODELS = {
    **{name: TARGETS[name].model for name in TARGETS if name not in LEFT_OUT},
    "graph with an offset": lw.Graph([[0, 1], [1, 2], [0, 3]], [0.5, -1.0, 0.3], 0.4, offset=3.0),
    "named": named(),
    "variable selection": variable_selection(),
    "zeros": lw.Factors([((0, 1), [[0.2, -math.inf], [0.1, 0.4]]), ((1, 2), [[0.3, 1], [2, 3]])]),
    "fhmm": lw.synthetic_fhmm(2, 2, 0.5, 0.1, 0.9),
    "resnet": residual(),
    "rated": scattered(lw.RatedRBM(4, 3), 1),
    "bits": lw.quadratic_ising((4,), 0.3, 0.2, 0.0, 1.0),
    "sine": lw.Sine(0.3, 0.2, 0.4),
    "function": lw.Function(wave, lw.Binary(4)),
    "restricted graph": lw.Graph([[0, 1], [1, 2], [2, 3]], 0.7, 0.3, offset=-2).condition_on(
        {1: 1}
    ),
    "restricted dense": lw.sherrington_kirkpatrick(5, 1.5).condition_on({2: 1, 4: 0}),
    "restricted rbm": scattered(lw.RBM(5, 2), 3).condition_on({0: 1, 3: 0}),
    "restricted tables": TARGETS["network"].model.condition_on({1: 1}),
}  # fmt: skip
CLASSES = {type(model) for model in MODELS.values()}


def values_of(model: lw.EnergyModel, x: Tensor) -> Tensor:
    """Log pi at `x` in float64."""
    with torch.no_grad():
        return copy.deepcopy(model).double().log_prob(x.double())


def same(found: Tensor, expected: Tensor, tolerance: float = 2e-6) -> None:
    torch.testing.assert_close(found.double(), expected.double(), rtol=tolerance, atol=tolerance)


def last_value(model: lw.EnergyModel, site: int) -> float:
    """The highest value of `site`, as a number."""
    if isinstance(model.domain, lw.Mixed):
        return model.domain.sizes[site] - 1
    values = model.domain.values()
    return len(values) - 1 if values.ndim > 1 else float(values.max())


def given(model: lw.EnergyModel, sites: list[int]) -> lw.EnergyModel:
    """The model with these sites as in the last of its possible states."""
    states = model.domain.enumerate()
    last = states[values_of(model, states) > -torch.inf][-1]
    codes = last.argmax(-1) if last.ndim > 1 else last
    labels = getattr(model, "labels", None)
    known = {}
    for site in sites:
        value = float(codes[site])
        known[site] = value if labels is None else labels[site][int(value)]
    return model.condition_on(known)


def given_once(model, every):
    return [given(model, [site]) for site in every] + [given(model, every[:-1])]


def given_twice(model, every):
    """The sites of the second model are those that the first one left."""
    return [given(given(model, every[:1]), list(range(len(every) - 2)))] if len(every) > 2 else []


def given_per_chain(model, every):
    known = torch.full((1, len(every)), torch.nan)
    known[:, -1] = last_value(model, every[-1])
    return [model.condition_on(known)]


def plain(model, every):
    """The model that `condition_on` returns where it has no closed form."""
    known = {every[0]: last_value(model, every[0])}
    evidence = conditioned.Evidence(model.domain, known, model.names, model._evidence())
    return [conditioned.Conditioned(model, evidence)]


CONDITIONED = {
    "given once": given_once, "given twice": given_twice, "given per chain": given_per_chain,
    "given, without a closed form": plain,
}  # fmt: skip
KNOWABLE = [name for name in MODELS if MODELS[name].domain.dim > 1]
KNOWABLE = [name for name in KNOWABLE if "subset" not in name and name != "with_ones"]


@pytest.mark.parametrize("rewrite", CONDITIONED)
@pytest.mark.parametrize("name", KNOWABLE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_conditioned_model_keeps_log_pi(name, rewrite, dtype):
    model = copy.deepcopy(MODELS[name]).to(dtype)
    for smaller in CONDITIONED[rewrite](model, list(range(model.domain.dim))):
        free = smaller.domain.enumerate().to(dtype)
        found = torch.cat([smaller.log_prob(x) for x in free.split(1)])
        full = smaller.complete(free)
        if model._evidence() is not None:  # completed beyond the model that was conditioned
            full = full.index_select(1, model._evidence().free)
        same(found, values_of(model, full), 2e-6 if dtype == torch.float32 else 1e-12)
        assert found.dtype == dtype
        if smaller.chains is None and differentiable(smaller, free[:1]):
            same(smaller.log_prob_and_grad(free)[0], found)


def differentiable(model: lw.EnergyModel, x: Tensor) -> bool:
    try:
        model.log_prob_and_grad(x)
    except base.NotDifferentiableError:
        return False
    return True


@pytest.mark.parametrize("name", KNOWABLE)
def test_log_z_is_that_of_the_evidence(name):
    """The normalisers of the models given each value of a site add up to that of the model."""
    model = MODELS[name]
    numbers = [-1.0, 1.0] if getattr(model.domain, "low", 0) else None
    parts = []
    for value in numbers or range(int(last_value(model, 0)) + 1):
        known = torch.full((model.domain.dim,), torch.nan)
        known[0] = value
        parts.append(exact(model.condition_on(known)).log_z.double())
    same(torch.stack(parts).logsumexp(0), exact(model).log_z, 1e-5)


def test_evidence_by_hand():
    net = lw.Factors([((0,), np.log([0.3, 0.7])), ((0, 1), np.log([[0.9, 0.1], [0.2, 0.8]]))])
    assert math.isclose(float(exact(net.condition_on({0: 1})).log_z), math.log(0.7), rel_tol=1e-6)
    assert math.isclose(float(exact(net.condition_on({1: 1})).log_z), math.log(0.59), rel_tol=1e-6)


def at_the_end(path: lw.AnnealedModel) -> lw.AnnealedModel:
    path.move_to(torch.ones(()))
    return path


def fresh(model: lw.EnergyModel) -> lw.EnergyModel:
    """A model of other parameters that has loaded the state of `model`."""
    other = copy.deepcopy(model)
    for tensor in other.state_dict().values():
        if tensor.is_floating_point():
            tensor.add_(1.0)
    other.load_state_dict(model.state_dict())
    return other


WHOLE = {
    "its path at b = 1": lambda model: at_the_end(path_of(model)),
    "its geometric path at b = 1": lambda model: at_the_end(GeometricPath(model)),
    "its powers at b = 1": lambda model: at_the_end(path_of(model, powers=True)),
    "a copy": copy.deepcopy,
    "a pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "a loaded state": fresh,
    "in double and back": lambda model: copy.deepcopy(model).double().float(),
}


@pytest.mark.parametrize("rewrite", WHOLE)
@pytest.mark.parametrize("name", MODELS)
def test_a_rewritten_model_keeps_log_pi(name, rewrite):
    model = MODELS[name]
    found, x = WHOLE[rewrite](copy.deepcopy(model)), model.domain.enumerate()
    expected = values_of(model, x)
    possible = expected > -torch.inf
    with torch.no_grad():
        same(found.log_prob(x)[possible], expected[possible], 5e-6)


@pytest.mark.parametrize("name", [n for n in MODELS if isinstance(MODELS[n].domain, lw.Binary)])
def test_a_model_with_so_many_ones_keeps_log_pi(name):
    model = MODELS[name]
    for ones in range(1, model.domain.dim):
        smaller = model.with_ones(ones)
        x = smaller.domain.enumerate()
        same(smaller.log_prob(x), values_of(model, x))


def forms() -> list[str]:
    return [name for name, model in MODELS.items() if model.form() is not None]


@pytest.mark.parametrize("power", [1.0, 0.3])
@pytest.mark.parametrize("name", forms())
def test_a_form_has_the_differences_of_log_pi(name, power):
    """From a state to every other one, a site at a time, as long as the states are possible."""
    model, states = MODELS[name], MODELS[name].domain.enumerate()
    form, values = model.form(), values_of(model, states)
    first = int(values.isfinite().nonzero()[0])
    if power != 1 and type(form).__name__ == "RBMForm":
        with pytest.raises(ValueError, match="RBM"):
            temper_form(form, power)
        return
    form = temper_form(form, power) if power != 1 else form
    for y in states:
        x, total = states[first].clone(), 0.0
        for site in range(model.domain.dim):
            z = x.clone()
            z[site] = y[site]
            total += change(form, x, z, site)
            x = z
            expected = power * float(values_of(model, x.unsqueeze(0)) - values[first])
            if expected == -math.inf:
                assert total < IMPOSSIBLE * power
                break
            assert math.isclose(total, expected, rel_tol=1e-5, abs_tol=1e-5)


@pytest.mark.parametrize("low", [0.0, -1.0, 2.0])
def test_a_lattice_in_other_coordinates_keeps_log_pi(low):
    """Spins to bits: s'Js + b's with its constant, for states of any two values."""
    lattice, other = lw.Lattice((2, 3), 0.3, 0.2), lw.quadratic_ising((2, 3), 0.3, 0.2, low, 3.0)
    bits = lattice.domain.enumerate()
    same(other.log_prob(low + (3.0 - low) * bits), values_of(lattice, bits), 1e-4)


# Graphs from files and other libraries.


@pytest.mark.parametrize("kind", ["SPIN", "BINARY"])
@pytest.mark.parametrize("beta", [1.0, 0.7])
def test_a_graph_of_a_bqm_and_back_keeps_log_pi(kind, beta):
    dimod = pytest.importorskip("dimod")
    linear, quadratic = {"a": 0.3, "b": -0.2, "c": 0.5}, {("a", "b"): 1.5, ("b", "c"): -0.4}
    bqm = dimod.BinaryQuadraticModel(linear, quadratic, 2.5, kind)
    graph = lw.Graph.from_bqm(bqm, beta)
    x = graph.domain.enumerate()
    samples = 2 * x.numpy() - 1 if kind == "SPIN" else x.numpy()
    energies = torch.from_numpy(bqm.energies((samples.astype(int), list(graph.names))))
    same(graph.log_prob(x), -beta * energies)
    again = lw.Graph.from_bqm(graph.to_bqm(beta), beta)
    same(again.log_prob(x), -beta * energies)
    smaller = graph.condition_on({"b": 1})
    free = smaller.domain.enumerate()
    place = (x.unsqueeze(0) == smaller.complete(free).unsqueeze(1)).all(-1).long().argmax(1)
    same(smaller.log_prob(free), -beta * energies[place])


@pytest.mark.parametrize("binary", [True, False])
def test_a_graph_of_a_coo_file_keeps_log_pi(tmp_path, binary):
    rows = [(0, 0, 0.3), (1, 1, -0.7), (0, 1, 1.5), (1, 2, -0.4)]
    head = "# vartype=BINARY\n" if binary else "# vartype=SPIN\n"
    file = tmp_path / "model.coo"
    file.write_text(head + "".join(f"{i} {j} {value}\n" for i, j, value in rows))
    graph = read_graph(file, 0.9)
    x = graph.domain.enumerate()
    z = x if binary else 2 * x - 1
    energy = sum(v * z[:, i] * (z[:, j] if i != j else 1) for i, j, v in rows)
    same(graph.log_prob(x), -0.9 * energy)


@pytest.mark.parametrize("values", [(2, 2, 2), (2, 3, 2)], ids=str)
def test_tables_of_a_uai_file_keep_log_pi(tmp_path, values):
    """Pairs of spins become a graph, with its offset; other tables stay."""
    rng = np.random.default_rng(0)
    scopes = [(0,), (0, 1), (1, 2)]
    tables = [rng.uniform(0.1, 2, [values[i] for i in scope]) for scope in scopes]
    lines = ["MARKOV", "3", " ".join(map(str, values)), str(len(scopes))]
    lines += [f"{len(scope)} {' '.join(map(str, scope))}" for scope in scopes]
    for table in tables:
        lines += [str(table.size), " ".join(map(repr, table.ravel().tolist()))]
    file = tmp_path / "model.uai"
    file.write_text("\n".join(lines))
    model = read_graph(file)
    states = model.domain.enumerate()
    codes = states.argmax(-1) if states.ndim == 3 else states.long()
    expected = [
        sum(math.log(t[tuple(row[i] for i in s)]) for s, t in zip(scopes, tables, strict=True))
        for row in codes.tolist()
    ]
    same(model.log_prob(states), torch.tensor(expected))


def test_every_class_of_models_is_in_the_table():
    """But the one that needs a language model, and one that is a dense Ising model."""
    left_out = {"TextInfilling", "LearnedIsing"}
    public = {getattr(lw, name) for name in lw.__all__ if isinstance(getattr(lw, name), type)}
    kinds = {
        kind for kind in public
        if issubclass(kind, lw.EnergyModel) and not getattr(kind, "__abstractmethods__", None)
    }  # fmt: skip
    kinds = {kind for kind in kinds if not issubclass(kind, lw.AnnealedModel)}
    assert {kind.__name__ for kind in kinds - CLASSES} <= left_out


@pytest.mark.gpu
@pytest.mark.parametrize("name", KNOWABLE)
def test_a_conditioned_model_stays_on_its_device(name):
    model = copy.deepcopy(MODELS[name]).to("cuda")
    if name == "function":
        return
    smaller = given(model, [0])
    free = smaller.domain.enumerate().to("cuda")
    full = smaller.complete(free)
    same(smaller.log_prob(free).cpu(), given(MODELS[name], [0]).log_prob(free.cpu()), 1e-5)
    assert full.is_cuda
