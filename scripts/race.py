"""Race samplers on your target, each tuned under an equal budget.

latticework race target.py:log_prob --domain binary:20
latticework race target.py:Model --budget 20000evaluations --seeds 6
latticework race target.py:log_prob --domain spins:10 --samplers dmala,gwg,my_sampler.py:Mine
latticework race target.py:log_prob --domain binary:20 --x target.py:starts

Without --samplers, every exact sampler of conf/sampler that supports the target takes part. Each
spends half of the budget on tuning, and half on fresh chains; one with nothing to tune spends all
on these. A sampler that does not leave the target invariant has no rank. There are no ranks at all
if the exact samplers disagree about the target. The exit status is 1 if no sampler has a rank.
The table, the figure and the records go to <outputs>/race/<target>/<number>.
"""

import argparse
import hashlib
import itertools
import json
import math
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table as Grid

from latticework.experiments.figures.line_names import label_lines_and_legend
from latticework.experiments.figures.plot import Plot
from latticework.experiments.figures.style import new_figure
from latticework.experiments.papers.draw import provenance_json
from latticework.experiments.papers.rendering import save_figure
from latticework.experiments.records.labels import sampler_style
from latticework.experiments.records.record import checksums, open_record, versions
from latticework.experiments.runs import storage
from latticework.experiments.runs.environment import NUMERIC_PACKAGES, commit, device_name
from latticework.sampling.budget import Allowance, Unit
from latticework.sampling.diagnostics import largest_r_hat
from latticework.sampling.naming import load_object
from latticework.sampling.starts import draw_possible
from latticework.sampling.targets import check_target, load_target
from latticework.sampling.tuning.race import Entrant, Race, race_table, select_entrants
from latticework.sampling.tuning.space import spaces
from latticework.scripts.arguments import outputs, parser_of

NAMED = 6  # entries of x that a line names
UNITS = {"second": "effective samples a second", "evaluation": "effective samples an evaluation"}


def main(words: list[str] | None = None) -> int:
    """Return the exit status: 1 if no sampler could be ranked."""
    words = sys.argv[1:] if words is None else words
    chosen = race_parser().parse_args(words)
    console, began = Console(), time.perf_counter()
    budget = Allowance.read(chosen.budget)
    model = load_target(chosen.target, chosen.domain)
    x = load_start(chosen, model)
    chains = chosen.chains if x is None else len(x)
    race = Race(
        model, budget, chains, range(chosen.seeds), chosen.trials, x, chosen.start == "annealed",
        chosen.threads,
    )  # fmt: skip
    samplers, left = select_entrants(parse_samplers(chosen.samplers), model)
    if not samplers:
        raise ValueError(f"no sampler supports {model.domain}: {'; '.join(left.values())}")
    spent = f"{budget} for each of {len(samplers)} samplers, {chains} chains"
    print(f"{spent}; {chosen.seeds} seeds", file=sys.stderr)
    folder = make_record_folder(chosen)
    entrants = race.run(samplers, spaces(), lambda line: print(f"  {line}", file=sys.stderr))
    apart = race.disagreements(entrants)
    table = race_table(entrants, budget, withheld=bool(apart))
    console.print(terminal_table(table, budget.unit))
    console.print()
    limit = largest_r_hat(chains * chosen.seeds)
    for line in remarks(table, left, apart, stillness(entrants), limit):
        console.print(line, highlight=False, markup=False)
    config = {
        "name": "race",
        "target": chosen.target.rpartition("/")[2],
        "target_sha256": hash_bytes(Path(chosen.target.rpartition(":")[0]).read_bytes()),
        "domain": str(model.domain),
        "budget": asdict(budget),
        "chains": chains,
        "start": chosen.start if x is None else hash_bytes(x.numpy().tobytes()),
        "seeds": chosen.seeds,
        "trials": chosen.trials,
        "threads": chosen.threads,
        "samplers": {each.name: str(each.sampler) for each in entrants},
        "steps": {each.name: each.laps[0].steps for each in entrants if each.laps},
        "beforehand": {each.name: each.beforehand["evaluations"] for each in entrants},
        "disagreements": apart,
    }
    seconds = time.perf_counter() - began
    command = shlex.join(["latticework", "race", *words])
    write_race(folder, config, table, entrants, command, seconds)
    console.print(f"\ntable, figure and records: {folder}", highlight=False, soft_wrap=True)
    return 0 if (table["rank"] != "-").any() else 1


def race_parser() -> argparse.ArgumentParser:
    made = parser_of("race", __doc__)
    made.add_argument("target", help="file.py:Name, a function, an nn.Module or an EnergyModel")
    made.add_argument("--domain", help="of a function: binary:20, spins:20, categorical:10,3 ...")
    made.add_argument(
        "--budget", default="20seconds", help="for each sampler: 20seconds, 50000evaluations"
    )
    made.add_argument("--chains", type=int, default=8)
    made.add_argument("--seeds", type=int, default=4, help="runs of each sampler, at least 3")
    made.add_argument("--trials", type=int, default=8, help="settings that tuning tries")
    made.add_argument("--threads", type=int, default=1, help="of the processor")
    made.add_argument("--samplers", help="names of samplers or file.py:Name, with commas")
    where = made.add_mutually_exclusive_group()
    where.add_argument("--x", help="file.py:Name, an array of starts [chains, ...]")
    where.add_argument(
        "--start",
        choices=("uniform", "annealed"),
        default="uniform",
        help="as of latticework.sample",
    )
    made.add_argument("--outputs", type=Path, default=outputs(), help="the folder of the records")
    return made


def make_record_folder(chosen: argparse.Namespace) -> Path:
    """A new folder for the record: the first free number.

    It is made before the race, so that an unwritable folder is found at once.
    """
    parent = chosen.outputs / "race" / chosen.target.rpartition(":")[2]
    parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        try:
            (parent / str(number)).mkdir()
        except FileExistsError:
            continue
        return parent / str(number)
    raise AssertionError("numbers do not end")


def hash_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def load_start(chosen: argparse.Namespace, model: Any) -> torch.Tensor | None:
    """The given starts. The target is checked there, or at random states."""
    if not chosen.x:
        check_target(model, draw_possible(model, 4, torch.Generator().manual_seed(0)))
        return None
    x = torch.as_tensor(load_object(chosen.x), dtype=torch.get_default_dtype())
    check_target(model, x)
    return x


def parse_samplers(text: str | None) -> list[str] | None:
    """The names between the commas of --samplers."""
    names = [name.strip() for name in text.split(",")] if text else None
    if names and not all(names):
        raise ValueError(f"--samplers takes names with commas between them, got {text!r}")
    return names


def terminal_table(table: pd.DataFrame, unit: Unit) -> Grid:
    """The table for the terminal."""
    first = unit.removesuffix("s")
    grid = Grid(box=None, pad_edge=False)
    for column in ("rank", "sampler", "ESS a second", "ESS an evaluation", "R-hat"):
        mark = " *" if column.endswith(first) else ""
        grid.add_column(column + mark, no_wrap=not column.startswith("ESS"))  # intervals fold
    for row in table[table["r_hat"].notna()].to_dict("records"):  # those that ran
        rates = [
            f"{figures(row[key])} [{figures(row[key + '_low'])}, {figures(row[key + '_high'])}]"
            for key in ("ess_per_second", "ess_per_evaluation")
        ]
        grid.add_row(row["rank"], row["sampler"], *rates, f"{row['r_hat']:.3f}")
    return grid


def figures(value: float) -> str:
    """Three figures, without an exponent from 0.0001 to a million."""
    return f"{value:,.0f}" if 100 <= value < 1e6 else f"{value:.3g}"


def remarks(
    table: pd.DataFrame, left: dict[str, str], apart: list[str], still: list[str], limit: float
) -> list[str]:
    """Notes on the table, and on what it leaves out. `limit` is the largest R-hat with a rank."""
    lines = [
        f"* ranked by this. Geometric means over seeds with 95 % intervals; = is a tie, - has no "
        f"rank: it did not mix (R-hat above {limit:.4g}, or stuck) or is biased."
    ]
    if not apart and (table["rank"] == "-").all():
        lines.append(
            "No sampler has a rank: none mixed within the budget, or may be ranked at all. Give a "
            "larger --budget, ten times as much for a start, other starts (--x, --start annealed), "
            "or another sampler (--samplers). The exit status is 1."
        )
    if apart:
        lines = [
            "* would rank. No sampler has a rank, because they disagree about the target: "
            f"{'; '.join(apart)}. At least one has missed a part of it, or is not exact: give a "
            "larger --budget or starts in all parts (--x), and check samplers of your own.",
        ]
    lines += still
    chosen = [f"{row.sampler} ({row.settings})" for row in table.itertuples() if row.settings]
    if chosen:
        lines.append(f"tuned: {'; '.join(chosen)}")
    lines += [
        f"{row.sampler} spent {row.beforehand_evaluations:,.0f} evaluations by each chain "
        f"({row.beforehand_seconds:.2g} s) of its half for tuning before its first step, once"
        for row in table.itertuples()
        if row.beforehand_evaluations
    ]
    lines += [f"{row.sampler}: {row.note}" for row in table.itertuples() if row.note]
    reasons: dict[str, list[str]] = {}
    for name, reason in left.items():
        reasons.setdefault(reason, []).append(name)
    lines += [f"left out: {', '.join(names)} ({reason})" for reason, names in reasons.items()]
    return lines


def stillness(entrants: list[Entrant]) -> list[str]:
    """Entries of x that never changed: in all samplers, as the target may imply, or in one."""
    ran = [each for each in entrants if each.laps]
    common = []
    for entry, value in ran[0].still.items() if ran else ():
        if all(each.still.get(entry) == value for each in ran):
            common.append(f"{entry} = {value:g}")
    lines = [f"constant in all draws, and left out: {first_names(common)}"] if common else []
    for each in ran:
        entries = [
            f"{entry} ({'differs between chains' if math.isnan(value) else f'{value:g}'})"
            for entry, value in each.still.items()
            if f"{entry} = {value:g}" not in common
        ]
        lines += [f"{each.name} never changed {first_names(entries)}"] if entries else []
    return lines


def first_names(words: list[str]) -> str:
    """The first of the words, and how many there are."""
    more = f" and {len(words) - NAMED} more" if len(words) > NAMED else ""
    return ", ".join(words[:NAMED]) + more


def write_race(
    folder: Path,
    config: dict[str, Any],
    table: pd.DataFrame,
    entrants: list[Entrant],
    command: str,
    seconds: float,
) -> None:
    """Write the record and its figure."""
    runs = [{"sampler": each.name, **asdict(lap)} for each in entrants for lap in each.laps]
    storage.write_atomically(folder / "race.csv", table.to_csv(index=False))
    storage.write_atomically(folder / "metrics.csv", pd.DataFrame(runs).to_csv(index=False))
    document = {
        "config": config,
        "choices": {},
        "overrides": [],
        "command": command,
        "seconds": seconds,
        "device": device_name(torch.device("cpu")),
        "threads": config["threads"],
        "versions": versions(NUMERIC_PACKAGES),
        **commit(),
        "files": checksums(folder),
    }
    storage.write_atomically(folder / "run.json", json.dumps(document, indent=2))
    title = f"{config['target']}, {Allowance(**config['budget'])} for each sampler"
    save_figure(Plot(draw_race(table, title)), folder / "race.png")  # its table is race.csv
    storage.write_atomically(
        folder / "race.json", provenance_json("race", command, [open_record(folder)])
    )


def draw_race(table: pd.DataFrame, title: str) -> Figure:
    """One row a ranked sampler, best at the top; a dot is the mean over seeds, a bar its interval.

    `table` has the columns sampler, rank, r_hat, note, and for each of UNITS ess_per_<unit>, _low
    and _high. The text below names samplers that ran and whose note says why they have no rank.
    """
    shown = table[table["rank"] != "-"].iloc[::-1]
    left = table[(table["rank"] == "-") & table["r_hat"].notna() & (table["note"] != "")]
    figure, axes = new_figure(2, height=0.8 + 0.32 * max(2, len(shown)))
    for ax, (unit, label) in zip(axes, UNITS.items(), strict=True):
        for place, row in enumerate(shown.to_dict("records")):
            mean, low, high = (row[f"ess_per_{unit}{part}"] for part in ("", "_low", "_high"))
            error = [[mean - low], [high - mean]]
            look = sampler_style(row["sampler"])
            style = {"color": look.colour, "marker": look.marker, "markersize": 5, "capsize": 3}
            ax.errorbar(mean, place, xerr=error, linestyle="none", **style)
        names = [sampler_style(name).label for name in shown["sampler"]]
        labels = [f"{rank}  {name}" for rank, name in zip(shown["rank"], names, strict=True)]
        ax.set_yticks(range(len(shown)), labels if ax is axes[0] else [])
        ax.set_ylim(-0.6, max(1, len(shown)) - 0.4)
        if len(shown):
            ax.set_xscale("log")
        ax.tick_params(which="both", labelsize=8)
        ax.set_xlabel(label, fontsize=8)
        ax.grid(axis="x", linewidth=0.4)
    figure.suptitle(title, fontsize=9)
    unranked = [f"No rank: {row.sampler}, which {row.note}." for row in left.itertuples()]
    label_lines_and_legend(figure, " ".join(["Mean over seeds; bar: its interval.", *unranked]))
    return figure


if __name__ == "__main__":
    raise SystemExit(main())
