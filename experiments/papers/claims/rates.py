"""Claims of Breuleux et al. (2011), Sections 3 to 5: samples and their cost."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from latticework.experiments.papers.claims.verdict import (
    Finding,
    Margin,
    Number,
    Seeds,
    best_part,
    by_seed,
    common_seeds,
    differences,
    equivalence_margins,
    final_values,
    last_value,
    logs,
    margin_above,
    margin_below,
    margin_of_difference,
    numbers,
    paired_differences,
    paired_ratios,
    records_by_sampler,
    run_json_value,
    shortest,
    value_at,
)
from latticework.experiments.records.estimates import (
    Estimate,
    drop_shared_core,
    estimate,
    published_estimate,
    published_mean,
    step_seconds,
)
from latticework.experiments.records.grouping import group_by
from latticework.experiments.records.record import Record

GIBBS, SP, HERDING, FPCD = NAMES = ("Block Gibbs", "SP", "rates-herding", "rates-FPCD")
PAPER_SAMPLE_COUNT = 100  # samples: "100 samples from rates-FPCD"
FIRST, EARLY = (2, 9), (10, 100)  # samples; the first one of a curve is near the start
COST_TOLERANCE_FACTOR = math.sqrt(
    7 / 2
)  # of a cost, so that "two" and "seven" times do not overlap
AHEAD = tuple((ours, theirs) for theirs in (SP, GIBBS) for ours in (FPCD, HERDING))
LAST = "ISL of the test rows under all samples"
SAMPLES = "ISL of {} samples"
MAX_LAW_ERROR = 1e-9  # total variation that rounding may add to an invariant law
# Uniform samples differ in 1/2 of the pixels; the largest deviation from it.
UNIFORM_TOLERANCE = 0.05


def parzen(records: list[Record]) -> Finding:
    """On USPS, rates-FPCD's samples are kernel centres at least as good as the training set."""
    ours = final_values(records, [FPCD], "isl")[FPCD]
    training = final_values(records, [FPCD], "isl", run_json_value("parzen"))[FPCD]
    papers = [
        published_estimate("rates_fig2", "usps", name) for name in ("rates_fpcd", "training_set")
    ]
    shown = [
        Number("ISL of rates-FPCD samples", estimate(ours.values()), papers[0]),
        Number("ISL of the training set", Estimate(next(iter(training.values()))), papers[1]),
    ]
    margin = margin_of_difference("ISL, rates-FPCD - the training set", ours, training)
    return Finding([margin], shown, LAST)


def penalization_between(records: list[Record]) -> Finding:
    """Sample penalization ends between Gibbs and the two rates samplers."""
    found = final_values(records, NAMES, "isl")
    pairs = ((SP, "Gibbs"), (HERDING, SP), (FPCD, SP))
    margins = differences("ISL", found | {"Gibbs": found[GIBBS]}, pairs)
    return Finding(margins, numbers(SAMPLES, found), LAST)


def gibbs_last(records: list[Record]) -> Finding:
    """Gibbs ends below each of the three other samplers."""
    found = final_values(records, NAMES, "isl")
    named = {"Gibbs": found.pop(GIBBS), **found}
    margins = differences("ISL", named, [(name, "Gibbs") for name in found])
    return Finding(margins, numbers(SAMPLES, named), LAST)


def herding(
    records: list[Record], overtaken: bool, windows: Sequence[tuple[int, int]] = (FIRST, EARLY)
) -> Finding:
    """Rates-herding leads over the first samples.

    At the end it is `overtaken` by rates-FPCD (MNIST), or there is no clear difference (USPS).
    """
    found = final_values(records, (HERDING, FPCD), "isl")
    spans = " and ".join(f"{first} to {end}" for first, end in windows)
    note = f"rises first: the larger mean ISL over the curve points at {spans} samples"
    margins = []
    for first, end in windows:

        def early(record: Record, first: int = first, end: int = end) -> float:
            step = record.metrics["step"]
            return float(record.metrics["isl"][(step >= first) & (step <= end)].mean())

        what = f"ISL at {first} to {end} samples"
        lead = final_values(records, (HERDING, FPCD), "isl", early)
        margins += differences(what, lead, [(HERDING, FPCD)])
    if overtaken:
        margins += differences("last ISL", found, [(FPCD, HERDING)])
        return Finding(margins, numbers(SAMPLES, found), note)
    return Finding([*margins, *_level(found)], numbers(SAMPLES, found), f"{note}; {_level_note()}")


def _level(found: Mapping[str, Seeds]) -> list[Margin]:
    """An equivalence test of the last ISLs of rates-FPCD and rates-herding, within `_slight`."""
    lead = paired_differences(found[FPCD], found[HERDING])
    return equivalence_margins(f"last ISL, {FPCD} - {HERDING}", lead, 0.0, _slight())


def _slight() -> float:
    """The paper's "slight margin": the ISL of rates-FPCD less that of the training set on USPS."""
    ours, training = (
        published_mean("rates_fig2", "usps", n) for n in ("rates_fpcd", "training_set")
    )
    return ours - training


def _level_note() -> str:
    return f"no clear difference: within {_slight():g} nats, the paper's slight margin"


def hundred_beat_all(records: list[Record]) -> Finding:
    """100 samples of rates-FPCD have a higher ISL than all of Gibbs (200,000 in the paper)."""
    few = published_mean("rates_fig2", "mnist_samples", "rates_fpcd")
    many = shortest(records_by_sampler(records, [GIBBS], ["isl"])[GIBBS], "step")
    ours = final_values(records, [FPCD], "isl", value_at("isl", "step", few))[FPCD]
    gibbs = final_values(records, [GIBBS], "isl", value_at("isl", "step", many))[GIBBS]
    shown = [
        Number(f"ISL of {few:g} samples of rates-FPCD", estimate(ours.values())),
        Number(f"ISL of {many:,.0f} samples of Gibbs", estimate(gibbs.values())),
    ]
    margin = margin_of_difference(
        f"ISL, {few:g} samples of rates-FPCD - {many:,.0f} of Gibbs", ours, gibbs
    )
    return Finding([margin], shown, "ISL of the test rows")


def step_size_ratio(records: list[Record]) -> Finding:
    """In the long run, the best fast step size of rates-herding is 10 to 100 times rates-FPCD's.

    If rates-FPCD was run with several k, its best k in the long run is taken.
    """
    groups = records_by_sampler(records, [HERDING, FPCD], ["isl"])
    updates, ours = _best_updates(groups[FPCD])
    herding_sizes, sizes = _best_sizes(groups[HERDING]), _best_sizes(ours)
    ratios = paired_ratios(herding_sizes, sizes)
    low, high = (published_mean("rates_fig2", "step_size", end) for end in ("lowest", "highest"))
    what = "fast step size of rates-herding / rates-FPCD"
    margins = [
        margin_above(f"log({what})", logs(ratios), math.log(low)),
        margin_below(f"log({what})", logs(ratios), math.log(high)),
    ]
    shown = [
        Number(what, estimate(ratios.values())),
        Number("fast step size of rates-herding", estimate(herding_sizes.values())),
        Number(f"fast step size of rates-FPCD, k = {updates}", estimate(sizes.values())),
    ]
    note = "best: highest validation ISL under all samples of a model, interpolated"
    return Finding(margins, shown, note)


def _best_updates(records: list[Record]) -> tuple[int, list[Record]]:
    """The k of rates-FPCD with the best long run at its best step size, and its records."""
    parts = group_by(lambda record: record.config["sampler"].get("steps", 1), records)

    def top(some: list[Record]) -> float:
        best = best_part(_by_size(some).values(), _chosen_by)
        return float(np.mean([_chosen_by(record) for record in best]))

    chosen = max(parts, key=lambda k: top(parts[k])) if len(parts) > 1 else next(iter(parts))
    return chosen, parts[chosen]


def long_run(records: list[Record], level: bool = False) -> Finding:
    """Rates-FPCD ends above rates-herding, each at its best fast step size in the long run.

    With `level`, there is no clear difference (USPS).
    """
    groups = records_by_sampler(records, [HERDING, FPCD], ["isl"])
    groups[FPCD] = _best_updates(groups[FPCD])[1]
    found = {
        name: by_seed(best_part(_by_size(groups[name]).values(), _chosen_by), last_value("isl"))
        for name in (HERDING, FPCD)
    }
    margins = _level(found) if level else differences("last ISL", found, [(FPCD, HERDING)])
    note = "best: highest validation ISL in the mean"
    if level:
        added = "fast steps above 0.3 at k = 1 were added after a look at the smaller ones"
        note = f"{note}; {_level_note()}; {added}"
    return Finding(margins, numbers(SAMPLES, found), note)


def _best_sizes(records: list[Record]) -> Seeds:
    """The fast step size with the highest validation ISL, by seed.

    It is interpolated: the vertex of the parabola through the best one that was run and its two
    neighbours, over the logarithm of the size. Raises LookupError if the best one is at an end.
    """
    scores = {size: by_seed(some, _chosen_by) for size, some in _by_size(records).items()}
    found: Seeds = {}
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


def _by_size(records: Iterable[Record]) -> dict[float, list[Record]]:
    """The records with an ISL, by their positive fast step size."""
    some = _sizes(record for record in records if "isl" in record.metrics)
    return {size: group for size, group in some.items() if size > 0}


def _sizes(records: Iterable[Record]) -> dict[float, list[Record]]:
    """The records by their fast step size."""
    return group_by(lambda record: record.config["sampler"]["fast_step_size"], records)


def judge_pixels_on(records: list[Record]) -> Finding:
    """Images of sample penalization have more pixels on than those of the rates samplers.

    The paper says "larger and bolder" than "the true distribution"; counting pixels is our measure.
    The pixel means of the rates samplers follow those of the training data.
    """
    groups = records_by_sampler(
        [record for record in records if record.has_array("sequence")], NAMES
    )
    shares = {
        name: by_seed(group, lambda record: float(record.arrays("sequence")["x"].mean()))
        for name, group in groups.items()
    }
    return Finding(
        differences("share of pixels on", shares, [(SP, HERDING), (SP, FPCD)]),
        numbers("share of pixels on, {}", shares),
        "larger and bolder: more pixels on in the stored samples than in those of rates-FPCD and "
        "rates-herding, whose pixel means follow the data; our measure",
    )


def penalization_uniform(records: list[Record], coding: str | None = None) -> Finding:
    """Without decay, the samples of sample penalization tend to the uniform distribution.

    `coding` is that of the statistics. Our measure is the fraction of pixels in which two samples
    differ. It is 1/2 if every pixel is on half of the time, and below 1/2 otherwise. Every fast
    step size of the records has to pass.
    """
    settings = {"decay": 1.0, "coding": coding}
    kept = [
        record
        for record in records
        if record.has_array("sequence")
        and all(record.config["sampler"].get(key) == value for key, value in settings.items())
    ]
    records_by_sampler(kept, [SP])
    margins, shown = [], []
    for size, some in sorted(_sizes(kept).items()):
        apart = by_seed(records_by_sampler(some, [SP])[SP], _pairwise)
        what = f"share of pixels in which two samples differ, fast step size {size:g}"
        margins += equivalence_margins(what, apart, 0.5, UNIFORM_TOLERANCE)
        shown.append(Number(what, estimate(apart.values()), Estimate(0.5)))
    note = f"of the stored samples; uniform means 1/2 ± {UNIFORM_TOLERANCE:g}; "
    note += "the measure is our choice"
    return Finding(margins, shown, note)


def _pairwise(record: Record) -> float:
    """Mean fraction of sites in which two distinct samples of the stored sequence differ."""
    x = record.arrays("sequence")["x"]
    on = x.mean(0)
    return float((2 * on * (1 - on)).mean() * len(x) / (len(x) - 1))


def judge_time_ratio(records: list[Record], data: str) -> Finding:
    """Judge the ratio of seconds, Gibbs / rates-FPCD, to the ISL of few rates-FPCD samples."""
    groups = records_by_sampler(drop_shared_core(records), [GIBBS, FPCD], ["isl", "seconds"])
    ours, gibbs = (by_seed(groups[name], lambda r: r) for name in (FPCD, GIBBS))
    times, reached = [], 0
    for seed in common_seeds(ours, gibbs):
        waited, there = _samples_to(
            gibbs[seed], value_at("isl", "step", PAPER_SAMPLE_COUNT)(ours[seed])
        )
        reached += there
        times.append(
            waited / PAPER_SAMPLE_COUNT * step_seconds(gibbs[seed]) / step_seconds(ours[seed])
        )
    paper, censored = published_mean("rates_fig2", "times_faster", data), len(times) - reached
    what = f"log(times faster) - log {paper:g}"
    values = tuple(math.log(time / paper) for time in times)
    few = f", at least ({censored} of {len(times)} never got there)" if censored else ""
    number = Number(f"times faster than Gibbs{few}", estimate(times), Estimate(paper))
    note = (
        f"ratio of the seconds to reach the ISL of {PAPER_SAMPLE_COUNT} rates-FPCD samples, "
        "Gibbs / rates-FPCD, "
        "each model with its own seconds per sample"
    )
    return Finding([Margin(what, values, at_least=censored > 0)], [number], note)


def _samples_to(record: Record, level: float) -> tuple[float, bool]:
    """The number of samples at which the ISL reaches `level`, or all of them; whether it does.

    The ISL is interpolated in the logarithm of the number of samples.
    """
    curve = record.metrics[["step", "isl"]].dropna()
    steps, isl = curve["step"].to_numpy(float), curve["isl"].to_numpy(float)
    there = np.flatnonzero(isl >= level)
    if not len(there) or there[0] == 0:
        return float(steps[0 if len(there) else -1]), len(there) > 0
    around = slice(there[0] - 1, there[0] + 1)
    return float(np.exp(np.interp(level, isl[around], np.log(steps[around])))), True


def decay(records: list[Record]) -> Finding:
    """Rates-FPCD without decay ends above alpha = 0.95, each at its best fast step size.

    Raises LookupError if a best size is at the end of those that were run.
    """
    papers = [published_mean("rates_fig3", "decay", name) for name in ("best", "other")]
    best: list[Seeds] = []
    shown = []
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
        best.append(by_seed(sizes[chosen], last_value("isl")))
        what = f"ISL with alpha = {alpha:g}, fast step size {chosen:g}"
        shown.append(Number(what, estimate(best[-1].values())))
    margin = margin_of_difference("ISL, (alpha = 1) - (alpha = 0.95)", *best)
    better = Estimate(papers[int(margin.mean < 0)])
    what = f"the better decay alpha of {papers[0]:g} and {papers[1]:g}"
    shown.append(Number(what, better, published_estimate("rates_fig3", "decay", "best")))
    return Finding([margin], shown, "step sizes with the highest mean validation ISL")


def _chosen_by(record: Record) -> float:
    """The validation ISL; the test ISL for records that were made before it was noted."""
    return float(record.document.get("validation_isl", last_value("isl")(record)))


def cost(records: list[Record]) -> Finding:
    """At equal k, a sample of rates-FPCD costs about 2 (USPS) and 7 (MNIST) times one of Gibbs."""
    margins, shown = [], []
    for data in ("usps", "mnist"):
        some = drop_shared_core([r for r in records if r.choices["model"] == f"rbm_{data}"])
        if not some:
            raise LookupError(f"no record of rbm_{data}")
        groups = records_by_sampler(some, [GIBBS, FPCD])
        ours, gibbs = (
            by_seed(groups[name], run_json_value("seconds_per_step")) for name in (FPCD, GIBBS)
        )
        times, paper = paired_ratios(ours, gibbs), published_mean("rates_cost", data)
        what = f"{data.upper()}: log(time of rates-FPCD / Gibbs)"
        margins += equivalence_margins(
            what, logs(times), math.log(paper), math.log(COST_TOLERANCE_FACTOR)
        )
        text = f"{data.upper()}: time of rates-FPCD / Gibbs"
        shown.append(Number(text, estimate(times.values()), published_estimate("rates_cost", data)))
    note = (
        f"seconds a sample at k = 1; about: within a factor of {COST_TOLERANCE_FACTOR:.2g}, "
        "so that the ranges of "
        "the paper's two ratios meet and do not overlap; the factor is our choice; on one machine, "
        "and the ratio depends on it"
    )
    return Finding(margins, shown, note)


def staying_less(records: list[Record]) -> Finding:
    """A_lambda keeps the stationary law; its second eigenvalue decreases with lambda."""
    margins = []
    for record in records:
        if not {"lambda", "law_error", "second_eigenvalue"} <= set(record.metrics):
            continue
        table, where = record.metrics, f"a = {record.config['model']['coupling']:g}"
        error, values = float(table["law_error"].max()), table["second_eigenvalue"].to_numpy()
        fall = float(-np.diff(values).max())
        margins += [
            replace(
                margin_below(f"{where}: error of the law", {0: error}, MAX_LAW_ERROR), exact=True
            ),
            Margin(f"{where}: smallest decrease of the second eigenvalue", (fall,), exact=True),
        ]
    if not margins:
        raise LookupError("no record of task=unlearning")
    return Finding(margins, note="exact, for small chains")


def regardless(
    records: list[Record], pairs: Sequence[tuple[str, str]] = (*AHEAD, (SP, GIBBS))
) -> Finding:
    """For each of `pairs`, how far the first sampler ends above the second, by model.

    The models were trained by several methods, and differ in size and length of training. Each is
    one value.
    """
    groups = records_by_sampler(records, NAMES, ["isl"])
    found = {name: {_trained(r): last_value("isl")(r) for r in groups[name]} for name in NAMES}
    models = sorted(set.intersection(*(set(one) for one in found.values())))
    methods = sorted({model[0] for model in models})
    if not {"cd", "sml", "fpcd"} <= set(methods):
        raise LookupError("no model of cd, sml and fpcd that all four samplers were run on")
    numbered = {name: {i: one[m] for i, m in enumerate(models)} for name, one in found.items()}
    margins, shown = differences("ISL", numbered, pairs), []
    for (ours, theirs), margin in zip(pairs, margins, strict=True):
        what = f"models on which {ours} ends above {theirs}, of {len(models)}"
        shown.append(Number(what, Estimate(sum(value > 0 for value in margin.values))))
    for method in methods:
        for name in NAMES:
            some = [found[name][model] for model in models if model[0] == method]
            shown.append(Number(f"last ISL by {method.upper()}: {name}", estimate(some)))
    note = f"last ISL; spread over {len(models)} models by {', '.join(methods)}"
    return Finding(margins, shown, note)


def _trained(record: Record) -> tuple[str, int, float, int]:
    """What tells models apart: method, hidden units, epochs and seed of the training."""
    pretrain = record.config["task"]["pretrain"]
    method, hidden = record.choices["negatives"], record.config["model"]["hidden"]
    return method, hidden, pretrain["epochs"], record.config["model_seed"]
