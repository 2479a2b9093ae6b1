"""Joint laws of replicas, ladders that are recorded, and the error of their log Z."""

import copy

import numpy as np
import torch
from exactness import p_value
from scipy.stats import t as student
from targets import TARGETS
from torch import Generator

import latticework as lw
from latticework.sampling.ladder_estimates import Ladders, levels_of


def law_at(b, sampler, target):
    """The law at b: of pi^b p0^(1 - b), or of the RBM with b times the parameters."""
    odds = torch.tensor(sampler.log_odds or [0.0], dtype=torch.float64)
    bits = target.states.double() > 0  # of a binary domain, which alone can have log-odds
    start = (bits * odds).flatten(1).sum(1).numpy()
    values = b * target.log_prob + (1 - b) * start
    if isinstance(target.model, lw.RBM):
        scaled = copy.deepcopy(target.model).double()
        for parameter in scaled.parameters():
            parameter.mul_(b)
        scaled.visible_bias.add_((1 - b) * odds)
        values = scaled.log_prob(target.states.double()).numpy()
    return np.exp(values - np.logaddexp.reduce(values))


def joint_p(sampler, name, steps=3, chains=20_000, engine=None):
    """P-value of the joint counts of all replicas, after steps from their joint law.

    `engine` makes the kernel that moves them.
    """
    target, rng = TARGETS[name], Generator().manual_seed(4)
    b = sampler.schedule[int(sampler.has_base) :]
    laws = [law_at(each, sampler, target) for each in b]
    replicas = torch.stack([target.draw(law, chains, rng) for law in laws])
    state = sampler._at(replicas, replicas[-1], torch.tensor(sampler.schedule), target.model)
    kernel = engine(sampler) if engine else sampler
    state = kernel.wrap_state(state) if engine else state
    for _ in range(steps):
        state, _ = kernel.step(state, target.model, rng)
    state = kernel.unwrap_state(state)
    by_level = state.kernel.x.unflatten(0, (len(b), -1))[state.level.argsort(0), range(chains)]
    assert torch.equal(by_level[-1], state.x)
    size, law, index = len(target.z), laws[0], 0
    for each in laws[1:]:
        law = np.outer(law, each).ravel()
    for each in by_level:
        index = index * size + torch.as_tensor(target.index(each))
    return p_value(torch.bincount(index, minlength=len(law)).numpy(), law)


SCALES = [0.4, 1.5, 0.2]  # of levels


def run_ladders(sampler, model, steps, chains=8, seed=0):
    rng, states = Generator().manual_seed(seed), []
    state = sampler.init(model.domain.uniform(chains, rng).float(), model)
    for _ in range(steps // 10):
        state, _ = sampler.step(state, model, rng)
    trips = state.trips
    for _ in range(steps):
        state, _ = sampler.step(state, model, rng)
        states.append(levels_of(state))
    return Ladders.from_draws(state, states, state.trips - trips, steps)


def errors_off(found, exact, ladders):
    """How many standard errors the estimate is from the truth. These are below 0.15 nats."""
    error = (found.high - found.low) / 2 / student.ppf(0.975, ladders - 1)
    assert error < 0.15
    return abs(found.value - exact) / error


def works_of_exact_draws(rng, draws, ladders, b=(0.0, 0.2, 0.5, 1.0)):
    """`up` and `down` of independent draws from every level of "binary", and its log Z."""
    log_prob = TARGETS["binary"].log_prob
    value = log_prob + np.log(len(log_prob))  # log f - log p0
    steps, drawn = np.diff(b), []
    for each in b:
        law = np.exp(each * value - np.logaddexp.reduce(each * value))
        drawn.append(value[rng.choice(len(law), (draws, ladders), p=law)])
    levels = np.stack(drawn, 1)
    up, down = steps[:, None] * levels[:, :-1], -steps[:, None] * levels[:, 1:]
    return up, down, np.logaddexp.reduce(log_prob)
