"""Claims of Breuleux et al. (2011), Section 5.1: how models were trained."""

import math
from collections import defaultdict
from collections.abc import Mapping

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
)
from latticework.experiments.papers.claims.rates import FEW
from latticework.experiments.papers.claims.verdict import Finding, Margin, Number
from latticework.experiments.records.estimate import estimate
from latticework.experiments.records.grouping import ENOUGH
from latticework.experiments.records.record import Record

METHODS = ("cd", "sml", "fpcd")  # of training
PAIR = ("Block Gibbs", "rates-FPCD")
START = {"data_mean": "the data mean", "uniform": "a uniform start"}
STARTS = tuple(START)
STUCK = 10.0  # a chain is stuck if two starts differ by this many nats
NARROW = 0.1  # the share of one state among the samples: our reading of "disproportionate"
BLANK = 0.005  # the share of sites on of a state that is a vector of zeros, five of 1,000 words
Ends = Mapping[tuple[str, str, str], Seeds]  # last ISL by method of training, sampler and start


def stuck_after_cd(records: list[Record]) -> Finding:
    """Gibbs gets stuck in a narrow mode on models trained by CD; rates-FPCD never gets stuck.

    "This causes the ISL measure to decrease, since an increasingly disproportionate weight is given
    to a single sample" (Section 5.1). The claim needs all of the following on models trained by
    CD. A single state has at least the share `NARROW` of the samples of Gibbs. Its final ISLs from
    the data mean and from a uniform start differ by more than `STUCK` nats. Its ISL from the data
    mean falls after `FEW` samples. None of this is true of rates-FPCD. Finally, Gibbs is further
    below rates-FPCD than on models trained by SML and FPCD.
    """
    finding, share = depends_on_start(records), {}
    for name in PAIR:
        share[name] = _models(records, "cd", name, STARTS[0], _share)
    gibbs, ours = PAIR
    what = "models by CD: share of the commonest sample of"
    margins = (
        _above(f"{what} {gibbs} - {NARROW:g}", share[gibbs], NARROW),
        _below(f"{NARROW:g} - {what} {ours}", share[ours], NARROW),
    )
    numbers = tuple(Number(f"{what} {name}", estimate(share[name].values())) for name in PAIR)
    note = f"{finding.note}; narrow mode: one state in {NARROW:.0%} of the samples, our threshold"
    return Finding((*margins, *finding.margins), (*numbers, *finding.numbers), note)


def depends_on_start(records: list[Record]) -> Finding:
    """`stuck_after_cd` without the narrow mode: the result depends on the start, the ISL falls."""
    ends = {
        (method, name, start): _models(records, method, name, start, last("isl"))
        for method in METHODS
        for name in PAIR
        for start in STARTS
    }
    numbers = tuple(
        Number(f"last ISL by {method.upper()}: {name}, {START[start]}", estimate(seeds.values()))
        for (method, name, start), seeds in ends.items()
    )
    note = f"spread over models; stuck: two starts differ by {STUCK:g} nats or more, our threshold"
    return Finding((*_stuck(records, ends), *_behind(ends)), numbers, note)


def zeros_after_cd(records: list[Record]) -> Finding:
    """On models trained by CD, the narrow mode of Gibbs is a vector of zeros."""
    on = _models(records, "cd", PAIR[0], STARTS[0], _commonest_on)
    share = _models(records, "cd", PAIR[0], STARTS[0], _share)
    blank = {seed: share[seed] * (on[seed] <= BLANK) for seed in on}
    numbers = (
        Number("models by CD: share of words in the commonest sample", estimate(on.values())),
        Number("models by CD: share of the commonest sample", estimate(share.values())),
    )
    what = f"models by CD: share of blank samples of Gibbs - {NARROW:g}"
    note = (
        f"blank: at most {BLANK:.1%} of the words, if that is the commonest sample; our threshold"
    )
    return Finding((_above(what, blank, NARROW),), numbers, note)


def _share(record: Record) -> float:
    return float(_document(record, "commonest_share"))


def _commonest_on(record: Record) -> float:
    return float(_document(record, "commonest_on"))


def _document(record: Record, name: str) -> float:
    if name not in record.document:
        raise LookupError(f"{record.path.name} has no {name}")
    return record.document[name]


def _stuck(records: list[Record], ends: Ends) -> tuple[Margin, ...]:
    """On models by CD, Gibbs depends on its start and its ISL falls; rates-FPCD does neither."""
    early, late = at("isl", "step", FEW), last("isl")
    apart, fall = {}, {}
    for name in PAIR:
        start, other = (ends["cd", name, start] for start in STARTS)
        apart[name] = {seed: abs(start[seed] - other[seed]) for seed in common(start, other)}
        fall[name] = _models(records, "cd", name, STARTS[0], lambda r: early(r) - late(r))
    gibbs, ours = PAIR
    what = "|last ISL, data mean - uniform start|"
    return (
        _above(f"models by CD: {what} of {gibbs} - {STUCK:g}", apart[gibbs], STUCK),
        _below(f"models by CD: {STUCK:g} - {what} of {ours}", apart[ours], STUCK),
        _above(f"models by CD: ISL of {gibbs}, {FEW} samples - all", fall[gibbs]),
        _below(f"models by CD: ISL of {ours}, all samples - {FEW}", fall[ours]),
    )


def _behind(ends: Ends) -> tuple[Margin, ...]:
    """Gibbs ends below rates-FPCD on models by CD, and further than on models by SML and FPCD."""
    behind = {}
    for method in METHODS:
        theirs, own = (_averaged(*(ends[method, name, start] for start in STARTS)) for name in PAIR)
        behind[method] = {seed: own[seed] - theirs[seed] for seed in common(own, theirs)}
    what = "last ISL, rates-FPCD - Gibbs"
    return (
        Margin(f"models by CD: {what}", tuple(behind["cd"].values())),
        *(
            difference(f"({what}) by CD - by {method.upper()}", behind["cd"], behind[method])
            for method in METHODS[1:]
        ),
    )


def consistency(records: list[Record]) -> Finding:
    """On models trained by SML and FPCD, rates-FPCD has the higher mean ISL and lower variance.

    Mean and variance are over models, for chains from the data mean. Variances are compared by the
    distances from the median (Brown and Forsythe 1974), in pairs by model. An F interval of their
    ratio would assume normal ISLs, and a single model on which Gibbs is stuck would decide it.
    """
    margins, numbers = [], []
    for method in METHODS[1:]:
        gibbs, ours = (_models(records, method, name, STARTS[0], last("isl")) for name in PAIR)
        seeds = common(gibbs, ours)
        if len(seeds) < ENOUGH:  # of two models, both have the same distance from the median
            raise LookupError(f"a variance over models by {method.upper()} needs {ENOUGH} models")
        where = f"models by {method.upper()}"
        margins.append(difference(f"{where}: last ISL, rates-FPCD - Gibbs", ours, gibbs))
        distances = []
        for one in (gibbs, ours):
            median = float(np.median([one[seed] for seed in seeds]))
            distances.append({seed: abs(one[seed] - median) for seed in seeds})
        what = f"{where}: |last ISL - its median|, Gibbs - rates-FPCD"
        margins.append(difference(what, *distances))
        numbers += [
            Number(f"last ISL by {method.upper()}: {name}", estimate(one.values()))
            for name, one in zip(PAIR, (gibbs, ours), strict=True)
        ]
    return Finding(tuple(margins), tuple(numbers), "spread over models, chains from the data mean")


def best_training(records: list[Record]) -> Finding:
    """The best model by ISL was trained by FPCD."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for record in records:
        if "isl" in record.metrics and (method := record.choices.get("negatives")):
            seed, best = record.config["model_seed"], float(record.metrics["isl"].max())
            found[method][seed] = max(best, found[method].get(seed, -math.inf))
    if missing := {"cd", "sml", "fpcd", "herding"} - set(found):
        raise LookupError(f"no record of training by {', '.join(sorted(missing))}")
    margins = tuple(
        difference(f"best validation ISL, FPCD - {name}", found["fpcd"], found[name])
        for name in ("cd", "sml", "herding")
    )
    numbers = tuple(
        Number(f"best validation ISL, {name}", estimate(seeds.values()))
        for name, seeds in found.items()
    )
    return Finding(margins, numbers, "each method at its best learning rate and epoch")


def _models(
    records: list[Record], method: str, name: str, start: str, value: Value
) -> dict[int, float]:
    """`value` by model seed, for sampler `name` from `start` on models trained by `method`.

    Records without a choice of start begin at the data mean.
    """
    some = [
        record
        for record in records
        if record.choices.get("negatives") == method
        and record.choices.get("start", STARTS[0]) == start
    ]
    try:
        return by_seed(labelled(some, [name], ["isl"])[name], value, "model_seed")
    except LookupError as error:
        where = f"models by {method.upper()} from {START[start]}"
        raise LookupError(f"{error.args[0]} on {where}") from error


def _above(what: str, seeds: Seeds, threshold: float = 0.0) -> Margin:
    """`seeds - threshold`."""
    return Margin(what, tuple(seeds[key] - threshold for key in sorted(seeds)))


def _below(what: str, seeds: Seeds, threshold: float = 0.0) -> Margin:
    """`threshold - seeds`."""
    return Margin(what, tuple(threshold - seeds[key] for key in sorted(seeds)))


def _averaged(*values: Seeds) -> dict[int, float]:
    return {key: float(np.mean([one[key] for one in values])) for key in common(*values)}
