"""Functions that the fused engine cannot compile, and when `auto` chooses it."""

import pytest
import torch
from fused_steps import CHAINS, bumpy, start_states
from torch import Generator

import latticework as lw
from latticework.samplers.fused import Fused
from latticework.samplers.inductor import NotFusedError
from latticework.sampling.engine import (
    MIN_STEPS_TO_FUSE,
    EngineWarning,
    NotCompiledError,
    select_kernel,
)

pytestmark = pytest.mark.usefixtures("short_blocks")


def branching(x):
    return x.sum(-1) if x.sum() > 3 else 2 * x.sum(-1)


def by_numpy(x):
    return x.sum(-1) + torch.as_tensor(x.detach().numpy().sum(-1))


class Counting:
    calls = 0
    kept = torch.zeros(())

    def number(self, x):
        self.calls += 1
        return x.sum(-1) + 1e-9 * self.calls

    def tensor(self, x):
        self.kept = self.kept + 1e-9
        return x.sum(-1) + self.kept

    def in_place(self, x):
        self.kept.add_(1e-9)
        return x.sum(-1) + self.kept


def noisy(x):
    return x.sum(-1) + 1e-9 * torch.rand(())


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (branching, r"test_fused_refused.py, line \d+: return x.sum\(-1\) if x.sum\(\) > 3"),
        (by_numpy, r"test_fused_refused.py, line \d+: .*numpy\(\)"),
        (Counting().number, "keeps a state"),
        (Counting().tensor, "keeps a state"),
        (Counting().in_place, "writes to a tensor"),
        (noisy, "draws numbers without the generator"),
    ],
)
def test_what_cannot_be_compiled_is_named_and_runs_eagerly(function, why):
    model = lw.Function(function, lw.Binary(6))
    x = start_states(model, double=False)
    with pytest.raises(NotCompiledError, match=f"engine=fused is not possible: .*{why}"):
        select_kernel(lw.DMALA(), model, "fused", x=x)
    kernel, reason = select_kernel(lw.DMALA(), model, "auto", x=x, steps=MIN_STEPS_TO_FUSE)
    assert type(kernel) is lw.DMALA
    assert reason
    state = kernel.init(x, model)
    kernel.step(state, model, Generator().manual_seed(0))  # nothing of the attempt is left behind


def test_a_fault_of_the_compiler_is_named(monkeypatch):
    def none(*_, **__):
        raise RuntimeError("an internal error")

    monkeypatch.setattr("torch._inductor.compile", none)
    model = lw.Function(bumpy, lw.Binary(20))
    kernel, reason = select_kernel(
        lw.DMALA(), model, "auto", x=start_states(model), steps=MIN_STEPS_TO_FUSE
    )
    assert type(kernel) is lw.DMALA
    assert "an internal error" in reason


def test_without_a_compiler_a_line_says_what_to_install(monkeypatch):
    from torch._inductor import config

    monkeypatch.setattr("latticework.sampling.engine.MIN_STEPS_TO_FUSE", 10)
    given = {"sites": 20, "chains": CHAINS, "steps": 20, "diagnose": False}
    with config.patch({"cpp.cxx": (None, "no-such-compiler")}):
        with pytest.raises(NotCompiledError, match="no C\\+\\+ compiler.*install g\\+\\+"):
            lw.sample(bumpy, "dmala", engine="fused", **given)
        with pytest.warns(EngineWarning, match="install g") as told:
            found = lw.sample(bumpy, "dmala", engine="auto", **given)
    assert len(told) == 1
    assert told[0].filename == __file__
    assert torch.equal(found.draws, lw.sample(bumpy, "dmala", engine="eager", **given).draws)


def test_auto_compiles_where_the_steps_asked_for_pay(interpreted):
    model = lw.Function(bumpy, lw.Binary(20))
    x = start_states(model, double=False)
    assert (
        select_kernel(lw.DMALA(), model, "auto", x=x, steps=MIN_STEPS_TO_FUSE - 1)[0] == lw.DMALA()
    )
    assert isinstance(
        select_kernel(lw.DMALA(), model, "auto", x=x, steps=MIN_STEPS_TO_FUSE)[0], Fused
    )
    assert not isinstance(
        select_kernel(lw.DMALA(), lw.Lattice((4, 5), 0.2), "auto", x=x, steps=MIN_STEPS_TO_FUSE)[0],
        Fused,
    )


def test_a_model_that_remembers_is_refused():
    path = lw.GeometricPath(lw.Lattice((3, 3), 0.2))
    with pytest.raises(NotFusedError, match="remembers"):
        Fused(lw.DMALA()).compile(Fused(lw.DMALA()).at(start_states(path, False), path), path)
