"""A target of independent sites, and draws of it in one call."""

import torch
from torch import nn

import latticework as lw

WEIGHTS = torch.linspace(-1, 1, 5)


def linear(x):
    return x @ WEIGHTS


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(WEIGHTS.clone())

    def forward(self, x):
        return x @ self.weights


def draw(target=linear, sampler="dmala", **given):
    settings = {"sites": 5, "steps": 20, **given}
    return lw.sample(target, sampler, **settings)
