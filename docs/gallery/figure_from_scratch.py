# %% [markdown]
# # A figure from scratch
#
# What a run does, in one file without Hydra: targets, samplers, seeds, a metric, a figure. The
# question is that of Figure 2 of Zhang et al. (2022): how fast does the error of the site means
# fall on an Ising lattice?

# %%
import matplotlib.pyplot as plt
import pandas as pd
import torch

import latticework as lw

CHAINS, STEPS, EVERY, SEEDS = 16, 1000, 50, range(3)
SAMPLERS = {
    "Gibbs": lw.Gibbs(),
    "GWG": lw.GWG(),
    "DULA": lw.DULA(0.3),
    "DMALA": lw.DMALA(0.4),
}

# %% [markdown]
# A lattice of 4x4 spins can be listed, so its means are known.

# %%
model = lw.Lattice((4, 4), 0.15, 0.1)
truth = lw.exact(model).mean


# %% [markdown]
# `run_chain` yields a reading every `EVERY` steps. `MarginalError` is the paper's measure: the log
# of the root mean square error of the chains' running means.


# %%
def run(sampler: lw.Sampler, seed: int) -> pd.Series:
    """Return the log RMSE of the site means by step, for one seed."""
    rng = torch.Generator().manual_seed(seed)
    start = model.domain.uniform(CHAINS, rng)
    readings = lw.run_chain(
        sampler, model, start, rng, steps=STEPS, every=EVERY,
        metrics=[lw.MarginalError()], reference=lw.Reference(mean=truth),
    )  # fmt: skip
    return pd.Series({reading.step: float(reading.values["log_rmse"]) for reading in readings})


# %%
curves = {}
for name, sampler in SAMPLERS.items():
    runs = pd.DataFrame({seed: run(sampler, seed) for seed in SEEDS})
    curves[name] = runs.drop(index=0)  # the starts
table = pd.DataFrame({name: runs.iloc[-1] for name, runs in curves.items()})
print(table.agg(["mean", "std"]).T.round(3).to_string())
assert table["DMALA"].mean() < table["Gibbs"].mean()

# %% [markdown]
# The lines are means over seeds, the bands their standard deviation. DULA does not reject, so its
# error ends at its bias.

# %%
figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
for name, runs in curves.items():
    mean, spread = runs.mean(axis=1), runs.std(axis=1)
    (line,) = axes.plot(runs.index, mean, label=name)
    axes.fill_between(runs.index, mean - spread, mean + spread, color=line.get_color(), alpha=0.2)
axes.set(xlabel="steps", ylabel="log RMSE of site means", xscale="log")
axes.legend(frameon=False)
