# %% [markdown]
# # Your own sampler
#
# A sampler is a frozen dataclass with the methods `at` and `step`. This one proposes to flip a
# uniformly random site.

# %%
from dataclasses import dataclass

import torch

import latticework
from latticework.experiments.exactness.examination import Examination
from latticework.experiments.exactness.suite import examine
from latticework.experiments.exactness.targets import SMALL
from latticework.models.domain import Binary
from latticework.samplers.base import Sampler, State, metropolis, require_domain


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
# Is it exact? `latticework check file.py:Walk` runs these checks on the command line. Here they run
# on one small target.


# %%
def failures(sampler):
    case = Examination(sampler, SMALL["binary"](), level=1e-8, chains=20_000)
    return {outcome.check: outcome for outcome in examine(case) if outcome.status == "fails"}


right, wrong = failures(Walk()), failures(Walk(correct=False))
print("right:", list(right))
print("wrong:", wrong["invariance"].detail)
