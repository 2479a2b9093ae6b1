# %% [markdown]
# # A Bayesian network, given what is known
#
# The chest clinic of Lauritzen and Spiegelhalter (1988), as tables over eight variables.
# `condition_on` fixes what is known. What is left is again a network, so every sampler for tables
# serves it. `Factors.from_bif` reads such a network from a BIF file.

# %%
import matplotlib.pyplot as plt
import numpy as np

import latticework

names = ["asia", "smoke", "tub", "lung", "bronc", "either", "xray", "dysp"]
yes = {  # the variable, its parents, and the probability of yes for each of their values, no first
    "asia": ([], 0.01),
    "smoke": ([], 0.5),
    "tub": (["asia"], [0.01, 0.05]),
    "lung": (["smoke"], [0.01, 0.1]),
    "bronc": (["smoke"], [0.3, 0.6]),
    "either": (["tub", "lung"], [[0, 1], [1, 1]]),
    "xray": (["either"], [0.05, 0.98]),
    "dysp": (["bronc", "either"], [[0.1, 0.7], [0.8, 0.9]]),
}
tables = []
for child, (parents, chance) in yes.items():
    table = np.stack((1 - np.array(chance), chance), -1)
    with np.errstate(divide="ignore"):  # a table may hold zeros
        tables.append(([names.index(one) for one in (*parents, child)], np.log(table)))
clinic = latticework.Factors(tables, names=names, labels=[("no", "yes")] * 8)

# %% [markdown]
# A smoker with shortness of breath. `either` is an OR of two variables, so a site alone can hardly
# move. Blocks of variables that share a table are drawn together.

# %%
ill = clinic.condition_on({"smoke": "yes", "dysp": "yes"})
blocks = "gibbs(sites=3, scan=scopes)"
result = latticework.sample(ill, blocks, chains=100, steps=5000, burn_in=500, seed=0)
print(result.verdict.text)
means = dict(zip(ill.names, result.draws.mean((0, 1)).tolist(), strict=True))

# %% [markdown]
# Six variables are free, so all their states can be listed. Single sites do not get there.

# %%
states = ill.domain.enumerate()
exact = dict(zip(ill.names, (ill(states).softmax(0) @ states).tolist(), strict=True))
stuck = latticework.sample(ill, "gibbs", chains=50, steps=2000, diagnose=False, seed=0)
alone = dict(zip(ill.names, stuck.draws.mean((0, 1)).tolist(), strict=True))
before = latticework.sample(clinic, blocks, chains=50, steps=2000, burn_in=200, seed=0)
prior = dict(zip(names, before.draws.mean((0, 1)).tolist(), strict=True))

figure, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
bars = {"nothing known": prior, "given smoke, dysp": means, "single sites": alone}
for number, (label, values) in enumerate(bars.items()):
    heights = [values[one] for one in exact]
    ax.bar(np.arange(6) + 0.25 * number - 0.25, heights, 0.22, label=label)
ax.plot(np.arange(6), list(exact.values()), "k_", markersize=14, label="exact")
ax.set(xticks=range(6), xticklabels=list(exact), ylabel="probability of yes")
ax.legend(frameon=False, fontsize="small")
error = max(abs(means[one] - exact[one]) for one in exact)
error_alone = max(abs(alone[one] - exact[one]) for one in exact)
print(f"largest error: blocks {error:.3f}, single sites {error_alone:.3f}")
assert error < 0.02
assert error_alone > 0.3
