"""Claims of Breuleux et al. (2011), Sections 3 and 5. Imports no torch."""

import math
from collections import defaultdict

import numpy as np

from experiments.claims.pairing import (
    Seeds,
    Value,
    at,
    by_seed,
    common,
    labelled,
    last,
    less,
    seconds_per_step,
)
from experiments.claims.verdict import Finding, Margin, Number
from experiments.published import published
from experiments.record import Record
from experiments.tables.table import Estimate, estimate

FEW = 100  # samples: "100 samples from rates-FPCD"
EARLY = (10, 100)  # samples, where the curves rise
KEPT = 1e-9  # total variation that rounding may add to an invariant law


def parzen(records: list[Record]) -> Finding:
    """On USPS all samples of rates-FPCD are at least as good centres as the training set."""
    group = labelled(records, ["rates-FPCD"], ["isl"])["rates-FPCD"]
    ours, training = by_seed(group, last("isl")), by_seed(group, _noted("parzen"))
    numbers = (
        Number(
            "ISL of rates-FPCD samples",
            estimate(ours.values()),
            published("rates_fig2", "usps", "rates_fpcd"),
        ),
        Number(
            "ISL of the training set",
            Estimate(next(iter(training.values()))),
            published("rates_fig2", "usps", "training_set"),
        ),
    )
    return Finding((less("ISL, rates-FPCD less the training set", ours, training),), numbers)


def penalization_between(records: list[Record]) -> Finding:
    """Sample penalization ends between Gibbs and the two others."""
    names = ("Block Gibbs", "SP", "rates-herding", "rates-FPCD")
    ends = _ends(records, names)
    margins = (
        less("ISL, SP less Gibbs", ends["SP"], ends["Block Gibbs"]),
        less("ISL, rates-herding less SP", ends["rates-herding"], ends["SP"]),
        less("ISL, rates-FPCD less SP", ends["rates-FPCD"], ends["SP"]),
    )
    return Finding(margins, _numbers(ends))


def herding_overtaken(records: list[Record]) -> Finding:
    """Rates-herding is ahead over the first samples, and behind rates-FPCD in the end."""
    groups = labelled(records, ["rates-herding", "rates-FPCD"], ["isl"])

    def early(record: Record) -> float:
        step = record.metrics["step"]
        return float(record.metrics["isl"][(step >= EARLY[0]) & (step <= EARLY[1])].mean())

    rise = {name: by_seed(groups[name], early) for name in ("rates-herding", "rates-FPCD")}
    ends = _ends(records, ("rates-herding", "rates-FPCD"))
    margins = (
        less("early ISL, rates-herding less rates-FPCD", rise["rates-herding"], rise["rates-FPCD"]),
        less("last ISL, rates-FPCD less rates-herding", ends["rates-FPCD"], ends["rates-herding"]),
    )
    note = f"early: the mean over the readings at {EARLY[0]} to {EARLY[1]} samples"
    return Finding(margins, _numbers(ends), note)


def faster_usps(records: list[Record]) -> Finding:
    """Rates-FPCD covers the states at least 20 times faster than Gibbs, in seconds."""
    return _faster(records, "usps")


def faster_mnist(records: list[Record]) -> Finding:
    """At least 250 times on MNIST."""
    return _faster(records, "mnist")


def _faster(records: list[Record], data: str) -> Finding:
    """Seconds of Gibbs to the ISL of `FEW` samples of rates-FPCD, over those of rates-FPCD."""
    groups = labelled(records, ["Block Gibbs", "rates-FPCD"], ["isl", "seconds"])
    ours, gibbs = ({r.config["seed"]: r for r in groups[n]} for n in ("rates-FPCD", "Block Gibbs"))
    pace = [seconds_per_step(groups[name]) for name in ("Block Gibbs", "rates-FPCD")]
    cheaper, logs, reached = pace[0] / pace[1], [], 0
    seeds = common(
        by_seed(groups["rates-FPCD"], last("isl")), by_seed(groups["Block Gibbs"], last("isl"))
    )
    for seed in seeds:
        level = at("isl", "step", FEW)(ours[seed])
        there = gibbs[seed].metrics["isl"] >= level
        reached += bool(there.any())
        samples = gibbs[seed].metrics["step"]
        waited = samples[there.idxmax()] if there.any() else samples.iloc[-1]
        logs.append(math.log(waited / FEW * cheaper))
    paper = published("rates_fig2", "times_faster", data)
    assert paper is not None
    what = f"log of how many times faster, less log {paper.mean:g}"
    times = tuple(log - math.log(paper.mean) for log in logs)
    margin = Margin(what, times, at_least=reached < len(logs))
    censored = len(logs) - reached
    few = f", at least ({censored} of {len(logs)} never got there)" if censored else ""
    here = estimate(np.exp(logs))
    numbers = (Number(f"times faster than Gibbs{few}", here, paper),)
    note = f"seconds of Gibbs to the ISL of {FEW} rates-FPCD samples, over those of rates-FPCD"
    return Finding((margin,), numbers, note)


def decay(records: list[Record]) -> Finding:
    """Without decay it ends above alpha = 0.95, each at the fast step size that is best for it."""
    papers = [published("rates_fig3", "decay", name) for name in ("best", "other")]
    best: list[Seeds] = []
    for paper in papers:
        assert paper is not None
        sizes: dict[float, list[Record]] = defaultdict(list)
        for record in records:
            if record.config["sampler"].get("decay") == paper.mean and "isl" in record.metrics:
                sizes[record.config["sampler"]["fast_step_size"]].append(record)
        if not sizes:
            raise LookupError(f"no record of rates-FPCD with decay {paper.mean:g}")
        best.append(by_seed(max(sizes.values(), key=_chosen_by), last("isl")))
    numbers = tuple(
        Number(f"ISL with alpha = {paper.mean:g}, best step size", estimate(seeds.values()))
        for paper, seeds in zip(papers, best, strict=True)
        if paper is not None
    )
    return Finding((less("ISL, alpha = 1 less alpha = 0.95", *best),), numbers)


def _chosen_by(group: list[Record]) -> float:
    """Mean validation ISL; mean test ISL for records that were made before it was noted."""
    return float(np.mean([r.document.get("validation_isl", last("isl")(r)) for r in group]))


def words(records: list[Record]) -> Finding:
    """On CD-trained models Gibbs falls behind rates-FPCD, and by more than on the others."""
    gaps, numbers = {}, []
    for method in ("cd", "sml", "fpcd"):
        some = [record for record in records if record.choices.get("negatives") == method]
        groups = labelled(some, ["Block Gibbs", "rates-FPCD"], ["isl"])
        ours, gibbs = (
            by_seed(groups[name], last("isl"), "model_seed")
            for name in ("rates-FPCD", "Block Gibbs")
        )
        gaps[method] = {seed: ours[seed] - gibbs[seed] for seed in common(ours, gibbs)}
        numbers += [
            Number(f"ISL of rates-FPCD on models by {method.upper()}", estimate(ours.values())),
            Number(f"ISL of Gibbs on models by {method.upper()}", estimate(gibbs.values())),
        ]
    behind = tuple(gaps["cd"].values())
    margins = (
        Margin("models by CD: ISL, rates-FPCD less Gibbs", behind),
        less("the same less that on models by SML", gaps["cd"], gaps["sml"]),
        less("the same less that on models by FPCD", gaps["cd"], gaps["fpcd"]),
    )
    return Finding(margins, tuple(numbers), "spread over models")


def cost(records: list[Record]) -> Finding:
    """A sample of rates-FPCD costs 2 to 7 times one of Gibbs at equal k, on each model."""
    papers = {data: published("rates_cost", data) for data in ("usps", "mnist")}
    low, high = sorted(paper.mean for paper in papers.values() if paper is not None)
    margins, numbers = [], []
    for data, paper in papers.items():
        some = [r for r in records if r.choices["model"] == f"rbm_{data}"]
        if not some:
            continue
        groups = labelled(some, ["Block Gibbs", "rates-FPCD"])
        ours, gibbs = (
            by_seed(groups[name], _noted("seconds_per_step"))
            for name in ("rates-FPCD", "Block Gibbs")
        )
        ratio = [ours[seed] / gibbs[seed] for seed in common(ours, gibbs)]
        what = f"{data.upper()}: time of rates-FPCD over Gibbs's"
        margins += [
            Margin(f"{what}, less {low:g}", tuple(value - low for value in ratio)),
            Margin(f"{high:g} less {what}", tuple(high - value for value in ratio)),
        ]
        numbers.append(Number(what, estimate(ratio), paper))
    if not margins:
        raise LookupError("no record of rbm_usps or rbm_mnist")
    return Finding(tuple(margins), tuple(numbers))


def staying_less(records: list[Record]) -> Finding:
    """A_lambda keeps the law and has a smaller second eigenvalue, the more so for larger lambda."""
    margins = []
    for record in records:
        if not {"lambda", "law_error", "second_eigenvalue"} <= set(record.metrics):
            continue
        table, at_ = record.metrics, f"a = {record.config['model']['coupling']:g}"
        error, values = float(table["law_error"].max()), table["second_eigenvalue"].to_numpy()
        fall = float(-np.diff(values).max())
        margins += [
            Margin(f"{at_}: {KEPT:g} less the law's error", (KEPT - error,), exact=True),
            Margin(f"{at_}: least fall of the second eigenvalue", (fall,), exact=True),
        ]
    if not margins:
        raise LookupError("no record of task=unlearning")
    return Finding(tuple(margins), note="exact, of small chains")


def best_training(records: list[Record]) -> Finding:
    """The best model by ISL is one trained by FPCD."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for record in records:
        if "isl" in record.metrics and (method := record.choices.get("negatives")):
            seed, best = record.config["model_seed"], float(record.metrics["isl"].max())
            found[method][seed] = max(best, found[method].get(seed, -math.inf))
    if missing := {"cd", "sml", "fpcd", "herding"} - set(found):
        raise LookupError(f"no record of training by {', '.join(sorted(missing))}")
    margins = tuple(
        less(f"best validation ISL, FPCD less {name}", found["fpcd"], found[name])
        for name in ("cd", "sml", "herding")
    )
    numbers = tuple(
        Number(f"best validation ISL, {name}", estimate(seeds.values()))
        for name, seeds in found.items()
    )
    return Finding(margins, numbers, "each method at its best learning rate and epoch")


def _ends(records: list[Record], names: tuple[str, ...]) -> dict[str, Seeds]:
    groups = labelled(records, names, ["isl"])
    return {name: by_seed(groups[name], last("isl")) for name in names}


def _numbers(ends: dict[str, Seeds]) -> tuple[Number, ...]:
    return tuple(
        Number(f"ISL of {name} samples", estimate(seeds.values())) for name, seeds in ends.items()
    )


def _noted(name: str) -> Value:
    return lambda record: float(record.document[name])
