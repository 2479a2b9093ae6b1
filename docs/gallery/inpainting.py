# %% [markdown]
# # The lower half of a digit, given the upper half
#
# A small restricted Boltzmann machine learns scikit-learn's digits. `condition_on` fixes some
# pixels; what is left is again an RBM, of the free pixels, so block Gibbs and all other samplers
# serve it.

# %%
import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits

import latticework

images = torch.from_numpy(load_digits().images).float().flatten(1).gt(7).float()
train, test = images[:1500], images[1500:]
torch.manual_seed(0)
fitted = latticework.fit(
    latticework.RBM(visible=64, hidden=100), train, "pcd", epochs=100, learning_rate=5e-3
)
model = fitted.model
print(fitted)

# %% [markdown]
# The pixels of the upper half are known. A tensor with NaN at the free pixels says the same.

# %%
image = test[3].clone()
image[32:] = torch.nan
half = model.condition_on(image)
settings = {"chains": 20, "burn_in": 100, "thin": 20, "diagnose": False}
result = latticework.sample(half, "block_gibbs", steps=200, **settings)
filled = half.complete(result.draws.flatten(0, 1))
print(half.domain, filled.shape)

# %%
figure, axes = plt.subplots(1, 6, figsize=(7, 1.6), layout="constrained")
shown = {"digit": test[3], "mean draw": filled.mean(0)}
shown |= {f"draw {i + 1}": draw for i, draw in enumerate(filled[9::50])}
for ax, (name, pixels) in zip(axes, shown.items(), strict=True):
    ax.imshow(pixels.view(8, 8), cmap="gray_r", vmin=0, vmax=1)
    ax.axhline(3.5, color="#C44E00")
    ax.set(title=name, xticks=[], yticks=[])

# %% [markdown]
# Do the draws know the lower half better than the means of all digits do?

# %%
errors = {"means of all digits": [], "draws given the upper half": []}
for picture in test[:20]:
    half = model.condition_on(dict(enumerate(picture[:32].tolist())))
    draws = latticework.sample(half, "block_gibbs", steps=200, **settings).draws
    for name, guess in zip(errors, (train.mean(0)[32:], draws.mean((0, 1))), strict=True):
        errors[name].append(float((guess - picture[32:]).square().mean()))
for name, values in errors.items():
    print(f"mean squared error by the {name}: {sum(values) / len(values):.3f}")
assert sum(errors["draws given the upper half"]) < sum(errors["means of all digits"])
