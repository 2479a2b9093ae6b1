"""Samplers with a fault each, as source text, and how they are checked."""

from latticework.sampling.checking.check import run_checks
from latticework.sampling.checking.targets import SMALL_TARGETS

HEAD = """
from dataclasses import dataclass
import numpy as np
import torch
from latticework.models.domains import Binary
from latticework.samplers.base import Info, Sampler, State, metropolis, require_domain

@dataclass(frozen=True)
class Mine(Sampler):
    memory = MEMORY

    def at(self, x, model):
        require_domain(self, model, Binary)
        return State(x, model.log_prob(x), torch.zeros_like(x))

    def step(self, state, model, rng):
"""
WALK = """
        index = torch.randint(model.domain.dim, (len(state.x), 1), generator=rng)
        new = self.at(model.domain.move_one(state.x, index), model)
        ratio = new.log_prob - state.log_prob
"""
# The body of `step`, by what is wrong with it, and the checks that must fail.
WRONG = {
    "inverted ratio": (WALK + "        return metropolis(state, new, -ratio, rng)", {"invariance"}),
    "overwrites x": (
        WALK + "        new, info = metropolis(state, new, ratio, rng)\n"
        "        state.x.copy_(new.x)\n"
        "        return new._replace(x=state.x), info",
        {"states not aliased"},
    ),
    "memory on self": (
        WALK + "        count = self.__dict__.get('count', 0)\n"
        "        self.__dict__['count'] = count + 1\n"
        "        lazy = -torch.inf if count % 4 == 3 else 0.0\n"
        "        return metropolis(state, new, ratio + lazy, rng)",
        {"resumes exactly"},
    ),
    "host read": (
        WALK + "        if ratio.max().item() > 9:\n"
        "            ratio = ratio * 1\n"
        "        return metropolis(state, new, ratio, rng)",
        {"no host reads"},
    ),
    "global generator": (
        WALK + "        ratio = ratio + 0 * torch.rand(())\n"
        "        return metropolis(state, new, ratio, rng)",
        {"chance from rng"},
    ),
    "a frozen site": (
        WALK.replace("model.domain.dim", "model.domain.dim - 1")
        + "        return metropolis(state, new, ratio, rng)",
        {"all states reached", "many sites"},
    ),
    "leaves the domain": (
        "        x = state.x + 0.5\n        return self.at(x, model), Info(torch.ones(len(x)))",
        {"valid states", "invariance"},
    ),
    "a bug": ("        return state.y", {"invariance", "valid states"}),
    "a scale that adapts for ever": (
        WALK
        + """        scale = state.grad[:, 0]
        lazy = torch.rand(len(ratio), generator=rng) > scale.sigmoid()
        moved, info = metropolis(state, new, ratio.masked_fill(lazy, -torch.inf), rng)
        scale = scale + 0.05 * (info.accept_prob - 0.3)
        return moved._replace(grad=scale.unsqueeze(1).expand_as(state.grad).clone()), info""",
        {"cached values"},
    ),
    "another law from step 12 on": (
        WALK
        + """        late = state.grad[:, 0] >= 12
        moved, info = metropolis(state, new, ratio.masked_fill(late, 0), rng)
        return moved._replace(grad=state.grad + 1), info""",
        {"many sites"},
    ),
    "wrong above eight sites": (
        WALK
        + """        ratio = ratio * (model.domain.dim <= 8)
        return metropolis(state, new, ratio, rng)""",
        {"many sites"},
    ),
    "wrong below eight chains": (
        WALK
        + """        ratio = ratio * (len(ratio) >= 8)
        return metropolis(state, new, ratio, rng)""",
        {"one chain"},
    ),
    "enters states of probability 0": (
        WALK
        + """        ratio = ratio.nan_to_num(neginf=0, nan=-torch.inf)
        return metropolis(state, new, ratio, rng)""",
        {"impossible states"},
    ),
}
# Exact samplers that do not bear NaN, which no target may give.
NOT_BEARING = {
    "accepts NaN": """        refused = torch.rand(len(ratio), generator=rng) > ratio.exp()
        x = torch.where(refused.unsqueeze(1), state.x, new.x)
        return self.at(x, model), Info(ratio.exp().clamp(max=1).nan_to_num(0))""",
    "raises at NaN": """        if ratio.isnan().any():
            raise ArithmeticError("the target is NaN")
        return metropolis(state, new, ratio, rng)""",
}
DECLARED = "another law from step 12 on"  # its memory is declared; without it, it cannot hide
ALSO = {"one chain", "many sites", "impossible states"}  # a wrong law may show there too
RIGHT = WALK + "        return metropolis(state, new, ratio, rng)"


def mine(body, memory=()):
    """A sampler whose step has this body."""
    names = {"__name__": "of_a_user"}
    exec(HEAD.replace("MEMORY", str(memory)) + body, names)
    return names["Mine"]()


def check_on_targets(sampler, *names, law=None, target=None, chains=20_000):
    """The report, and the names of the checks that fail, on these of the small targets."""
    targets = {name: SMALL_TARGETS[name]() for name in names} if target is None else {"own": target}
    report = run_checks(sampler, targets, law=law, chains=chains, seed=0, error=1e-6)
    return report, {outcome.check for _, outcome in report.failures}


def found(report, check):
    (each,) = report.outcomes.values()
    return next(outcome for outcome in each if outcome.check == check)


def words(report):
    return " ".join(str(report).split())
