"""The contenders of `workshop.bench`: our kernels, their peers, and the limit.

A contender makes chains for a workload. Chains advance by `burst(steps)` and return `states()`,
`[chains, sites]`. A contender imports its libraries when it makes chains, so that each process
loads only its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from workshop.bench_models import (
    colours_of,
    edges_of,
    model_of,
    plain_model,
    sampler_of_workload,
    start_states,
)
from workshop.bench_targets import BIAS, COUPLING, GRAPHS, KINDS, function_of, graph_of
from workshop.bench_workloads import ON_LATTICES, STEP_SIZES, Workload

if TYPE_CHECKING:
    pass

SEED = 1
DENSE = 10_000  # sites up to which the plain reference can hold its coupling matrix
LARGE = 10**7  # sites of all chains of a graph that eager steps have the memory for


class BenchChains(Protocol):
    def burst(self, steps: int) -> None:
        """Advance all chains `steps` times."""

    def states(self) -> NDArray[np.float32]:
        """The present states, `[chains, sites]` in {0, 1}."""


class DeclinedError(Exception):
    """A contender cannot serve a workload; the message says why."""


@dataclass(frozen=True)
class Contender:
    """`needs` are the packages that must be installed, `takes` the workloads and threads.

    A burst has `fewest` steps or more, where a call has a cost of its own. `is_ours` says whether
    the law of a step is that of our sampler, so that effective samples are the same. Its process
    has the variables of `environment`.
    """

    make: Callable[[Workload, int], BenchChains]
    takes: Callable[[Workload, int], bool] = lambda work, threads: True
    needs: tuple[str, ...] = ()
    fewest: int = 1
    is_ours: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)


# Our own code.


class Eager:
    """Our kernels, run step by step as in `sampling.chain`."""

    def __init__(self, work: Workload, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.model, self.sampler = model_of(work), sampler_of_workload(work)
        self.rng = torch.Generator().manual_seed(SEED)
        with torch.no_grad():
            self.state: Any = self.sampler.init(start_states(work), self.model)

    def burst(self, steps: int) -> None:
        import torch

        with torch.no_grad():
            for _ in range(steps):
                self.state, _ = self.sampler.step(self.state, self.model, self.rng)

    def states(self) -> NDArray[np.float32]:
        return self.state.x.numpy().copy()


class Compiled(Eager):
    """Our kernels by another engine, the steps of a burst in one call."""

    def __init__(self, work: Workload, threads: int, engine: str = "compiled") -> None:
        from latticework.sampling.engine import NotCompiledError, select_kernel

        super().__init__(work, threads)
        try:
            self.kernel: Any = select_kernel(
                self.sampler, self.model, engine, x=start_states(work)
            )[0]
        except NotCompiledError as error:
            raise DeclinedError(str(error)) from error
        self.state = self.kernel.init(start_states(work), self.model)

    def burst(self, steps: int) -> None:
        import torch

        with torch.no_grad():
            self.state, _ = self.kernel.advance(self.state, self.model, self.rng, steps)


def _fused(work: Workload, threads: int) -> BenchChains:
    return Compiled(work, threads, "fused")


# The peers.


class Plain:
    """The plain reference, in the style of the papers' scripts."""

    def __init__(self, work: Workload, threads: int) -> None:
        import torch

        from workshop import plain_reference as plain

        torch.set_num_threads(threads)
        torch.manual_seed(SEED)
        steps: dict[str, plain.Step] = {
            "gibbs-1": plain.PlainGibbs(),
            "gwg-1": plain.gwg,
            "dula": plain.dula,
            "dmala": plain.dmala,
        }
        self.step, self.model, self.x = steps[work.sampler], plain_model(work), start_states(work)

    def burst(self, steps: int) -> None:
        for _ in range(steps):
            self.x = self.step(self.x, self.model).detach()

    def states(self) -> NDArray[np.float32]:
        return self.x.numpy().copy()


def _numba(work: Workload, threads: int) -> BenchChains:
    from workshop.peers.plain_numba import Lattices

    rows, columns = work.sizes
    alpha = STEP_SIZES.get(work.sampler, 1.0)
    x = start_states(work).numpy()
    return Lattices(work.sampler, x, (rows, columns), colours_of(work), COUPLING, BIAS, alpha, SEED)


def _jax(work: Workload, threads: int) -> BenchChains:
    from workshop.peers.jax_scan import Scan, lattice, rbm

    alpha = STEP_SIZES.get(work.sampler, 1.0)
    if work.kind in KINDS:
        import jax.numpy

        from workshop.peers.jax_function import kernel as on_function

        function = function_of(work.kind, work.sizes, jax.numpy)
        kernel = on_function(work.sampler, function, work.kind == "categories", alpha)
    elif work.kind == "rbm":
        model: Any = model_of(work)
        named = (model.weight, model.visible_bias, model.hidden_bias)
        weight, visible, hidden = (parameter.detach().numpy() for parameter in named)
        kernel = rbm(work.sampler, weight, visible, hidden, alpha)
    else:
        rows, columns = work.sizes
        kernel = lattice(work.sampler, (rows, columns), COUPLING, BIAS, alpha)
    return Scan(kernel, start_states(work).numpy(), SEED)


def _thrml(work: Workload, threads: int, library: str) -> BenchChains:
    from workshop.peers.thrml_sweep import Sweeps

    edges, weights, biases = edges_of(work)
    return Sweeps(
        start_states(work).numpy(), edges, colours_of(work), weights, biases, SEED, library
    )


def _sweeps(work: Workload, threads: int, library: str, rule: tuple[str, ...] = ()) -> BenchChains:
    """Chains on the graph of `work` by `workshop.peers.<library>_sweeps`."""
    peer = import_module(f"workshop.peers.{library}_sweeps")
    return peer.Sweeps(start_states(work).numpy(), *edges_of(work), *rule, SEED)


@dataclass
class Limit:
    """The measured limit. It does not sample."""

    burst: Callable[[int], None]

    def states(self) -> NDArray[np.float32]:
        raise DeclinedError("the limit samples nothing")


def _limit(work: Workload, threads: int) -> BenchChains:
    import torch

    from workshop.peers import limits

    torch.set_num_threads(threads)
    if work.kind in GRAPHS and work.sampler in ("dula", "dmala"):
        return Limit(limits.graph(graph_of(work.kind, work.sizes), work.chains))
    if work.kind == "ising" or work.kind in GRAPHS:
        return Limit(limits.lattice(work.sampler, work.chains, work.sites, threads))
    if work.kind == "rbm":
        return Limit(limits.rbm(work.sampler, work.chains, torch.randn(work.sizes)))
    if work.kind == "resnet":
        side, maps, blocks = work.sizes
        low = work.model.endswith("bf16")
        return Limit(limits.network(side, maps, blocks, work.chains, low))
    return Limit(limits.regression(work.chains, *work.sizes))


def _square(work: Workload) -> bool:
    """Whether it is a lattice on which every site has four distinct neighbours."""
    return work.kind == "ising" and len(work.sizes) == 2 and min(work.sizes) >= 3


def _tiled(work: Workload) -> bool:
    """Whether it is a sweep of a lattice with sides of one length."""
    torus = work.kind in ("ising", "torus") and _swept(work)
    return torus and work.sizes[0] == work.sizes[1]


def _swept(work: Workload) -> bool:
    """Whether it is a sweep of a graph or of a square lattice."""
    return work.sampler == "sweep" and (work.kind in GRAPHS or _square(work))


def _few_chains(work: Workload, threads: int, fits: Callable[[Workload], bool]) -> bool:
    return fits(work) and threads == 1 and work.chains <= 20


def _blocked(work: Workload, threads: int, without: tuple[str, ...]) -> bool:
    return _swept(work) and work.sites <= 10**5 and work.kind not in without


CONTENDERS = {
    "eager": Contender(
        Eager, lambda work, _: work.kind not in GRAPHS or work.sites * work.chains <= LARGE
    ),
    "compiled": Contender(Compiled),
    **{
        name: Contender(
            Compiled, environment={"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features}
        )
        for name, cpu, features in (
            ("avx2", "haswell", "+avx2,+fma,+popcnt,+bmi,+bmi2"),
            ("sse2", "x86-64", "+sse2"),
        )
    },
    "fused": Contender(_fused, lambda work, _: work.kind not in ("ising", *GRAPHS)),
    "plain": Contender(
        Plain,
        lambda work, _: (
            work.sampler in ("gibbs-1", "gwg-1", "dula", "dmala")
            and work.kind not in (*KINDS, *GRAPHS, "pairs")
            and work.sites <= DENSE
            and work.sites * work.chains <= 100 * DENSE
            and not work.model.endswith("bf16")
        ),
    ),
    "numba": Contender(
        _numba,
        lambda work, threads: _square(work) and work.sampler in ON_LATTICES and threads == 1,
        needs=("numba",),
    ),
    "jax": Contender(
        _jax,
        lambda work, _: (
            _square(work)
            or work.kind == "rbm"
            or (work.kind in KINDS and work.sampler in ("dmala", "dula", "gwg-1", "gibbs-1"))
        ),
        needs=("jax",),
    ),
    **{
        name: Contender(
            partial(_thrml, library=name),
            # Its graph is a list of Python objects, which takes a minute to make for 10^6 sites,
            # and all rows have as many places as the largest degree. hamon is compiled for
            # minutes where every site is a class of its own.
            partial(_blocked, without=without),
            needs=(name, "jax"),
        )
        for name, without in (("thrml", ("power",)), ("hamon", ("power", "sk")))
    },
    # A chain of these is an object of its own, so a step costs the same with more of them.
    **{
        name: Contender(
            partial(_sweeps, library=name),
            partial(_few_chains, fits=fits),
            needs=(name,),
            is_ours=name == "ferrotherm",
        )
        for name, fits in (("openjij", _swept), ("ferrotherm", _swept), ("mcising", _tiled))
    },
    **{
        name: Contender(
            partial(_sweeps, library="dwave", rule=(rule,)),
            lambda work, threads: _swept(work) and threads == 1,
            needs=("dwave",),
            fewest=5,
            is_ours=False,
        )
        for name, rule in (("dwave", "Gibbs"), ("dwave-metropolis", "Metropolis"))
    },
    "limit": Contender(
        _limit,
        lambda work, _: (
            work.kind not in (*KINDS, "pairs")
            and not (work.kind == "bnn" and work.sampler == "gibbs-1")  # has no product
        ),
        needs=("numba",),
        is_ours=False,
    ),
    "earlier": Contender(Compiled),  # the library of another checkout
}


def missing(name: str) -> list[str]:
    """The packages that the contender needs and that are not installed."""
    return [package for package in CONTENDERS[name].needs if find_spec(package) is None]
