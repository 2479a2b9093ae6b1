# %% [markdown]
# # Filling the blanks of a sentence
#
# The words at the blanks are the sites, and the small BERT that comes with this package is the
# target (Zhang et al. 2022, Section 7.5).

# %%
import torch

import latticework
from latticework.experiments.tasks.text_infilling import from_blanks, ranked
from latticework.models.infilling import TextInfilling
from latticework.models.masked_lm import MaskedLM
from latticework.samplers.langevin import DMALA

model = TextInfilling(MaskedLM("mini_bert"), "the [MASK] was very [MASK] .")
print(model.domain)

# %%
x = from_blanks(model, 8, torch.Generator().manual_seed(0), None)
result = latticework.sample(model, DMALA(0.5), x=x, steps=10)
print(result)

# %% [markdown]
# What the chains wrote, likeliest first.

# %%
written, log_prob = ranked(model, result.draws[:, -1])
for words, value in zip(written, log_prob, strict=True):
    print(f"{value:7.2f}  the {words[0]} was very {words[1]} .")
