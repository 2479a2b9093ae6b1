# %% [markdown]
# # An annealer does not sample
#
# The reads of simulated annealing are often taken for samples of exp(-beta E). On a graph of ten
# spins all states can be listed, so the distance of both can be seen. The weights have both signs,
# so no state satisfies all edges. It needs `pip install dwave-samplers`.

# %%
import itertools

import matplotlib.pyplot as plt
import numpy as np
import torch
from dwave.samplers import SimulatedAnnealingSampler

import latticework

SPINS, BETAS, SWEEPS = 10, (1.0, 2.0), (10, 30, 100, 300, 1000)
edges = list(itertools.combinations(range(SPINS), 2))
weights = torch.randn(len(edges), generator=torch.Generator().manual_seed(4))


def distance(law, x):
    """Total variation between the law of all states and the shares of `x` `[draws, SPINS]`."""
    index = ((x > 0).long() * 2 ** torch.arange(SPINS - 1, -1, -1)).sum(-1)
    return float((index.bincount(minlength=len(law)) / len(x) - law).abs().sum() / 2)


# %% [markdown]
# The annealer goes from beta 0.1 to the beta that is asked for, in some number of sweeps. Ours runs
# with `temper=True`: at the larger beta, a plain chain stays in the valley where it began.

# %%
annealed, tempered, independent = {}, {}, {}
for beta in BETAS:
    graph = latticework.Graph(edges, beta * weights, 0.15 * beta)
    law = graph(graph.domain.enumerate()).double().softmax(0)
    annealed[beta] = []
    for sweeps in SWEEPS:
        reads = SimulatedAnnealingSampler().sample(
            graph.to_bqm(beta), num_reads=2000, num_sweeps=sweeps, beta_range=[0.1, beta], seed=1
        )
        x = torch.from_numpy(reads.record.sample[:, np.argsort(list(reads.variables))])
        annealed[beta].append(distance(law, x))
    result = latticework.sample(
        graph, "gibbs_sweep", temper=True, chains=20, steps=2000, burn_in=500, seed=1
    )
    tempered[beta] = distance(law, result.draws.flatten(0, 1))
    drawn = law.multinomial(2000, replacement=True, generator=torch.Generator().manual_seed(0))
    independent[beta] = distance(law, graph.domain.enumerate()[drawn])
    print(f"beta {beta:g}: {result.verdict}")
    print(f"  annealer, {SWEEPS[-1]} sweeps a read: {annealed[beta][-1]:.3f}")
    print(f"  tempered {tempered[beta]:.3f}, 2000 independent draws {independent[beta]:.3f}")
assert all(tempered[beta] < 0.03 < min(annealed[beta]) for beta in BETAS)

# %% [markdown]
# The reads come closer with more sweeps, slowly where beta is large: they show in which valley the
# schedule ended, not how much mass it has.

# %%
figure, axes = plt.subplots(1, 2, figsize=(8, 3), layout="constrained", sharey=True)
for ax, beta in zip(axes, BETAS, strict=True):
    ax.loglog(SWEEPS, annealed[beta], "o-", label="annealer, 2000 reads")
    ax.axhline(tempered[beta], color="C1", label="gibbs_sweep, tempered")
    ax.axhline(independent[beta], color="black", ls=":", label="2000 independent draws")
    ax.set(title=f"beta {beta:g}", xlabel="sweeps a read")
axes[0].set_ylabel("total variation")
axes[0].legend(frameon=False)
