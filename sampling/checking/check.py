"""Check a sampler in one call: is it exact, and does it keep the rules of a step?"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Unpack

import numpy as np
from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text
from torch import Generator, Tensor, nn

from latticework.models.base import EnergyModel
from latticework.samplers.base import Sampler
from latticework.sampling.checking.check_case import CheckCase, CheckOutcome
from latticework.sampling.checking.law import Law
from latticework.sampling.checking.report import COLOURS, TableReport
from latticework.sampling.checking.suite import CHECKS, decisions_of, examine
from latticework.sampling.checking.targets import Target, require_listable, targets_for
from latticework.sampling.devices import device_of
from latticework.sampling.sample_arguments import sampler_of
from latticework.sampling.starts import draw_possible
from latticework.sampling.targets import (
    States,
    as_model,
    check_target,
    target_name,
    why_unsupported,
)

LawOf = Callable[[Sampler, Target], Law | np.ndarray]


def check(
    sampler: Sampler | type[Sampler] | str,
    target: EnergyModel | nn.Module | Callable[[Tensor], Tensor] | None = None,
    *,
    law: LawOf | None = None,
    chains: int = 200_000,
    seed: int = 0,
    error: float = 1e-6,
    **states: Unpack[States],
) -> "CheckReport":
    """Check a sampler on `target`, or on a small target of each state space that it supports.

    A sampler that supports none of these, such as a sweep, is checked on a lattice, a graph with
    free sites, a Potts lattice and tables.

    Args:
        sampler: a sampler, a class, which is called without arguments, or a name.
        target: a model or a function of at most 1024 states, as in `latticework.sample`. A
            sampler runs on the device of the model.
        law: maps the sampler and a target to the transition matrix of a step, `[states, states]`.
        chains: the number of chains that are counted.
        seed: seeds all random numbers.
        error: the probability that anything fails for an exact sampler, at most.
        states: `domain`, `sites` and `values` of a function, as in `latticework.sample`.

    Raises:
        ValueError: if an argument is invalid, or the target has too many states.
    """
    sampler = sampler() if isinstance(sampler, type) else sampler_of(sampler)
    if target is None:
        targets = targets_for(sampler)
    else:
        name = target_name(target)
        targets = {name: enumerate_target(as_model(target, **states), name)}
    return run_checks(sampler, targets, law=law, chains=chains, seed=seed, error=error)


def enumerate_target(model: EnergyModel, name: str) -> Target:
    """The model with its states. Raises ValueError if they cannot be listed, or it is invalid."""
    require_listable(model.domain, name)
    check_target(model, draw_possible(model, 64, Generator(device_of(model)).manual_seed(0)))
    return Target(model)


def run_checks(
    sampler: Sampler,
    targets: dict[str, Target],
    *,
    law: LawOf | None,
    chains: int,
    seed: int,
    error: float,
) -> "CheckReport":
    """All checks on those of the targets that the sampler supports, the smallest first."""
    if not 0 < error < 1:
        raise ValueError(f"error is a probability between 0 and 1, got {error:g}")
    refused = {
        name: why
        for name, target in targets.items()
        if (why := why_unsupported(sampler, target.model))
    }
    supported = {name: target for name, target in targets.items() if name not in refused}
    decisions = sum(decisions_of(target, law is not None) for target in supported.values())
    cases = {
        name: CheckCase(sampler, target, error / decisions, law, chains, seed)  # Bonferroni
        for name, target in sorted(supported.items(), key=lambda item: len(item[1].z))
    }
    outcomes = {name: list(examine(case)) for name, case in cases.items()}
    return CheckReport(
        sampler, outcomes, refused, decisions, error, next(iter(cases.values()), None)
    )


@dataclass(frozen=True, eq=False)
class CheckReport(TableReport):
    """The outcomes of all checks by target, in the order of `suite.CHECKS`."""

    sampler: Sampler
    outcomes: dict[str, list[CheckOutcome]]
    refused: dict[str, str]  # targets that the sampler does not support, and why
    decisions: int
    error: float
    case: CheckCase | None  # on the smallest target

    @property
    def failures(self) -> list[tuple[str, CheckOutcome]]:
        """The failed checks, each with its target."""
        pairs = [(name, outcome) for name, each in self.outcomes.items() for outcome in each]
        return [(name, outcome) for name, outcome in pairs if outcome.status == "fails"]

    @property
    def passed(self) -> bool:
        """Whether something was checked and nothing failed."""
        return bool(self.outcomes) and not self.failures

    def _parts(self) -> Iterator[RenderableType]:
        if self.case is None:
            yield Text(
                f"{self.sampler} supports none of the targets {', '.join(self.refused)} "
                f"({next(iter(self.refused.values()))}); give one that it supports by "
                "--target file.py:Name"
            )
            return
        grid = Grid("check", *self.outcomes, box=None, pad_edge=False)
        for row, name in enumerate(CHECKS):
            cells = [each[row].status for each in self.outcomes.values()]
            grid.add_row(name, *[Text(cell, COLOURS[cell]) for cell in cells])
        yield grid
        yield ""
        for row, name in enumerate(CHECKS):
            yield from self._details(row, name)
        exact, n = self.sampler.exact, len(self.failures)
        result = "everything holds" if exact else "no failures"
        if n:
            result = f"failures: {n}"
        unsupported = f" Not supported: {', '.join(self.refused)}." if self.refused else ""
        yield Text(f"{self.sampler}: {result}, on {', '.join(self.outcomes)}.{unsupported}")
        counted = f"{self.case.chain_count} chains and seed {self.case.seed}"
        if exact:
            yield Text(
                f"{self.decisions} counts were tested with {counted}; for an exact sampler, the "
                f"probability that any of them fails is below {self.error:g}. {self._power()}"
            )
            return
        biases = [
            f"{outcome.bias:.2g} on {name}"
            for name, each in self.outcomes.items()
            for outcome in each
            if outcome.bias is not None
        ]
        yield Text(
            "It declares exact = False, so a bias does not count as a failure. Total variation "
            f"distance from the target after {self.case.second_step} steps from exact draws, "
            f"with {counted}: {', '.join(biases) or 'not measured'}."
        )

    def _details(self, row: int, name: str) -> Iterator[RenderableType]:
        """The finding of a check that does not hold, on the smallest target that shows it."""
        shown = [(target, each[row]) for target, each in self.outcomes.items()]
        for status, verb in (("fails", "fails"), ("no", "does not hold")):
            for target, outcome in shown:
                if outcome.status != status:
                    continue
                yield Text.assemble((name, COLOURS[status]), f" {verb} on {target}:")
                yield Text(f"  {outcome.detail}")
                if flow := outcome.flow:
                    pair = Grid("  state", "next state", "expected flow", "observed", "z", box=None)
                    numbers = f"{flow.expected:.5f}", f"{flow.observed:.5f}", f"{flow.z:+.1f}"
                    pair.add_row(Text(f"  {flow.x}"), Text(f"{flow.y}"), *numbers)
                    yield pair
                yield ""
                return

    def _power(self) -> str:
        """The smallest relative error of a state's probability that each check would have found."""
        sizes: dict[str, list[float]] = {}
        for each in self.outcomes.values():
            for outcome in each:
                if outcome.visible is not None:
                    sizes.setdefault(outcome.check, []).append(outcome.visible)
        if "invariance" not in sizes:  # what fails was found
            return ""
        texts = [f"{name} {_describe_spread(errors)}" for name, errors in sizes.items()]
        return (
            "The smallest relative error of a state's probability that would be found in half of "
            f"all trials: {', '.join(texts)}. Four "
            "times --chains halves that of invariance."
        )


def _describe_spread(parts: list[float]) -> str:
    """The least and the largest of `parts`, in per cent."""
    ends = [f"{100 * part:.{0 if part > 0.1 else 1}f}" for part in (min(parts), max(parts))]
    return f"{' to '.join(dict.fromkeys(ends))} %"
