"""The exactness suite for any sampler on any target whose states can be listed.

What must hold (Robert and Casella, "Monte Carlo Statistical Methods", 2004, Chapter 6): a step
leaves the target pi invariant, and chains reach all states. Detailed balance is reported, because a
sweep over the sites is exact without it. So is the bias of a sampler that is not said to be exact.
With `law`, the transition matrix of one step written from a paper, the step from every state is
compared with it. The other checks are the rules of `samplers.base`.

Chains start from exact draws of pi, so the counts are binomial and their tests are exact:

    invariance        the number of chains in state y after a step is Binomial(chains, pi(y))
    detailed balance  of the chains that moved between x and y, Binomial(n, 1/2) moved from x to y
    law of one step   of the chains from x, Binomial(n, P(x, y)) are in y after a step

Each decision compares a two-sided tail probability with `level`. Chains of a call may share random
numbers, such as the block of a random scan, if a step is exact for each value of them.
"""

import copy
import io
import random
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components
from torch import Generator, Tensor
from torch.utils import _pytree as pytree

from latticework.experiments.exactness.counting import counts, tails
from latticework.experiments.exactness.guard import HostReadError, NoHostReads
from latticework.experiments.exactness.law import Law
from latticework.experiments.exactness.targets import Target
from latticework.experiments.running.memory import captured
from latticework.experiments.sampling.chain import Chain
from latticework.experiments.sampling.poison import Poisoned
from latticework.samplers.base import Sampler, require_count

Status = Literal["ok", "fails", "no", "-"]  # "no": does not hold and need not; "-": not examined
LATER = 8  # steps after which invariance is tested a second time
SETTLING = 100  # steps that forget the start: before the tests, or until a bias is measured
FEW = 1000  # chains that are counted where they interact, which may cost chains^2
SEARCH = (1024, 64)  # chains, at least, and steps in which every site must change
STARTS = 32  # chains of the search for each state
ENOUGH = 30  # moves for each state, from which states that no move connects are told apart
RARE = 1e-3  # probability of states that need not be reached
LIBRARIES = {"latticework", "torch", "numpy", *sys.stdlib_module_names}
KERNELS = re.compile(r"latticework\.(samplers|models)\.(?!base|checks|domain)\w+")


@dataclass(frozen=True)
class Flow:
    """Chains that move from one state to another in a step: the expected and the observed share."""

    x: list
    y: list
    expected: float
    observed: float
    z: float


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of a check, with its details and the flow that shows a wrong step.

    `bias` is the total variation distance from the target, of a sampler that is not exact.
    """

    check: str
    status: Status
    detail: str = ""
    flow: Flow | None = None
    bias: float | None = None


@dataclass(frozen=True)
class Examination:
    """A sampler on a target, and how much is counted.

    `level` is the probability at which one count of a right sampler is called wrong.
    """

    sampler: Sampler
    target: Target
    level: float
    law: Callable[[Sampler, Target], Law | np.ndarray] | None = None
    chains: int = 200_000
    seed: int = 0

    def __post_init__(self) -> None:
        require_count(chains=self.chains)

    @property
    def exact(self) -> bool:
        return self.sampler.exact

    @property
    def counted(self) -> int:
        """The number of chains that are counted."""
        return min(self.chains, FEW) if self.sampler.interacting else self.chains

    @property
    def later(self) -> int:
        """The steps before the second count: a bias needs many to show its size."""
        return LATER if self.exact else SETTLING

    def outcomes(self) -> Iterator[CheckOutcome]:
        """Every check in turn. An exception in a check is its failure."""
        for name, check in CHECKS.items():
            try:
                with torch.no_grad():
                    yield check(self, name)
            except Exception as error:  # noqa: BLE001 - whatever a user's sampler raises
                yield CheckOutcome(
                    name, "fails", f"raised {type(error).__name__}: {error}{where(error)}"
                )

    def rng(self, purpose: int = 0) -> Generator:
        return Generator().manual_seed(self.seed * 1000 + purpose)

    def start(self, chains: int = 64) -> Tensor:
        """Exact draws from the target, `[chains, *shape]`."""
        return self.target.draw(self.target.law, chains, self.rng(1))

    def fresh(self) -> Sampler:
        """A copy of the sampler as it was given."""
        return copy.deepcopy(self.sampler)

    def after(self, x: Tensor, steps: int, sampler: Sampler | None = None, purpose: int = 2) -> Any:
        """The state after `steps` steps from `x`."""
        sampler, rng = sampler or self.fresh(), self.rng(purpose)
        state = sampler.init(x, self.target.model)
        for _ in range(steps):
            state, _ = sampler.step(state, self.target.model, rng)
        return state

    @cached_property
    def moves(self) -> list[np.ndarray]:
        """The indices of the states of all chains at the start, after 1 and after `later` steps.

        Chains whose start is not stationary make SETTLING steps first, which forget it.
        Index -1 is a state that is not listed, such as one outside the domain.
        """
        with torch.no_grad():
            sampler, rng = self.fresh(), self.rng(3)
            x = self.target.draw(self.target.law, self.counted, rng)
            state = sampler.init(x.clone(), self.target.model)
            for _ in range(0 if sampler.stationary_start else SETTLING):
                state, _ = sampler.step(state, self.target.model, rng)
            found = [self.target.index(state.x)]
            for step in range(1, self.later + 1):
                state, _ = sampler.step(state, self.target.model, rng)
                if step in (1, self.later):
                    found.append(self.target.locate(state.x))
        return found

    @cached_property
    def balance(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pairs x < y between which chains moved, `[pairs, 2]`; moves x to y and y to x, `[pairs]`.

        The pairs are ordered by the number of sites in which their states differ.
        """
        size, (before, after, _) = len(self.target.z), self.moves
        listed = after >= 0
        moved = np.bincount(before[listed] * size + after[listed], minlength=size * size)
        moved = moved.reshape(size, size)
        pairs = np.argwhere(np.triu(moved + moved.T, 1))
        distance = [len(self.target.sites_changed(x, y)) for x, y in pairs]
        pairs = pairs[np.argsort(distance, kind="stable")]
        x, y = pairs.T
        return pairs, moved[x, y], moved[y, x]

    def flow(self, x: int, y: int, expected: float, observed: float, z: float) -> Flow:
        states = self.target.states
        return Flow(states[x].tolist(), states[y].tolist(), expected, observed, z)


def decisions_of(target: Target, law: bool) -> int:
    """The number of decisions on counts for one target."""
    size = len(target.z)
    return 2 * (size + 1) + size * (size - 1) // 2 + (len(target.inner) * size if law else 0)


# The checks. Each returns its outcome, or raises.


def valid(case: Examination, name: str) -> CheckOutcome:
    """States in the domain, of the shape of x, and acceptance probabilities in [0, 1]."""
    sampler, x, rng = case.fresh(), case.start(), case.rng(2)
    state = sampler.init(x, case.target.model)
    for step in range(1, 11):
        state, info = sampler.step(state, case.target.model, rng)
        if state.x.shape != x.shape:
            return CheckOutcome(
                name,
                "fails",
                f"state.x must have the shape {list(x.shape)}, got {list(state.x.shape)}",
            )
        case.target.domain.check(state.x)
        accept = info.accept_prob
        if accept.shape != (len(x),) or not ((accept >= 0) & (accept <= 1)).all():
            return CheckOutcome(
                name,
                "fails",
                f"info.accept_prob must be [{len(x)}] numbers in [0, 1], got "
                f"{list(accept.shape)} with {accept.min():g} to {accept.max():g} in step {step}",
            )
    return CheckOutcome(name, "ok")


def one_step(case: Examination, name: str) -> CheckOutcome:
    """The step from every state against the given transition matrix."""
    if case.law is None:
        return CheckOutcome(name, "-", "no --law was given")
    law = case.law(case.sampler, case.target)
    matrix = np.asarray(law.after[0] if isinstance(law, Law) else law)
    size, inner = len(case.target.z), case.target.inner
    if matrix.shape != (size, size) or not np.allclose(matrix[inner].sum(1), 1):
        raise ValueError(
            f"the law must be a matrix [{size}, {size}] whose rows sum to 1, got {matrix.shape}"
        )
    each = max(1, case.counted // len(inner))
    (count,), _ = counts(case.fresh(), case.target, 1, each)
    p = 2 * tails(count, each, matrix[inner])
    if p.min() >= case.level:
        return CheckOutcome(name, "ok", f"{each} steps from each of {len(inner)} states")
    cells = np.argwhere(p < case.level)
    distance = np.array([len(case.target.sites_changed(inner[row], y)) or size for row, y in cells])
    row, y = cells[np.lexsort((p[tuple(cells.T)], distance))[0]]
    x, expected = inner[row], matrix[inner[row], y]
    z = (count[row, y] - each * expected) / np.sqrt(max(each * expected * (1 - expected), 1e-12))
    pi = case.target.law[x]
    flow = case.flow(x, y, pi * expected, pi * count[row, y] / each, float(z))
    return CheckOutcome(
        name, "fails", f"{len(cells)} of {p.size} transitions differ from the law", flow
    )


def invariance(case: Examination, name: str) -> CheckOutcome:
    """Chains that start from exact draws are still such draws after a step, and after some more.

    A sampler that is not exact cannot fail; its outcome says how large its bias is.
    """
    law = np.append(case.target.law / case.target.law.sum(), 0.0)  # the last entry: not listed
    counted = [np.bincount(index % len(law), minlength=len(law)) for index in case.moves[1:]]
    tested = [2 * tails(count, case.counted, law) for count in counted]
    holds = [p.min() >= case.level for p in tested]
    distances = [float(np.abs(count / case.counted - law).sum() / 2) for count in counted]
    if not case.exact:
        noise = np.sqrt(law * (1 - law) / (2 * np.pi * case.counted)).sum()  # mean of exact draws
        detail = (
            f"after {case.later} steps from exact draws, the law of {case.counted} chains is at "
            f"total variation distance {distances[-1]:.2g} from the target; exact draws would be "
            f"at about {noise:.2g}"
        )
        return CheckOutcome(name, "ok" if all(holds) else "no", detail, bias=distances[-1])
    if all(holds):
        return CheckOutcome(name, "ok", f"{case.counted} chains, after 1 and {case.later} steps")
    first = holds.index(False)
    count, worst, steps = counted[first], int(tested[first].argmin()), (1, case.later)[first]
    state = "outside the listed states"
    if worst < len(case.target.states):
        state = f"at {case.target.states[worst].tolist()}"
    detail = (
        f"after {steps} step{'s' * (steps > 1)} from exact draws, {count[worst]} of "
        f"{case.counted} chains are {state}, expected {case.counted * law[worst]:.1f}; total "
        f"variation distance from the target {distances[first]:.2g}"
    )
    return CheckOutcome(name, "fails", detail, unbalanced(case))


def detailed_balance(case: Examination, name: str) -> CheckOutcome:
    """As many chains move from x to y as from y to x, in the first step from exact draws."""
    flow = unbalanced(case)
    pairs, *_ = case.balance
    if flow is None:
        return CheckOutcome(name, "ok", f"{len(pairs)} pairs of states")
    return CheckOutcome(name, "no", "need not hold: a sweep is exact without it", flow)


def unbalanced(case: Examination) -> Flow | None:
    """The pair with the fewest differing sites whose two flows differ, and of those the worst."""
    pairs, there, back = case.balance
    if not len(pairs):
        return None
    p = 2 * tails(there, there + back, np.full(len(there), 0.5))
    wrong = np.flatnonzero(p < case.level)
    if not len(wrong):
        return None
    sites = np.array([len(case.target.sites_changed(*pair)) for pair in pairs[wrong]])
    worst = wrong[np.lexsort((p[wrong], sites))[0]]
    total = there[worst] + back[worst]
    z = (there[worst] - back[worst]) / np.sqrt(total)
    share = 1 / case.counted
    x, y = pairs[worst]
    return case.flow(x, y, float(total / 2 * share), float(there[worst] * share), float(z))


def reaching(case: Examination, name: str) -> CheckOutcome:
    """Chains that start all over the domain change every site and connect all states.

    A step may leave the target invariant and still keep a chain among some of the states, such as
    those of one parity. Two states are connected if some chain moved from one to the other, or by
    way of further states. Moves of chains that interact are not those of one chain, and too few
    moves connect no states; then only the sites are examined.
    """
    target, (fewest, steps) = case.target, SEARCH
    chains = fewest if case.sampler.interacting else max(fewest, STARTS * len(target.inner))
    where_from = np.zeros(len(target.z))
    where_from[target.inner] = 1 / len(target.inner)
    sampler, rng = case.fresh(), case.rng(4)
    before = target.draw(where_from, chains, rng)
    state, here = sampler.init(before.clone(), target.model), target.index(before)
    changed = torch.zeros(target.domain.dim, dtype=torch.bool)
    moved, moves = np.zeros((len(target.z), len(target.z)), dtype=bool), 0
    for _ in range(steps):
        state, _ = sampler.step(state, target.model, rng)
        different = (state.x != before).view(chains, len(changed), -1)
        changed |= different.any(-1).any(0)
        before, there = state.x.clone(), target.locate(state.x)
        listed = (here >= 0) & (there >= 0)
        moved[here[listed], there[listed]] = True
        moves += int((here != there)[listed].sum())
        here = there

    searched = f"{chains} chains in {steps} steps"
    if stuck := [site for site in np.flatnonzero(~changed.numpy()) if target.is_free(int(site))]:
        return CheckOutcome(
            name, "fails", f"{searched} never changed these sites: {', '.join(map(str, stuck))}"
        )
    if case.sampler.interacting:
        return CheckOutcome(name, "ok", searched)
    if moves < ENOUGH * len(target.inner):
        return CheckOutcome(name, "-", f"{searched} made only {moves} moves; every site changed")
    _, group = connected_components(moved, directed=False)
    inside = group == np.bincount(group, target.law).argmax()
    if (rest := target.law[~inside].sum()) <= RARE:
        return CheckOutcome(name, "ok", searched)
    one, other = (
        target.states[np.where(part, target.law, 0).argmax()].tolist() for part in (inside, ~inside)
    )
    return CheckOutcome(
        name,
        "fails",
        f"the states fall apart: of {moves} moves of {searched}, none leads from a state connected "
        f"with {one} (probability {1 - rest:.2g} in all) to any other state, such as {other} "
        f"({rest:.2g})",
    )


def cached(case: Examination, name: str) -> CheckOutcome:
    """A state's `log_prob` and `grad` are those of its x after steps."""
    state, model = case.after(case.start(), 10), case.target.model
    fields = {"log_prob", "grad"} & set(getattr(state, "_fields", ()))
    values = {"log_prob": model.log_prob(state.x)}
    if case.sampler.uses_gradient:
        values["grad"] = model.log_prob_and_grad(state.x)[1]
    fields &= set(values)
    if not fields:
        return CheckOutcome(name, "-", "the state holds neither log_prob nor grad")
    for field in sorted(fields):
        error = (getattr(state, field) - values[field]).abs().max()
        if not error <= 1e-3 * (1 + values[field].abs().max()):
            return CheckOutcome(
                name, "fails", f"state.{field} is off by {error:.3g} from that of state.x"
            )
    return CheckOutcome(name, "ok", ", ".join(sorted(fields)))


def aliasing(case: Examination, name: str) -> CheckOutcome:
    """`init` leaves x as it is, and no step reads the memory of an earlier state."""
    x = case.start()
    given = x.clone()
    plain = case.after(x, 10)
    if not torch.equal(x, given):
        return CheckOutcome(
            name,
            "fails",
            "a step changed the x given to init; copy it in `at` if steps overwrite state.x",
        )
    poisoned = case.after(x, 10, Poisoned(case.fresh()))
    if not alike(plain, poisoned):
        return CheckOutcome(
            name,
            "fails",
            "other draws when each old state is overwritten after the step: some step reads the "
            "memory of an earlier state; copy what must outlive a step into the new state",
        )
    return CheckOutcome(name, "ok")


def host_reads(case: Examination, name: str) -> CheckOutcome:
    """A step makes no host read, so it can be captured as a CUDA graph."""
    sampler, rng, model = case.fresh(), case.rng(2), case.target.model
    state = sampler.init(case.start(8), model)
    try:
        with NoHostReads():
            model.log_prob(case.target.states)
    except HostReadError as error:
        return CheckOutcome(name, "-", f"the target itself reads: {error}{where(error)}")
    try:
        with NoHostReads():
            for _ in range(2):
                state, _ = sampler.step(state, model, rng)
    except HostReadError as error:
        return CheckOutcome(name, "fails", f"{error}{where(error)}")
    return CheckOutcome(name, "ok")


def where(error: Exception) -> str:
    """The user's line of code that led to `error`; without one, that of a sampler or model.

    The lines are those of `error` and of the errors that caused it.
    """
    lines = []
    cause: BaseException | None = error
    while cause:
        trace = cause.__traceback__
        names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(trace)]
        lines += list(zip(names, traceback.extract_tb(trace), strict=True))
        cause = cause.__cause__
    users = [line for name, line in lines if name.partition(".")[0] not in LIBRARIES]
    ours = [line for name, line in lines if KERNELS.fullmatch(name)]
    found = (users or ours)[-1:]
    return "".join(f" (line {line.lineno} of {line.filename}: {line.line})" for line in found)


def seeded(case: Examination, name: str) -> CheckOutcome:
    """All chance comes from the generator passed last."""
    found = []
    before = random.getstate(), np.random.get_state()  # noqa: NPY002 - whether it is touched
    with torch.random.fork_rng(devices=[]):
        for seed in (1, 2):
            torch.manual_seed(seed)
            untouched = torch.get_rng_state()
            found.append(case.after(case.start(), 5))
            if not torch.equal(untouched, torch.get_rng_state()):
                return CheckOutcome(
                    name,
                    "fails",
                    "a step draws from PyTorch's global generator; pass generator=rng",
                )
    after = random.getstate(), np.random.get_state()  # noqa: NPY002
    if repr(before) != repr(after):
        return CheckOutcome(name, "fails", "a step draws from Python's or NumPy's global generator")
    if not alike(*found):
        return CheckOutcome(name, "fails", "two runs with the same seed differ")
    return CheckOutcome(name, "ok")


def resumes(case: Examination, name: str) -> CheckOutcome:
    """Chains restored from a checkpoint, with a new sampler object, go on bit for bit."""
    x, model = case.start(), case.target.model

    def chain(seed: int) -> Chain:
        return Chain(case.fresh(), model, x, Generator().manual_seed(seed), every=1)

    whole = chain(5)
    for _ in range(3):
        whole.advance()
    buffer = io.BytesIO()
    torch.save(captured(whole), buffer)
    buffer.seek(0)
    again = chain(6)
    again.load_state_dict(torch.load(buffer, weights_only=True))
    for _ in range(3):
        whole.advance()
        again.advance()
    if alike(whole.state, again.state):
        return CheckOutcome(name, "ok")
    return CheckOutcome(
        name,
        "fails",
        "chains restored from a checkpoint continue differently; keep all memory in the state "
        "and none on self",
    )


def alike(one: Any, other: Any) -> bool:
    """Whether two states have equal bits."""
    pairs = zip(pytree.tree_leaves(one), pytree.tree_leaves(other), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


CHECKS: dict[str, Callable[[Examination, str], CheckOutcome]] = {
    "valid states": valid,
    "law of one step": one_step,
    "invariance": invariance,
    "detailed balance": detailed_balance,
    "all states reached": reaching,
    "cached values": cached,
    "states not aliased": aliasing,
    "no host reads": host_reads,
    "chance from rng": seeded,
    "resumes exactly": resumes,
}
