# %% [markdown]
# # Five problems of the gallery, before and after
#
# Each problem is solved twice: by loops of one's own around a kernel, and by the function that has
# them. Both give the same answer. The table on the gallery's page counts the lines of these cells.

# %%
import math

import matplotlib.pyplot as plt
import torch

import latticework as lw

rng = torch.Generator().manual_seed(0)
checks = {}  # the two answers to each problem

# %% [markdown]
# ## Which sampler, and how long?
#
# The problem of own_target.py.


# %%
def log_prob(x):
    return x @ torch.linspace(-2, 2, 20) - (x.sum(-1) - 5) ** 2 / 2


# %% before: own_target
best, best_rate = None, 0.0
for name in ("gibbs", "dmala", "gwg"):
    adapt = "acceptance" if name == "dmala" else None
    pilot = lw.sample(log_prob, name, sites=20, chains=8, steps=400, adapt=adapt, diagnose=False)
    rate = pilot.summary()["ess_bulk"].min() / pilot.seconds
    if rate > best_rate:
        best, best_rate = pilot.adapted.sampler if adapt else name, rate
steps = 1000
before = lw.sample(log_prob, best, sites=20, chains=8, steps=steps, diagnose=False)
while not before.converged and steps < 32_000:
    steps *= 2
    before = lw.sample(log_prob, best, sites=20, chains=8, steps=steps, diagnose=False)

# %% after: own_target
after = lw.sample(log_prob, sites=20, chains=8, until="converged", budget="40000evaluations")

# %%
checks["own_target"] = float(before.draws.sum(-1).mean()), float(after.draws.sum(-1).mean())

# %% [markdown]
# ## Two far modes
#
# The problem of two_modes.py, with 20 sites: replicas at several temperatures by hand.


# %%
def two_modes(x):
    ones = x.sum(-1)
    low = math.log(0.1) + ones * math.log(0.2) + (20 - ones) * math.log(0.8)
    high = math.log(0.9) + ones * math.log(0.9) + (20 - ones) * math.log(0.1)
    return torch.logaddexp(low, high)


# %% before: two_modes
class Powers(lw.EnergyModel):
    domain = lw.Binary(20)

    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, x):
        return self.beta * two_modes(x)


betas = [0.0, 0.15, 0.3, 0.45, 0.6, 0.8, 1.0]
models = [Powers(beta) for beta in betas]
kernel = lw.DMALA(0.5)
states = [kernel.init(model.domain.uniform(50, rng), model) for model in models]
drawn = []
for step in range(600):
    for level, model in enumerate(models):
        states[level], _ = kernel.step(states[level], model, rng)
    for level in range(step % 2, len(betas) - 1, 2):
        x, y = states[level].x, states[level + 1].x
        gain = (betas[level + 1] - betas[level]) * (two_modes(x) - two_modes(y))
        swap = (torch.rand(50, generator=rng) < gain.exp()).unsqueeze(1)
        x, y = torch.where(swap, y, x), torch.where(swap, x, y)
        states[level] = kernel.at(x, models[level])
        states[level + 1] = kernel.at(y, models[level + 1])
    if step >= 200:
        drawn.append(states[-1].x)

# %% after: two_modes
tempered = lw.sample(two_modes, "dmala", sites=20, chains=8, steps=1500, burn_in=200, temper=True)

# %%
checks["two_modes"] = float(torch.stack(drawn).mean()), float(tempered.draws.mean())
print(tempered.log_z)

# %% [markdown]
# ## Learning couplings
#
# The problem of learning_an_ebm.py.

# %%
ring = lw.Graph([[i, (i + 1) % 8] for i in range(8)], 0.6)
data = lw.sample(ring, "gibbs_sweep", chains=500, steps=40, burn_in=40, thin=8, diagnose=False)
rows = data.draws.flatten(0, 1)

# %% before: learning_an_ebm
model = lw.Graph(ring.edges, torch.zeros(8))
sampler = lw.GibbsSweep()
state = sampler.init(model.domain.uniform(100, rng), model)
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
training = rows[torch.arange(len(rows)) % 10 > 0]
for _ in range(5):
    for batch in training[torch.randperm(len(training), generator=rng)].split(100):
        with torch.no_grad():
            state, _ = sampler.step(state, model, rng)
        optimiser.zero_grad()
        model.contrast(batch, state.x)
        optimiser.step()
        state = sampler.refresh(state, model)

# %% after: learning_an_ebm
learned = lw.fit(lw.Graph(ring.edges, torch.zeros(8)), rows, "pcd", learning_rate=0.01, epochs=5)

# %%
couplings = [each.weights.detach().mean().item() for each in (model, learned.model)]
checks["learning_an_ebm"] = tuple(couplings)

# %% [markdown]
# ## Which features does a regression need?
#
# The problem of spike_and_slab.py, with Zellner's prior of the coefficients.

# %%
X = torch.randn(40, 8, generator=rng)
y = X @ torch.tensor([1.0, 0.8, 0.5, 0.4, 0.3, 0, 0, 0]) + torch.randn(40, generator=rng)


# %% before: spike_and_slab
def evidence(x):
    centred, response = X - X.mean(0), y - y.mean()
    gram, product = centred.T @ centred, centred.T @ response
    logs = []
    for used in x.bool():
        size = int(used.sum())
        explained = 0.0
        if size:
            solved = torch.linalg.solve(gram[used][:, used], product[used])
            explained = float(solved @ product[used] / (response @ response))
        shrunk = 1 - len(X) / (1 + len(X)) * explained
        log_bayes = -size / 2 * math.log(1 + len(X)) - (len(X) - 1) / 2 * math.log(shrunk)
        logs.append(log_bayes + size * math.log(0.3 / 0.7))
    return torch.tensor(logs)


by_hand = lw.sample(evidence, "gibbs", sites=8, chains=8, steps=400, burn_in=50, diagnose=False)

# %% after: spike_and_slab
selection = lw.VariableSelection(X, y, inclusion=0.3)
included = lw.sample(selection, "gibbs", chains=8, steps=400, burn_in=50, diagnose=False)

# %%
needed = [float(result.draws[..., 3].mean()) for result in (by_hand, included)]
checks["spike_and_slab"] = tuple(needed)

# %% [markdown]
# ## How warm is an annealer?
#
# The reads of annealer.py, here made at beta 0.8. Pseudolikelihood by hand: the law of each spin
# given the others is logistic in beta.

# %%
edges = torch.combinations(torch.arange(8))
glass = lw.Graph(edges, torch.randn(len(edges), generator=rng) / 2)
cold = lw.Graph(edges, 0.8 * glass.weights.detach())
reads = lw.sample(cold, "gibbs_sweep", chains=500, steps=20, burn_in=40, thin=20, diagnose=False)
reads = reads.draws.flatten(0, 1)

# %% before: annealer
spins = 2 * reads - 1
matrix = torch.zeros(8, 8)
matrix[edges[:, 0], edges[:, 1]] = glass.weights.detach()
matrix = matrix + matrix.T
margins = 2 * spins * (spins @ matrix)
beta = 0.5
for _ in range(20):
    chance = torch.sigmoid(-beta * margins)
    slope, curvature = (margins * chance).sum(), (margins**2 * chance * (1 - chance)).sum()
    beta = beta + float(slope / curvature)
scores = (margins * torch.sigmoid(-beta * margins)).sum(1)
error = float(scores.square().sum().sqrt() / curvature)
print(f"beta {beta:.3f} [{beta - 1.96 * error:.3f}, {beta + 1.96 * error:.3f}]")

# %% after: annealer
warmth = lw.temperature(reads, glass)
print(warmth)

# %%
checks["annealer"] = beta, warmth.beta

# %% [markdown]
# The answers of both, beside one another.

# %%
differences = {}
for name, (before_answer, after_answer) in checks.items():
    print(f"{name}: {before_answer:.3f} before, {after_answer:.3f} after")
    differences[name] = abs(before_answer - after_answer) / max(1, abs(before_answer))
assert max(differences.values()) < 0.06, differences

figure, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
for number, answers in enumerate(checks.values()):
    ratio = answers[1] / answers[0]
    ax.plot(ratio, number, "o", color="C0")
ax.axvline(1, color="grey", linewidth=0.8)
ax.set(xlim=(0.8, 1.2), xlabel="answer after / before")
ax.set(yticks=range(len(checks)), yticklabels=list(checks))
