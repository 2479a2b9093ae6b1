"""Sweeps at one temperature by dwave-samplers, for `workshop.bench`.

Calls the compiled function of its `SimulatedAnnealingSampler` with a schedule of one temperature,
without the dimod objects that the class makes in each call. Sites are visited in their order. Its
energy is -log pi of `models.graph.Graph`.
"""

import numpy as np
from dwave.samplers.sa.simulated_annealing import simulated_annealing
from numpy.typing import NDArray


class Sweeps:
    """Chains on the graph with `edges` `[edges, 2]`; `rule` is "Gibbs" or "Metropolis".

    `x` are states `[chains, sites]` in {0, 1}.
    """

    def __init__(
        self,
        x: NDArray,
        edges: NDArray,
        weights: NDArray,
        biases: NDArray,
        rule: str,
        seed: int,
    ) -> None:
        self.energy = [part.tolist() for part in (-biases, *edges.T, -weights)]
        self.spins = np.ascontiguousarray(2 * x - 1, np.int8)
        self.rule, self.rng = rule, np.random.default_rng(seed)

    def burst(self, steps: int) -> None:
        """Advance all chains by `steps` sweeps."""
        seed = int(self.rng.integers(2**63))
        rest = steps, [1.0], seed, self.spins, False, self.rule
        self.spins, _ = simulated_annealing(len(self.spins), *self.energy, *rest)

    def states(self) -> NDArray[np.float32]:
        return (self.spins > 0).astype(np.float32)
