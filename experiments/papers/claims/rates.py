"""Claims of Breuleux et al. (2011), Sections 3 to 5: samples and their cost."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from latticework.experiments.papers.claims.pairing import (
    Seeds,
    Value,
    at,
    by_seed,
    common,
    difference,
    labelled,
    last,
    preferred,
    shortest,
    within,
)
from latticework.experiments.papers.claims.verdict import Finding, Margin, Number
from latticework.experiments.records.estimate import Estimate, estimate
from latticework.experiments.records.pace import idle, pace
from latticework.experiments.records.published import printed, published
from latticework.experiments.records.record import Record

FEW = 100  # samples: "100 samples from rates-FPCD"
FIRST, EARLY = (2, 9), (10, 100)  # samples; the first one of a curve is near the start
REACH = math.sqrt(7 / 2)  # of a cost, so that "two" and "seven" times do not overlap
AHEAD = tuple(
    (ours, theirs) for theirs in ("SP", "Block Gibbs") for ours in ("rates-FPCD", "rates-herding")
)
LAST = "ISL of the test rows under all samples"
KEPT = 1e-9  # total variation that rounding may add to an invariant law
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
    margin = difference("ISL, rates-FPCD - the training set", ours, training)
    return Finding((margin,), numbers, LAST)


def penalization_between(records: list[Record]) -> Finding:
    """Sample penalization ends between Gibbs and the two rates samplers."""
    names = ("Block Gibbs", "SP", "rates-herding", "rates-FPCD")
    ends = _ends(records, names)
    margins = (
        difference("ISL, SP - Gibbs", ends["SP"], ends["Block Gibbs"]),
        difference("ISL, rates-herding - SP", ends["rates-herding"], ends["SP"]),
        difference("ISL, rates-FPCD - SP", ends["rates-FPCD"], ends["SP"]),
    )
    return Finding(margins, _numbers(ends), LAST)


def gibbs_last(records: list[Record]) -> Finding:
    """Gibbs ends below each of the three other samplers."""
    ends = _ends(records, ("Block Gibbs", "SP", "rates-herding", "rates-FPCD"))
    gibbs = ends.pop("Block Gibbs")
    margins = [difference(f"ISL, {name} - Gibbs", other, gibbs) for name, other in ends.items()]
    return Finding(tuple(margins), _numbers({"Gibbs": gibbs, **ends}), LAST)


def herding_overtaken(records: list[Record]) -> Finding:
    """Rates-herding leads over the first samples, and ends below rates-FPCD (MNIST)."""
    return _overtaken(records, (FIRST, EARLY))


def herding_overtaken_later(records: list[Record]) -> Finding:
    """`herding_overtaken`, without the first samples."""
    return _overtaken(records, (EARLY,))


def _overtaken(records: list[Record], windows: Sequence[tuple[int, int]]) -> Finding:
    ends = _ends(records, ("rates-herding", "rates-FPCD"))
    what = "last ISL, rates-FPCD - rates-herding"
    behind = difference(what, ends["rates-FPCD"], ends["rates-herding"])
    return Finding((*_early(records, windows), behind), _numbers(ends), _rise_note(windows))


def herding_caught_up(records: list[Record]) -> Finding:
    """Rates-herding leads over the first samples; at the end there is no clear difference."""
    return _caught_up(records, (FIRST, EARLY))


def herding_caught_up_later(records: list[Record]) -> Finding:
    """`herding_caught_up`, without the first samples."""
    return _caught_up(records, (EARLY,))


def _caught_up(records: list[Record], windows: Sequence[tuple[int, int]]) -> Finding:
    ends = _ends(records, ("rates-herding", "rates-FPCD"))
    note = f"{_rise_note(windows)}; {_level_note()}"
    return Finding((*_early(records, windows), *_level(ends)), _numbers(ends), note)


def _level(ends: Mapping[str, Seeds]) -> list[Margin]:
    """An equivalence test of the last ISLs of rates-FPCD and rates-herding.

    They must agree within what the paper calls "a slight margin", the difference between rates-FPCD
    and the training set on USPS.
    """
    seeds = common(ends["rates-FPCD"], ends["rates-herding"])
    gap = {seed: ends["rates-FPCD"][seed] - ends["rates-herding"][seed] for seed in seeds}
    return within("last ISL, rates-FPCD - rates-herding", gap, 0.0, _slight())


def _slight() -> float:
    return printed("rates_fig2", "usps", "rates_fpcd") - printed(
        "rates_fig2", "usps", "training_set"
    )


def _level_note() -> str:
    return f"no clear difference: within {_slight():g} nats, the paper's slight margin"


def _rise_note(windows: Sequence[tuple[int, int]]) -> str:
    spans = " and ".join(f"{first} to {end}" for first, end in windows)
    return f"rises first: the larger mean ISL over the curve points at {spans} samples"


def _early(records: list[Record], windows: Sequence[tuple[int, int]]) -> list[Margin]:
    """Rates-herding's lead over rates-FPCD in the mean ISL of each window of samples."""
    names = ("rates-herding", "rates-FPCD")
    groups, margins = labelled(records, names, ["isl"]), []
    for first, end in windows:

        def early(record: Record, first: int = first, end: int = end) -> float:
            step = record.metrics["step"]
            return float(record.metrics["isl"][(step >= first) & (step <= end)].mean())

        rise = [by_seed(groups[name], early) for name in names]
        what = f"ISL at {first} to {end} samples, rates-herding - rates-FPCD"
        margins.append(difference(what, *rise))
    return margins


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
    return Finding((difference(what, ours, gibbs),), numbers, "ISL of the test rows")


def step_size_ratio(records: list[Record]) -> Finding:
    """In the long run, the best fast step size of rates-herding is 10 to 100 times rates-FPCD's.

    If rates-FPCD was run with several k, its best k in the long run is taken.
    """
    groups = labelled(records, ["rates-herding", "rates-FPCD"], ["isl"])
    updates, ours = _best_updates(groups["rates-FPCD"])
    herding, fpcd = _best_sizes(groups["rates-herding"]), _best_sizes(ours)
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
        Number(f"fast step size of rates-FPCD, k = {updates}", estimate(fpcd.values())),
    )
    note = "best: highest validation ISL under all samples of a model, interpolated"
    return Finding(margins, numbers, note)


def _best_updates(records: list[Record]) -> tuple[int, list[Record]]:
    """The k of rates-FPCD with the best long run at its best step size, and its records."""
    parts: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        parts[record.config["sampler"].get("steps", 1)].append(record)

    def top(some: list[Record]) -> float:
        best = preferred(_by_size(some).values(), _chosen_by)
        return float(np.mean([_chosen_by(record) for record in best]))

    chosen = max(parts, key=lambda k: top(parts[k])) if len(parts) > 1 else next(iter(parts))
    return chosen, parts[chosen]


def long_run(records: list[Record]) -> Finding:
    """Rates-FPCD ends above rates-herding, each at its best fast step size in the long run."""
    ends = _long_ends(records)
    what = "last ISL, rates-FPCD - rates-herding"
    margin = difference(what, ends["rates-FPCD"], ends["rates-herding"])
    return Finding((margin,), _numbers(ends), "best: highest validation ISL in the mean")


def long_run_level(records: list[Record]) -> Finding:
    """No clear difference in the long run, each at its best fast step size (USPS)."""
    ends = _long_ends(records)
    note = f"best: highest validation ISL in the mean; {_level_note()}"
    return Finding(tuple(_level(ends)), _numbers(ends), note)


def _long_ends(records: list[Record]) -> dict[str, Seeds]:
    groups = labelled(records, ["rates-herding", "rates-FPCD"], ["isl"])
    groups["rates-FPCD"] = _best_updates(groups["rates-FPCD"])[1]
    ends: dict[str, Seeds] = {}
    for name in ("rates-herding", "rates-FPCD"):
        best = preferred(_by_size(groups[name]).values(), _chosen_by)
        ends[name] = by_seed(best, last("isl"))
    return ends


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
    some = _sizes(record for record in records if "isl" in record.metrics)
    return {size: group for size, group in some.items() if size > 0}


def _sizes(records: Iterable[Record]) -> dict[float, list[Record]]:
    """The records by their fast step size."""
    found: dict[float, list[Record]] = defaultdict(list)
    for record in records:
        found[record.config["sampler"]["fast_step_size"]].append(record)
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
    return Finding(
        margins,
        numbers,
        "larger and bolder: more pixels on in the stored samples than in those of rates-FPCD and "
        "rates-herding, whose pixel means follow the data; our measure",
    )


def penalization_uniform(coding: str | None = None) -> Callable[[list[Record]], Finding]:
    """Without decay, the samples of sample penalization tend to the uniform distribution.

    `coding` is that of the statistics. Our measure is the fraction of pixels in which two samples
    differ. It is 1/2 if every pixel is on half of the time, and below 1/2 otherwise. Every fast
    step size of the records has to pass.
    """

    def judge(records: list[Record]) -> Finding:
        kept = [
            r
            for r in _with_sequence(records)
            if r.config["sampler"].get("decay") == 1.0
            and r.config["sampler"].get("coding") == coding
        ]
        labelled(kept, ["SP"])
        margins, numbers = [], []
        for size, some in sorted(_sizes(kept).items()):
            apart = by_seed(labelled(some, ["SP"])["SP"], _pairwise)
            what = f"share of pixels in which two samples differ, fast step size {size:g}"
            margins += within(what, apart, 0.5, EVEN)
            numbers.append(Number(what, estimate(apart.values()), Estimate(0.5)))
        note = f"of the stored samples; uniform means 1/2 ± {EVEN:g}; the measure is our choice"
        return Finding(tuple(margins), tuple(numbers), note)

    return judge


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
    groups = labelled(idle(records), ["Block Gibbs", "rates-FPCD"], ["isl", "seconds"])
    ours, gibbs = (by_seed(groups[n], lambda r: r) for n in ("rates-FPCD", "Block Gibbs"))
    logs, reached = [], 0
    for seed in common(ours, gibbs):
        level = at("isl", "step", FEW)(ours[seed])
        waited, there = _samples_to(gibbs[seed], level)
        reached += there
        logs.append(math.log(waited / FEW * pace(gibbs[seed]) / pace(ours[seed])))
    paper = published("rates_fig2", "times_faster", data)
    assert paper is not None
    what = f"log(times faster) - log {paper.mean:g}"
    times = tuple(log - math.log(paper.mean) for log in logs)
    margin = Margin(what, times, at_least=reached < len(logs))
    censored = len(logs) - reached
    few = f", at least ({censored} of {len(logs)} never got there)" if censored else ""
    here = estimate(np.exp(logs))
    numbers = (Number(f"times faster than Gibbs{few}", here, paper),)
    note = (
        f"ratio of the seconds to reach the ISL of {FEW} rates-FPCD samples, Gibbs / rates-FPCD, "
        "each model with its own seconds per sample"
    )
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
    """Rates-FPCD without decay ends above alpha = 0.95, each at its best fast step size.

    Raises LookupError if a best size is at the end of those that were run.
    """
    papers = [printed("rates_fig3", "decay", name) for name in ("best", "other")]
    best: list[Seeds] = []
    numbers = []
    for alpha in papers:
        sizes = _by_size([r for r in records if r.config["sampler"].get("decay") == alpha])
        if not sizes:
            raise LookupError(f"no record of rates-FPCD with decay {alpha:g}")
        scores = {
            size: np.mean([_chosen_by(record) for record in some]) for size, some in sizes.items()
        }
        chosen = max(scores, key=lambda size: scores[size])
        if chosen in (min(scores), max(scores)):
            raise LookupError(
                f"the best fast step size with alpha = {alpha:g}, {chosen:g}, is at the end of "
                "those that were run; run it at smaller and larger ones"
            )
        best.append(by_seed(sizes[chosen], last("isl")))
        what = f"ISL with alpha = {alpha:g}, fast step size {chosen:g}"
        numbers.append(Number(what, estimate(best[-1].values())))
    margin = difference("ISL, (alpha = 1) - (alpha = 0.95)", *best)
    better = papers[int(margin.mean < 0)]
    what = f"the better decay alpha of {papers[0]:g} and {papers[1]:g}"
    numbers.append(Number(what, Estimate(better), published("rates_fig3", "decay", "best")))
    return Finding((margin,), tuple(numbers), "step sizes with the highest mean validation ISL")


def _chosen_by(record: Record) -> float:
    """The validation ISL; the test ISL for records that were made before it was noted."""
    return float(record.document.get("validation_isl", last("isl")(record)))


def cost(records: list[Record]) -> Finding:
    """At equal k, a sample of rates-FPCD costs about 2 (USPS) and 7 (MNIST) times one of Gibbs."""
    margins, numbers = [], []
    for data in ("usps", "mnist"):
        some = idle([r for r in records if r.choices["model"] == f"rbm_{data}"])
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
        margins += within(what, logs, math.log(paper), math.log(REACH))
        text = f"{data.upper()}: time of rates-FPCD / Gibbs"
        numbers.append(Number(text, estimate(ratio.values()), published("rates_cost", data)))
    note = (
        f"seconds a sample at k = 1; about: within a factor of {REACH:.2g}, so that the ranges of "
        "the paper's two ratios meet and do not overlap; the factor is our choice"
    )
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


def regardless(records: list[Record]) -> Finding:
    """On models by several methods, of several sizes and lengths of training, the order is kept.

    Each model is one value. Rates-FPCD and rates-herding end above SP, and SP above Gibbs.
    """
    return _ordered(records, (*AHEAD, ("SP", "Block Gibbs")))


def regardless_rates(records: list[Record]) -> Finding:
    """`regardless`, without the order of SP and Gibbs."""
    return _ordered(records, AHEAD)


def _ordered(records: list[Record], pairs: Sequence[tuple[str, str]]) -> Finding:
    """For each of `pairs`, how far the first sampler ends above the second, by model."""
    names = ("Block Gibbs", "SP", "rates-herding", "rates-FPCD")
    groups = labelled(records, names, ["isl"])
    ends = {
        name: {_trained(record): last("isl")(record) for record in groups[name]} for name in names
    }
    models = sorted(set.intersection(*(set(one) for one in ends.values())))
    methods = {model[0] for model in models}
    if not {"cd", "sml", "fpcd"} <= methods:
        raise LookupError("no model of cd, sml and fpcd that all four samplers were run on")
    numbered = {name: {i: one[m] for i, m in enumerate(models)} for name, one in ends.items()}
    margins, numbers = [], []
    for ours, theirs in pairs:
        margin = difference(f"ISL, {ours} - {theirs}", numbered[ours], numbered[theirs])
        margins.append(margin)
        above = sum(value > 0 for value in margin.values)
        what = f"models on which {ours} ends above {theirs}, of {len(models)}"
        numbers.append(Number(what, Estimate(above)))
    for method in sorted(methods):
        for name in names:
            some = [ends[name][model] for model in models if model[0] == method]
            numbers.append(Number(f"last ISL by {method.upper()}: {name}", estimate(some)))
    note = f"last ISL; spread over {len(models)} models by {', '.join(sorted(methods))}"
    return Finding(tuple(margins), tuple(numbers), note)


def _trained(record: Record) -> tuple[str, int, float, int]:
    """What tells models apart: method, hidden units, epochs and seed of the training."""
    pretrain = record.config["task"]["pretrain"]
    method, hidden = record.choices["negatives"], record.config["model"]["hidden"]
    return method, hidden, pretrain["epochs"], record.config["model_seed"]


def _numbers(ends: dict[str, Seeds]) -> tuple[Number, ...]:
    return tuple(
        Number(f"ISL of {name} samples", estimate(seeds.values())) for name, seeds in ends.items()
    )


def _noted(name: str) -> Value:
    return lambda record: float(record.document[name])
