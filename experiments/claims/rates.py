"""Claims of Breuleux et al. (2011), Sections 3 to 5: samples and their cost. Imports no torch."""

import math
from collections import defaultdict

import numpy as np

from latticework.experiments.claims.pairing import (
    Seeds,
    Value,
    at,
    by_seed,
    common,
    difference,
    labelled,
    last,
    preferred,
    seconds_per_step,
    shortest,
    within,
)
from latticework.experiments.claims.verdict import Finding, Margin, Number
from latticework.experiments.results.estimate import Estimate, estimate
from latticework.experiments.results.published import printed, published
from latticework.experiments.results.record import Record

FEW = 100  # samples: "100 samples from rates-FPCD"
EARLY = (10, 100)  # samples, where the curves rise
EARLY_NOTE = f"early: mean ISL over curve points at {EARLY[0]} to {EARLY[1]} samples"
KEPT = 1e-9  # total variation that rounding may add to an invariant law
FACTOR = 2.0  # in time: our reading of "about"
EVEN = 0.05  # largest deviation from 1/2 of the fraction of differing pixels of uniform samples


def parzen(records: list[Record]) -> Finding:
    """On USPS, rates-FPCD's samples are kernel centres at least as good as the training set."""
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
    return Finding((difference("ISL, rates-FPCD - the training set", ours, training),), numbers)


def penalization_between(records: list[Record]) -> Finding:
    """Sample penalization ends between Gibbs and the two rates samplers."""
    names = ("Block Gibbs", "SP", "rates-herding", "rates-FPCD")
    ends = _ends(records, names)
    margins = (
        difference("ISL, SP - Gibbs", ends["SP"], ends["Block Gibbs"]),
        difference("ISL, rates-herding - SP", ends["rates-herding"], ends["SP"]),
        difference("ISL, rates-FPCD - SP", ends["rates-FPCD"], ends["SP"]),
    )
    return Finding(margins, _numbers(ends))


def herding_overtaken(records: list[Record]) -> Finding:
    """Rates-herding leads over the first samples, and ends below rates-FPCD (MNIST)."""
    early, ends = _early(records), _ends(records, ("rates-herding", "rates-FPCD"))
    what = "last ISL, rates-FPCD - rates-herding"
    behind = difference(what, ends["rates-FPCD"], ends["rates-herding"])
    return Finding((early, behind), _numbers(ends), EARLY_NOTE)


def herding_caught_up(records: list[Record]) -> Finding:
    """Rates-herding leads over the first samples; at the end there is no clear difference.

    The second part is an equivalence test: the final ISLs must agree within what the paper calls
    "a slight margin", the difference between rates-FPCD and the training set on USPS.
    """
    early, ends = _early(records), _ends(records, ("rates-herding", "rates-FPCD"))
    slight = printed("rates_fig2", "usps", "rates_fpcd") - printed(
        "rates_fig2", "usps", "training_set"
    )
    seeds = common(ends["rates-FPCD"], ends["rates-herding"])
    gap = {seed: ends["rates-FPCD"][seed] - ends["rates-herding"][seed] for seed in seeds}
    level = within("last ISL, rates-FPCD - rates-herding", gap, 0.0, slight)
    note = f"{EARLY_NOTE}; no clear difference: within {slight:g} nats, the paper's slight margin"
    return Finding((early, *level), _numbers(ends), note)


def _early(records: list[Record]) -> Margin:
    """Rates-herding's lead over rates-FPCD in the mean ISL of the first samples."""

    def early(record: Record) -> float:
        step = record.metrics["step"]
        return float(record.metrics["isl"][(step >= EARLY[0]) & (step <= EARLY[1])].mean())

    groups = labelled(records, ["rates-herding", "rates-FPCD"], ["isl"])
    rise = {name: by_seed(groups[name], early) for name in ("rates-herding", "rates-FPCD")}
    what = "early ISL, rates-herding - rates-FPCD"
    return difference(what, rise["rates-herding"], rise["rates-FPCD"])


def hundred_beat_all(records: list[Record]) -> Finding:
    """100 samples of rates-FPCD have a higher ISL than all of Gibbs (200,000 in the paper)."""
    few = printed("rates_fig2", "mnist_samples", "rates_fpcd")
    groups = labelled(records, ["Block Gibbs", "rates-FPCD"], ["isl"])
    many = shortest(groups["Block Gibbs"], "step")
    ours = by_seed(groups["rates-FPCD"], at("isl", "step", few))
    gibbs = by_seed(groups["Block Gibbs"], at("isl", "step", many))
    what = f"ISL, {few:g} samples of rates-FPCD - {many:,.0f} of Gibbs"
    numbers = (
        Number(f"ISL of {few:g} samples of rates-FPCD", estimate(ours.values())),
        Number(f"ISL of {many:,.0f} samples of Gibbs", estimate(gibbs.values())),
    )
    return Finding((difference(what, ours, gibbs),), numbers)


def step_size_ratio(records: list[Record]) -> Finding:
    """In the long run, the best fast step size of rates-herding is 10 to 100 times rates-FPCD's."""
    groups = labelled(records, ["rates-herding", "rates-FPCD"], ["isl"])
    herding, fpcd = (_best_sizes(groups[name]) for name in ("rates-herding", "rates-FPCD"))
    ratios = {seed: herding[seed] / fpcd[seed] for seed in common(herding, fpcd)}
    low, high = (printed("rates_fig2", "step_size", end) for end in ("lowest", "highest"))
    what = "fast step size of rates-herding / rates-FPCD"
    margins = (
        Margin(f"log({what}) - log {low:g}", tuple(math.log(r / low) for r in ratios.values())),
        Margin(f"log {high:g} - log({what})", tuple(math.log(high / r) for r in ratios.values())),
    )
    numbers = (
        Number(what, estimate(ratios.values())),
        Number("fast step size of rates-herding", estimate(herding.values())),
        Number("fast step size of rates-FPCD", estimate(fpcd.values())),
    )
    return Finding(margins, numbers, "best: highest validation ISL under all samples of a model")


def long_run(records: list[Record]) -> Finding:
    """Rates-FPCD ends above rates-herding, each at its best fast step size in the long run."""
    groups = labelled(records, ["rates-herding", "rates-FPCD"], ["isl"])
    ends: dict[str, Seeds] = {}
    for name in ("rates-herding", "rates-FPCD"):
        best = preferred(_by_size(groups[name]).values(), _chosen_by)
        ends[name] = by_seed(best, last("isl"))
    what = "last ISL, rates-FPCD - rates-herding"
    return Finding((difference(what, ends["rates-FPCD"], ends["rates-herding"]),), _numbers(ends))


def _best_sizes(records: list[Record]) -> Seeds:
    """The fast step size with the highest validation ISL, by seed.

    It is interpolated: the vertex of the parabola through the best one that was run and its two
    neighbours, over the logarithm of the size. Raises LookupError if the best one is at an end.
    """
    scores = {size: by_seed(some, _chosen_by) for size, some in _by_size(records).items()}
    found: dict[int, float] = {}
    for seed in sorted(set().union(*scores.values())):
        sizes = sorted(size for size in scores if seed in scores[size])
        isl = [scores[size][seed] for size in sizes]
        best = int(np.argmax(isl))
        if not 0 < best < len(sizes) - 1:
            name = records[0].choices["sampler"]
            raise LookupError(
                f"the best fast step size of {name} with seed {seed}, {sizes[best]:g}, is at the "
                "end of those that were run; run it at smaller and larger ones"
            )
        near = slice(best - 1, best + 2)
        square, slope, _ = np.polyfit(np.log(sizes[near]), isl[near], 2)
        found[seed] = float(np.exp(-slope / (2 * square)))
    return found


def _by_size(records: list[Record]) -> dict[float, list[Record]]:
    """The records with an ISL, by their positive fast step size."""
    found: dict[float, list[Record]] = defaultdict(list)
    for record in records:
        size = record.config["sampler"]["fast_step_size"]
        if size > 0 and "isl" in record.metrics:
            found[size].append(record)
    return found


def bolder(records: list[Record]) -> Finding:
    """Images of sample penalization have more pixels on than those of the rates samplers.

    The paper says "larger and bolder" than "the true distribution"; counting pixels is our measure.
    The pixel means of the rates samplers follow those of the training data.
    """
    groups = labelled(_with_sequence(records), ["SP", "rates-herding", "rates-FPCD"])
    shares = {name: by_seed(group, _share_on) for name, group in groups.items()}
    margins = tuple(
        difference(f"share of pixels on, SP - {name}", shares["SP"], shares[name])
        for name in ("rates-herding", "rates-FPCD")
    )
    numbers = tuple(
        Number(f"share of pixels on, {name}", estimate(seeds.values()))
        for name, seeds in shares.items()
    )
    return Finding(margins, numbers, "of the stored samples; the number of pixels is our measure")


def penalization_uniform(records: list[Record]) -> Finding:
    """Without decay, the samples of sample penalization tend to the uniform distribution.

    Our measure is the fraction of pixels in which two samples differ. It is 1/2 if every pixel is
    on half of the time, and below 1/2 otherwise.
    """
    kept = [r for r in _with_sequence(records) if r.config["sampler"].get("decay") == 1.0]
    apart = by_seed(labelled(kept, ["SP"])["SP"], _pairwise)
    what = "share of pixels in which two samples differ"
    number = Number(what, estimate(apart.values()), Estimate(0.5))
    note = f"of the stored samples; uniform means 1/2 ± {EVEN:g}; the measure is our choice"
    return Finding(tuple(within(what, apart, 0.5, EVEN)), (number,), note)


def _with_sequence(records: list[Record]) -> list[Record]:
    return [record for record in records if record.has("sequence")]


def _share_on(record: Record) -> float:
    return float(record.arrays("sequence")["x"].mean())


def _pairwise(record: Record) -> float:
    """Mean fraction of sites in which two distinct samples of the stored sequence differ."""
    x = record.arrays("sequence")["x"]
    on = x.mean(0)
    return float((2 * on * (1 - on)).mean() * len(x) / (len(x) - 1))


def faster_usps(records: list[Record]) -> Finding:
    """On USPS, rates-FPCD covers the states at least 20 times faster than Gibbs, in seconds."""
    return _faster(records, "usps")


def faster_mnist(records: list[Record]) -> Finding:
    """On MNIST, rates-FPCD covers the states at least 250 times faster than Gibbs, in seconds."""
    return _faster(records, "mnist")


def _faster(records: list[Record], data: str) -> Finding:
    """Ratio of the seconds to reach the ISL of `FEW` rates-FPCD samples: Gibbs / rates-FPCD."""
    groups = labelled(records, ["Block Gibbs", "rates-FPCD"], ["isl", "seconds"])
    ours, gibbs = ({r.config["seed"]: r for r in groups[n]} for n in ("rates-FPCD", "Block Gibbs"))
    pace = seconds_per_step({name: groups[name] for name in ("Block Gibbs", "rates-FPCD")})
    cheaper, logs, reached = pace["Block Gibbs"] / pace["rates-FPCD"], [], 0
    seeds = common(
        by_seed(groups["rates-FPCD"], last("isl")), by_seed(groups["Block Gibbs"], last("isl"))
    )
    for seed in seeds:
        level = at("isl", "step", FEW)(ours[seed])
        waited, there = _samples_to(gibbs[seed], level)
        reached += there
        logs.append(math.log(waited / FEW * cheaper))
    paper = published("rates_fig2", "times_faster", data)
    assert paper is not None
    what = f"log(times faster) - log {paper.mean:g}"
    times = tuple(log - math.log(paper.mean) for log in logs)
    margin = Margin(what, times, at_least=reached < len(logs))
    censored = len(logs) - reached
    few = f", at least ({censored} of {len(logs)} never got there)" if censored else ""
    here = estimate(np.exp(logs))
    numbers = (Number(f"times faster than Gibbs{few}", here, paper),)
    note = f"ratio of the seconds to reach the ISL of {FEW} rates-FPCD samples, Gibbs / rates-FPCD"
    return Finding((margin,), numbers, note)


def _samples_to(record: Record, level: float) -> tuple[float, bool]:
    """The number of samples at which the ISL reaches `level`, or all of them; whether it does.

    The ISL is interpolated in the logarithm of the number of samples.
    """
    curve = record.metrics[["step", "isl"]].dropna()
    steps, isl = curve["step"].to_numpy(float), curve["isl"].to_numpy(float)
    there = np.flatnonzero(isl >= level)
    if not len(there):
        return float(steps[-1]), False
    last = int(there[0])
    if last == 0:
        return float(steps[0]), True
    around = slice(last - 1, last + 1)
    return float(np.exp(np.interp(level, isl[around], np.log(steps[around])))), True


def decay(records: list[Record]) -> Finding:
    """Rates-FPCD without decay ends above alpha = 0.95, each at its best fast step size."""
    papers = [published("rates_fig3", "decay", name) for name in ("best", "other")]
    best: list[Seeds] = []
    for paper in papers:
        assert paper is not None
        sizes = _by_size([r for r in records if r.config["sampler"].get("decay") == paper.mean])
        if not sizes:
            raise LookupError(f"no record of rates-FPCD with decay {paper.mean:g}")
        best.append(by_seed(preferred(sizes.values(), _chosen_by), last("isl")))
    numbers = tuple(
        Number(f"ISL with alpha = {paper.mean:g}, best step size", estimate(seeds.values()))
        for paper, seeds in zip(papers, best, strict=True)
        if paper is not None
    )
    return Finding((difference("ISL, (alpha = 1) - (alpha = 0.95)", *best),), numbers)


def _chosen_by(record: Record) -> float:
    """The validation ISL; the test ISL for records that were made before it was noted."""
    return float(record.document.get("validation_isl", last("isl")(record)))


def cost(records: list[Record]) -> Finding:
    """At equal k, a sample of rates-FPCD costs about 2 (USPS) and 7 (MNIST) times one of Gibbs."""
    margins, numbers = [], []
    for data in ("usps", "mnist"):
        some = [r for r in records if r.choices["model"] == f"rbm_{data}"]
        if not some:
            raise LookupError(f"no record of rbm_{data}")
        groups = labelled(some, ["Block Gibbs", "rates-FPCD"])
        ours, gibbs = (
            by_seed(groups[name], _noted("seconds_per_step"))
            for name in ("rates-FPCD", "Block Gibbs")
        )
        ratio = {seed: ours[seed] / gibbs[seed] for seed in common(ours, gibbs)}
        logs = {seed: math.log(value) for seed, value in ratio.items()}
        paper = printed("rates_cost", data)
        what = f"{data.upper()}: log(time of rates-FPCD / Gibbs)"
        margins += within(what, logs, math.log(paper), math.log(FACTOR))
        text = f"{data.upper()}: time of rates-FPCD / Gibbs"
        numbers.append(Number(text, estimate(ratio.values()), published("rates_cost", data)))
    note = f"each within a factor of {FACTOR:g} of the paper's ratio; the factor is our choice"
    return Finding(tuple(margins), tuple(numbers), note)


def staying_less(records: list[Record]) -> Finding:
    """A_lambda keeps the stationary law; its second eigenvalue decreases with lambda."""
    margins = []
    for record in records:
        if not {"lambda", "law_error", "second_eigenvalue"} <= set(record.metrics):
            continue
        table, at_ = record.metrics, f"a = {record.config['model']['coupling']:g}"
        error, values = float(table["law_error"].max()), table["second_eigenvalue"].to_numpy()
        fall = float(-np.diff(values).max())
        margins += [
            Margin(f"{at_}: {KEPT:g} - error of the law", (KEPT - error,), exact=True),
            Margin(f"{at_}: smallest decrease of the second eigenvalue", (fall,), exact=True),
        ]
    if not margins:
        raise LookupError("no record of task=unlearning")
    return Finding(tuple(margins), note="exact, for small chains")


def _ends(records: list[Record], names: tuple[str, ...]) -> dict[str, Seeds]:
    groups = labelled(records, names, ["isl"])
    return {name: by_seed(groups[name], last("isl")) for name in names}


def _numbers(ends: dict[str, Seeds]) -> tuple[Number, ...]:
    return tuple(
        Number(f"ISL of {name} samples", estimate(seeds.values())) for name, seeds in ends.items()
    )


def _noted(name: str) -> Value:
    return lambda record: float(record.document[name])
