"""Task: score a sampler's samples, and the training set, by their indirect sampling likelihood."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from data.base import Dataset, some
from experiments import isl
from experiments.artifacts import artifact
from experiments.chain import seconds_per_step
from experiments.context import Run
from experiments.draws import consecutive
from models.base import EnergyModel
from samplers.base import Sampler


def isl_curve(
    *,
    model: EnergyModel,
    sampler: Sampler,
    data: Dataset | None,
    run: Run,
    chains: int,
    steps: int,
    start: Callable[..., Tensor],
    points: int | None = None,
    validation_points: int | None = None,
    keep: int = 200,
    pretrain: Callable[..., EnergyModel] | None = None,
) -> None:
    """ISL of test rows under the first n of `steps * chains` consecutive samples, n on a log scale.

    Any sampler on any model of zeros and ones will do. beta is chosen on the validation rows with
    all samples, whose ISL on those rows is noted as `validation_isl`: settings are chosen by it.
    `points` and `validation_points` limit both sets of rows, None takes all. The training rows as
    centres, with a beta of their own, are the reference `parzen`, made once for all samplers. The
    last `keep` samples are stored in `sequence`. Raises ValueError without data.
    """
    if data is None:
        raise ValueError("the ISL needs validation and test rows; give data, such as data=usps")
    if pretrain is not None:
        model = pretrain(model=model, data=data, run=run)
    valid, test = some(data.valid, validation_points), some(data.test, points)
    _reference(data, run, valid, test)

    x = start(model, chains, run.rng("start"), data)
    per_step = seconds_per_step(
        sampler, model, x, run.rng("timing"), steps=max(1, min(steps // 50, 500))
    )
    samples = consecutive(sampler, model, x, run.rng("chain"), steps, run)
    run.save("sequence", x=samples[-keep:])
    sizes = isl.prefix_sizes(len(samples))
    beta, validation, scores = scored(samples, valid.to(run.device), test.to(run.device), sizes)
    run.note(
        beta=beta,
        validation_isl=validation,
        isl=float(scores[-1]),
        seconds_per_step=per_step,
        commonest_share=commonest_share(samples),
    )
    for size, score in zip(sizes, scores, strict=True):
        run.log(size, isl=score, seconds=size / chains * per_step)


def scored(
    samples: Tensor, valid: Tensor, test: Tensor, sizes: list[int]
) -> tuple[float, float, Tensor]:
    """The beta with the largest ISL of `valid`, that ISL, and the ISL of `test` for all `sizes`.

    The first two are of all samples. The test rows choose nothing.
    """
    counted = isl.histograms(samples, valid)
    beta = isl.best_beta(counted)
    return beta, isl.score(counted, beta), isl.curve(samples, test, beta, sizes)


def commonest_share(samples: Tensor) -> float:
    """How much of the samples is one and the same state: near 1 for a chain that is stuck."""
    _, counts = np.unique(np.packbits(samples.cpu().numpy(), axis=1), axis=0, return_counts=True)
    return float(counts.max() / len(samples))


def _reference(data: Dataset, run: Run, valid: Tensor, test: Tensor) -> None:
    """The training rows as samples, in a random order: `parzen` in the record, and its last ISL."""
    sizes = isl.prefix_sizes(len(data.train))
    spec = {"data": data.fingerprint, "valid": len(valid), "test": len(test), "sizes": len(sizes)}

    def make() -> dict[str, Tensor]:
        rng = run.shared_rng("parzen", device="cpu")
        order = torch.randperm(len(data.train), generator=rng)
        rows = data.batch(order, rng).to(run.device)
        beta, _, scores = scored(rows, valid.to(run.device), test.to(run.device), sizes)
        return {"isl": scores, "size": torch.tensor(sizes), "beta": torch.tensor([beta])}

    reference = artifact(run, "parzen", spec | {"seed": run.model_seed}, make)
    run.note(parzen=float(reference["isl"][-1]), parzen_beta=float(reference["beta"]))
    run.save("parzen", **reference)
