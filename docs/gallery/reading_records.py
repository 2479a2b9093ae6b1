# %% [markdown]
# # Reading records with pandas
#
# The runs behind each figure are committed as a bundle. `load_all` reads a bundle, or a folder of
# outputs.

# %%
import matplotlib.pyplot as plt
import pandas as pd

import latticework
from latticework.experiments.records.record import BUNDLES

records = latticework.load_all(BUNDLES / "ising_sampling.zip")
print(len(records), "runs; the first has the columns", list(records[0].metrics.columns))

# %% [markdown]
# One table of all runs, with the sampler and the seed of each.

# %%
table = pd.concat(
    [
        record.metrics.assign(sampler=record.choices["sampler"], seed=record.config["seed"])
        for record in records
    ]
)

# %% [markdown]
# The final error of each sampler: mean and standard deviation over seeds (Zhang et al. 2022, Figure
# 3).

# %%
final = table[table["step"] == table["step"].max()]
ranking = final.groupby("sampler")["log_rmse"].agg(["mean", "std", "count"]).sort_values("mean")
print(ranking.round(3))
assert "dmala" in ranking.index[:2]

# %% [markdown]
# The mean error of the three best at each step, and of the worst.

# %%
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
means = table.groupby(["step", "sampler"])["log_rmse"].mean().unstack()
names = [*ranking.index[:3], ranking.index[-1]]
ax.plot(means[names], label=names)
ax.set(xlabel="step", ylabel="log RMSE of the mean", xscale="log")
ax.legend(frameon=False)
