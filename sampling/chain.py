"""The sampling loop: it combines a kernel with metrics, timing and CUDA graphs.

The loop reuses memory: a step may overwrite the state it is given, and a metric its carry. A
Reading is a copy and stays valid. `Chain.state` and `Chain.carries` are the buffers themselves.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Generator, Tensor
from torch.utils import _pytree as pytree

from latticework.models.base import EnergyModel
from latticework.moved import RenamedMethods
from latticework.samplers.base import Info, Sampler, Wrapper
from latticework.samplers.sums import MultiStepSampler, SumRequest
from latticework.sampling.clock import Clock
from latticework.sampling.loop_state import LoopState
from latticework.sampling.metrics import Metric, Reference, Steps

Block = Callable[[Any, list], tuple[Any, list]]


class Reading(NamedTuple):
    """A reading of the chains, every `every` steps. Later steps do not change these copies."""

    step: int
    state: Any
    values: dict[str, Tensor]  # scalars on the device, by name
    carries: list[Any]  # one a metric


def run_chain(
    sampler: Sampler,
    model: EnergyModel,
    x: Tensor,
    rng: Generator,
    *,
    steps: int,
    every: int,
    metrics: Sequence[Metric] = (),
    reference: Reference | None = None,
    debug: bool = False,
) -> Iterator[Reading]:
    """Advance all chains `steps` times from `x` `[chains, *shape]`, with a reading every `every`.

    The first reading is that of step 0. Readings are copies, so `list(run_chain(...))` is safe. On
    a GPU, `every` steps are captured as one CUDA graph; a compiled kernel
    (`sampling.engine`) makes them in one call. With `debug=True`, the old state is
    overwritten with NaN after each step (`Poisoned`), which reveals samplers and metrics that still
    read it.

    Raises ValueError if `x` is not a valid start (`samplers.checks`), if `every` is below 1 or does
    not divide `steps`, and RuntimeError if a chain becomes NaN under `debug`.
    """
    require_whole_blocks(steps, every)
    if debug:
        sampler = Poisoned(sampler)
    chain = Chain(sampler, model, x, rng, every=every, metrics=metrics, reference=reference)
    yield chain.reading(0)
    for step in range(every, steps + 1, every):
        chain.advance()
        if debug and chain.state.x.isnan().any():
            raise RuntimeError(
                f"a chain is NaN by step {step}: {sampler} or the model has read the memory of an "
                "old state; copy what must outlive a step"
            )
        yield chain.reading(step)


def require_whole_blocks(steps: int, every: int) -> None:
    """Raise ValueError unless `steps` steps, 0 or more, are whole blocks of `every`."""
    if every < 1:
        raise ValueError(f"every must be 1 or more, got {every}")
    if steps < 0 or steps % every:
        raise ValueError(f"steps must be a multiple of every, got {steps} and {every}")


@dataclass(init=False, eq=False)
class Chain(RenamedMethods, LoopState):
    """Chains that advance `every` steps at a time. A checkpoint stores the three fields.

    The next `advance` may overwrite `state` and `carries`. `values` reads the metrics without
    copying the state. A `reading` is a copy and safe to keep.
    """

    old_names: ClassVar = {"within": "sampler_state"}
    state: Any  # the sampler's
    carries: list[Any]  # one a metric
    rng: Generator

    def __init__(
        self,
        sampler: Sampler,
        model: EnergyModel,
        x: Tensor,
        rng: Generator,
        *,
        every: int,
        metrics: Sequence[Metric] = (),
        reference: Reference | None = None,
    ) -> None:
        self.metrics, self._sampler, self._model, self._every = metrics, sampler, model, every
        with torch.no_grad():
            state = sampler.init(x, model)
            carries = [metric.init(model, state, reference or Reference()) for metric in metrics]
        self.state, self.carries, self.rng = state, carries, rng
        self._make_block = partial(make_block, sampler, model, steps=every, metrics=metrics)
        self._block = self._make_block(rng=rng)
        self._captured = not x.is_cuda

    def fork(self) -> "Chain":
        """Chains at the same place with the same numbers to come, which go on without these."""
        twin = copy.copy(self)
        twin.state, twin.carries = deep_copy(self.state), deep_copy(self.carries)
        twin.rng = Generator(self.rng.device)
        twin.rng.set_state(self.rng.get_state())
        twin._block, twin._captured = self._make_block(rng=twin.rng), self.rng.device.type != "cuda"
        return twin

    def advance(self) -> None:
        with torch.no_grad():
            if not self._captured:
                self._block = capture(self._block, self.state, self.carries, self.rng)
                self._captured = True
            self.state, self.carries = self._block(self.state, self.carries)

    def trace(self, blocks: int) -> Tensor:
        """Advance `blocks` blocks by one call of a compiled kernel, with the numbers of `advance`.

        The states after each, `[blocks, chains, *shape]`, as int8. Values must be whole numbers
        that this type holds.
        """
        assert isinstance(self._sampler, MultiStepSampler)
        x = self.state.x
        with torch.no_grad():
            steps = blocks * self._every
            self.state, self.carries, sums = advance_compiled(
                self._sampler, self._model, self.rng, steps, self.metrics,
                SumRequest(draws=steps, traced=len(x)), self.state, self.carries,
            )  # fmt: skip
        return sums.trace[self._every - 1 :: self._every].view(blocks, *x.shape)

    @property
    def sampler_state(self) -> Any:
        """The state of the sampler itself, where its kernel is that of another engine."""
        return self._sampler.unwrap_state(self.state)

    def values(self) -> dict[str, Tensor]:
        """Current values of the metrics by name, scalars on the device."""
        pairs = zip(self.metrics, self.carries, strict=True)
        with torch.no_grad():
            readings = [metric.read(carry) for metric, carry in pairs]
        return {name: value.clone() for reading in readings for name, value in reading.items()}

    def reading(self, step: int) -> Reading:
        """A copy of the state, the metrics' values and their carries, labelled with `step`."""
        values = self.values()
        return Reading(step, deep_copy(self.state), values, deep_copy(self.carries))


def make_block(
    sampler: Sampler, model: EnergyModel, rng: Generator, steps: int, metrics: Sequence[Metric]
) -> Block:
    """A function that takes a state and the metrics' carries through `steps` steps."""
    if isinstance(sampler, MultiStepSampler):
        kernel = sampler

        def in_one_call(state: Any, carries: list) -> tuple[Any, list]:
            nothing = SumRequest()
            return advance_compiled(kernel, model, rng, steps, metrics, nothing, state, carries)[:2]

        return in_one_call

    wanted = sums_of(metrics)

    def one_by_one(state: Any, carries: list) -> tuple[Any, list]:
        for _ in range(steps):
            before = state.x.clone() if wanted.changed else state.x
            state, info = sampler.step(state, model, rng)
            if metrics:
                sums = Steps.of_one(before, state, info, wanted)
                carries = update_carries(metrics, carries, state, sums, 1)
        return state, carries

    return one_by_one


def sums_of(metrics: Sequence[Metric]) -> SumRequest:
    """The sums that some of the metrics read."""
    wanted = SumRequest()
    for metric in metrics:
        wanted = wanted.with_those_of(metric.wanted or SumRequest())
    return wanted


def update_carries(
    metrics: Sequence[Metric], carries: list, state: Any, sums: Steps, steps: int
) -> list:
    return [m.update(c, state, sums, steps) for m, c in zip(metrics, carries, strict=True)]


def advance_compiled(
    kernel: MultiStepSampler,
    model: EnergyModel,
    rng: Generator,
    steps: int,
    metrics: Sequence[Metric],
    wanted: SumRequest,
    state: Any,
    carries: list,
) -> tuple[Any, list, Steps]:
    """The state and the metrics' carries after `steps` steps in one call, and its sums.

    These are the sums that metrics read, and those `wanted` besides.
    """
    asked = wanted.with_those_of(sums_of(metrics))
    state, sums = kernel.advance(state, model, rng, steps, asked)
    totals = Steps(*map(torch.from_numpy, sums))
    return state, update_carries(metrics, carries, state, totals, steps), totals


class Timing(NamedTuple):
    """Seconds for one step of all chains, and the share of all blocks that was on a processor."""

    seconds: float
    share: float | None  # `Clock.share`


def seconds_per_step(*words: Any, **settings: Any) -> float:
    """The seconds of `timing`."""
    return timing(*words, **settings).seconds


def timing(
    sampler: Sampler, model: EnergyModel, x: Tensor, rng: Generator, *, steps: int, blocks: int = 5
) -> Timing:
    """Seconds for one step of all chains, without metrics: the median over `blocks` blocks."""
    times, clock = [], Clock(x.device)
    with torch.no_grad():
        state = sampler.init(x, model)
        advance = make_block(sampler, model, rng, steps, ())
        if x.is_cuda:
            advance = capture(advance, state, [], rng)
        state, _ = advance(state, [])  # warm-up
        for _ in range(blocks):
            before = clock.seconds
            with clock:
                state, _ = advance(state, [])
            times.append((clock.seconds - before) / steps)
    return Timing(median(times), clock.share)


def capture(block: Block, state: Any, carries: list, rng: Generator) -> Block:
    """Record `block` as one CUDA graph. The replayed chain equals the eager one bit for bit.

    All randomness comes from `rng`, whose state the graph advances on each replay. Warm-up and
    capture use separate buffers.

    Raises RuntimeError if CUDA cannot capture the block, such as one that reads a value on the host
    or copies a tensor from it.
    """
    with torch.cuda.device(rng.device):  # else streams and graph are of the first GPU
        return _capture_graph(block, state, carries, rng)


def _capture_graph(block: Block, state: Any, carries: list, rng: Generator) -> Block:
    buffers, spec = pytree.tree_flatten((state, carries))

    def fresh() -> tuple[Any, list]:
        return pytree.tree_unflatten([leaf.clone() for leaf in buffers], spec)

    seed_state = rng.get_state()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # autograd, cuBLAS and Triton allocate here
        for _ in range(3):
            block(*fresh())
    torch.cuda.current_stream().wait_stream(stream)
    rng.set_state(seed_state)

    inputs = pytree.tree_unflatten([leaf.clone() for leaf in buffers], spec)
    slots = pytree.tree_leaves(inputs)
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(rng)
    try:
        with torch.cuda.graph(graph):
            outputs = pytree.tree_leaves(block(*inputs))
            for slot, output in zip(slots, outputs, strict=True):
                slot.copy_(output)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise RuntimeError(
            f"these steps cannot be captured as a CUDA graph ({_cause(error)}); keep all tensors "
            "of the target on its device, and read no value on the host"
        ) from error

    def replay(state: Any, carries: list) -> tuple[Any, list]:
        for slot, leaf in zip(slots, pytree.tree_leaves((state, carries)), strict=True):
            if slot is not leaf:
                slot.copy_(leaf)
        graph.replay()
        return inputs

    return replay


def _cause(error: BaseException) -> str:
    """The first line of the first error: that of the end of a failed capture says less."""
    while error.__context__ is not None:
        error = error.__context__
    return str(error).partition("\n")[0].rstrip(".")


@dataclass(frozen=True)
class Poisoned(Wrapper):
    """`sampler`, with each old state overwritten after the step: by NaN, or the largest integer.

    A step may reuse the memory of its old state, but not every sampler does. Here code that reads
    an old state gets NaN or an index out of range. Results equal those of `sampler` bit for bit.
    """

    def at(self, x: Tensor, model: EnergyModel) -> Any:
        return self.sampler.at(x.clone(), model)

    def refresh(self, state: Any, model: EnergyModel) -> Any:
        return self.sampler.refresh(state, model)

    def relocate(self, x: Tensor, state: Any, model: EnergyModel) -> Any:
        return self.sampler.relocate(x.clone(), state, model)

    def step(self, state: Any, model: EnergyModel, rng: Generator) -> tuple[Any, Info]:
        after = deep_copy(self.sampler.step(state, model, rng))
        lasting = {memory(t) for t in (*model.parameters(), *model.buffers())}
        for tensor in pytree.tree_leaves(state):
            if memory(tensor) not in lasting:
                overwrite(tensor)
        return after


def deep_copy(tree: Any) -> Any:
    """A deep copy of `tree` (NamedTuples, tuples and lists of tensors)."""
    if isinstance(tree, Tensor):
        return tree.clone()
    if isinstance(tree, tuple | list):  # torch's pytree takes several times as long
        parts = map(deep_copy, tree)
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return tree


def memory(tensor: Tensor) -> int:
    """The address of the memory that `tensor` is a view of."""
    return tensor.untyped_storage().data_ptr()


def overwrite(tensor: Tensor) -> None:
    """Fill the memory that `tensor` is a view of with NaN, the largest integer, or True."""
    everything = tensor.new_empty(0).set_(tensor.untyped_storage())  # an expanded view refuses
    if tensor.is_floating_point():
        everything.fill_(torch.nan)
    else:
        everything.fill_(True if tensor.dtype == torch.bool else torch.iinfo(tensor.dtype).max)
