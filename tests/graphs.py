"""CUDA graphs without a GPU: operations are recorded once, and replayed into the same memory.

As in CUDA, Python runs while the block is recorded and not when it is replayed. Recording changes
no memory and no generator. Unlike in CUDA, no memory is used twice within a graph.
"""

from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class Graph:
    def __init__(self):
        self.calls, self.before = [], {}

    def register_generator_state(self, rng):
        self.rng = rng

    def keep(self, tensor):
        """Remember the content of memory that is about to be written for the first time."""
        memory = tensor.untyped_storage()
        self.before.setdefault(memory.data_ptr(), (memory, memory.clone()))

    def replay(self):
        with torch.no_grad():
            for func, args, kwargs, result in self.calls:
                pairs = zip(flat(result), flat(func(*args, **kwargs)), strict=True)
                for old, new in pairs:
                    if memory_of(old) != memory_of(new):  # neither a view nor in place
                        old.copy_(new)


def flat(value):
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def memory_of(tensor):
    return tensor.untyped_storage().data_ptr()


class Recorder(TorchDispatchMode):
    def __init__(self, graph):
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = args[place] if place < len(args) else kwargs.get(argument.name)
                for tensor in flat(given):
                    self.graph.keep(tensor)
        result = func(*args, **kwargs)
        self.graph.calls.append((func, args, kwargs, result))
        return result


@contextmanager
def recording(graph):
    before = graph.rng.get_state()
    with Recorder(graph):
        yield
    graph.rng.set_state(before)
    for memory, old in graph.before.values():
        memory.copy_(old)


class Stream:
    def wait_stream(self, other):
        """Operations on the CPU are in order."""


def without_a_gpu(monkeypatch):
    """Let `sampling.chain.capture` work on the CPU. Returns the devices it entered."""
    entered = []

    @contextmanager
    def device(name):
        entered.append(name)
        yield

    fakes = {
        "Stream": Stream,
        "current_stream": Stream,
        "stream": lambda stream: nullcontext(),
        "CUDAGraph": Graph,
        "graph": recording,
        "device": device,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    return entered
