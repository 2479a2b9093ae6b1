# %% [markdown]
# # Your own sampler
#
# A sampler is a frozen dataclass with the methods `at` and `step`. This one proposes to flip a
# uniformly random site.

# %%
import math
from dataclasses import dataclass

import matplotlib.pyplot as plt
import torch

import latticework
from latticework import Binary, Sampler, State, metropolis, require_domain


@dataclass(frozen=True)
class Walk(Sampler):
    correct: bool = True

    def at(self, x, model):
        require_domain(self, model, Binary)
        return State(x, model.log_prob(x), torch.zeros_like(x))

    def step(self, state, model, rng):
        site = torch.randint(model.domain.dim, (len(state.x), 1), generator=rng)
        new = self.at(model.domain.move_one(state.x, site), model)
        ratio = new.log_prob - state.log_prob
        return metropolis(state, new, ratio if self.correct else -ratio, rng)


# %%
result = latticework.sample(lambda x: -x.sum(-1), Walk(), sites=10, steps=500)
print(result)

# %% [markdown]
# Is it exact? `latticework check file.py:Walk` runs these checks on the command line.

# %%
right = latticework.check(Walk, chains=20_000)
print(right)

# %%
wrong = latticework.check(Walk(correct=False), chains=20_000)
for target, outcome in wrong.failures:
    print(f"{outcome.check} fails on {target}: {outcome.detail}")
assert right.passed
assert "invariance fails" in str(wrong)

# %% [markdown]
# The mean over the chains at each step, from random starts.

# %%
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
for name, sampler in (("Walk()", Walk()), ("Walk(correct=False)", Walk(correct=False))):
    drawn = latticework.sample(
        lambda x: -x.sum(-1), sampler, sites=10, steps=200, burn_in=0, chains=200, diagnose=False
    )
    ax.plot(drawn.draws.sum(-1).mean(0), label=name)
ax.axhline(10 / (1 + math.e), color="k", linestyle=":", label="exact")
ax.set(xlabel="step", ylabel="sites that are 1, on average")
ax.legend(frameon=False)
