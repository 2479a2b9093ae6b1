"""Made-up records for the claims of Breuleux et al. (2011): samples and their cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np
from fakes import fake, noise

from latticework.experiments.records.record import Record
from made_records.building import SEEDS, Made, each, ends, facts

GIBBS, SP, HERDING, FPCD = (
    "block_gibbs",
    "sample_penalization",
    "rates_herding",
    "rates_fpcd",
)
METHODS = ("cd", "sml", "fpcd")  # of training


# Samples and their images.


def samples(share: float, seed: int, count: int = 400) -> dict[str, dict[str, np.ndarray]]:
    """A stored sequence of images with a `share` of the pixels on, drawn independently."""
    x = np.random.default_rng(seed).random((count, 100)) < share
    return {"sequence": {"x": x.astype(float)}}


def pixels(data: float = 0.2, blank: float = 0.0, **shares: float) -> list[Record]:
    """The share of pixels on in the images of each sampler, and in the rows of the data.

    A share `blank` of the samples of sample penalization has no pixel on.
    """
    default = {GIBBS: 0.2, SP: 0.3, HERDING: 0.2, FPCD: 0.2}
    records = []
    for name, share in {**default, **shares}.items():
        for seed in SEEDS:
            stored = samples(share, seed)
            if name == SP:
                x = stored["sequence"]["x"]
                x[: int(blank * len(x))] = 0
            stored["test_rows"] = samples(data, seed)["sequence"]
            records.append(fake(sampler=name, seed=seed, stored=stored))
    return records


def penalised(
    coding: str | None, slow: float = 0.5, fast: float = 0.5, alternating: bool = False
) -> list[Record]:
    """Images of sample penalization at two fast step sizes, each with a share of pixels on.

    Where they are `alternating`, two samples differ in every pixel. Images of the other coding and
    with decay are not uniform, and do not count.
    """
    other = "spin" if coding is None else None
    records = []
    for seed in SEEDS:
        for size, share in ((0.1, slow), (1.0, fast)):
            stored = samples(share, seed)
            if alternating:
                stored = {"sequence": {"x": np.array([np.zeros(100), np.ones(100)])}}
            for own, decay in ((coding, 1.0), (other, 1.0), (coding, 0.9)):
                counts = (own, decay) == (coding, 1.0)
                record = fake(
                    sampler=SP,
                    seed=seed,
                    settings={"coding": own, "decay": decay, "fast_step_size": size},
                    stored=stored if counts else samples(0.1, seed),
                )
                records.append(record)
    return records


# The ISL of samples.


def last_isl(**levels: float) -> list[Record]:
    default = {GIBBS: -120.0, SP: -110.0, HERDING: -90.0, FPCD: -91.0}
    return ends("isl", {**default, **levels})


def beside_training(ours: float = -78.0, training: float = -80.0) -> list[Record]:
    """The ISL of samples of rates-FPCD, and that of the training set."""
    return ends("isl", {FPCD: ours}, parzen=training)


def first_samples(first: float = 5.0, early: float = 5.0, end: float = 0.0) -> list[Record]:
    """How far rates-herding is above rates-FPCD at 5 samples, at 50, and at the end."""
    lead = {FPCD: np.zeros(4), HERDING: np.array([0.0, first, early, end])}
    return [
        fake(
            {
                "step": [1, 5, 50, 1000],
                "isl": np.array([-200.0, -180.0, -150.0, -90.0]) + above + noise(seed, place),
            },
            sampler=name,
            seed=seed,
        )
        for (place, (name, above)), seed in product(enumerate(lead.items()), SEEDS)
    ]


def long_curves(
    gibbs: Sequence[float] = (-250.0, -200.0, -150.0, -101.0, -99.0),
    fpcd: Sequence[float] = (-200.0, -100.0, -95.0, -90.0, -90.0),
    seconds: float = 1.0,
) -> list[Record]:
    """ISLs at 1, 100, 200, 10,000 and a million samples; `seconds` are Gibbs' of a sample.

    Rates-FPCD takes a second for each.
    """
    steps = np.array([1.0, 100.0, 200.0, 1e4, 1e6])
    return [
        fake(
            {"step": steps, "seconds": steps * each_takes, "isl": np.array(isl) + noise(seed)},
            sampler=name,
            seed=seed,
        )
        for name, isl, each_takes in ((GIBBS, gibbs, seconds), (FPCD, fpcd, 1.0))
        for seed in SEEDS
    ]


def step_sizes(
    best_herding: float = 0.3,
    best_fpcd: float = 0.01,
    herding: float = -91.0,
    fpcd: float = -90.0,
    curvature: float = 1.0,
) -> list[Record]:
    """The best fast step sizes by the validation rows, and the last test ISL at them.

    At other sizes rates-herding's test ISL is far above, which does not count. Rates-FPCD with
    k = 10 is worse by the validation rows, and best at another size.
    """
    sizes = 10 ** np.arange(-5.0, 1.5, 0.5)
    records = []
    for name, best, level, updates in (
        (HERDING, best_herding, herding, 1),
        (FPCD, best_fpcd, fpcd, 1),
        (FPCD, 1e-4, -150.0, 10),
    ):
        nearest = min(sizes, key=lambda size: abs(math.log(size / best)))
        for size, seed in product(sizes, SEEDS):
            elsewhere = -50.0 if name == HERDING else -150.0
            record = fake(
                {"step": [1000], "isl": [(level if size == nearest else elsewhere) + noise(seed)]},
                sampler=name,
                seed=seed,
                settings={"fast_step_size": float(size), "steps": updates},
                validation_isl=noise(seed) / 100 - curvature * math.log(size / best) ** 2 - updates,
            )
            records.append(record)
    return records


def decays(none: float = -90.0, some: float = -95.0) -> list[Record]:
    """Rates-FPCD without decay and with alpha = 0.95, each best at the middle fast step size.

    At the sizes beside it the order is the reverse.
    """
    records = []
    for decay, best, beside in ((1.0, none, -130.0), (0.95, some, -100.0)):
        for size, seed in product((0.01, 0.03, 0.1), SEEDS):
            isl = (best if size == 0.03 else beside) + noise(seed)
            record = fake(
                {"step": [1000], "isl": [isl]},
                sampler=FPCD,
                seed=seed,
                settings={"fast_step_size": size, "decay": decay},
                validation_isl=isl,
            )
            records.append(record)
    return records


def trained_models(**levels: float) -> list[Record]:
    """The last ISL of each sampler on models by three methods of training."""
    default = {GIBBS: -120.0, SP: -110.0, HERDING: -90.0, FPCD: -91.0}
    records = []
    for method in METHODS:
        pretrain = {"negatives": method, "epochs": 10, "learning_rate": 0.1, "linear_decay": True}
        config = {"model": {"hidden": 100}, "task": {"pretrain": pretrain}}
        choices = {"negatives": method}
        records += ends("isl", {**default, **levels}, choices=choices, config=config)
    return records


def similar_costs(herding: float = 1.2) -> list[Record]:
    """How many times the seconds of rates-FPCD rates-herding takes for a sample."""
    return facts("seconds_per_step", {FPCD: 1.0, HERDING: herding})


def costs(usps: float = 2.0, mnist: float = 7.0) -> list[Record]:
    """How many times the seconds of Gibbs rates-FPCD takes for a sample."""
    records = []
    for data, fpcd in (("usps", usps), ("mnist", mnist)):
        times = {GIBBS: 1.0, FPCD: fpcd}
        for name, seed in product(times, SEEDS):
            record = fake(
                sampler=name,
                seed=seed,
                choices={"model": f"rbm_{data}"},
                seconds_per_step=times[name] * (1 + noise(seed)),
            )
            records.append(record)
    return records


LAST = {**each((SP, HERDING, FPCD), -130.0), **each((GIBBS,), -80.0)}
BELOW = each((HERDING, FPCD), -115.0)
LEVEL = {**each(("end",), 2.0), **each(("end",), -2.0)}
EARLY = each(("early",), -5.0)
FASTER = {
    "Gibbs gets there with 200 samples": {"gibbs": (-250.0, -200.0, -99.0, -98.0, -97.0)},
    "Gibbs gets there with the first sample": {"gibbs": (-90.0, -90.0, -90.0, -90.0, -90.0)},
    "a sample of Gibbs takes 0.1 ms": {"seconds": 1e-4},
}
NEVER = {"gibbs": (-250.0, -200.0, -150.0, -120.0, -110.0)}
NEVER_THERE = {"Gibbs never gets there": NEVER}
NOT_KNOWN = {"Gibbs never gets there, with cheap samples": {**NEVER, "seconds": 1e-5}}
RATIOS = {"3 times": {"best_fpcd": 0.1}, "300 times": {"best_fpcd": 0.001}}
FLAT = {"the best sizes are on a plateau": {"curvature": 0.01}}
ABOVE = each((SP, GIBBS), -80.0)


def improved(gain: float = 2.0, exponent: float = 0.5) -> list[Record]:
    """The log-likelihood before and after, and the distance, at three fast step sizes."""
    records = []
    for size, seed in product((0.001, 0.004, 0.016), SEEDS):
        before = -50.0 + noise(seed)
        after = before + gain + noise(seed, 1)
        distance = size**exponent * (1 + noise(seed, 2))
        facts = {"ais_forward_before": before, "ais_back_before": before + 1.0}
        facts |= {"ais_forward_after": after + 1.0, "ais_back_after": after}
        settings = {"fast_step_size": size}
        records.append(fake(sampler=FPCD, seed=seed, settings=settings, distance=distance, **facts))
    return records


def hot_chains(fpcd: float = 0.2, hot: float = 0.6, hotter: float = 0.9) -> list[Record]:
    """The share of spurious samples of rates-FPCD, and of Gibbs at four temperatures."""
    shares = {None: fpcd, 1.0: 0.05, 1.5: hot, 2.0: hotter, 3.0: 1.0}
    records = []
    for temperature, seed in product(shares, SEEDS):
        share = shares[temperature] + noise(seed) / 10
        record = fake(
            {"step": [100], "isl": [-90.0]},
            sampler=FPCD if temperature is None else GIBBS,
            seed=seed,
            config={"task": {"temperature": temperature}},
            spurious_share=share,
        )
        records.append(record)
    return records


def large_steps(
    herding: float = 0.5, fpcd: float = 0.5, herding_loss: float = 5.0, fpcd_loss: float = 20.0
) -> list[Record]:
    """Both rates samplers at three fast steps: how many samples are spurious at the largest.

    The ISL of 100 samples is best at the smallest, and lower by the losses at ten times as much.
    """
    records = []
    for name, largest, loss in ((HERDING, herding, herding_loss), (FPCD, fpcd, fpcd_loss)):
        for place, seed in product(range(3), SEEDS):
            isl = -90.0 - place * loss + noise(seed, place)
            share = 0.1 + place / 2 * (largest - 0.1) + noise(seed, place) / 100
            record = fake(
                {"step": [100], "isl": [isl]},
                sampler=name,
                seed=seed,
                settings={"fast_step_size": 0.01 * 10**place},
                spurious_share=share,
                validation_isl=isl,
            )
            records.append(record)
    return records


MADE: dict[str, Made] = {
    "rates-fig1-bolder": Made(
        pixels, {**each(("data",), 0.4), **each((SP,), 0.17)}, true=each(("blank",), 0.5)
    ),
    "rates-fig1-uniform": Made(partial(penalised, None), {
        **each(("slow", "fast"), 0.2), **each(("alternating",), True),
    }),
    "rates-fig1-uniform-spin": Made(partial(penalised, "spin"), {
        **each(("slow", "fast"), 0.2), **each(("alternating",), True),
    }),
    "rates-fig2-parzen": Made(beside_training, each(("ours",), -82.0)),
    "rates-fig2-gibbs-last": Made(last_isl, LAST),
    "rates-fig2-gibbs-last-mnist": Made(last_isl, LAST),
    "rates-fig2-penalization": Made(last_isl, BELOW, true=each((GIBBS,), -80.0)),
    "rates-fig2-penalization-mnist": Made(last_isl, BELOW, true=each((GIBBS,), -80.0)),
    "rates-fig2-first": Made(first_samples, {**each(("first",), -5.0), **EARLY}, true=LEVEL),
    "rates-fig2-first-later": Made(partial(first_samples, first=-5.0), EARLY, true=LEVEL),
    "rates-fig2-first-mnist": Made(first_samples, {**each(("first",), -5.0), **EARLY}, true=LEVEL),
    "rates-fig2-first-mnist-later": Made(partial(first_samples, first=-5.0), EARLY, true=LEVEL),
    "rates-fig2-caught": Made(first_samples, each(("end",), 2.0), true={
        **EARLY, **each(("end",), -2.0),
    }),
    "rates-fig2-caught-mnist": Made(partial(first_samples, end=-5.0), each(("end",), 5.0)),
    "rates-fig2-faster": Made(long_curves, FASTER, NEVER_THERE, NOT_KNOWN),
    "rates-fig2-faster-mnist": Made(long_curves, FASTER, NEVER_THERE, NOT_KNOWN),
    "rates-fig2-hundred-mnist": Made(
        partial(long_curves, gibbs=(-250.0, -200.0, -150.0, -120.0, -110.0)),
        {"all of Gibbs are better": {"gibbs": (-250.0, -200.0, -150.0, -101.0, -95.0)}},
    ),
    "rates-fig2-step": Made(step_sizes, RATIOS, undecided=FLAT),
    "rates-fig2-step-mnist": Made(step_sizes, RATIOS, undecided=FLAT),
    "rates-fig2-long": Made(partial(step_sizes, fpcd=-90.8), {
        **each(("fpcd",), -90.0), **each(("fpcd",), -92.0),
    }),
    "rates-fig2-long-mnist": Made(step_sizes, each(("fpcd",), -95.0)),
    "rates-fig2-regardless-rates": Made(trained_models, {
        **ABOVE, **each((HERDING, FPCD), -125.0),
    }, true=each((SP,), -130.0)),
    "rates-fig2-regardless-penalization": Made(trained_models, {
        **each((SP,), -130.0), **each((GIBBS,), -80.0),
    }, true=each((HERDING, FPCD), -125.0)),
    "rates-fig3-decay": Made(decays, each(("some",), -85.0)),
    "rates-tradeoffs-improves": Made(improved, each(("gain",), -2.0)),
    "rates-tradeoffs-root": Made(improved, {
        **each(("exponent",), 0.2), **each(("exponent",), 1.0),
    }),
    "rates-tradeoffs-faithful": Made(hot_chains, {
        **each(("hot",), 0.1), **each(("hotter",), 0.1), **each(("fpcd",), 0.95),
    }),
    "rates-tradeoffs-spurious": Made(large_steps, each(("herding", "fpcd"), 0.02)),
    "rates-tradeoffs-robust": Made(large_steps, each(("herding_loss",), 40.0)),
    "rates-fig2-similar": Made(similar_costs, {
        **each(("herding",), 3.0), **each(("herding",), 0.3),
    }),
    "rates-fig2-similar-mnist": Made(similar_costs, {
        **each(("herding",), 3.0), **each(("herding",), 0.3),
    }),
    "rates-cost": Made(costs, {
        **each(("usps",), 1.0), **each(("usps",), 4.0),
        **each(("mnist",), 3.5), **each(("mnist",), 14.0),
    }),
}  # fmt: skip
