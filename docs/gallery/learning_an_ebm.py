# %% [markdown]
# # Learning an energy-based model
#
# Persistent contrastive divergence: chains of a sampler follow the model while it learns. The data
# are draws from an Ising model on a ring, and the couplings of a dense Ising model are to be found
# again.

# %%
import matplotlib.pyplot as plt
import torch

import latticework
from latticework import GWG, DenseIsing, Lattice

SITES, COUPLING = 8, 0.3
data = latticework.sample(
    Lattice((SITES,), COUPLING), "gibbs", chains=500, steps=80, burn_in=160, thin=8
).draws.flatten(0, 1)
print(data.shape)

# %% [markdown]
# `contrast` adds the gradient of the log-likelihood's estimate: data against chains.

# %%
model, rng = DenseIsing(torch.zeros(SITES, SITES)), torch.Generator().manual_seed(0)
sampler = GWG()
state = sampler.init(model.domain.uniform(200, rng), model)
optimiser = torch.optim.SGD(model.parameters(), lr=0.02)
errors = []
truth = Lattice((SITES,), COUPLING).matrix()
for _ in range(300):
    with torch.no_grad():
        for _ in range(4):
            state, _ = sampler.step(state, model, rng)
    batch = data[torch.randint(len(data), (200,), generator=rng)]
    optimiser.zero_grad()
    model.contrast(batch, state.x)
    optimiser.step()
    with torch.no_grad():
        model.coupling.copy_((model.coupling + model.coupling.T) / 2).fill_diagonal_(0)
    state = sampler.refresh(state, model)
    errors.append(float((model.matrix() - truth).square().mean().sqrt()))
print(f"error of the couplings: {errors[0]:.3f}, then {errors[-1]:.3f}")
assert errors[-1] < errors[0] / 3

# %%
print(model.matrix().round(decimals=2))

# %%
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(7, 2.4), layout="constrained")
left.plot(errors)
left.set(xlabel="iteration", ylabel="error of the couplings")
for ax, name, matrix in ((middle, "learned", model.matrix().detach()), (right, "true", truth)):
    ax.imshow(matrix, vmin=-COUPLING, vmax=COUPLING, cmap="PuOr")
    ax.set(title=name, xticks=[], yticks=[])
