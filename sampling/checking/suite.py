"""The exactness suite for any sampler on any target whose states can be listed.

What must hold (Robert and Casella, "Monte Carlo Statistical Methods", 2004, Chapter 6): a step
leaves the target pi invariant, and chains reach all states. Detailed balance is reported, because a
sweep over the sites is exact without it. With `law`, the step from every state is compared with
that transition matrix. Chains start from exact draws of pi, so the counts are binomial:

    invariance        the number of chains in state y after a step is Binomial(chains, pi(y))
    detailed balance  of the chains that moved between x and y, Binomial(n, 1/2) moved from x to y
    law of one step   of the chains from x, Binomial(n, P(x, y)) are in y after a step

Each decision compares a two-sided tail probability with `level`.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components

from latticework.sampling.checking import rules, variations
from latticework.sampling.checking.check_case import (
    CheckCase,
    CheckOutcome,
    Flow,
    counts,
    describe_deviation,
    histogram,
    smallest_visible_error,
    tails,
)
from latticework.sampling.checking.law import Law
from latticework.sampling.checking.targets import Target

SEARCH = (1024, 64)  # chains, at least, and steps in which every site must change
STARTS = 32  # chains of the search for each state
# Moves for each state, from which states that no move connects are told apart.
MIN_MOVES_PER_STATE = 30
RARE_PROBABILITY = 1e-3  # probability of states that need not be reached


def examine(case: CheckCase) -> Iterator[CheckOutcome]:
    """The outcome of every check in turn. An exception in a check is its failure."""
    for name, check in CHECKS.items():
        try:
            with torch.no_grad():
                outcome = check(case)
        except Exception as error:  # noqa: BLE001 - whatever a user's sampler raises
            raised = f"raised {type(error).__name__}: {error}{rules.format_place(error)}"
            outcome = CheckOutcome("fails", raised)
        yield replace(outcome, check=name)


def decisions_of(target: Target, law: bool) -> int:
    """The number of decisions on counts for one target."""
    size = len(target.z)
    return 5 * (size + 1) + size * (size - 1) // 2 + (len(target.inner) * size if law else 0)


# Checks that count chains. Each returns its outcome, or raises.


def one_step(case: CheckCase) -> CheckOutcome:
    """The step from every state against the given transition matrix."""
    if case.law is None:
        return CheckOutcome("-", "no --law was given")
    law = case.law(case.sampler, case.target)
    matrix = np.asarray(law.after[0] if isinstance(law, Law) else law)
    size, inner = len(case.target.z), case.target.inner
    if matrix.shape != (size, size) or not np.allclose(matrix[inner].sum(1), 1):
        raise ValueError(
            f"the law must be a matrix [{size}, {size}] whose rows sum to 1, got {matrix.shape}"
        )
    each = max(1, case.chain_count // len(inner))
    (count,), _ = counts(case.fresh(), case.target, 1, each)
    p = 2 * tails(count, each, matrix[inner])
    if p.min() >= case.level:
        return CheckOutcome("ok", f"{each} steps from each of {len(inner)} states")
    cells = np.argwhere(p < case.level)
    distance = np.array([len(case.target.sites_changed(inner[row], y)) or size for row, y in cells])
    row, y = cells[np.lexsort((p[tuple(cells.T)], distance))[0]]
    x, expected = inner[row], matrix[inner[row], y]
    z = (count[row, y] - each * expected) / np.sqrt(max(each * expected * (1 - expected), 1e-12))
    pi = case.target.law[x]
    flow = case.flow(x, y, pi * expected, pi * count[row, y] / each, float(z))
    return CheckOutcome("fails", f"{len(cells)} of {p.size} transitions differ from the law", flow)


def invariance(case: CheckCase) -> CheckOutcome:
    """Chains that start from exact draws are still such draws after a step, and after some more."""
    wrong = [describe_deviation(case.target, index, case.level) for index in case.moves[1:]]
    if not case.sampler.exact:
        count, law = histogram(case.target, case.moves[-1])
        bias = float(np.abs(count / case.chain_count - law).sum() / 2)
        noise = np.sqrt(
            law * (1 - law) / (2 * np.pi * case.chain_count)
        ).sum()  # mean of exact draws
        detail = (
            f"after {case.second_step} steps from exact draws, the law of {case.chain_count} "
            f"chains is at total variation distance {bias:.2g} from the target; exact draws would "
            f"be at about {noise:.2g}"
        )
        return CheckOutcome("no" if any(wrong) else "ok", detail, bias=bias)
    for steps, deviates in zip(("1 step", f"{case.second_step} steps"), wrong, strict=True):
        if deviates:
            detail = f"after {steps} from exact draws, {deviates}"
            return CheckOutcome("fails", detail, worst_flow(case))
    detail = f"{case.chain_count} chains, after 1 and {case.second_step} steps"
    power = smallest_visible_error(case.chain_count, case.target.law, case.level)
    return CheckOutcome("ok", detail, visible=power)


def detailed_balance(case: CheckCase) -> CheckOutcome:
    """As many chains move from x to y as from y to x, in the first step from exact draws."""
    flow = worst_flow(case)
    pairs, *_ = case.balance
    if flow is None:
        return CheckOutcome("ok", f"{len(pairs)} pairs of states")
    return CheckOutcome("no", "need not hold: a sweep is exact without it", flow)


def worst_flow(case: CheckCase) -> Flow | None:
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
    share = 1 / case.chain_count
    x, y = pairs[worst]
    return case.flow(x, y, float(total / 2 * share), float(there[worst] * share), float(z))


def reachability(case: CheckCase) -> CheckOutcome:
    """Chains that start all over the domain change every site and connect all states.

    A step may leave the target invariant and still keep chains among the states of one parity.
    Moves of chains that interact, and too few moves, connect no states: then only sites are
    examined.
    """
    target, (fewest, steps) = case.target, SEARCH
    chains = fewest if case.sampler.interacting else max(fewest, STARTS * len(target.inner))
    changed, moved, moves = follow_chains(case, chains, steps)
    searched = f"{chains} chains in {steps} steps"
    if stuck := [site for site in np.flatnonzero(~changed) if target.is_free(int(site))]:
        return CheckOutcome(
            "fails", f"{searched} never changed these sites: {', '.join(map(str, stuck))}"
        )
    if case.sampler.interacting:
        return CheckOutcome("ok", searched)
    if moves < MIN_MOVES_PER_STATE * len(target.inner):
        return CheckOutcome("-", f"{searched} made only {moves} moves; every site changed")
    _, group = connected_components(moved, directed=False)
    inside = group == np.bincount(group, target.law).argmax()
    if (unreached := target.law[~inside].sum()) <= RARE_PROBABILITY:
        return CheckOutcome("ok", searched)
    start, missed = (
        target.states[np.where(part, target.law, 0).argmax()].tolist() for part in (inside, ~inside)
    )
    return CheckOutcome(
        "fails",
        f"the states fall apart: of {moves} moves of {searched}, none leads from a state connected "
        f"with {start} (probability {1 - unreached:.2g} in all) to any other state, such as "
        f"{missed} ({unreached:.2g})",
    )


def follow_chains(case: CheckCase, chains: int, steps: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Follow chains that start all over the domain.

    The sites that changed, `[dim]`, the pairs of states x, y such that a chain moved from x to y,
    `[states, states]`, and the number of these moves.
    """
    target, sampler, rng = case.target, case.fresh(), case.rng(4)
    where_from = np.zeros(len(target.z))
    where_from[target.inner] = 1 / len(target.inner)
    before = target.draw(where_from, chains, rng)
    state, here = sampler.init(before.clone(), target.model), target.index(before)
    changed = before.new_zeros(target.domain.dim, dtype=torch.bool)
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
    return changed.cpu().numpy(), moved, moves


CHECKS: dict[str, Callable[[CheckCase], CheckOutcome]] = {
    "valid states": rules.valid_states,
    "law of one step": one_step,
    "invariance": invariance,
    "detailed balance": detailed_balance,
    "all states reached": reachability,
    "one chain": variations.one_chain,
    "many sites": variations.many_sites,
    "impossible states": variations.impossible_states,
    "unknown states": variations.unknown_states,
    "cached values": rules.cached_values,
    "states not aliased": rules.unaliased_states,
    "no host reads": rules.host_reads,
    "chance from rng": rules.chance_from_generator,
    "resumes exactly": rules.exact_resumption,
}
