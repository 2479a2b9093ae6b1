# %% [markdown]
# # An RBM sampled six ways
#
# A small restricted Boltzmann machine, whose exact means are known by enumeration.

# %%
import matplotlib.pyplot as plt
import pandas as pd
import torch

import latticework

model, rng = latticework.RBM(visible=12, hidden=6), torch.Generator().manual_seed(0)
for parameter in model.parameters():
    parameter.normal_(generator=rng).mul_(0.8)
truth = latticework.exact(model).mean.float()

# %% [markdown]
# Equal steps and equal starts for all. Steps differ in their cost: `latticework race` compares at
# equal cost.

# %%
rows = []
for name in ("block_gibbs", "gibbs", "hamming_ball", "locally_balanced", "gwg", "dmala"):
    result = latticework.sample(model, name, chains=32, steps=400, burn_in=100, seed=1)
    summary = result.summary()
    error = (result.draws.mean((0, 1)) - truth).square().mean().sqrt()
    rows.append(
        {
            "sampler": name,
            "error of the means": float(error),
            "worst ESS": summary["ess_bulk"].min(),
            "worst R-hat": summary["r_hat"].max(),
            "acceptance": float(result.acceptance.mean()),
            "seconds": result.seconds,
        }
    )
table = pd.DataFrame(rows).set_index("sampler")
print(table.round(4).to_string())
assert (table["error of the means"] < 0.05).all()

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3), sharey=True, layout="constrained")
left.barh(table.index, table["error of the means"])
left.set(xlabel="error of the means")
left.locator_params(axis="x", nbins=4)
right.barh(table.index, table["worst ESS"])
right.set(xlabel="worst ESS")
