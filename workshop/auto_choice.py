"""Write the table of docs/long_runs.md: the sampler that `sample` chooses, beside the best.

python -m workshop.auto_choice                    # all reference targets, ten minutes
python -m workshop.auto_choice sk_20              # some of them, printed only
python -m workshop.auto_choice --rows rows.csv    # keeps rows, and goes on where it was stopped

On each reference target all exact samplers that support it have a pilot, with scales chosen by
their acceptance, the best `SEMIFINALISTS` another one, and the best of them one at several
temperatures. The best two whose chains agree, and the choices of two calls, then take turns in one
process. Turns are as long as the best sampler needs for its chains to agree, and begin at the last
states of the sampler whose chains stayed furthest apart in the turns before. Rates are of all turns
together: the ESS beyond one for each chain, which stuck chains have too, over seconds. All seconds
are those of the processor, which other work does not change.
"""

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence
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
from latticework.sampling.naming import parse_sampler
from latticework.sampling.targets import why_unsupported
from latticework.sampling.tuning.auto import (
    CANDIDATES,
    SamplerChoice,
    choose_sampler,
    spread_states,
)
from latticework.sampling.tuning.pilots import PilotRun, Pilots
from latticework.sampling.tuning.setup import fit_blocks

PAGE = Path(__file__).resolve().parents[1] / "docs" / "long_runs.md"
CHAINS, STEPS = 8, 1000
SEEDS = (1, 2)  # seeds of the calls that choose
FIRST_PILOT, SECOND_PILOT = Allowance(0.12, "seconds"), Allowance(0.3, "seconds")
TEMPERING = Allowance(2.0, "seconds")  # budget of one trial; it doubles while chains stay apart
TURN, TURNS = Allowance(0.4, "seconds"), 2  # a turn doubles while all chains stay apart
DOUBLINGS = 4
SEMIFINALISTS = 5  # samplers with a long pilot
HALF = 0.5  # part of the best rate that a choice should reach
RATIOS = "choice / best, by call"
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
    runs.sort(key=lambda run: (not run.mixes, -run.rate))
    for doubling in range(DOUBLINGS):
        if why_unsupported(Tempered(runs[0].sampler, levels=2, rounds=1), model):
            break
        tempered = pilots.temper(runs[0], TEMPERING.part(2**doubling))
        if tempered is not None and tempered.mixes:
            runs.append(tempered)
            break
    runs.sort(key=lambda run: (not run.mixes, -run.rate))
    return runs[:FINALISTS]


def choose(model: EnergyModel, seed: int) -> SamplerChoice:
    """The choice of `latticework.sample(model, chains=8)` with this seed."""
    return choose_sampler(
        model, x=None, chains=CHAINS, steps=STEPS, budget=None, engine="eager", seed=seed
    )


def rates_in_turns(model: EnergyModel, contenders: dict[str, Sampler]) -> dict[str, float]:
    """The ESS a second of each sampler, which take turns."""
    pilots = Pilots(model, None, CHAINS, "eager", 7)
    rates = {}
    for doubling in range(DOUBLINGS + 1):
        turn = TURN.part(2**doubling)
        runs: dict[str, list[PilotRun]] = {name: [] for name in contenders}
        x = None
        for _ in range(1 + TURNS):
            for name, sampler in contenders.items():
                runs[name].append(pilots.measure(name, sampler, turn, x))
            x = spread_states([of_name[-1] for of_name in runs.values()])
        # The first turn tells how to space the draws.
        rates = {name: rate_of_turns(turns[1:]) for name, turns in runs.items()}
        winner = max(rates, key=lambda name: rates[name])
        if all(run.mixes for run in runs[winner][1:]):
            break
    return rates


def rate_of_turns(turns: Sequence[PilotRun]) -> float:
    """The ESS of all turns, beyond one for each chain, over their seconds."""
    ess = seconds = 0.0
    for turn in turns:
        if turn.run is not None:
            ess += max(0.0, turn.ess - CHAINS)
            seconds += turn.run.result.seconds
    return ess / max(seconds, 1e-9)


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
    ratios = [rates[repr(choice.sampler)] / max(rates[winner], 1e-9) for choice in choices]
    kinds = dict.fromkeys(describe_kind(choice.sampler) for choice in choices)
    return {
        "target": f"`{name}`",
        "chosen": ", ".join(kinds),
        "best": describe_kind(contenders[winner]),
        "ESS a second of the best": f"{rates[winner]:,.3g}",
        RATIOS: ", ".join(f"{ratio:.2f}" for ratio in ratios),
        "seconds of pilots": f"{sum(choice.seconds for choice in choices) / len(SEEDS):.1f}",
    }


def describe(table: pd.DataFrame) -> str:
    """The table in Markdown, after a line on all targets."""
    low, ratios = [], []
    for target, text in zip(table["target"], table[RATIOS], strict=True):
        of_target = [float(ratio) for ratio in text.split(", ")]
        ratios += of_target
        if min(of_target) < HALF:
            low.append(target)
    if low:
        line = (
            f"On {len(low)} of {len(table)} targets, at least one of {len(SEEDS)} calls chose a "
            f"sampler of less than half of the best one's ESS a second: {', '.join(low)}."
        )
    else:
        line = (
            f"On all {len(table)} targets, each of {len(SEEDS)} calls chose a sampler of at least "
            "half of the best one's ESS a second."
        )
    mean = geometric_mean(max(ratio, 0.01) for ratio in ratios)
    line += f" The geometric mean of the ratios is {mean:.2f}."
    measured = set(table["target"])
    missing = [f"`{name}`" for name in references().index if f"`{name}`" not in measured]
    if missing:
        line += f" Not measured: {', '.join(missing)}."
    head = [f"| {' | '.join(table.columns)} |", "|" + "---|" * len(table.columns)]
    rows = [f"| {' | '.join(row)} |" for row in table.to_numpy().tolist()]
    return "\n".join([line, "", *head, *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="reference targets; all, if none is named")
    parser.add_argument("--rows", type=Path, help="a CSV; targets in it are not measured again")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    time.perf_counter = time.process_time
    warnings.simplefilter("ignore")
    table = pd.DataFrame()
    if chosen.rows is not None and chosen.rows.exists():
        table = pd.read_csv(chosen.rows, dtype=str)
    for name in chosen.names or references().index:
        if f"`{name}`" in set(table.get("target", ())):
            continue
        row = compare(name)
        print(row, flush=True)
        table = pd.concat([table, pd.DataFrame([row])], ignore_index=True)
        if chosen.rows is not None:
            table.to_csv(chosen.rows, index=False)
    text = describe(table)
    print(text)
    if not chosen.names:
        PAGE.write_text(replace_block(PAGE.read_text(), "auto", text))


if __name__ == "__main__":
    main()
