"""Claims of Breuleux et al. (2011), Section 5.1: how models were trained."""

import math
from collections import defaultdict
from itertools import product

import numpy as np

from latticework.experiments.papers.claims.rates import PAPER_SAMPLE_COUNT
from latticework.experiments.papers.claims.verdict import (
    Finding,
    Margin,
    Number,
    Seeds,
    Value,
    by_seed,
    common_seeds,
    differences,
    last_value,
    margin_above,
    margin_below,
    margin_of_difference,
    margin_positive,
    numbers,
    paired_differences,
    records_by_sampler,
    run_json_value,
    value_at,
)
from latticework.experiments.records.estimates import estimate
from latticework.experiments.records.grouping import MIN_COMMON_SEEDS
from latticework.experiments.records.record import Record

METHODS = ("cd", "sml", "fpcd")  # of training
PAIR = GIBBS, OURS = ("Block Gibbs", "rates-FPCD")
START = {"data_mean": "the data mean", "uniform": "a uniform start"}
MEAN, UNIFORM = START
STUCK_NATS = 10.0  # a chain is stuck if two starts differ by this many nats
# Share of one state among the samples: our reading of "disproportionate".
NARROW_MODE_SHARE = 0.1
# A state with at most five of 1,000 words counts as a vector of zeros.
MAX_BLANK_SHARE = 0.005
BEHIND = "last ISL, rates-FPCD - Gibbs"


def stuck_after_cd(records: list[Record]) -> Finding:
    """Gibbs gets stuck in a narrow mode on models trained by CD; rates-FPCD never gets stuck.

    "This causes the ISL measure to decrease, since an increasingly disproportionate weight is given
    to a single sample" (Section 5.1). The claim needs `depends_on_start`, and on models trained by
    CD a single state with at least the share `NARROW_MODE_SHARE` of the samples of Gibbs, and none
    such of rates-FPCD.
    """
    finding = depends_on_start(records)
    share = {
        name: _models(records, "cd", name, MEAN, run_json_value("commonest_share")) for name in PAIR
    }
    what = "models by CD: share of the commonest sample of"
    margins = [
        margin_above(f"{what} {GIBBS}", share[GIBBS], NARROW_MODE_SHARE),
        margin_below(f"{what} {OURS}", share[OURS], NARROW_MODE_SHARE),
    ]
    note = f"{finding.note}; narrow mode: one state in {NARROW_MODE_SHARE:.0%} of the samples, "
    note += "our threshold"
    shown = [*numbers(f"{what} {{}}", share), *finding.numbers]
    return Finding([*margins, *finding.margins], shown, note)


def depends_on_start(records: list[Record]) -> Finding:
    """On models by CD, the result of Gibbs depends on its start and its ISL falls.

    Its final ISLs from the data mean and from a uniform start differ by more than `STUCK_NATS`
    nats. Its ISL from the data mean falls after `PAPER_SAMPLE_COUNT` samples. Neither is true of
    rates-FPCD. Finally, Gibbs is further below rates-FPCD than on models trained by SML and FPCD.
    """
    found = {
        key: _models(records, *key, last_value("isl")) for key in product(METHODS, PAIR, START)
    }
    shown = [
        Number(f"last ISL by {method.upper()}: {name}, {START[start]}", estimate(seeds.values()))
        for (method, name, start), seeds in found.items()
    ]
    early, late = value_at("isl", "step", PAPER_SAMPLE_COUNT), last_value("isl")
    apart, fall, behind = {}, {}, {}
    for name in PAIR:
        gaps = paired_differences(found["cd", name, MEAN], found["cd", name, UNIFORM])
        apart[name] = {seed: abs(value) for seed, value in gaps.items()}
        fall[name] = _models(records, "cd", name, MEAN, lambda r: early(r) - late(r))
    for method in METHODS:
        theirs, own = (_averaged(*(found[method, name, start] for start in START)) for name in PAIR)
        behind[method] = paired_differences(own, theirs)
    what = "|last ISL, data mean - uniform start|"
    rise = {seed: -value for seed, value in fall[OURS].items()}
    margins = [
        margin_above(f"models by CD: {what} of {GIBBS}", apart[GIBBS], STUCK_NATS),
        margin_below(f"models by CD: {what} of {OURS}", apart[OURS], STUCK_NATS),
        margin_positive(
            f"models by CD: ISL of {GIBBS}, {PAPER_SAMPLE_COUNT} samples - all", fall[GIBBS]
        ),
        margin_positive(f"models by CD: ISL of {OURS}, all samples - {PAPER_SAMPLE_COUNT}", rise),
        margin_positive(f"models by CD: {BEHIND}", behind["cd"]),
        *(
            margin_of_difference(
                f"({BEHIND}) by CD - by {method.upper()}", behind["cd"], behind[method]
            )
            for method in METHODS[1:]
        ),
    ]
    note = f"spread over models; stuck: two starts differ by {STUCK_NATS:g} nats or more, "
    note += "our threshold"
    return Finding(margins, shown, note)


def zeros_after_cd(records: list[Record]) -> Finding:
    """On models trained by CD, the narrow mode of Gibbs is a vector of zeros."""
    on, share = (
        _models(records, "cd", GIBBS, MEAN, run_json_value(name))
        for name in ("commonest_on", "commonest_share")
    )
    blank = {seed: share[seed] * (on[seed] <= MAX_BLANK_SHARE) for seed in on}
    shown = [
        Number("models by CD: share of words in the commonest sample", estimate(on.values())),
        Number("models by CD: share of the commonest sample", estimate(share.values())),
    ]
    what = "models by CD: share of blank samples of Gibbs"
    note = f"blank: at most {MAX_BLANK_SHARE:.1%} of the words, "
    note += "if that is the commonest sample; our threshold"
    return Finding([margin_above(what, blank, NARROW_MODE_SHARE)], shown, note)


def consistency(records: list[Record]) -> Finding:
    """On models trained by SML and FPCD, rates-FPCD has the higher mean ISL and lower variance.

    Mean and variance are over models, for chains from the data mean. Variances are compared by the
    distances from the median (Brown and Forsythe 1974), in pairs by model. An F interval of their
    ratio would assume normal ISLs, and a single model on which Gibbs is stuck would decide it.
    """
    margins: list[Margin] = []
    shown: list[Number] = []
    for method in METHODS[1:]:
        found = {name: _models(records, method, name, MEAN, last_value("isl")) for name in PAIR}
        seeds = common_seeds(*found.values())
        if (
            len(seeds) < MIN_COMMON_SEEDS
        ):  # of two models, both have the same distance from the median
            raise LookupError(
                f"a variance over models by {method.upper()} needs {MIN_COMMON_SEEDS} models"
            )
        away = {}
        for name, isl in found.items():
            median = float(np.median([isl[seed] for seed in seeds]))
            away[name] = {seed: abs(isl[seed] - median) for seed in seeds}
        where = f"models by {method.upper()}"
        what = f"{where}: |last ISL - its median|, Gibbs - rates-FPCD"
        margins.append(margin_of_difference(f"{where}: {BEHIND}", found[OURS], found[GIBBS]))
        margins.append(margin_of_difference(what, away[GIBBS], away[OURS]))
        shown += numbers(f"last ISL by {method.upper()}: {{}}", found)
    return Finding(margins, shown, "spread over models, chains from the data mean")


def best_training(records: list[Record]) -> Finding:
    """The best model by ISL was trained by FPCD."""
    best: dict[str, Seeds] = defaultdict(dict)
    for record in records:
        if "isl" in record.metrics and (method := record.choices.get("negatives")):
            seed, isl = record.config["model_seed"], float(record.metrics["isl"].max())
            best[method][seed] = max(isl, best[method].get(seed, -math.inf))
    if missing := {"cd", "sml", "fpcd", "herding"} - set(best):
        raise LookupError(f"no record of training by {', '.join(sorted(missing))}")
    named = {"FPCD": best["fpcd"], **best}
    margins = differences(
        "best validation ISL", named, [("FPCD", name) for name in ("cd", "sml", "herding")]
    )
    note = "each method at its best learning rate and epoch"
    return Finding(margins, numbers("best validation ISL, {}", best), note)


def _models(records: list[Record], method: str, name: str, start: str, value: Value) -> Seeds:
    """`value` by model seed, for sampler `name` from `start` on models trained by `method`.

    Records without a choice of start begin at the data mean.
    """
    some = [
        record
        for record in records
        if record.choices.get("negatives") == method and record.choices.get("start", MEAN) == start
    ]
    try:
        return by_seed(records_by_sampler(some, [name], ["isl"])[name], value, "model_seed")
    except LookupError as error:
        where = f"models by {method.upper()} from {START[start]}"
        raise LookupError(f"{error.args[0]} on {where}") from error


def _averaged(*values: Seeds) -> Seeds:
    return {key: float(np.mean([one[key] for one in values])) for key in common_seeds(*values)}
