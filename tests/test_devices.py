"""Captured chains and steps on one device. `pytest -m gpu` runs the tests on a CUDA device.

Without it, graphs are recorded and replayed on the CPU (tests/graphs.py). Tensors on the meta
device have no values, so a step that made one on the CPU, or that read one, would fail.
"""

import copy
import sys
from functools import partial

import pytest
import torch
from everyone import PAIRS
from graphs import without_a_gpu
from targets import TARGETS
from test_ebm_learning import TRUTH_8, dataset, learner, network
from torch import Generator, Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import latticework as lw
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.measures.validity import Validity
from latticework.models import bayes_net
from latticework.samplers import base
from latticework.samplers.sums import SumRequest
from latticework.sampling import annealing
from latticework.sampling.chain import Chain, capture
from latticework.sampling.checking.host_reads import NoHostReads
from latticework.sampling.devices import find_device
from latticework.sampling.metrics import Steps, Unsettled
from latticework.sampling.occupancy import Occupancy

# Each class of samplers on each kind of domain. The path of a tempered graph multiplies by its
# sparse matrix, which the stand-ins for a GPU do not have.
KINDS = {(type(sampler), type(model.domain)): (sampler, model) for sampler, model, _ in PAIRS}
del KINDS[lw.Tempered, lw.Subset]
pairs = pytest.mark.parametrize(
    ("sampler", "model"),
    [pytest.param(s, m, id=f"{s}-{m.domain}") for s, m in KINDS.values()],
)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch):
    """A device with graphs. On the CPU no loop ends early, as on a GPU."""
    if request.param == "cuda":
        yield find_device("cuda")
        return
    original = base.all_done_on_cpu
    for module in list(sys.modules.values()):
        if getattr(module, "all_done_on_cpu", None) is original:
            monkeypatch.setattr(module, "all_done_on_cpu", lambda done: False)
    entered = without_a_gpu(monkeypatch)
    yield torch.device("cpu")
    assert set(entered) <= {torch.device("cpu")}  # that of the chains


def leaves(*values) -> list[Tensor]:
    return [leaf.nan_to_num(7) for leaf in pytree.tree_leaves(values)]


# Captured graphs.


def metrics(model, state, reference):
    """Every metric that serves the model."""
    for kind in (
        *(lw.MarginalError, lw.EnsembleError, lw.Acceptance, lw.Changed, lw.MMD, lw.Proposed),
        *(Unsettled, Validity, Occupancy, lambda: lw.Trace(5, thin=2)),
    ):
        metric = kind()
        try:
            yield metric, metric.init(model, state, reference)
        except ValueError:  # of values that it does not count
            continue


def readings(sampler, model, captured, device):
    """Three readings of a chain with every metric that serves it, and the generator's last state.

    The model is a copy, because a chain may leave something in it.
    """
    rng, model = Generator(device).manual_seed(1), copy.deepcopy(model).to(device)
    x = model.domain.uniform(8, rng)
    mean = torch.full(model.domain.shape, 0.3, device=device)
    reference = lw.Reference(mean, samples=x.clone(), floor=x.clone())
    chosen = [metric for metric, _ in metrics(model, sampler.init(x, model), reference)]
    chain = Chain(sampler, model, x, rng, every=3, metrics=chosen, reference=reference)
    chain._captured = not captured
    found = []
    for step in (3, 6, 9):
        chain.advance()
        found.append(chain.reading(step))
    return leaves([reading[1:] for reading in found], rng.get_state())


@pytest.mark.slow
@pairs
def test_a_captured_chain_is_the_eager_chain(sampler, model, device):
    eager, captured = (readings(sampler, model, captured, device) for captured in (False, True))
    assert all(map(torch.equal, eager, captured))


def test_memory_that_runs_out_in_a_capture_is_told_as_such(monkeypatch):
    without_a_gpu(monkeypatch)
    outcomes = iter([None, None, None, torch.OutOfMemoryError("CUDA out of memory")])

    def block(state, carries):
        if error := next(outcomes):  # after the warm-up
            raise error
        return state, carries

    with pytest.raises(torch.OutOfMemoryError):
        capture(block, torch.zeros(2), [], Generator())


def test_what_cannot_be_captured_is_told_by_its_first_error(monkeypatch):
    without_a_gpu(monkeypatch)
    calls = []

    def block(state, carries):
        calls.append(state)
        if len(calls) > 3:  # after the warm-up
            try:
                raise RuntimeError("this copies from the host\nand more")
            finally:
                raise RuntimeError("the capture was invalid")  # noqa: B012
        return state, carries

    with pytest.raises(RuntimeError, match=r"as a CUDA graph \(this copies from the host\); keep"):
        capture(block, torch.zeros(2), [], Generator())


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        (lw.GWG(), lw.GeometricPath),
        (lw.DMALA(0.5), lw.GeometricPath),
        (lw.Gibbs(), lw.GeometricPath),
        (lw.BlockGibbs(), lw.ScaledRBM),
        (lw.DMALA(0.5), lw.ScaledRBM),
    ],
    ids=str,
)
def test_captured_annealing_is_eager_annealing(kernel, kind, device):
    def annealed(wrap):
        path = kind(copy.deepcopy(TARGETS["rbm"].model)).to(device)
        rng = Generator(device).manual_seed(0)
        betas = annealing.linear(12).to(device)
        with torch.no_grad():
            chains = annealing.start_annealing(kernel, path, path.draw(10, rng), betas)

            def block(state, carries):
                for _ in range(4):
                    state = annealing.advance(state, kernel, path, betas, rng)
                return state, carries

            run = wrap(block, chains, rng)
            for _ in range(3):
                chains, _ = run(chains, [])
        return leaves(chains, rng.get_state())

    eager = annealed(lambda block, chains, rng: block)
    captured = annealed(lambda block, chains, rng: capture(block, chains, [], rng))
    assert all(map(torch.equal, eager, captured))


@pytest.mark.parametrize("buffer", [10, 30])
@pytest.mark.parametrize("make", [network, lambda: network(lw.RBM(8, 3))], ids=["net", "rbm"])
@pytest.mark.parametrize("sampler", [lw.DMALA(0.2), lw.GWG(), lw.Gibbs()], ids=str)
def test_learning_with_captured_steps_is_learning(sampler, make, buffer, tmp_path, device):
    def learned(captured):
        run, model = Run(tmp_path, device=device), make().to(device)
        made = learner(run, model, dataset(TRUTH_8), sampler, buffer=buffer)
        chains, replay = made.negatives, made.replay
        replay.captured = True
        if captured:
            replay.block = capture(replay.block, chains.state, chains.carries, made.rng)
        for update in (1, 2, 3, 4):
            made.learn(update)
        parameters = [parameter.detach() for parameter in model.parameters()]
        state = made.negatives.state_dict(), made.rng.get_state()
        return leaves(parameters, state)

    assert all(map(torch.equal, learned(False), learned(True)))


# One device.


class Elsewhere(Generator):
    """A generator that says it is on the meta device, where numbers have no values."""

    device = torch.device("meta")


class OneDevice(TorchDispatchMode):
    """Raises AssertionError for an operation on a tensor of the CPU, other than a number."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in pytree.tree_leaves((args, kwargs, result)):
            number = isinstance(tensor, Tensor) and tensor.ndim == 0 and "copy" not in func.name()
            if isinstance(tensor, Tensor) and tensor.device.type != "meta" and not number:
                raise AssertionError(f"{func.name()} on a tensor of {tensor.device}")
        return result


def moved(value):
    return pytree.tree_map(partial(Tensor.to, device="meta"), value)


@pytest.fixture
def meta(monkeypatch):
    """The meta device counts as a GPU."""
    monkeypatch.setitem(bayes_net.CHUNK, "meta", bayes_net.CHUNK["cuda"])
    on_gpu = property(lambda tensor: tensor.device.type == "meta")
    monkeypatch.setattr(Tensor, "is_cuda", on_gpu, raising=False)


@pytest.mark.slow
@pairs
def test_steps_and_metrics_stay_on_the_device(sampler, model, meta):
    x, elsewhere = model.domain.uniform(8, Generator().manual_seed(1)), Elsewhere()
    state, model = moved(sampler.init(x, model)), copy.deepcopy(model).to("meta")
    state, _ = sampler.step(state, model, elsewhere)  # what is made once and kept
    half = torch.full(x.shape[1:], 0.5, device="meta")
    reference = lw.Reference(half, samples=moved(x), floor=moved(x))
    running = list(metrics(model, state, reference))
    with OneDevice(), NoHostReads():
        for _ in range(2):
            before = state.x.clone()
            state, info = sampler.step(state, model, elsewhere)
            seen = Steps.of_one(before, state, info, SumRequest(changed=True, invalid=True))
            running = [(m, m.update(carry, state, seen, 1)) for m, carry in running]
    for metric, carry in running:
        metric.read(carry)


@pytest.mark.parametrize(
    "mix",
    [
        lambda x: x + torch.ones(3),
        lambda x: torch.ones(3).to(x.device),
        lambda x: x.index_select(0, torch.arange(2)),
        lambda x: torch.rand(3, generator=Generator()),
    ],
)
def test_a_tensor_of_the_cpu_is_caught(mix, meta):
    with pytest.raises((AssertionError, RuntimeError)), OneDevice():
        mix(torch.ones(3, device="meta"))


# The device of a run.


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)


@pytest.mark.parametrize("name", ["auto", "cuda", "cuda:1"])
def test_convolutions_on_a_gpu_are_in_single_precision(name, two_gpus):
    assert find_device("cpu") == torch.device("cpu")
    assert torch.backends.cudnn.allow_tf32 is True
    assert find_device(name) == torch.device("cuda" if name == "auto" else name)
    assert torch.backends.cudnn.allow_tf32 is False
    with pytest.raises(ValueError, match="device=cuda:2 .* sees 2 CUDA devices.*; device=auto"):
        find_device("cuda:2")
