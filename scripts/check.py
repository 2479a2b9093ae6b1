"""Check whether a sampler is exact and keeps the rules of a step, or whether draws fit a target.

latticework check my_sampler.py:MySampler                      # a class, with its default values
latticework check my_sampler.py:MySampler step_size=0.4        # with other values
latticework check dmala                                        # a sampler of conf/sampler
latticework check my_sampler.py:MySampler --target my_model.py:model
latticework check my_sampler.py:MySampler --law my_law.py:law  # a matrix for the step
latticework check --draws draws.npz --target f.py:log_prob --domain binary:20  # draws of any source

Without --target, the sampler is checked on a small target of each state space that it supports.
A file of draws holds the array `draws` and, if the source tells them, their `log_prob`.
The exit status is 0 if everything holds, 1 if something fails, and 2 if nothing could be checked.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np
from omegaconf import OmegaConf
from rich.console import Console

from latticework.experiments import CONF
from latticework.samplers import NAMES, parse_sampler_call
from latticework.sampling.checking.check import enumerate_target, run_checks
from latticework.sampling.checking.draws import check_draws
from latticework.sampling.checking.targets import EVERY, Target, targets_for
from latticework.sampling.naming import load_object, parse_sampler
from latticework.sampling.targets import load_target
from latticework.scripts.arguments import parser_of


def main(words: list[str] | None = None) -> int:
    """Return the exit status."""
    chosen = check_parser().parse_intermixed_args(words)
    if chosen.draws:
        return check_draws_file(chosen)
    for name in ("reference", "steps"):
        if getattr(chosen, name) is not None:
            raise ValueError(f"--{name} is for draws: add --draws draws.npz, or leave it out")
    if chosen.sampler is None:
        raise ValueError("name a sampler to check, such as dmala, or a file of draws with --draws")
    sampler = find_sampler(chosen.sampler, settings(chosen.settings))
    law = load_object(chosen.law) if chosen.law else None
    report = run_checks(
        sampler, targets_to_check(chosen, sampler), law=law, seed=chosen.seed,
        chains=200_000 if chosen.chains is None else chosen.chains,
        error=1e-6 if chosen.error is None else chosen.error,
    )  # fmt: skip
    Console().print(report)
    if not report.outcomes:
        return 2
    if chosen.json:
        content = {}
        for name, outcomes in report.outcomes.items():
            content[name] = [asdict(outcome) for outcome in outcomes]
        chosen.json.write_text(json.dumps({"sampler": str(sampler), "outcomes": content}, indent=2))
    return 1 if report.failures else 0


def find_sampler(text: str, fields: dict[str, Any]) -> Any:
    """Return the sampler that `text` names, also one of the user's own in conf/sampler."""
    name, given = parse_sampler_call(text)
    if name in NAMES or not (CONF / "sampler" / f"{name}.yaml").is_file():
        return parse_sampler(text, fields)
    from hydra.utils import instantiate

    from latticework.experiments.runs import configuration

    config = configuration.compose_config((), f"sampler/{name}").sampler
    return instantiate(config, **{**given, **fields}, _convert_="all")


def check_draws_file(chosen: argparse.Namespace) -> int:
    """Print how the draws of a file compare with the target; return the exit status."""
    if chosen.target is None:
        raise ValueError("--draws needs the target: --target file.py:Name")
    for name in ("sampler", "law", "chains"):
        if getattr(chosen, name) is not None:
            raise ValueError(
                f"--draws judges draws, whatever made them: leave out {name}; "
                "--reference names the sampler that they are compared with"
            )
    arrays = np.load(chosen.draws) if is_zipfile(chosen.draws) else {}
    if "draws" not in arrays:
        raise ValueError(f"{chosen.draws} is no .npz file with an array `draws` (numpy.savez)")
    report = check_draws(
        arrays["draws"], load_target(chosen.target, chosen.domain),
        log_prob=arrays.get("log_prob"), reference=chosen.reference, steps=chosen.steps,
        seed=chosen.seed, error=0.01 if chosen.error is None else chosen.error,
    )  # fmt: skip
    Console().print(report)
    if chosen.json:
        outcomes = [asdict(outcome) for outcome in report.outcomes]
        chosen.json.write_text(json.dumps({"draws": str(chosen.draws), "outcomes": outcomes}))
    return 0 if report.passed else 1


def check_parser() -> argparse.ArgumentParser:
    made = parser_of("check", __doc__)
    made.add_argument("sampler", nargs="?", help="file.py:Name, or a name of conf/sampler")
    made.add_argument("settings", nargs="*", help="key=value, for the sampler's fields")
    made.add_argument("--target", help="file.py:Name, a model or a function (with --domain)")
    made.add_argument(
        "--domain", help=f"of a function, such as binary:3; else one of {', '.join(EVERY)}"
    )
    made.add_argument("--law", help="file.py:Name, (sampler, target) -> [states, states]")
    made.add_argument("--chains", type=int, help="default 200000")
    made.add_argument("--draws", type=Path, help="a .npz file of draws to judge, not a sampler")
    made.add_argument("--reference", help="with --draws: the sampler they are compared with")
    made.add_argument("--steps", type=int, help="with --draws: of each chain of the reference")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument(
        "--error", type=float, help="probability of a false alarm, default 1e-6; of draws, 0.01"
    )
    made.add_argument("--json", type=Path, help="also write the outcomes to this file")
    return made


def settings(given: Sequence[str]) -> dict[str, Any]:
    """Words `key=value` as a dictionary; values are read as YAML, with .inf for infinity."""
    values = {}
    for word in given:
        key, separator, value = word.partition("=")
        if not separator:
            raise ValueError(f"{word!r} is not a setting; write key=value")
        document: Any = OmegaConf.to_container(OmegaConf.create(f"value: {value}"))
        values[key] = document["value"]
    return values


def targets_to_check(chosen: argparse.Namespace, sampler: Any) -> dict[str, Target]:
    """The targets to check on, by name; one of the user's own is checked first."""
    if chosen.target is None:
        if chosen.domain is None:
            return targets_for(sampler)
        if chosen.domain not in EVERY:
            raise ValueError(f"--domain is one of {', '.join(EVERY)}, got {chosen.domain}")
        return {chosen.domain: EVERY[chosen.domain]()}
    model = load_target(chosen.target, chosen.domain)
    return {chosen.target.rpartition(":")[2]: enumerate_target(model, chosen.target)}


if __name__ == "__main__":
    raise SystemExit(main())
