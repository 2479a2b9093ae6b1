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
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from rich.console import Console

from latticework.sampling.checking.check import examined, listed
from latticework.sampling.checking.targets import SMALL, Target
from latticework.sampling.naming import loaded, sampler_named
from latticework.sampling.targets import target_named
from latticework.scripts.parsing import parser_of


def main(words: list[str] | None = None) -> int:
    """Return the exit status."""
    chosen = parser().parse_intermixed_args(words)
    sampler = sampler_named(chosen.sampler, settings(chosen.settings))
    law = loaded(chosen.law) if chosen.law else None
    report = examined(
        sampler, targets(chosen), law=law, chains=chosen.chains, seed=chosen.seed,
        error=chosen.error,
    )  # fmt: skip
    Console().print(report)
    if not report.outcomes:
        return 2
    if chosen.json:
        content = {name: [asdict(one) for one in each] for name, each in report.outcomes.items()}
        chosen.json.write_text(json.dumps({"sampler": str(sampler), "outcomes": content}, indent=2))
    return 1 if report.failures else 0


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


def settings(given: Sequence[str]) -> dict[str, Any]:
    """Words `key=value` as a dictionary; values are read as YAML, with .inf for infinity."""
    found = {}
    for word in given:
        key, separator, value = word.partition("=")
        if not separator:
            raise ValueError(f"{word!r} is not a setting; write key=value")
        document: Any = OmegaConf.to_container(OmegaConf.create(f"value: {value}"))
        found[key] = document["value"]
    return found


def targets(chosen: argparse.Namespace) -> dict[str, Target]:
    """The targets to check on, by name; one of the user's own is checked first."""
    if chosen.target is None:
        if chosen.domain not in (None, *SMALL):
            raise ValueError(f"--domain is one of {', '.join(SMALL)}, got {chosen.domain}")
        names = SMALL if chosen.domain is None else [chosen.domain]
        return {name: SMALL[name]() for name in names}
    model = target_named(chosen.target, chosen.domain)
    return {chosen.target.rpartition(":")[2]: listed(model, chosen.target)}


if __name__ == "__main__":
    raise SystemExit(main())
