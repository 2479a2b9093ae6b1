"""Any sampler on any model as compiled code: blocks of steps that PyTorch's Inductor has fused.

A step is recorded once as a graph of operations, and a few copies of it, one after the other, are
compiled as one function. It reads its random numbers from a tape (`models.distributions.Tape`) that
Philox fills by a key of the run's generator for each block, and the model's tensors as they are at
each call, so a model that learns needs no new compilation.

The state of a chain holds all steps of a block and the number of those that the chain has made. So
the same seed gives the same numbers however a caller divides the steps into calls, and a checkpoint
resumes in the middle of a block. A block runs on one thread, so numbers do not depend on threads.
"""

import atexit
import logging
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Generator, Tensor, fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from latticework.models.base import AnnealedModel, EnergyModel
from latticework.models.distributions import Tape
from latticework.samplers.base import Info, Sampler, Wrapper
from latticework.samplers.compiled.folders import cache_root, fault_of, switched_off
from latticework.samplers.held import reachable_values
from latticework.samplers.sums import (
    NOTHING,
    MultiStepSampler,
    SumRequest,
    Sums,
    empty_sums,
    finite,
)

log = logging.getLogger(__name__)
BLOCK = 8  # steps of a block; more of them gain little and take long to compile
NUMBERS = tuple(torch.arange(BLOCK + 1))  # as a State holds them
LARGEST = 2**17  # entries of the positions of a block: of larger ones there are fewer
CALLS = 64  # blocks whose numbers are drawn, and whose steps are summed, at once: at most so many,
MEMORY = 2**20  # and, with more than one, of at most so many entries
OPERATIONS = 1000  # of a block; to compile more of them takes minutes
MULTIPLICATIONS = 2**14  # of a product: up to here, a loop takes less time than the call of MKL
OPTIONS = {
    "cpp.threads": 1,
    "compile_threads": 1,  # one file needs no pool of processes
    # Small tensors inside a block are on the stack: to allocate them takes longer than the steps.
    "cpp_wrapper": True,
    "aot_inductor.allow_stack_allocation": True,
}


def _product(
    bias: Tensor | float, x: Tensor, weight: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """`beta` bias + `alpha` x W by loops that Inductor fuses; NotImplemented for large products."""
    if x.numel() * weight.shape[-1] > MULTIPLICATIONS:
        return NotImplemented
    product = (x.unsqueeze(-1) * weight.unsqueeze(-3)).sum(-2)
    return (product if alpha == 1 else alpha * product) + (bias if beta == 1 else beta * bias)


SMALL_PRODUCTS: dict[Any, Callable] = {
    torch.ops.aten.mm.default: partial(_product, 0),
    torch.ops.aten.bmm.default: partial(_product, 0),
    torch.ops.aten.addmm.default: _product,
}


class NotFusedError(TypeError):
    """A step cannot be compiled; the message says why."""


class NoCompilerError(NotFusedError):
    """There is no C++ compiler."""


@cache
def use_private_folder() -> None:
    """Let PyTorch keep what it compiles below our cache folder, where no other user can write.

    By itself it loads shared objects and headers from a folder of the temporary directory that
    anybody can make beforehand. A folder that the user has chosen is kept if it is private too.
    Where no folder is, each process compiles in one of its own. Raises NotFusedError without any.
    """
    variable, shared = "TORCHINDUCTOR_CACHE_DIR", Path(tempfile.gettempdir(), "torchinductor_")
    chosen = os.environ.get(variable, "")
    if chosen.startswith(str(shared)):  # PyTorch's own choice, which it has written there
        chosen = ""
    try:
        folder = Path(chosen) if chosen else cache_root() / "inductor"
        why = fault_of(folder)
    except RuntimeError as error:  # there is no home folder
        why = str(error)
    if why:
        try:
            folder = Path(tempfile.mkdtemp(prefix="latticework-"))
        except OSError as error:
            raise NotFusedError(
                f"there is no folder for compiled code ({why}; {error}): set LATTICEWORK_CACHE to "
                "a folder of yours that can be written"
            ) from error
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        log.warning(
            "fused kernels are not kept, so each process compiles them again: %s; set "
            "LATTICEWORK_CACHE to a folder of yours that can be written",
            why,
        )
    os.environ[variable] = str(folder)
    from torch._inductor import codecache

    # PyTorch names this folder when it is imported, and not by the variable.
    codecache._HEADER_DIR = str(folder / "precompiled_headers")
    codecache._HEADER_LOCK_DIR = str(folder / "precompiled_headers" / "locks")


def require_compiler() -> None:
    """Raise NoCompilerError unless PyTorch finds a C++ compiler, also where a cache needs none."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise NoCompilerError(
            "there is no C++ compiler; with one, these steps would be some 10 to 30 times as "
            "fast: install g++ or clang, or set CXX"
        ) from error


class FusedState(NamedTuple):
    x: Tensor  # [chains, *domain.shape], where the chains are
    states: Any  # the sampler's, of which each tensor has the steps of the block as its first axis
    infos: tuple[Tensor, ...]  # [steps, chains]: acceptance, invalid; unsettled if the sampler has
    made: Tensor  # int64 scalar: the steps of the block that the chains have made


class Draws(NamedTuple):
    x: Tensor  # [draws, chains, *domain.shape]
    log_prob: Tensor  # [draws, chains]
    accept: Tensor  # [chains], float64: the sum of the acceptance probabilities of all steps
    invalid: int  # how many of all chains' steps met NaN or +inf


@dataclass(frozen=True)
class Fused(Wrapper, MultiStepSampler):
    """`sampler` by compiled code, on the CPU. A block is compiled when its shapes are first met.

    `call` is the number of steps after which chains are refreshed, 0 if they never are: no block
    then extends beyond it.
    """

    call: int = 0
    engine = "fused"
    compiled: dict[Any, "CompiledBlock"] = field(default_factory=dict, repr=False, compare=False)

    def init(self, x: Tensor, model: EnergyModel) -> FusedState:
        return _one_step_block(self.sampler.init(x, model))

    def at(self, x: Tensor, model: EnergyModel) -> FusedState:
        return _one_step_block(self.sampler.at(x, model))

    def refresh(self, state: FusedState, model: EnergyModel) -> FusedState:
        return _one_step_block(self.sampler.refresh(_current_state(state), model))

    def relocate(self, x: Tensor, state: FusedState, model: EnergyModel) -> FusedState:
        return _one_step_block(self.sampler.relocate(x, _current_state(state), model))

    def log_prob(self, state: FusedState, model: EnergyModel) -> Tensor:
        return self.sampler.log_prob(_select_step(state.states, int(state.made) - 1), model)

    def wrap_state(self, state: Any) -> FusedState:
        """The chains of this kernel where those of the sampler are."""
        return _one_step_block(state)

    def unwrap_state(self, state: FusedState) -> Any:
        """The sampler's state where the chains are; its tensors are copies."""
        return _current_state(state)

    def compile(self, state: FusedState, model: EnergyModel) -> "CompiledBlock":
        """The compiled block for states of these shapes. Raises NotFusedError if there is none."""
        key = (id(model), *((leaf.shape[1:], leaf.dtype) for leaf in _leaves(state.states)))
        block = self.compiled.get(key)
        if block is None or not block.fits(state):
            log.info("compiling %s for states %s", type(self.sampler).__name__, [*state.x.shape])
            block = CompiledBlock(self.sampler, model, _current_state(state), self.call)
            self.compiled[key] = block
        return block

    def step(self, state: FusedState, model: EnergyModel, rng: Generator) -> tuple[Any, Info]:
        block = self.compile(state, model)
        if int(state.made) == len(state.infos[0]):
            state = _end_of_block(state, block.run_blocks(state, 1, rng), block.steps, 1)
        else:
            state = _state_after(state, int(state.made) + 1)
        accept, invalid, *unsettled = _select_step(state.infos, int(state.made) - 1)
        log_ratio = accept.log().masked_fill_(invalid, torch.nan)
        return state, Info(accept.clone(), log_ratio, *unsettled)

    def advance(
        self,
        state: Any,
        model: EnergyModel,
        rng: Generator,
        steps: int,
        wanted: SumRequest = NOTHING,
    ) -> tuple[Any, Sums]:
        block = self.compile(state, model)
        sums = empty_sums(state.x, steps, wanted, block.loops)
        before = state.x
        for state, every in _stretches(state, block, rng, steps):  # noqa: B020
            infos = every[block.leaves :]
            steps -= len(infos[0])
            _add_to_sums(sums, before, every[block.x], infos, steps, wanted)
            before = state.x
        return state, sums

    def draw(
        self,
        state: FusedState,
        model: EnergyModel,
        rng: Generator,
        steps: int,
        thin: int,
        counting: EnergyModel,
    ) -> Draws:
        """A draw every `thin` of `steps` steps; `counting` is the model for its log-probability."""
        block, done = self.compile(state, model), 0
        x, log_prob, accept = [], [], torch.zeros(len(state.x), dtype=torch.float64)
        invalid = 0
        for state, every in _stretches(state, block, rng, steps):  # noqa: B020
            accept += every[block.leaves].sum(0, dtype=torch.float64)
            invalid += int(every[block.leaves + 1].sum())
            rows = slice((-done - 1) % thin, None, thin)
            done += len(every[0])
            kept = _with_leaves(state.states, (one[rows].clone() for one in every))
            x.append(kept.x)
            log_prob.append(self._log_probs(kept, counting))
        return Draws(torch.cat(x), torch.cat(log_prob), accept, invalid)

    def _log_probs(self, states: Any, model: EnergyModel) -> Tensor:
        """The log-probability after each step, `[steps, chains]`; one call if chains are rows."""
        shape = states.x.shape[:2]
        if all(leaf.shape[:2] == shape for leaf in _leaves(states)):
            flat = _map_tensors(lambda leaf: leaf.flatten(0, 1), states)
            return self.sampler.log_prob(flat, model).view(shape)
        rows = [
            self.sampler.log_prob(_select_step(states, number), model) for number in range(shape[0])
        ]
        return torch.stack(rows) if rows else states.x.new_empty(shape)


def _stretches(
    state: FusedState, block: "CompiledBlock", rng: Generator, steps: int
) -> Iterator[tuple[FusedState, list[Tensor]]]:
    """`steps` steps in stretches: the state after each, and leaves and infos after each step of it.

    These are valid until the next stretch.
    """
    first = int(state.made)
    if steps and first < len(state.infos[0]):  # of a block that was begun
        made = min(steps, len(state.infos[0]) - first)
        every = [*_leaves(state.states), *state.infos]
        state = _state_after(state, first + made)
        yield state, [one[first : first + made] for one in every]
        steps -= made
    while steps:
        blocks = min(block.calls, -(-steps // block.steps))
        made, every = min(steps, blocks * block.steps), block.run_blocks(state, blocks, rng)
        steps -= made
        last = (1, 1) if steps else (block.steps, made - (blocks - 1) * block.steps)
        state = _end_of_block(state, every, *last)
        yield state, [one[:made] for one in every]


def _end_of_block(state: FusedState, every: list[Tensor], steps: int, made: int) -> FusedState:
    """The state after `made` steps of the last block, of `steps`, among steps that gave `every`."""
    last = iter([one[-steps:].clone() for one in every])
    states = _with_leaves(state.states, last)
    return FusedState(states.x[made - 1], states, tuple(last), NUMBERS[made])


def _state_after(state: FusedState, made: int) -> FusedState:
    """The state after another number of steps of its block."""
    return FusedState(state.states.x[made - 1], state.states, state.infos, NUMBERS[made])


def _one_step_block(state: Any) -> FusedState:
    """A block of one step that ended at `state`."""
    infos = state.x.new_ones(1, len(state.x)), torch.zeros(1, len(state.x), dtype=torch.bool)
    return FusedState(
        state.x, _map_tensors(lambda leaf: leaf.unsqueeze(0), state), infos, NUMBERS[1]
    )


def _select_step(tree: Any, number: int) -> Any:
    """The tensors of one step."""
    return _map_tensors(lambda leaf: leaf[number], tree)


def _current_state(state: FusedState) -> Any:
    """The sampler's state where the chains are. Its tensors are copies, which it may overwrite."""
    row = _select_step(state.states, int(state.made) - 1)
    return _map_tensors(lambda leaf: leaf.clone(memory_format=torch.contiguous_format), row)


def _add_to_sums(
    sums: Sums, before: Tensor, x: Tensor, infos: list[Tensor], left: int, wanted: SumRequest
) -> None:
    """Add steps that began at `before`: positions and infos, `[steps, chains, ...]`.

    `left` steps of the call follow.
    """
    accept, invalid, *unsettled = infos
    sums.accept[:] += accept.sum(0, dtype=torch.float64).numpy()
    sums.invalid[:] += invalid.sum(0).numpy()
    for numbers in unsettled:
        sums.unsettled[:] += numbers.sum(0).long().numpy()
    if wanted.changed:
        sites = x != torch.cat((before.unsqueeze(0), x[:-1]))
        sums.changed[:] += sites.reshape(*x.shape[:3], -1).any(-1).sum((0, 2)).numpy()
    if wanted.total:
        sums.total[:] += x.flatten(2).sum(0).numpy()
    draws, traced = sums.trace.shape[:2]
    if left < draws:
        kept = x[-(draws - left) :, :traced].flatten(2).numpy()
        sums.trace[draws - left - len(kept) : draws - left] = kept


def _map_tensors(function: Callable[[Tensor], Any], tree: Any) -> Any:
    """`tree` with each of its tensors replaced; torch's pytree takes several times as long."""
    if isinstance(tree, Tensor):
        return function(tree)
    parts = [_map_tensors(function, part) for part in tree]
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)


def _leaves(tree: Any) -> list[Tensor]:
    leaves: list[Tensor] = []
    for part in tree:
        leaves += (part,) if isinstance(part, Tensor) else _leaves(part)
    return leaves


def _with_leaves(tree: Any, leaves: Iterator[Tensor]) -> Any:
    """A tree of the same kind, with other tensors."""
    parts = [
        next(leaves) if isinstance(part, Tensor) else _with_leaves(part, leaves) for part in tree
    ]
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)


class CompiledBlock:
    """A few steps of a sampler as one compiled function, for states of given shapes."""

    def __init__(self, sampler: Sampler, model: EnergyModel, state: Any, call: int = 0) -> None:
        """Record a step from `state` and compile some of them. Raises NotFusedError."""
        self.sampler, self.model, self.held = sampler, model, reachable_values(model)
        if switched_off():
            raise NotFusedError(
                "its random numbers are drawn by numba, which NUMBA_DISABLE_JIT=1 switches off"
            )
        use_private_folder()  # before PyTorch's compiler is imported
        with torch.no_grad():
            step, self.constants, self.numbers = _record_operations(sampler, model, state)
            self.listed = _list_values(sampler, model, state, self.numbers)
            self.held = reachable_values(model)  # after calls, which some functions count
            require_compiler()
            named = {id(t): n for n, t in (*model.named_parameters(), *model.named_buffers())}
            self.names = [named.get(id(tensor)) for tensor in self.constants]
            self.shapes = [(tensor.shape, tensor.dtype) for tensor in self.constants]
            most = min(LARGEST // state.x.numel(), OPERATIONS // len(step.graph.nodes))
            self.steps, leaves = max(1, min(BLOCK, most)), _leaves(state)
            if call:
                self.steps = max(n for n in range(1, self.steps + 1) if call % n == 0)
            each = step(*leaves, torch.zeros(self.numbers).double(), *self._tensors())
            self.run = self._compile_steps(step, leaves, each)
        self.leaves, self.x = len(leaves), next(i for i, t in enumerate(leaves) if t is state.x)
        self._reserve(each)
        # A step returns the leaves of the state, then infos.
        self.loops = len(each) - self.leaves > 2  # an info says where an inner loop ended

    def _reserve(self, each: list[Tensor]) -> None:
        """Memory for the tape of some blocks and for what they return; a step returns `each`."""
        entries = self.steps * (self.numbers + sum(one.numel() for one in each))
        self.calls = max(1, min(CALLS, MEMORY // entries))
        read = self.steps * self.numbers
        self.tape = torch.empty(self.calls, read + read % 2, dtype=torch.float64)
        every = [one.new_empty(self.calls, self.steps, *one.shape) for one in each]
        self.every = [one.flatten(0, 1) for one in every]
        # Views are made here: to make them takes as long as a step.
        last = zip(*(one[:, -1].unbind() for one in every[: self.leaves]), strict=True)
        self.last, self.rows = list(last), list(zip(*map(torch.unbind, every), strict=True))
        self.tapes = self.tape[:, :read].view(-1, self.steps, self.numbers).unbind()

    def run_blocks(self, state: FusedState, blocks: int, rng: Generator) -> list[Tensor]:
        """The leaves and infos after each step of the `blocks` blocks that follow that of `state`.

        Steps are the first axis. The next call overwrites them.
        """
        # Importing numba takes a second, so eager runs do not.
        from latticework.samplers.compiled.philox import fill_units, step_keys

        fill_units(self.tape[:blocks].view(-1).numpy(), step_keys(blocks, rng))
        last = tuple(_leaves(_select_step(state.states, -1)))
        tensors = self._tensors()
        with torch.no_grad():
            for number in range(blocks):
                self.run(*last, self.tapes[number], *tensors, *self.rows[number])
                last = self.last[number]
        return [one[: blocks * self.steps] for one in self.every]

    def fits(self, state: FusedState) -> bool:
        """Whether the compiled steps are still those of the model.

        Its tensors have the shapes and types of then. If it holds other Python numbers or tensors,
        a step is listed again, and must have the same operations on the same tensors.
        """
        if self.shapes != [(tensor.shape, tensor.dtype) for tensor in self._tensors()]:
            return False
        if reachable_values(self.model) == self.held:
            return True
        with torch.no_grad():
            listed = _list_values(self.sampler, self.model, _current_state(state), self.numbers)
        self.held = reachable_values(self.model)
        return listed.calls == self.listed.calls and listed.memory() == self.listed.memory()

    def _tensors(self) -> list[Tensor]:
        """The tensors that a step reads besides the state, as they are now."""
        now = [
            tensor if name is None else cast(Tensor, _attribute(self.model, name))
            for name, tensor in zip(self.names, self.constants, strict=True)
        ]
        return [tensor.detach() for tensor in now]

    def _compile_steps(
        self, step: fx.GraphModule, leaves: list[Tensor], each: list[Tensor]
    ) -> Callable[..., None]:
        """A function that writes what its steps return into its last arguments."""
        from torch._inductor import compile as compiled
        from torch._inductor.cpu_vec_isa import pick_vec_isa
        from torch.fx.experimental.proxy_tensor import make_fx

        def block(*given: Tensor) -> None:
            state, (tape, *rest) = given[: len(leaves)], given[len(leaves) : -len(each)]
            steps = []
            for number in range(self.steps):
                steps.append(step(*state, tape[number], *rest))
                state = steps[-1][: len(leaves)]
            for out, one in zip(given[-len(each) :], zip(*steps, strict=True), strict=True):
                out.copy_(torch.stack(one))

        tape = torch.zeros(self.steps, self.numbers, dtype=torch.float64)
        out = [one.new_empty(self.steps, *one.shape) for one in each]
        given: list[Any] = [*leaves, tape, *self._tensors(), *out]
        graph = make_fx(block, SMALL_PRODUCTS, tracing_mode="fake")(*given)
        try:
            # PyTorch's cache would else give code for AVX-512 to a process limited to AVX2, which
            # crashes: the width is an option, and options are part of the cache's key.
            width = {"cpp.simdlen": pick_vec_isa().bit_width()}
            run = compiled(graph, given, options=OPTIONS | width)
            run(*given)
        except Exception as error:  # of Inductor or the compiler, which has many
            says = str(error).strip().splitlines() or [type(error).__name__]
            raise NotFusedError(f"its step does not compile: {says[0]}") from error
        return run


def _attribute(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part)
    return module


def _record_operations(
    sampler: Sampler, model: EnergyModel, state: Any
) -> tuple[fx.GraphModule, list[Tensor], int]:
    """The graph of one step, the tensors that it reads besides its inputs, and its random numbers.

    The graph maps the tensors of a state, a row of the tape and those tensors to the tensors of the
    next state and its infos.
    """
    if state.x.device.type != "cpu":
        raise NotFusedError("fused kernels run on the CPU")
    if isinstance(model, AnnealedModel) and not sampler.anneals:
        raise NotFusedError(f"{type(model).__name__} remembers its last evaluation")
    leaves = _leaves(state)

    def step(tape: Tape, leaves: list[Tensor]) -> list[Tensor]:
        given = _with_leaves(state, iter([leaf.clone() for leaf in leaves]))
        after, info = sampler.step(given, model, cast(Generator, tape))
        ratio = info.log_ratio
        invalid = ~(finite(after) if ratio is None else ratio < torch.inf)
        infos = [info.accept_prob, invalid, info.unsettled]
        return [*_leaves(after), *(info for info in infos if info is not None)]

    from torch.fx.experimental.proxy_tensor import make_fx

    tape = Tape()
    try:
        step(tape, leaves)  # caches are filled, and numbers counted
        row = torch.zeros(tape.read, dtype=torch.float64)
        with _Operations() as once:
            step(Tape(row), leaves)
        with _Operations() as again:
            step(Tape(row), leaves)
        if once.calls != again.calls or not all(map(_same, once.read, again.read)):
            raise NotFusedError("its step keeps a state from call to call")
        graph = make_fx(
            lambda *given: step(Tape(given[-1]), list(given[:-1])),
            tracing_mode="fake",
            _allow_non_fake_inputs=True,
        )(*leaves, row)
    except NotFusedError:
        raise
    except Exception as error:  # whatever a function does with tensors that have no values
        raise NotFusedError(f"its step has to read numbers: {_line(error)}") from error
    return graph, _lift_tensors(graph, len(leaves)), tape.read


def _list_values(sampler: Sampler, model: EnergyModel, state: Any, numbers: int) -> "_Operations":
    """The operations of a step from `state`, and the tensors that it reads."""
    leaves, tape = _leaves(state), Tape(torch.zeros(numbers, dtype=torch.float64))
    with _Operations([*leaves, cast(Tensor, tape.numbers)]) as listed:
        sampler.step(state, model, cast(Generator, tape))
    return listed


def _constants(graph: fx.GraphModule) -> list[Tensor]:
    """The tensors that a graph reads besides its inputs, one for each reading."""
    names = [str(node.target) for node in graph.graph.nodes if node.op == "get_attr"]
    return [_attribute(graph, name) for name in names]


class _Operations(TorchDispatchMode):
    """Lists the operations of a step, and the tensors that it reads and did not make.

    Two calls of a function that keeps a state from call to call differ in one of them. A list takes
    a twentieth of the time of a graph of `make_fx`.
    """

    def __init__(self, given: Sequence[Tensor] = ()) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []
        self.read: list[Tensor] = []
        self._made: list[Any] = [*given]  # held, so that no other tensor gets their memory
        self._numbers: dict[int, int] = {}
        for tensor in given:
            self._note(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = pytree.tree_leaves((args, kwargs))
        self.read += [t for t in given if isinstance(t, Tensor) and _memory(t) not in self._numbers]
        result = func(*args, **(kwargs or {}))
        made = pytree.tree_leaves(result)
        self._made += made
        self.calls.append((func, *map(self._note, (*given, *made))))
        return result

    def memory(self) -> list[int]:
        """Which memory the tensors have that were read and not made or given."""
        return [_memory(tensor) for tensor in self.read]

    def _note(self, value: Any) -> Any:
        """Which memory a tensor is a view of, and which view; the text of any other value."""
        if not isinstance(value, Tensor):
            return repr(value)
        number = self._numbers.setdefault(_memory(value), len(self._numbers))
        return number, value.dtype, value.shape, value.stride(), value.storage_offset()


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _same(one: Tensor, other: Tensor) -> bool:
    alike = one.shape == other.shape and one.dtype == other.dtype
    return one is other or (alike and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True))


def _lift_tensors(graph: fx.GraphModule, leaves: int) -> list[Tensor]:
    """Make the tensors that `graph` reads its last inputs, and return them.

    Raises NotFusedError if the graph writes to one of them, draws numbers or is too large.
    """
    nodes = list(graph.graph.nodes)
    if len(nodes) > OPERATIONS:
        raise NotFusedError(f"its step has {len(nodes)} operations, more than {OPERATIONS}")
    inputs: dict[int, fx.Node] = {}
    tensors: list[Tensor] = []
    last = nodes[leaves]  # of the inputs, the row of the tape
    for node, tensor in zip(
        [n for n in nodes if n.op == "get_attr"], _constants(graph), strict=True
    ):
        if id(tensor) not in inputs:
            with graph.graph.inserting_after(last):
                last = inputs[id(tensor)] = graph.graph.placeholder(f"constant_{len(tensors)}")
            tensors.append(tensor)
        node.replace_all_uses_with(inputs[id(tensor)])
        graph.graph.erase_node(node)
    shared = set(inputs.values())  # and views of them
    for node in graph.graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        if torch.Tag.nondeterministic_seeded in node.target.tags:
            raise NotFusedError(f"its step draws numbers without the generator ({node.target})")
        for argument, value in zip(node.target._schema.arguments, node.args, strict=False):
            if argument.alias_info is not None and value in shared:
                if argument.alias_info.is_write:
                    raise NotFusedError("its step writes to a tensor that it did not make")
                shared.add(node)
    graph.recompile()
    return tensors


def _line(error: BaseException) -> str:
    """The line of the user's code that an error comes from; without one, what the error says."""
    here = Path(__file__).parents[1]
    libraries = (Path(torch.__file__).parents[1], Path(traceback.__file__).parent)
    ours = (*libraries, here / "models", here / "samplers")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.exists() and not any(folder in file.parents for folder in ours):
            return f"{file.name}, line {frame.lineno}: {frame.line}"
    return (str(error).strip() or type(error).__name__).splitlines()[0]
