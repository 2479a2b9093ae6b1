"""A step as a graph of operations, recorded once; why a step cannot be recorded."""

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Generator, Tensor, fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from latticework.models.base import AnnealedModel, EnergyModel
from latticework.models.distributions import Tape
from latticework.samplers.base import Sampler
from latticework.samplers.fused_state import leaves_of, with_leaves
from latticework.samplers.inductor import NotFusedError
from latticework.samplers.sums import has_no_nan

MAX_OPERATIONS = 1000  # operations of a block; to compile more takes minutes


def read_attribute(module: Any, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part)
    return module


def record_step(
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
    leaves = leaves_of(state)

    def step(tape: Tape, leaves: list[Tensor]) -> list[Tensor]:
        given = with_leaves(state, iter([leaf.clone() for leaf in leaves]))
        after, info = sampler.step(given, model, cast(Generator, tape))
        ratio = info.log_ratio
        invalid = ~(has_no_nan(after) if ratio is None else ratio < torch.inf)
        infos = [info.accept_prob, invalid, info.unsettled]
        return [*leaves_of(after), *(info for info in infos if info is not None)]

    from torch.fx.experimental.proxy_tensor import make_fx

    tape = Tape()
    try:
        step(tape, leaves)  # caches are filled, and numbers counted
        row = torch.zeros(tape.read, dtype=torch.float64)
        with Operations() as once:
            step(Tape(row), leaves)
        with Operations() as again:
            step(Tape(row), leaves)
        if once.calls != again.calls or not all(map(has_same_values, once.read, again.read)):
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


def list_operations(sampler: Sampler, model: EnergyModel, state: Any, numbers: int) -> "Operations":
    """The operations of a step from `state`, and the tensors that it reads."""
    leaves, tape = leaves_of(state), Tape(torch.zeros(numbers, dtype=torch.float64))
    with Operations([*leaves, cast(Tensor, tape.numbers)]) as listed:
        sampler.step(state, model, cast(Generator, tape))
    return listed


def _constants(graph: fx.GraphModule) -> list[Tensor]:
    """The tensors that a graph reads besides its inputs, one for each reading."""
    names = [str(node.target) for node in graph.graph.nodes if node.op == "get_attr"]
    return [read_attribute(graph, name) for name in names]


class Operations(TorchDispatchMode):
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


def has_same_values(one: Tensor, other: Tensor) -> bool:
    alike = one.shape == other.shape and one.dtype == other.dtype
    return one is other or (alike and torch.allclose(one, other, rtol=0, atol=0, equal_nan=True))


def _lift_tensors(graph: fx.GraphModule, leaves: int) -> list[Tensor]:
    """Make the tensors that `graph` reads its last inputs, and return them.

    Raises NotFusedError if the graph writes to one of them, draws numbers or is too large.
    """
    nodes = list(graph.graph.nodes)
    if len(nodes) > MAX_OPERATIONS:
        raise NotFusedError(f"its step has {len(nodes)} operations, more than {MAX_OPERATIONS}")
    inputs: dict[int, fx.Node] = {}
    tensors: list[Tensor] = []
    last = nodes[leaves]  # the last input: the row of the tape
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
