"""Claims of Breuleux et al. (2011), Section 5.1: how models were trained."""

import math
import operator
from collections import defaultdict
from itertools import product

import numpy as np

from latticework.experiments.papers.claims import compare, readings, thresholds
from latticework.experiments.papers.claims.rates_samplers import PAPER_SAMPLE_COUNT
from latticework.experiments.papers.claims.verdict import Finding, Number, numbers
from latticework.experiments.records.estimates import Estimate, estimate
from latticework.experiments.records.grouping import MIN_COMMON_SEEDS
from latticework.experiments.records.record import Record

METHODS = ("cd", "sml", "fpcd")  # methods of training
PAIR = GIBBS, OURS = ("Block Gibbs", "rates-FPCD")
START = {"data_mean": "the data mean", "uniform": "a uniform start"}
MEAN, UNIFORM = START
DATA = "film reviews"
NEEDED_DATA = "the restaurant reviews of OpenTable, which the paper does not publish"
BEHIND = "last ISL, rates-FPCD - Gibbs"


def stuck_after_cd(records: list[Record]) -> Finding:
    """Gibbs gets stuck in a narrow mode on models trained by CD; rates-FPCD never gets stuck.

    "This causes the ISL measure to decrease, since an increasingly disproportionate weight is given
    to a single sample" (Section 5.1). So a single state has at least the share `NARROW_MODE_SHARE`
    of the samples of Gibbs, and none such of rates-FPCD. That the ISL decreases is judged by
    `depends_on_start`.
    """
    commonest = readings.run_json_value("commonest_share")
    share = {name: _by_model(records, "cd", name, MEAN, commonest) for name in PAIR}
    narrow = thresholds.NARROW_MODE_SHARE.value()
    quantity = "models by CD: share of the commonest sample of"
    margins = [
        compare.margin_above(f"{quantity} {GIBBS}", share[GIBBS], narrow),
        compare.margin_below(f"{quantity} {OURS}", share[OURS], narrow),
    ]
    note = f"narrow mode: one state in {narrow:.0%} of the samples, our threshold"
    return _indicate(margins, numbers(f"{quantity} {{}}", share), note)


def depends_on_start(records: list[Record]) -> Finding:
    """On models by CD, the result of Gibbs depends on its start and its ISL falls.

    Its final ISLs from the data mean and from a uniform start differ by more than `STUCK_NATS`
    nats. Its ISL from the data mean falls after `PAPER_SAMPLE_COUNT` samples. Neither is true of
    rates-FPCD. Finally, Gibbs is further below rates-FPCD than on models trained by SML and FPCD.
    """
    late, shown = readings.last_value("isl"), []
    last: dict[tuple[str, str, str], readings.Seeds] = {}
    for method, name, start in product(METHODS, PAIR, START):
        seeds = _by_model(records, method, name, start, late)
        quantity = f"last ISL by {method.upper()}: {name}, {START[start]}"
        shown.append(Number(quantity, estimate(seeds.values())))
        last[method, name, start] = seeds
    apart, fall = {}, {}
    for name in PAIR:
        gaps = readings.paired_differences(last["cd", name, MEAN], last["cd", name, UNIFORM])
        apart[name] = readings.each_seed(abs, gaps)
        fall[name] = _by_model(records, "cd", name, MEAN, _fall_after_few)
    rise = readings.each_seed(operator.neg, fall[OURS])
    behind = {}
    for method in METHODS:
        ours, theirs = (
            readings.paired_means(last[method, name, MEAN], last[method, name, UNIFORM])
            for name in (OURS, GIBBS)
        )
        behind[method] = readings.paired_differences(ours, theirs)
    quantity, few = "|last ISL, data mean - uniform start|", PAPER_SAMPLE_COUNT
    nats = thresholds.STUCK_NATS.value()
    margins = [
        compare.margin_above(f"models by CD: {quantity} of {GIBBS}", apart[GIBBS], nats),
        compare.margin_below(f"models by CD: {quantity} of {OURS}", apart[OURS], nats),
        compare.positive(f"models by CD: ISL of {GIBBS}, {few} samples - all", fall[GIBBS]),
        compare.positive(f"models by CD: ISL of {OURS}, all samples - {few}", rise),
        compare.positive(f"models by CD: {BEHIND}", behind["cd"]),
    ]
    for method in METHODS[1:]:
        quantity = f"({BEHIND}) by CD - by {method.upper()}"
        margins.append(compare.difference(quantity, behind["cd"], behind[method]))
    count = 0
    for seed, gap in behind["cd"].items():
        count += gap > 0 and fall[GIBBS][seed] > 0 and apart[GIBBS][seed] > nats
    quantity = (
        f"models by CD on which Gibbs depends on its start, falls and ends below, of {len(gaps)}"
    )
    shown.insert(0, Number(quantity, Estimate(count)))
    note = f"spread over models; stuck: two starts differ by {nats:g} nats or more, our threshold"
    return _indicate(margins, shown, note)


def _fall_after_few(record: Record) -> float:
    """How far the last ISL is below that of the first `PAPER_SAMPLE_COUNT` samples."""
    early = readings.value_at("isl", "step", PAPER_SAMPLE_COUNT)(record)
    return early - readings.last_value("isl")(record)


def zeros_after_cd(records: list[Record]) -> Finding:
    """On models trained by CD, the narrow mode of Gibbs is a vector of zeros."""
    on, share = (
        _by_model(records, "cd", GIBBS, MEAN, readings.run_json_value(name))
        for name in ("commonest_on", "commonest_share")
    )
    most = thresholds.BLANK_SHARE.value()
    blank = {seed: share[seed] if on[seed] <= most else 0.0 for seed in on}
    shown = [
        Number("models by CD: share of words in the commonest sample", estimate(on.values())),
        Number("models by CD: share of the commonest sample", estimate(share.values())),
    ]
    quantity = "models by CD: share of blank samples of Gibbs"
    note = f"blank: at most {most:.1%} of the words, if that is the commonest sample; our threshold"
    margin = compare.margin_above(quantity, blank, thresholds.NARROW_MODE_SHARE.value())
    return _indicate([margin], shown, note)


def consistency(records: list[Record]) -> Finding:
    """On models trained by SML and FPCD, rates-FPCD has the higher mean ISL and lower variance.

    Mean and variance are over models, for chains from the data mean. Variances are compared by the
    distances from the median (Brown and Forsythe 1974), in pairs by model. An F interval of their
    ratio would assume normal ISLs, and a single model on which Gibbs is stuck would decide it.
    """
    margins: list[compare.Margin] = []
    shown: list[Number] = []
    last = readings.last_value("isl")
    for method in METHODS[1:]:
        values = {name: _by_model(records, method, name, MEAN, last) for name in PAIR}
        models = readings.common_seeds(*values.values())
        if len(models) < MIN_COMMON_SEEDS:  # two models have the same distance from the median
            raise LookupError(
                f"a variance over models by {method.upper()} needs {MIN_COMMON_SEEDS} models"
            )
        away = {}
        for name, isl in values.items():
            median = float(np.median([isl[model] for model in models]))
            away[name] = {model: abs(isl[model] - median) for model in models}
        where = f"models by {method.upper()}"
        quantity = f"{where}: |last ISL - its median|, Gibbs - rates-FPCD"
        margins.append(compare.difference(f"{where}: {BEHIND}", values[OURS], values[GIBBS]))
        margins.append(compare.difference(quantity, away[GIBBS], away[OURS]))
        shown += numbers(f"last ISL by {method.upper()}: {{}}", values)
    return _indicate(margins, shown, "spread over models, chains from the data mean")


def _indicate(margins: list[compare.Margin], shown: list[Number], note: str) -> Finding:
    """The finding from film reviews, which stand for the paper's and decide nothing."""
    return Finding(margins, shown, note, indicative=DATA, undecidable=NEEDED_DATA)


def best_training(records: list[Record]) -> Finding:
    """The best model by ISL was trained by FPCD."""
    best: dict[str, readings.Seeds] = defaultdict(dict)
    for record in records:
        if "isl" in record.metrics and (method := record.choices.get("negatives")):
            seed, isl = record.config["model_seed"], float(record.metrics["isl"].max())
            best[method][seed] = max(isl, best[method].get(seed, -math.inf))
    if missing := {"cd", "sml", "fpcd", "herding"} - set(best):
        raise LookupError(f"no record of training by {', '.join(sorted(missing))}")
    pairs = [("FPCD", name) for name in ("cd", "sml", "herding")]
    margins = compare.differences("best validation ISL", {"FPCD": best["fpcd"], **best}, pairs)
    note = "each method at its best learning rate and epoch"
    return Finding(margins, numbers("best validation ISL, {}", best), note)


def _by_model(
    records: list[Record], method: str, name: str, start: str, value: readings.Value
) -> readings.Seeds:
    """`value` by model seed, for sampler `name` from `start` on models trained by `method`.

    Records without a choice of start begin at the data mean.
    """
    started = []
    for record in readings.with_choices(records, negatives=method):
        if record.choices.get("start", MEAN) == start:
            started.append(record)
    try:
        chains = readings.records_by_sampler(started, [name], ["isl"])[name]
        return readings.by_seed(chains, value, "model_seed")
    except LookupError as error:
        where = f"models by {method.upper()} from {START[start]}"
        raise LookupError(f"{error.args[0]} on {where}") from error
