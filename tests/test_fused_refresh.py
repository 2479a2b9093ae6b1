"""The fused engine reads anew what a model or a function holds."""

from functools import partial

import pytest
import torch
from fused_steps import Perceptron, start_states
from torch import Generator, nn

import latticework as lw
from latticework.samplers.fused import Fused

pytestmark = pytest.mark.usefixtures("short_blocks")


def test_a_model_that_changes_is_read_anew_without_compilation(interpreted):
    """A parameter that is updated, a buffer that is replaced, and a tensor of another module."""
    module, outside = Perceptron(), Perceptron()

    def both(x):
        return module(x) + outside(x)

    model = lw.Function(both, lw.Binary(20))
    model.inside = module  # and `outside` is no module of the model
    kernel, x = Fused(lw.DMALA(0.3)), start_states(model, double=False)
    with torch.no_grad():
        state = kernel.at(x, model)
        state, _ = kernel.advance(state, model, Generator().manual_seed(1), 4)
        for inner in (module, outside):
            inner.one.weight.mul_(-3)
            inner.one.bias.data = torch.ones(5)
        module.scale = torch.tensor(2.0)
        state = kernel.refresh(state, model)
        new, _ = kernel.advance(state, model, Generator().manual_seed(1), 20)
        fresh = Fused(lw.DMALA(0.3))
        expected, _ = fresh.advance(fresh.at(state.x, model), model, Generator().manual_seed(1), 20)
    assert torch.equal(new.x, expected.x)
    assert len(kernel.compiled) == 1


class Holder:
    """An object with a number and a tensor, as a plain attribute, in a list or in a dictionary."""

    def __init__(self, **parts):
        self.__dict__.update(parts)


NUMBER, TENSOR = 1.0, torch.linspace(-1, 1, 6)
OTHER = -TENSOR


def by_globals():
    def target(x):
        return NUMBER * (x @ TENSOR)

    def change():
        globals().update(NUMBER=-2.0)

    return target, change, lambda: globals().update(NUMBER=1.0)


def by_global_tensor():
    def target(x):
        return x @ TENSOR

    before = TENSOR
    return target, lambda: globals().update(TENSOR=OTHER), lambda: globals().update(TENSOR=before)


def by_closure(first, second):
    held = first

    def target(x):
        return x @ (held * torch.ones(6))

    def change():
        nonlocal held
        held = second

    return target, change, lambda: None


def by_attribute(first, second):
    """An object that the function names holds it."""
    holder = Holder(part=first)
    return (
        lambda x: x @ (holder.part * torch.ones(6)),
        lambda: setattr(holder, "part", second),
        lambda: None,
    )


def by_container(first, second):
    holder = {"parts": [first]}
    return (
        lambda x: x @ (holder["parts"][0] * torch.ones(6)),
        lambda: holder["parts"].__setitem__(0, second),
        lambda: None,
    )


def by_module(first, second):
    """A plain attribute of a module, which is no buffer."""
    module = Plain()
    module.part = first
    return module, lambda: setattr(module, "part", second), lambda: None


def by_method(first, second):
    module = Plain()
    module.part = first
    return module.forward, lambda: setattr(module, "part", second), lambda: None


def by_defaults(first, second):
    def target(x, part=first):
        return x @ (part * torch.ones(6))

    return target, lambda: setattr(target, "__defaults__", (second,)), lambda: None


def by_partial(first, second):
    holder = Holder(part=first)
    return (
        partial(lambda held, x: x @ (held.part * torch.ones(6)), holder),
        lambda: setattr(holder, "part", second),
        lambda: None,
    )


class Plain(nn.Module):
    def forward(self, x):
        return x @ (self.part * torch.ones(6))


KINDS = [by_closure, by_attribute, by_container, by_module, by_method, by_defaults, by_partial]
HELD = {
    "global number": by_globals,
    "global tensor": by_global_tensor,
    **{f"{kind.__name__}, number": partial(kind, 1.0, -2.0) for kind in KINDS},
    **{f"{kind.__name__}, tensor": partial(kind, TENSOR, OTHER) for kind in KINDS},
}


@pytest.mark.parametrize("refresh", [True, False])
@pytest.mark.parametrize("make", HELD.values(), ids=HELD)
def test_what_a_function_holds_is_read_anew(make, refresh, uncompiled):
    """The steps after a change are those of a kernel that is made then."""
    target, change, restore = make()
    model = lw.Function(target, lw.Binary(6))
    kernel, rng = Fused(lw.RandomWalk()), Generator().manual_seed(1)
    with torch.no_grad():
        state = kernel.at(model.domain.uniform(200, rng), model)
        state, _ = kernel.advance(state, model, rng, 4)
        blocks = list(kernel.compiled.values())
        kernel.compile(state, model)
        assert list(kernel.compiled.values()) == blocks  # nothing has changed yet
        try:
            change()
            if refresh:
                state = kernel.refresh(state, model)
            new, _ = kernel.advance(state, model, Generator().manual_seed(1), 20)
            fresh = Fused(lw.RandomWalk())
            expected, _ = fresh.advance(state, model, Generator().manual_seed(1), 20)
        finally:
            restore()
    assert torch.equal(new.x, expected.x)
    assert list(kernel.compiled.values()) != blocks


def test_a_function_that_counts_its_calls_is_compiled_once(uncompiled):
    holder = Holder(calls=0)

    def target(x):
        holder.calls += 1
        return x @ TENSOR

    model, kernel, rng = lw.Function(target, lw.Binary(6)), Fused(lw.RandomWalk()), Generator()
    with torch.no_grad():
        state = kernel.at(model.domain.uniform(20, rng), model)
        state, _ = kernel.advance(state, model, rng, 4)
        blocks = list(kernel.compiled.values())
        model.log_prob(state.x)
        kernel.advance(state, model, rng, 4)
    assert list(kernel.compiled.values()) == blocks


def test_other_shapes_are_compiled_once_and_told(uncompiled, caplog):
    """Another number of chains, and a parameter of another shape."""
    module = Perceptron()
    model, kernel, rng = lw.Function(module, lw.Binary(20)), Fused(lw.DMALA(0.3)), Generator()
    caplog.set_level("INFO", "latticework.samplers.fused")

    def told(chains):
        before = len(caplog.messages)
        with torch.no_grad():
            state = kernel.at(model.domain.uniform(chains, rng), model)
            kernel.advance(state, model, rng, 2)
        return caplog.messages[before:]

    assert told(8) == ["compiling DMALA for states [8, 20]"]
    assert told(6) == ["compiling DMALA for states [6, 20]"]
    assert not told(8)
    module.one = nn.Linear(20, 7)
    assert told(8) == ["compiling DMALA for states [8, 20]"]
    assert not told(8)
