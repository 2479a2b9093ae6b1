"""Coloured Gibbs sweeps by ferrotherm, for `workshop.bench`.

A chain is a simulation of its own, from a random state. Its log-probability is that of
`models.graph.Graph`.
"""

import numpy as np
from ferrotherm import Model, Sim
from numpy.typing import NDArray


class Sweeps:
    """As many chains as states `x` on the graph with `edges` `[edges, 2]`."""

    def __init__(
        self, x: NDArray, edges: NDArray, weights: NDArray, biases: NDArray, seed: int
    ) -> None:
        pairs = [(i, j, w) for (i, j), w in zip(edges.tolist(), weights.tolist(), strict=True)]

        def made(seed: int) -> Sim:
            model = Model(len(biases)).couple_many(pairs)
            for site, bias in enumerate(biases.tolist()):
                model.bias(site, bias)
            return model.build(1.0, seed)

        self.chains = [made(seed + c) for c in range(len(x))]

    def burst(self, steps: int) -> None:
        """Advance all chains by `steps` sweeps."""
        for chain in self.chains:
            chain.sweep(steps)

    def states(self) -> NDArray[np.float32]:
        return np.array([chain.numpy() > 0 for chain in self.chains], np.float32)
