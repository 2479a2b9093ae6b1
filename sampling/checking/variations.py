"""Checks on what a small target with a large batch does not show.

They find errors of one chain alone, of many sites or steps, and at states of probability zero or
NaN. All laws are exact: many sites are independent copies of the small target.
"""

from math import ceil, inf, nan

import numpy as np
import torch
from torch import Tensor

from latticework.models.base import EnergyModel, NotDifferentiableError
from latticework.samplers.base import UnsupportedModelError
from latticework.sampling.checking.check_case import (
    CheckCase,
    CheckOutcome,
    describe_deviation,
    smallest_visible_error,
)
from latticework.sampling.checking.targets import Target

SINGLE_RUNS_AND_STEPS = (80, 4)  # runs of one chain, and the steps of each
MIN_MOVES_OF_COPIES = 64  # moves to one site, at least, that many copies have together
COPY_CHAINS_AND_STEPS = (250, 64)  # chains and steps on many sites
MAX_STEPS_PER_SITE = 20  # steps a site, after which a site that never changed is stuck
MASKED_CHAINS_AND_STEPS = (20_000, 8)  # chains and steps among impossible states


class Copies(EnergyModel):
    """Independent copies of a model, a target of many sites: copy c has c + copies * i."""

    def __init__(self, single: EnergyModel, copies: int) -> None:
        super().__init__()
        self.single, self.copies = single, copies
        every = range(single.domain.dim)
        self.domain = single.domain.of_sites([site for site in every for _ in range(copies)])

    def forward(self, x: Tensor) -> Tensor:
        return self.single(self.parts(x)).view(len(x), self.copies).sum(1)

    def parts(self, x: Tensor) -> Tensor:
        """The states of all copies, `[chains * copies, *single.domain.shape]`."""
        return x.unflatten(1, (-1, self.copies)).movedim(2, 1).flatten(0, 1)

    def join_states(self, parts: Tensor) -> Tensor:
        """The state whose parts are given, `[chains, *domain.shape]`."""
        return parts.unflatten(0, (-1, self.copies)).movedim(1, 2).flatten(1, 2)


class Masked(EnergyModel):
    """A model that gives `value`, -inf or NaN, in some of its states `[n, *domain.shape]`."""

    states: Tensor

    def __init__(self, model: EnergyModel, states: Tensor, value: float) -> None:
        super().__init__()
        self.model, self.domain, self.value = model, model.domain, value
        self.register_buffer("states", states)

    def forward(self, x: Tensor) -> Tensor:
        log_prob = self.model(x)
        for state in self.states:
            here = (x.detach() == state).flatten(1).all(1)
            log_prob = log_prob.masked_fill(here, self.value)
        return log_prob


def one_chain(case: CheckCase) -> CheckOutcome:
    """Chains that run alone, one after the other, from exact draws."""
    if why := _why_not_counted(case):
        return CheckOutcome("-", why)
    if not case.sampler.stationary_start:
        return CheckOutcome("-", "each chain would need a burn-in")
    target, sampler, rng, (runs, steps) = (
        case.target,
        case.fresh(),
        case.rng(5),
        SINGLE_RUNS_AND_STEPS,
    )
    starts, last_states = case.start(runs), []
    state = sampler.init(starts[:1], target.model)
    for x in starts.split(1):
        state = sampler.relocate(x.clone(), state, target.model)
        for _ in range(steps):
            state, _ = sampler.step(state, target.model, rng)
        last_states.append(state.x)
    index = target.locate(torch.cat(last_states))
    return _outcome(case, target, index, f"each chain alone, after {steps} steps")


def many_sites(case: CheckCase) -> CheckOutcome:
    """Chains on independent copies of the target: their law after many steps, and every site."""
    target, sampler, rng, (chains, steps) = (
        case.target,
        case.fresh(),
        case.rng(6),
        COPY_CHAINS_AND_STEPS,
    )
    domain, chains = target.domain, min(case.chains, chains)
    try:
        model = Copies(target.model, ceil(MIN_MOVES_OF_COPIES / (domain.dim * domain.moves)))
        x = model.join_states(target.draw(target.law, chains * model.copies, rng))
        state = sampler.init(x, model)
    except (UnsupportedModelError, NotDifferentiableError, ValueError) as error:
        return CheckOutcome("-", str(error))
    counting, count = not _why_not_counted(case), CheckOutcome("ok")
    if counting:
        state = case.settle(state, model, rng)
    free = torch.tensor([target.is_free(site) for site in range(domain.dim)], device=x.device)
    stuck, done = free.repeat_interleave(model.copies), 0
    while done < steps or (stuck.any() and done < MAX_STEPS_PER_SITE * len(stuck)):
        before = state.x.clone()
        state, _ = sampler.step(state, model, rng)
        stuck &= (state.x == before).view(chains, len(stuck), -1).all(-1).all(0)
        done += 1
        if done == steps and counting:
            index = target.locate(model.parts(state.x))
            when = f"after {steps} steps of {chains} chains on {model.copies} copies of the target"
            count = _outcome(case, target, index, when)
    if stuck.any():
        sites = ", ".join(map(str, stuck.nonzero().flatten().tolist()))
        return CheckOutcome(
            "fails",
            f"{chains} chains in {done} steps never changed these of {len(stuck)} sites: {sites}",
        )
    return count


def impossible_states(case: CheckCase) -> CheckOutcome:
    """Chains on the target without two likely states, where it gives -inf."""
    return _check_masked_target(case, -inf)


def unknown_states(case: CheckCase) -> CheckOutcome:
    """Chains on the target where it gives NaN in them, a fault that a sampler need not bear."""
    try:
        outcome = _check_masked_target(case, nan)
    except Exception as error:  # noqa: BLE001 - whatever a user's sampler raises
        outcome = CheckOutcome("fails", f"raised {type(error).__name__}: {error}")
    if outcome.status != "fails":
        return outcome
    advice = "need not hold: NaN is a fault of the target; impossible states are -inf. "
    return CheckOutcome("no", advice + outcome.detail)


def _check_masked_target(case: CheckCase, value: float) -> CheckOutcome:
    """Chains on the target with `value` in the second and the third likeliest state."""
    if why := _why_not_counted(case):
        return CheckOutcome("-", why)
    whole, sampler, rng, (chains, steps) = (
        case.target,
        case.fresh(),
        case.rng(7),
        MASKED_CHAINS_AND_STEPS,
    )
    _, *masked = whole.inner[whole.law[whole.inner].argsort()[::-1][:3]]
    target = Target(Masked(whole.model, whole.states[masked], value), whole.box)
    chains = min(case.chain_count, chains)
    try:
        state = sampler.init(target.draw(target.law, chains, rng), target.model)
    except UnsupportedModelError as error:
        return CheckOutcome("-", str(error))
    state = case.settle(state, target.model, rng)
    for _ in range(steps):
        state, info = sampler.step(state, target.model, rng)
        if not info.accept_prob.isfinite().all():
            return CheckOutcome("fails", f"info.accept_prob is NaN or inf where it is {value}")
    when = f"after {steps} steps on a target that is {value} in two states"
    return _outcome(case, target, target.locate(state.x), when)


def _why_not_counted(case: CheckCase) -> str:
    """Why the states of chains are not compared with the target; "" if they are."""
    if not case.sampler.exact:
        return "it declares exact = False"
    return "its chains interact" if case.sampler.interacting else ""


def _outcome(case: CheckCase, target: Target, index: np.ndarray, when: str) -> CheckOutcome:
    """Whether independent draws, with the indices of their states, follow the target's law."""
    if wrong := describe_deviation(target, index, case.level):
        return CheckOutcome("fails", f"{when}, {wrong}")
    return CheckOutcome("ok", visible=smallest_visible_error(len(index), target.law, case.level))
