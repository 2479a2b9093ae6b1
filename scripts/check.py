"""Check a sampler: is it exact, and does it keep the rules of a step?

latticework check my_sampler.py:MySampler                      # a class, with its default values
latticework check my_sampler.py:MySampler step_size=0.4        # with other values
latticework check dmala                                        # a sampler of conf/sampler
latticework check my_sampler.py:MySampler --target my_model.py:model
latticework check my_sampler.py:MySampler --law my_law.py:law  # a matrix for the step

Without --target, the sampler is checked on a small target of each state space that it supports.
The exit status is 0 if everything holds, 1 if something fails, and 2 if nothing could be checked.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from latticework.experiments.config.loading import loaded, sampler_named, settings
from latticework.experiments.exactness.examination import CheckOutcome, Examination, Flow
from latticework.experiments.exactness.suite import CHECKS, decisions_of, examine
from latticework.experiments.exactness.targets import SMALL, Target, check_listed
from latticework.experiments.sampling.starts import possible
from latticework.experiments.sampling.targets import check_target, target_named, unsupported
from latticework.scripts.parsing import parser_of

COLOURS = {"ok": "green", "fails": "bold red", "no": "yellow", "-": "dim"}


def main(words: list[str] | None = None) -> int:
    """Return the exit status."""
    chosen = parser().parse_intermixed_args(words)
    if not 0 < chosen.error < 1:
        raise ValueError(f"--error is a probability between 0 and 1, got {chosen.error:g}")
    console = Console()
    sampler = sampler_named(chosen.sampler, settings(chosen.settings))
    law = loaded(chosen.law) if chosen.law else None
    offered = targets(chosen)
    refused = {
        name: why for name, target in offered.items() if (why := unsupported(sampler, target.model))
    }
    served = {name: target for name, target in offered.items() if name not in refused}
    if not served:
        reason = next(iter(refused.values()))
        console.print(
            f"{sampler} supports none of the targets {', '.join(refused)} ({reason}); give one "
            "that it supports by --target file.py:Name",
            highlight=False,
        )
        return 2
    decisions = sum(decisions_of(target, law is not None) for target in served.values())
    level = chosen.error / decisions  # Bonferroni
    cases = {
        name: Examination(sampler, target, level, law, chosen.chains, chosen.seed)
        for name, target in sorted(served.items(), key=lambda item: len(item[1].z))
    }
    found = {name: list(examine(case)) for name, case in cases.items()}
    failed = [outcome for each in found.values() for outcome in each if outcome.status == "fails"]
    report(console, found)
    holds = "everything holds" if sampler.exact else "no failures"
    console.print(
        f"{sampler}: {f'failures: {len(failed)}' if failed else holds}, on "
        f"{', '.join(found)}." + (f" Not supported: {', '.join(refused)}." if refused else ""),
        highlight=False,
    )
    case = next(iter(cases.values()))
    counted = f"{case.counted} chains and seed {case.seed}"
    if sampler.exact:
        told = (
            f"{decisions} counts were tested with {counted}; for an exact sampler, the probability "
            f"that any of them fails is below {chosen.error:g}. {power(found)}"
        )
    else:
        told = (
            "It declares exact = False, so a bias is no failure. Total variation distance from the "
            f"target after {case.later} steps from exact draws, with {counted}: {biases(found)}."
        )
    console.print(told, highlight=False)
    if chosen.json:
        content = {name: [asdict(outcome) for outcome in each] for name, each in found.items()}
        chosen.json.write_text(json.dumps({"sampler": str(sampler), "outcomes": content}, indent=2))
    return 1 if failed else 0


def parser() -> argparse.ArgumentParser:
    made = parser_of("check", __doc__)
    made.add_argument("sampler", help="file.py:Name, or a name of conf/sampler")
    made.add_argument("settings", nargs="*", help="key=value, for the sampler's fields")
    made.add_argument("--target", help="file.py:Name, a model or a function (with --domain)")
    made.add_argument(
        "--domain", help=f"of a function, such as binary:3; else one of {', '.join(SMALL)}"
    )
    made.add_argument("--law", help="file.py:Name, (sampler, target) -> [states, states]")
    made.add_argument("--chains", type=int, default=200_000, help="default 200000")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument(
        "--error", type=float, default=1e-6, help="probability of a false alarm, default 1e-6"
    )
    made.add_argument("--json", type=Path, help="also write the outcomes to this file")
    return made


def targets(chosen: argparse.Namespace) -> dict[str, Target]:
    """The targets to check on, by name; one of the user's own is checked first."""
    if chosen.target is None:
        if chosen.domain not in (None, *SMALL):
            raise ValueError(f"--domain is one of {', '.join(SMALL)}, got {chosen.domain}")
        names = SMALL if chosen.domain is None else [chosen.domain]
        return {name: SMALL[name]() for name in names}
    model = target_named(chosen.target, chosen.domain)
    check_listed(model.domain, chosen.target)
    check_target(model, possible(model, 64, torch.Generator().manual_seed(0)))
    return {chosen.target.rpartition(":")[2]: Target(model)}


def biases(found: dict[str, list[CheckOutcome]]) -> str:
    """The bias that was measured on each target."""
    sizes = {name: o.bias for name, each in found.items() for o in each if o.bias is not None}
    return ", ".join(f"{bias:.2g} on {name}" for name, bias in sizes.items()) or "not measured"


def power(found: dict[str, list[CheckOutcome]]) -> str:
    """The smallest relative error of a state's probability that each check would have found."""
    sizes: dict[str, list[float]] = {}
    for each in found.values():
        for outcome in each:
            if outcome.visible is not None:
                sizes.setdefault(outcome.check, []).append(outcome.visible)
    if "invariance" not in sizes:  # what fails was found
        return ""
    told = ", ".join(f"{name} {spread(s)}" for name, s in sizes.items())
    return (
        "The smallest relative error of a state's probability that would be found in half of all "
        f"trials: {told}. Four times --chains halves that of invariance."
    )


def spread(parts: list[float]) -> str:
    """The least and the largest of `parts`, in per cent."""
    ends = dict.fromkeys(
        f"{100 * part:.{0 if part > 0.1 else 1}f}" for part in (min(parts), max(parts))
    )
    return f"{' to '.join(ends)} %"


def report(console: Console, found: dict[str, list[CheckOutcome]]) -> None:
    """One page: a table of all checks, then the details of failures.

    Details are from the smallest target on which the check fails.
    """
    grid = Grid("check", *found, box=None, pad_edge=False)
    for row, name in enumerate(CHECKS):
        cells = [each[row].status for each in found.values()]
        grid.add_row(name, *[Text(cell, COLOURS[cell]) for cell in cells])
    console.print(grid)
    console.print()
    for row, name in enumerate(CHECKS):
        shown = [(target, each[row]) for target, each in found.items()]
        shown.sort(key=lambda pair: pair[1].status != "fails")
        target, outcome = next((p for p in shown if p[1].status in ("fails", "no")), shown[0])
        if outcome.status in ("fails", "no"):
            verb = "fails" if outcome.status == "fails" else "does not hold"
            console.print(Text.assemble((name, COLOURS[outcome.status]), f" {verb} on {target}:"))
            console.print(Text(f"  {outcome.detail}"))
            if outcome.flow:
                console.print(pair_of(outcome.flow))
            console.print()


def pair_of(flow: Flow) -> Grid:
    """The pair of states that shows the failure: the share of chains that make this move."""
    pair = Grid("  state", "next state", "expected flow", "observed", "z", box=None)
    numbers = (f"{flow.expected:.5f}", f"{flow.observed:.5f}", f"{flow.z:+.1f}")
    pair.add_row(Text(f"  {flow.x}"), Text(f"{flow.y}"), *numbers)
    return pair


if __name__ == "__main__":
    raise SystemExit(main())
