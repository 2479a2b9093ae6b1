"""Targets of the tests of the fused engine, and chains of a few steps that start on them."""

import torch
from torch import Generator, nn

CHAINS = 8
FIELD, WAVE = torch.linspace(-2, 2, 20), torch.linspace(-1, 1, 18)


def bumpy(x):
    return x @ FIELD.to(x) - (x.sum(-1) - 5).square() / 4 + (x[:, 1:] * x[:, :-1]).sum(-1).sin()


class Perceptron(nn.Module):
    def __init__(self, sites=20):
        super().__init__()
        self.one = nn.Linear(sites, 5)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x):
        return self.scale * self.one(x.flatten(1)).tanh().sum(-1)


def categories(x):
    return (x.flatten(1) @ WAVE.to(x)).sin() * 3


def start_states(model, double=True):
    x = model.domain.uniform(CHAINS, Generator().manual_seed(1))
    return x.double() if double else x
