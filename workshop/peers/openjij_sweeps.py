"""Metropolis sweeps at one temperature by openjij, for `workshop.bench`.

Calls the compiled algorithm of its `SASampler` with a schedule of one temperature, without the
objects that the class makes in each call. A chain is a system of its own. Its energy is -log pi of
`models.graph.Graph`.
"""

import numpy as np
from numpy.typing import NDArray
from openjij import cxxjij
from openjij.model.model import BinaryQuadraticModel


class Sweeps:
    """Chains on the graph with `edges` `[edges, 2]`; `x` are states `[chains, sites]` in {0, 1}."""

    def __init__(
        self, x: NDArray, edges: NDArray, weights: NDArray, biases: NDArray, seed: int
    ) -> None:
        fields = dict(enumerate((-biases).tolist()))
        pairs = dict(zip(map(tuple, edges.tolist()), (-weights).tolist(), strict=True))
        model = BinaryQuadraticModel(fields, pairs, 0.0, "SPIN", sparse=True)
        graph, _ = model.get_cxxjij_ising_graph()
        spins = (2 * x - 1).astype(int).tolist()
        self.systems = [cxxjij.system.make_classical_ising(row, graph) for row in spins]
        self.rng = np.random.default_rng(seed)

    def burst(self, steps: int) -> None:
        """Advance all chains by `steps` sweeps."""
        schedule = cxxjij.utility.ClassicalSchedule()
        schedule.one_mc_step, schedule.updater_parameter.beta = steps, 1.0
        for system, seed in zip(
            self.systems, self.rng.integers(2**31, size=len(self.systems)).tolist(), strict=True
        ):
            cxxjij.algorithm.Algorithm_SingleSpinFlip_run(system, seed, [schedule])

    def states(self) -> NDArray[np.float32]:
        """The last spin of a system is a constant, which holds the fields."""
        return np.array([system.spin[:-1] > 0 for system in self.systems], np.float32)
