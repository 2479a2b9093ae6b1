"""Benchmark persistent contrastive divergence: seconds per iteration against a plain reference.

    python -m latticework.tools.bench --only learning

An iteration consists of `steps` steps of DMALA on all chains and one update of the model. An
iteration of the reference takes up to a minute, so sampling and update are timed separately. A turn
times TURN sampling steps and one update, of our code and of the plain reference. The time of an
iteration is then that of `steps` sampling steps and one update.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import torch
from rich.table import Table
from torch import Generator, Tensor, nn
from torch.optim import Adam

from latticework.data.base import Dataset
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.ebm_learning import Learner
from latticework.models.ising import LearnedIsing
from latticework.models.resnet import ResNet
from latticework.samplers.langevin import DMALA
from latticework.tools import plain_reference as plain

TURN = 3  # sampling steps
Sides = tuple[Callable[[], None], Callable[[], None]]  # sampling and update


@dataclass(frozen=True)
class Case:
    """One comparison. `precision` is that of our network; the reference uses float32."""

    model: str
    chains: int
    steps: int
    step_size: float
    precision: str = "float32"


CASES = (
    Case("ising-25x25", 256, 100, 0.2),
    Case("resnet-28x64x8", 100, 40, 0.15),
    Case("resnet-28x64x8", 100, 40, 0.15, "bf16 gradients"),
    Case("resnet-28x64x8", 100, 40, 0.15, "bf16"),
)
BF16 = {"float32": None, "bf16 gradients": "gradient", "bf16": "all"}


@dataclass(frozen=True)
class Row:
    """Medians and quartiles of seconds per iteration, and of their ratio."""

    model: str
    precision: str
    chains: int
    steps: int
    threads: int
    turns: int
    ours: float
    ours_low: float
    ours_high: float
    plain: float
    plain_low: float
    plain_high: float
    ratio: float
    ratio_low: float
    ratio_high: float


def models(case: Case) -> tuple[Any, nn.Module]:
    """The model `ising-SIDExSIDE` or `resnet-SIDExMAPSxBLOCKS`, and its plain reference."""
    kind, sizes = case.model.split("-")
    numbers = [int(number) for number in sizes.split("x")]
    torch.manual_seed(0)
    if kind == "ising":
        ising = LearnedIsing(numbers)
        return ising, plain.PlainIsing(ising.coupling.data.clone(), 0.0)
    side, maps, blocks = numbers
    resnet = ResNet((side, side), maps, blocks, BF16[case.precision])  # type: ignore[arg-type]
    other = plain.PlainResNet(side, maps, blocks)
    parts = {key.removeprefix("network."): value for key, value in resnet.state_dict().items()}
    other.load_state_dict(parts)
    return resnet, other


def ours(case: Case, model: Any, x: Tensor, data: Dataset, run: Run) -> Sides:
    """Our sampling and update, as in `experiments.tasks.ebm_learning`."""
    learner = Learner(
        model,
        DMALA(case.step_size),
        data,
        run,
        steps=TURN,
        batch=case.chains,
        l1=0.0,
        largest_gradient=float("inf"),
        largest_loss=float("inf"),
        stepper=Adam(model.parameters(), lr=1e-6, fused=True),
        schedule=None,
        ema=None,
        chains=x.clone(),
    )
    memory = learner.memory

    def sample() -> None:
        with torch.no_grad():
            memory.state, memory.carries = learner.source.block(memory.state, memory.carries)

    def update() -> None:
        learner.gradient(learner.positive(), memory.state.x)
        learner.step()
        with torch.no_grad():
            memory.state = learner.source.sampler.refresh(memory.state, model)

    return sample, update


def theirs(case: Case, model: nn.Module, x: Tensor, data: Dataset) -> Sides:
    """The reference, which caches nothing; all its parameters require gradients."""
    optimiser = Adam(model.parameters(), lr=1e-6)
    positive = data.train[: case.chains].float()

    def sample() -> None:
        nonlocal x
        for _ in range(TURN):
            x = plain.dmala(x, model, case.step_size).detach()

    def update() -> None:
        plain.learn(model, optimiser, positive, x)

    return sample, update


def seconds(side: Sides, steps: int) -> float:
    """Seconds of one iteration with `steps` sampling steps."""
    times = []
    for part in side:
        start = time.perf_counter()
        part()
        times.append(time.perf_counter() - start)
    return times[0] * steps / TURN + times[1]


def compare(case: Case, turns: int) -> Row:
    model, other = models(case)
    x = model.domain.uniform(case.chains, Generator().manual_seed(0))
    rows = x.byte().repeat(2, 1)
    data = Dataset(rows, rows[:1], rows[:1], (rows.shape[1],), "uniform")
    with tempfile.TemporaryDirectory() as folder:
        sides = ours(case, model, x, data, Run(Path(folder))), theirs(case, other, x, data)
    for side in sides:  # a warm-up
        seconds(side, case.steps)
    times = [[seconds(side, case.steps) for side in sides] for _ in range(turns)]
    return Row(
        case.model,
        case.precision,
        case.chains,
        case.steps,
        torch.get_num_threads(),
        turns,
        *spread([mine for mine, _ in times]),
        *spread([other for _, other in times]),
        *spread([other / mine for mine, other in times]),
    )


def spread(values: list[float]) -> tuple[float, float, float]:
    """Median, lower and upper quartile."""
    low, _, high = quantiles(values, n=4, method="inclusive")
    return median(values), low, high


def rows(threads: list[int], turns: int) -> Iterator[Row]:
    for count in threads:
        torch.set_num_threads(count)
        for case in CASES:
            yield compare(case, turns)


def table(found: list[Row]) -> Table:
    result = Table(title="seconds per iteration of learning, and their ratio (quartiles)")
    for name in ("model, chains, steps", "precision", "threads", "here", "plain", "ratio"):
        is_text = "model" in name or name == "precision"
        result.add_column(name, justify="left" if is_text else "right")
    for row in found:
        ratio = f"{row.ratio:.3g} ({row.ratio_low:.3g}-{row.ratio_high:.3g})"
        what = f"{row.model}, {row.chains}, {row.steps}"
        threads, numbers = str(row.threads), (f"{row.ours:.3g}", f"{row.plain:.3g}")
        result.add_row(what, row.precision, threads, *numbers, ratio)
    return result
