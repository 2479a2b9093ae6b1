# %% [markdown]
# # Two far modes
#
# A mixture of two laws of 45 independent sites. In the first, 40 % of the sites are 1; in the
# second, 88 %. The second has nine tenths of the mass, but random starts lie near the first. The
# mixture is normalised, so log Z is 0.

# %%
import matplotlib.pyplot as plt
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
assert exact - plain.draws.mean() > 0.2

# %% [markdown]
# With `temper=True` replicas at higher temperatures move between the modes and pass them on. Each
# chain is then a ladder of its own.

# %%
settings["steps"] = 6000
tempered = latticework.sample(log_prob, latticework.DMALA(0.5), temper=True, **settings)
print(tempered)
print(f"mean {tempered.draws.mean():.3f}, exact {exact:.3f}")
assert abs(tempered.draws.mean() - exact) < 0.06

# %% [markdown]
# The ladders also tell log Z, with an interval over them. It has two ends only if replicas have
# made ten round trips of the whole ladder and the chains have converged. Where it has none, `doubt`
# says why: take more steps.

# %%
print(tempered.log_z)
assert tempered.log_z.low < tempered.log_z.high
ladders = tempered.ladders
print(f"{len(ladders.schedule)} levels, barrier {ladders.barrier:.1f}")
print(f"round trips {ladders.trips.sum()}, predicted {8 * ladders.predicted_trips:.0f} at most")

# %% [markdown]
# Where the draws lie: the plain chains keep the first mode too often.

# %%
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
count = torch.arange(SITES + 1)
for name, found in (("plain", plain), ("tempered", tempered)):
    counts = found.draws.sum(-1).long().flatten().bincount(minlength=SITES + 1)
    ax.step(count, counts / counts.sum(), where="mid", label=name)
laws = [torch.distributions.Binomial(SITES, p).log_prob(count).exp() for p in PROBABILITIES]
ax.plot(count, WEIGHTS[0] * laws[0] + WEIGHTS[1] * laws[1], "k.", label="exact")
ax.set(xlabel="sites that are 1", ylabel="share of the draws")
ax.legend(frameon=False)
