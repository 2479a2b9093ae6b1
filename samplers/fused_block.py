"""A few steps of a sampler, one after the other, compiled as one function."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Generator, Tensor, fx

from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.samplers.compiled.folders import switched_off
from latticework.samplers.fused_recording import (
    MAX_OPERATIONS,
    list_operations,
    read_attribute,
    record_step,
)
from latticework.samplers.fused_state import (
    BLOCK_STEPS,
    FusedState,
    current_state,
    leaves_of,
    select_step,
)
from latticework.samplers.held import reachable_values
from latticework.samplers.inductor import (
    INDUCTOR_OPTIONS,
    PRODUCTS,
    NotFusedError,
    require_compiler,
    use_private_folder,
)

MAX_POSITION_ENTRIES = 2**17  # entries of the positions of a block: of larger ones there are fewer
# Blocks whose numbers are drawn and whose steps are summed at once, and entries of several.
MAX_BLOCKS_AT_ONCE = 64
MAX_ENTRIES_AT_ONCE = 2**20


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
            step, self.constants, self.numbers = record_step(sampler, model, state)
            self.listed = list_operations(sampler, model, state, self.numbers)
            self.held = reachable_values(model)  # after calls, which some functions count
            require_compiler()
            named = {id(t): n for n, t in (*model.named_parameters(), *model.named_buffers())}
            self.names = [named.get(id(tensor)) for tensor in self.constants]
            self.shapes = [(tensor.shape, tensor.dtype) for tensor in self.constants]
            most = min(
                MAX_POSITION_ENTRIES // state.x.numel(), MAX_OPERATIONS // len(step.graph.nodes)
            )
            self.steps, leaves = max(1, min(BLOCK_STEPS, most)), leaves_of(state)
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
        entries = self.steps * (self.numbers + sum(leaf.numel() for leaf in each))
        self.calls = max(1, min(MAX_BLOCKS_AT_ONCE, MAX_ENTRIES_AT_ONCE // entries))
        read = self.steps * self.numbers
        self.tape = torch.empty(self.calls, read + read % 2, dtype=torch.float64)
        every = [leaf.new_empty(self.calls, self.steps, *leaf.shape) for leaf in each]
        self.every = [leaf.flatten(0, 1) for leaf in every]
        # Views are made here: to make them takes as long as a step.
        last = zip(*(leaf[:, -1].unbind() for leaf in every[: self.leaves]), strict=True)
        self.last, self.rows = list(last), list(zip(*map(torch.unbind, every), strict=True))
        self.tapes = self.tape[:, :read].view(-1, self.steps, self.numbers).unbind()

    def run_blocks(self, state: FusedState, blocks: int, rng: Generator) -> list[Tensor]:
        """The leaves and infos after each step of the `blocks` blocks that follow that of `state`.

        Steps are the first axis. The next call overwrites them.
        """
        # Importing numba takes a second, so eager runs do not.
        from latticework.samplers.compiled.philox import fill_units, step_keys

        fill_units(self.tape[:blocks].view(-1).numpy(), step_keys(blocks, rng))
        last = tuple(leaves_of(select_step(state.states, -1)))
        tensors = self._tensors()
        with torch.no_grad():
            for number in range(blocks):
                self.run(*last, self.tapes[number], *tensors, *self.rows[number])
                last = self.last[number]
        return [leaf[: blocks * self.steps] for leaf in self.every]

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
            listed = list_operations(self.sampler, self.model, current_state(state), self.numbers)
        self.held = reachable_values(self.model)
        return listed.calls == self.listed.calls and listed.memory() == self.listed.memory()

    def _tensors(self) -> list[Tensor]:
        """The tensors that a step reads besides the state, as they are now."""
        now = [
            tensor if name is None else cast(Tensor, read_attribute(self.model, name))
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
            state, (tape, *constants) = given[: len(leaves)], given[len(leaves) : -len(each)]
            steps = []
            for number in range(self.steps):
                steps.append(step(*state, tape[number], *constants))
                state = steps[-1][: len(leaves)]
            for out, leaf in zip(given[-len(each) :], zip(*steps, strict=True), strict=True):
                out.copy_(torch.stack(leaf))

        tape = torch.zeros(self.steps, self.numbers, dtype=torch.float64)
        out = [leaf.new_empty(self.steps, *leaf.shape) for leaf in each]
        given: list[Any] = [*leaves, tape, *self._tensors(), *out]
        graph = make_fx(block, PRODUCTS, tracing_mode="fake")(*given)
        try:
            # PyTorch's cache would else give code for AVX-512 to a process limited to AVX2, which
            # crashes: the width is an option, and options are part of the cache's key.
            width = {"cpp.simdlen": pick_vec_isa().bit_width()}
            run = compiled(graph, given, options=INDUCTOR_OPTIONS | width)
            run(*given)
        except Exception as error:  # Inductor and the compiler have many
            says = str(error).strip().splitlines() or [type(error).__name__]
            raise NotFusedError(f"its step does not compile: {says[0]}") from error
        return run
