"""Write the table of docs/long_runs.md: the sampler that `sample` chooses, beside the best.

python -m workshop.auto_choice            # all reference targets, ten minutes
python -m workshop.auto_choice sk_20      # some of them, printed only

On each reference target all exact samplers that support it have a pilot, with scales chosen by
their acceptance, the best `SEMIFINALISTS` another one, and the best of them one at several
temperatures. The best two whose chains agree, and the choices of two calls, then take turns in one
process. Rates are of all turns together: their ESS over their seconds. All seconds are those of the
processor, which other work does not change.
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean

import pandas as pd
import torch

from latticework.experiments.papers.docs_blocks import replace_block
from latticework.models.base import EnergyModel
from latticework.models.references.catalogue import reference_model, references
from latticework.samplers import NAMES
from latticework.samplers.base import Sampler
from latticework.samplers.tempered import Tempered
from latticework.sampling.budget import Allowance
from latticework.sampling.diagnostics import LARGEST_R_HAT
from latticework.sampling.naming import parse_sampler
from latticework.sampling.targets import why_unsupported
from latticework.sampling.tuning.auto import CANDIDATES, SamplerChoice, choose_sampler
from latticework.sampling.tuning.pilots import PilotRun, Pilots
from latticework.sampling.tuning.setup import fit_blocks

PAGE = Path(__file__).resolve().parents[1] / "docs" / "long_runs.md"
CHAINS, STEPS = 8, 1000
SEEDS = (1, 2)  # seeds of the calls that choose
FIRST_PILOT, SECOND_PILOT = Allowance(0.12, "seconds"), Allowance(0.3, "seconds")
TURN, TURNS = Allowance(0.4, "seconds"), 2
SEMIFINALISTS = 5  # samplers with a long pilot
FINALISTS = 2  # samplers that take turns with the choices


def exact_samplers(model: EnergyModel, pilots: Pilots) -> Iterator[tuple[str, Sampler]]:
    """The exact samplers that support the model, with blocks that fit it and adapted scales."""
    taken: list[Sampler] = []
    for name in dict.fromkeys((*NAMES, *CANDIDATES)):
        sampler, _ = fit_blocks(parse_sampler(name), {}, model)
        if not sampler.exact or isinstance(sampler, Tempered) or sampler in taken:
            continue
        if why_unsupported(sampler, model):
            continue
        taken.append(sampler)
        finite = sampler.scale is not None and getattr(sampler, sampler.scale) < float("inf")
        yield name, pilots.adapt(sampler, FIRST_PILOT) if finite else sampler


def find_best(model: EnergyModel) -> list[PilotRun]:
    """The last pilots of the best samplers, the best first."""
    pilots = Pilots(model, None, CHAINS, "eager", 0)
    runs = [pilots.measure(*each, FIRST_PILOT) for each in exact_samplers(model, pilots)]
    runs.sort(key=lambda run: -run.rate)
    runs = [pilots.measure(run.name, run.sampler, SECOND_PILOT) for run in runs[:SEMIFINALISTS]]
    runs.sort(key=lambda run: (not run.r_hat <= LARGEST_R_HAT, -run.rate))
    if not why_unsupported(Tempered(runs[0].sampler, levels=2, rounds=1), model):
        tempered = pilots.temper(runs[0], Allowance(2.0, "seconds"))
        if tempered is not None and tempered.r_hat <= LARGEST_R_HAT:
            runs.append(tempered)
    runs.sort(key=lambda run: (not run.r_hat <= LARGEST_R_HAT, -run.rate))
    return runs[:FINALISTS]


def choose(model: EnergyModel, seed: int) -> SamplerChoice:
    """The choice of `latticework.sample(model, chains=8)` with this seed."""
    return choose_sampler(
        model, x=None, chains=CHAINS, steps=STEPS, budget=None, engine="eager", seed=seed
    )


def rates_in_turns(model: EnergyModel, contenders: dict[str, Sampler]) -> dict[str, float]:
    """The ESS a second of each sampler, which take turns."""
    pilots = Pilots(model, None, CHAINS, "eager", 7)
    ess, seconds = dict.fromkeys(contenders, 0.0), dict.fromkeys(contenders, 0.0)
    for turn in range(1 + TURNS):
        for name, sampler in contenders.items():
            run = pilots.measure(name, sampler, TURN)
            if turn and run.run is not None:  # the first tells how to space the draws
                ess[name] += run.ess
                seconds[name] += run.run.result.seconds
    return {name: ess[name] / max(seconds[name], 1e-9) for name in contenders}


def describe_kind(sampler: Sampler) -> str:
    """The sampler without the numbers that its acceptance chose."""
    if isinstance(sampler, Tempered):
        return f"tempered {describe_kind(sampler.inner)}"
    sites = getattr(sampler, "sites", 1)
    return f"{type(sampler).__name__}{f'(sites={sites})' if sites != 1 else ''}"


def compare(name: str) -> dict[str, object]:
    """A row of the table."""
    model = reference_model(name)
    best = find_best(model)
    choices = [choose(model, seed) for seed in SEEDS]
    contenders = {repr(run.sampler): run.sampler for run in best}
    contenders |= {repr(choice.sampler): choice.sampler for choice in choices}
    rates = rates_in_turns(model, contenders)
    winner = max(rates, key=lambda name: rates[name])
    ratios = [rates[repr(choice.sampler)] / rates[winner] for choice in choices]
    kinds = dict.fromkeys(describe_kind(choice.sampler) for choice in choices)
    return {
        "target": f"`{name}`",
        "chosen": ", ".join(kinds),
        "best": describe_kind(contenders[winner]),
        "ESS a second of the best": f"{rates[winner]:,.3g}",
        "choice / best, by call": ", ".join(f"{ratio:.2f}" for ratio in ratios),
        "seconds of pilots": f"{sum(choice.seconds for choice in choices) / len(SEEDS):.1f}",
        "smallest": min(ratios),
        "mean": geometric_mean(max(ratio, 1e-6) for ratio in ratios),
    }


def describe(table: pd.DataFrame) -> str:
    """The table in Markdown, after a line on all targets."""
    low = table[table["smallest"] < 0.5]
    names = f": {', '.join(low['target'])}" if len(low) else ""
    line = (
        f"Of {len(table)} targets and {len(SEEDS)} calls on each, {len(low)} targets had a choice "
        f"below half of the best sampler's ESS a second{names}. The geometric mean of the ratios "
        f"is {geometric_mean(table['mean']):.2f}."
    )
    shown = table.drop(columns=["smallest", "mean"])
    head = [f"| {' | '.join(shown.columns)} |", "|" + "---|" * len(shown.columns)]
    rows = [f"| {' | '.join(row)} |" for row in shown.to_numpy().tolist()]
    return "\n".join([line, "", *head, *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="reference targets; all, if none is named")
    names = parser.parse_args().names
    torch.set_num_threads(1)
    time.perf_counter = time.process_time
    warnings.simplefilter("ignore")
    rows = []
    for name in names or references().index:
        rows.append(compare(name))
        print({key: value for key, value in rows[-1].items() if key != "mean"}, flush=True)
    text = describe(pd.DataFrame(rows))
    print(text)
    if not names:
        PAGE.write_text(replace_block(PAGE.read_text(), "auto", text))


if __name__ == "__main__":
    main()
