"""Metropolis sweeps of a square lattice by mcising, for `workshop.bench`.

Uses the compiled simulation of its `Simulation`, one for each chain. Its energy is -log pi of
`models.graph.Graph` on a torus with one weight and one field.
"""

import numpy as np
from mcising import IsingSimulation
from numpy.typing import NDArray


class Sweeps:
    """Chains on a torus whose `weights` and `biases` are equal.

    `x` are states `[chains, side * side]` in {0, 1}.
    """

    def __init__(
        self, x: NDArray, edges: NDArray, weights: NDArray, biases: NDArray, seed: int
    ) -> None:
        side = round(x.shape[1] ** 0.5)
        spins = np.ascontiguousarray(2 * x - 1, np.int8).reshape(len(x), side, side)
        energy = float(weights[0]), 0.0, 0.0, float(biases[0])
        self.chains = [IsingSimulation(side, *energy, seed + c) for c in range(len(x))]
        for chain, start in zip(self.chains, spins, strict=True):
            chain.set_spins(start)

    def burst(self, steps: int) -> None:
        """Advance all chains by `steps` sweeps."""
        for chain in self.chains:
            chain.sweep(n_sweeps=steps, temperature=1.0)

    def states(self) -> NDArray[np.float32]:
        return np.array([chain.get_spins().ravel() > 0 for chain in self.chains], np.float32)
