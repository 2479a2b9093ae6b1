"""Coloured Gibbs sweeps by thrml, block Gibbs sampling in JAX, and by its fork hamon.

For `workshop.bench`. Uses them as thrml's documentation does: an `IsingEBM`, one block for each
colour, `sample_states` under `vmap` over chains and `jit`. Their energy has every edge once, so it
takes the weights and fields of `models.graph.Graph`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random
from numpy.typing import NDArray

LENGTHS = (4096, 256, 16, 1)  # lengths of schedules: one program is compiled for each that is used


class Sweeps:
    """Chains on the graph with `edges` `[edges, 2]`, one step a sweep over the `colours` `[sites]`.

    `x` are states `[chains, sites]` in {0, 1}.
    """

    def __init__(
        self,
        x: NDArray,
        edges: NDArray,
        colours: NDArray,
        weights: NDArray,
        biases: NDArray,
        seed: int,
        library: str = "thrml",
    ) -> None:
        lib, models = import_module(library), import_module(f"{library}.models")
        nodes: list[Any] = [lib.SpinNode() for _ in colours]
        pairs = [(nodes[i], nodes[j]) for i, j in edges]
        fields = jnp.asarray(biases), jnp.asarray(weights)
        model = models.IsingEBM(nodes, pairs, *fields, jnp.array(1.0))
        self.classes = [np.flatnonzero(colours == c) for c in np.unique(colours)]
        blocks: list[Any] = [lib.Block([nodes[site] for site in sites]) for sites in self.classes]
        program = models.IsingSamplingProgram(model, blocks, clamped_blocks=[])
        self.key = random.key(seed)
        self.state = [jnp.asarray(x[:, sites], bool) for sites in self.classes]

        def compiled(length: int) -> Callable[[Array, list[Array]], list[Array]]:
            schedule = lib.SamplingSchedule(n_warmup=length, n_samples=1, steps_per_sample=1)

            def one(key: Array, state: list[Array]) -> list[Array]:
                last = lib.sample_states(key, program, schedule, state, [], blocks)
                return [block[0] for block in last]

            return jax.jit(jax.vmap(one))

        self.programs = {length: compiled(length) for length in LENGTHS}

    def burst(self, steps: int) -> None:
        """Advance all chains by `steps` sweeps, and wait for the result."""
        for length in LENGTHS:
            count, steps = divmod(steps, length)
            for _ in range(count):
                self.key, now = random.split(self.key)
                keys = random.split(now, len(self.state[0]))
                self.state = self.programs[length](keys, self.state)
        jax.block_until_ready(self.state)

    def states(self) -> NDArray[np.float32]:
        result = np.empty((len(self.state[0]), sum(map(len, self.classes))), np.float32)
        for sites, block in zip(self.classes, self.state, strict=True):
            result[:, sites] = np.asarray(block)
        return result
