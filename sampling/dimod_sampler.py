"""Samplers of this library as a `dimod.Sampler`, for QUBOs and Ising problems. Needs dimod."""

import secrets
from math import ceil
from typing import Any

import dimod
import numpy as np

from latticework.models.graph import Graph
from latticework.samplers.base import Sampler, require_count
from latticework.sampling.engine import Engine
from latticework.sampling.sample import sample
from latticework.sampling.watch import part_of_other_work


class DimodSampler(dimod.Sampler):
    """Draws from exp(-beta E) of a binary quadratic model at a fixed temperature.

    `sampler` and `engine` are those of `latticework.sample`; `beta` holds unless `sample` gets
    another. Unlike an annealer's, the reads have a law, and `info` says whether the chains have
    converged to it.
    """

    def __init__(
        self, sampler: Sampler | str = "gibbs_sweep", beta: float = 1.0, engine: Engine = "auto"
    ) -> None:
        self.sampler, self.beta, self.engine = sampler, beta, engine

    @property
    def parameters(self) -> dict[str, Any]:
        """The arguments of `sample`, each with the properties it concerns (none)."""
        names = ("beta", "num_reads", "chains", "burn_in", "thin", "seed", "diagnose")
        return {name: [] for name in names}

    @property
    def properties(self) -> dict[str, Any]:
        return {"sampler": str(self.sampler), "beta": self.beta, "engine": self.engine}

    def sample(
        self,
        bqm: dimod.BinaryQuadraticModel,
        *,
        beta: float | None = None,
        num_reads: int = 1000,
        chains: int = 20,
        burn_in: int = 100,
        thin: int = 1,
        seed: int | None = None,
        diagnose: bool = False,
        **unknown: Any,
    ) -> dimod.SampleSet:
        """Reads of several chains, with energies by dimod.

        `thin` steps lead from a read to the next one of its chain. Where chains do not share the
        reads equally, the last ones have one less, and there are no more chains than reads. Without
        a seed, the reads of each call are new. `info` has the seed that was used, the acceptance,
        the seconds, and what `latticework.sample` says of the convergence (in `diagnose`, also as a
        warning). Raises ValueError for numbers that do not fit, and UnsupportedModelError for a
        sampler that does not serve graphs.
        """
        self.remove_unknown_kwargs(**unknown)
        require_count(num_reads=num_reads, chains=chains)
        chains = min(chains, num_reads)
        seed = secrets.randbits(63) if seed is None else seed
        if not bqm.num_variables:
            return dimod.SampleSet.from_samples_bqm(np.empty((num_reads, 0), np.int8), bqm)
        graph = Graph.from_bqm(bqm, self.beta if beta is None else beta)
        with part_of_other_work():
            result = sample(
                graph,
                self.sampler,
                chains=chains,
                steps=ceil(num_reads / chains) * thin,
                burn_in=burn_in,
                thin=thin,
                seed=seed,
                engine=self.engine,
                diagnose=diagnose,
            )
        reads = num_reads // chains + (
            np.arange(chains) < num_reads % chains
        )  # reads of each chain
        read = np.arange(result.draws.shape[1]) < reads[:, None]
        x = result.draws.numpy()[read].astype(np.int8)
        states = x if bqm.vartype is dimod.BINARY else 2 * x - 1
        info = {
            "seed": seed,
            "acceptance": float(result.acceptance.mean()),
            "seconds": result.seconds,
            "converged": result.converged,
            "verdict": result.verdict.text,
        }
        assert graph.names is not None
        # The order of the columns; that of bqm.variables is another one.
        return dimod.SampleSet.from_samples_bqm((states, list(graph.names)), bqm, info=info)
