# %% [markdown]
# # Your own target
#
# Choose about 5 of 20 items, preferably valuable ones. A target is a function of states
# `[chains, 20]` that returns `[chains]`.

# %%
import matplotlib.pyplot as plt
import torch

import latticework

values = torch.linspace(-2, 2, 20)


def log_prob(x):
    return x @ values - (x.sum(-1) - 5) ** 2 / 2


# %% [markdown]
# Chains start at random. The step size is chosen by the acceptance, and 500 steps are left out. The
# result ends with a line that says whether the chains have converged.

# %%
result = latticework.sample(
    log_prob, "dmala", sites=20, chains=8, steps=1500, burn_in=500, adapt="acceptance"
)
print(result)

# %% [markdown]
# R-hat near 1 says that the chains agree. ESS says how many independent draws they are worth.

# %%
summary = result.summary()
print(summary.iloc[[0, 1, 10, 20]])
assert (summary["r_hat"] < 1.1).all()

# %%
chosen = result.draws.sum(-1).mean()
print(f"items chosen on average: {chosen:.2f}")
assert 3 < chosen < 8

# %%
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.bar(values, result.draws.mean((0, 1)), width=0.15)
ax.set(xlabel="value of the item", ylabel="probability that it is chosen")
