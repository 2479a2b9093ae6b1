# %% [markdown]
# # Two far modes
#
# A mixture of two laws of 45 independent sites. In the first, 40 % of the sites are 1; in the
# second, 88 %. The second has nine tenths of the mass, but random starts lie near the first. The
# mixture is normalised, so log Z is 0.

# %%
import torch

import latticework

SITES, WEIGHTS, PROBABILITIES = 45, (0.1, 0.9), (0.4, 0.88)
exact = sum(w * p for w, p in zip(WEIGHTS, PROBABILITIES, strict=True))


def log_prob(x):
    ones = x.sum(-1, keepdim=True)
    p = torch.tensor(PROBABILITIES)
    parts = torch.tensor(WEIGHTS).log() + ones * p.log() + (SITES - ones) * (1 - p).log()
    return parts.logsumexp(-1)


settings = {"sites": SITES, "chains": 8, "steps": 2000, "burn_in": 300}

# %% [markdown]
# Chains of a plain sampler stay near their starts, and the mean is far from the exact one. R-hat
# tells, because some chains have found the second mode. If none had, it would be silent.

# %%
plain = latticework.sample(log_prob, latticework.DMALA(0.5), **settings)
print(plain)
print(f"mean {plain.draws.mean():.3f}, exact {exact:.3f}")

# %% [markdown]
# With `temper=True` replicas at higher temperatures move between the modes and pass them on. Each
# chain is then a ladder of its own.

# %%
tempered = latticework.sample(log_prob, latticework.DMALA(0.5), temper=True, **settings)
print(tempered)
print(f"mean {tempered.draws.mean():.3f}, exact {exact:.3f}")

# %% [markdown]
# The ladders also tell log Z, with an interval over them. Forward and backward estimates that agree
# say that neighbouring levels overlap. Round trips say that replicas travel the whole ladder. Where
# these fail, tempering has missed a mode too: take more levels, or more steps.

# %%
print(tempered.log_z)
ladders = tempered.ladders
print(f"{len(ladders.schedule)} levels, barrier {ladders.barrier:.1f}")
print(f"round trips {ladders.trips.sum()}, predicted {8 * ladders.predicted_trips:.0f} at most")
