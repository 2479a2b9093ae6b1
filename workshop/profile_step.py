"""Profile a sampler's step: print PyTorch's operations by their share of the time.

    python -m workshop.profile_step --chains 100 model=resnet sampler=dmala
    python -m workshop.profile_step --page docs/performance.md    all tables of the page

The words after the options are overrides of conf/, as for run.py. The device is the CPU. In a page,
a table stands between the lines `<!-- profile: WORDS -->` and `<!-- /profile -->`, where WORDS are
what follows `profile_step`.
"""

import argparse
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import torch
from hydra.utils import instantiate
from torch.profiler import ProfilerActivity, profile

from latticework.experiments.runs import configuration

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "dot", "mkldnn_convolution", "convolution_backward")
Row = tuple[str, float, float]  # an operation, calls a step, and its share of the time


def shares(words: Sequence[str], chains: int, steps: int) -> list[Row]:
    """Operations of a step by their share of the time, largest first.

    `words` choose model and sampler. The share is the time in the operation itself, without the
    operations that it calls.
    """
    config = configuration.compose_config(words)
    torch.manual_seed(config.model_seed)
    model, sampler = instantiate(config.model), instantiate(config.sampler, _convert_="all")
    rng = torch.Generator().manual_seed(config.seed)
    with torch.no_grad():
        state = sampler.init(model.domain.uniform(chains, rng), model)
        for _ in range(3):  # a warm-up
            state, _ = sampler.step(state, model, rng)
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            for _ in range(steps):
                state, _ = sampler.step(state, model, rng)
    operations = [e for e in profiled.key_averages() if e.key.startswith("aten::")]
    total = sum(e.self_cpu_time_total for e in operations)
    rows = [
        (e.key.removeprefix("aten::"), e.count / steps, e.self_cpu_time_total / total)
        for e in operations
    ]
    return sorted(rows, key=lambda row: -row[2])


def shares_table(rows: Sequence[Row], shown: int) -> str:
    """A Markdown table of the first rows; the last line is the share of all products."""
    lines = [f"| `{name}` | {calls:.0f} | {share:.1%} |" for name, calls, share in rows[:shown]]
    products = sum(share for name, _, share in rows if name in PRODUCTS)
    head = ["| operation | calls a step | share of the time |", "|---|---|---|"]
    return "\n".join([*head, *lines, f"| all products and convolutions | | {products:.1%} |"])


def measure_page(page: str) -> str:
    """The page with each of its tables measured again."""

    def measured(found: re.Match) -> str:
        given = arguments().parse_args(shlex.split(found[1]))
        rows = shares(given.overrides, given.chains, given.steps)
        table = shares_table(rows, given.shown)
        return f"<!-- profile: {found[1]} -->\n\n{table}\n\n<!-- /profile -->"

    return re.sub(r"<!-- profile: (.*?) -->.*?<!-- /profile -->", measured, page, flags=re.DOTALL)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workshop.profile_step",
        description=(__doc__ or "").split("\n")[0],
    )
    parser.add_argument("--chains", type=int, default=100)
    parser.add_argument("--steps", type=int, default=20, help="steps that are profiled")
    parser.add_argument("--shown", type=int, default=8, help="rows of the table")
    parser.add_argument("--threads", type=int, default=1, help="PyTorch's threads")
    parser.add_argument("--page", type=Path, help="measure the tables of this page again")
    parser.add_argument("overrides", nargs="*", help="model=... sampler=..., as for run.py")
    return parser


def main(words: list[str] | None = None) -> None:
    given = arguments().parse_args(words)
    torch.set_num_threads(given.threads)
    if given.page is not None:
        given.page.write_text(measure_page(given.page.read_text()))
        return
    print(shares_table(shares(given.overrides, given.chains, given.steps), given.shown))


if __name__ == "__main__":
    main()
