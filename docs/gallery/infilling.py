# %% [markdown]
# # Filling the blanks of a sentence
#
# The words at the blanks are the sites, and the small BERT that comes with this package is the
# target (Zhang et al. 2022, Section 7.5).

# %%
import matplotlib.pyplot as plt
import torch

import latticework

model = latticework.TextInfilling(latticework.MaskedLM("mini_bert"), "the [MASK] was very [MASK] .")
print(model.domain)

# %% [markdown]
# Chains start at words that the model draws for each blank by itself.

# %%
with torch.no_grad():
    weights = model.blank_log_probs().exp()  # [blanks, words]
drawn = weights.multinomial(8, replacement=True, generator=torch.Generator().manual_seed(0))
x = torch.nn.functional.one_hot(drawn.T, weights.shape[-1]).float()  # [8, blanks, words]
result = latticework.sample(model, latticework.DMALA(0.5), x=x, steps=10)
print(result)

# %% [markdown]
# What the chains wrote, likeliest first.

# %%
last = result.draws[:, -1]
with torch.no_grad():
    log_prob, order = model.log_likelihood(last).sort(descending=True)
written = model.words(last[order])
for words, value in zip(written, log_prob, strict=True):
    print(f"{value:7.2f}  the {words[0]} was very {words[1]} .")
assert len(written) == 8

# %%
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.barh([f"{i + 1}: {' … '.join(words)}" for i, words in enumerate(written)], log_prob)
ax.invert_yaxis()
ax.set(xlabel="log-probability")
