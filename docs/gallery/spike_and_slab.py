# %% [markdown]
# # A discrete block in another sampler
#
# Which of eight features does a linear regression need? With a spike-and-slab prior (L. Kuo and
# B. Mallick, "Variable Selection for Regression Models", Sankhya B 60, 1998), each coefficient has
# a switch: y = X (switch * coefficient) + noise. Given the switches, the coefficients are Gaussian
# and drawn exactly. Given the coefficients, the switches are a discrete target, for GWG.

# %%
import math

import matplotlib.pyplot as plt
import torch

from latticework import GWG, Binary, EnergyModel

FEATURES, ROWS, CHAINS, NEEDED = 8, 40, 200, 0.3  # NEEDED: the prior probability of a switch
rng = torch.Generator().manual_seed(0)
truth = torch.tensor([1.0, 0.8, 0.5, 0.4, 0.3, 0, 0, 0])
X = torch.randn(ROWS, FEATURES, generator=rng)
X[:, 5] = 0.8 * X[:, 0] + 0.6 * X[:, 5]  # it has no effect but resembles one that has
y = X @ truth + torch.randn(ROWS, generator=rng)
gram, product = X.T @ X, X.T @ y  # the noise and the coefficients have variance 1
logit = math.log(NEEDED / (1 - NEEDED))

# %% [markdown]
# The target of the switches holds the coefficients, a row for each chain.


# %%
class Switches(EnergyModel):
    def __init__(self, coefficients):
        super().__init__()
        self.domain, self.coefficients = Binary(FEATURES), coefficients

    def forward(self, x):
        used = x * self.coefficients
        return used @ product - (used @ gram * used).sum(-1) / 2 + logit * x.sum(-1)


def precision_factor(x):
    """Cholesky factors of the coefficients' precision given the switches x `[n, features]`."""
    return torch.linalg.cholesky(x.unsqueeze(2) * gram * x.unsqueeze(1) + torch.eye(FEATURES))


def draw_coefficients(x):
    factor, noise = precision_factor(x), torch.randn(len(x), FEATURES, 1, generator=rng)
    mean = torch.cholesky_solve((x * product).unsqueeze(2), factor)
    return (mean + torch.linalg.solve_triangular(factor.mT, noise, upper=True)).squeeze(2)


# %% [markdown]
# The loop is our own; it could be that of any other sampler. When the coefficients have changed,
# `refresh` gives the state on the new target: its log-probability and gradient are computed anew.

# %%
sampler, x = GWG(), Binary(FEATURES).uniform(CHAINS, rng)
model = Switches(draw_coefficients(x))
state = sampler.init(x, model)
states = Binary(FEATURES).enumerate()
bits = 2 ** torch.arange(FEATURES)
place = torch.argsort((states.long() * bits).sum(1))  # the row of each number in `states`
counts = torch.zeros(len(states))
with torch.no_grad():
    for step in range(2000):
        state, _ = sampler.step(state, model, rng)
        model.coefficients = draw_coefficients(state.x)
        state = sampler.refresh(state, model)
        if step >= 200:
            counts += place[(state.x.long() * bits).sum(1)].bincount(minlength=len(states))
sampled = counts / counts.sum()

# %% [markdown]
# The coefficients integrate out, so the law of the 256 possible models can be listed.

# %%
factor = precision_factor(states)
solved = torch.linalg.solve_triangular(factor, (states * product).unsqueeze(2), upper=False)
evidence = solved.square().sum((1, 2)) / 2 - factor.diagonal(dim1=1, dim2=2).log().sum(1)
exact = (evidence + logit * states.sum(1)).softmax(0)
distance = float((sampled - exact).abs().sum() / 2)
shares = sampled @ states, exact @ states
print(f"total variation distance from the exact law: {distance:.4f}")
assert distance < 0.02
for i, (ours, right) in enumerate(zip(*shares, strict=True)):
    print(f"feature {i}, coefficient {truth[i]:.1f}: needed {ours:.3f}, exactly {right:.3f}")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3), layout="constrained")
left.bar(range(FEATURES), shares[0], color="#9ecae1", label="sampled")
left.plot(range(FEATURES), shares[1], "k_", markersize=14, label="exact")
left.set(xlabel="feature", ylabel="probability that it is needed")
left.legend(frameon=False)
right.loglog(exact, sampled, ".")
right.loglog(exact.sort().values, exact.sort().values, color="grey", linewidth=0.8)
right.set(xlabel="exact probability of a model", ylabel="sampled")
