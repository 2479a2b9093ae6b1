"""Claims of Breuleux et al. (2011), Section 5.1: the ISL of the samples of four samplers."""

from collections.abc import Sequence
from typing import NamedTuple

from latticework.experiments.papers.claims import compare, readings, thresholds
from latticework.experiments.papers.claims.verdict import Finding, Number, numbers
from latticework.experiments.records.estimates import (
    Estimate,
    estimate,
    published_estimate,
    published_mean,
)
from latticework.experiments.records.record import Record

GIBBS, SP, HERDING, FPCD = NAMES = ("Block Gibbs", "SP", "rates-herding", "rates-FPCD")
PAPER_SAMPLE_COUNT = 100  # samples: "100 samples from rates-FPCD"
FIRST, EARLY = (2, 9), (10, 100)  # samples; the first one of a curve is near the start
AHEAD = ((FPCD, SP), (HERDING, SP), (FPCD, GIBBS), (HERDING, GIBBS))
MIN_KINDS = 3  # kinds of trained models, to say "regardless of the trained model"
LAST = "ISL of the test rows under all samples"
SAMPLES = "ISL of {} samples"


def parzen(records: list[Record]) -> Finding:
    """On USPS, rates-FPCD's samples are kernel centres at least as good as the training set."""
    parzen_isl = readings.run_json_value("parzen")
    ours = readings.final_values(records, [FPCD], "isl")[FPCD]
    training = readings.final_values(records, [FPCD], "isl", parzen_isl)[FPCD]
    rates_fpcd = published_estimate("rates_fig2", "usps", "rates_fpcd")
    training_set = published_estimate("rates_fig2", "usps", "training_set")
    shown = [
        Number("ISL of rates-FPCD samples", estimate(ours.values()), rates_fpcd),
        Number("ISL of the training set", Estimate(next(iter(training.values()))), training_set),
    ]
    margin = compare.difference("ISL, rates-FPCD - the training set", ours, training)
    return Finding([margin], shown, LAST)


def penalization_below_rates(records: list[Record]) -> Finding:
    """Sample penalization ends below the two rates samplers."""
    values = readings.final_values(records, (SP, HERDING, FPCD), "isl")
    margins = compare.differences("ISL", values, ((HERDING, SP), (FPCD, SP)))
    return Finding(margins, numbers(SAMPLES, values), LAST)


def gibbs_last(records: list[Record]) -> Finding:
    """Gibbs ends below each of the three other samplers."""
    values = readings.final_values(records, NAMES, "isl")
    named = {"Gibbs": values.pop(GIBBS), **values}
    margins = compare.differences("ISL", named, [(name, "Gibbs") for name in values])
    return Finding(margins, numbers(SAMPLES, named), LAST)


def herding_first(
    records: list[Record], windows: Sequence[tuple[int, int]] = (FIRST, EARLY)
) -> Finding:
    """Rates-herding leads rates-FPCD over the first samples."""
    spans, margins = [], []
    for first, end in windows:
        lead = readings.final_values(records, (HERDING, FPCD), "isl", _mean_isl(first, end))
        quantity = f"ISL at {first} to {end} samples"
        margins += compare.differences(quantity, lead, [(HERDING, FPCD)])
        spans.append(f"{first} to {end}")
    points = " and ".join(spans)
    return Finding(margins, note=f"the larger mean ISL over the curve points at {points} samples")


def caught_up(records: list[Record]) -> Finding:
    """Rates-FPCD ends above rates-herding, or not clearly below it."""
    values = readings.final_values(records, (HERDING, FPCD), "isl")
    lead = readings.paired_differences(values[FPCD], values[HERDING])
    nats = thresholds.CLEAR_NATS.value()
    margin = compare.margin_above(f"last ISL, {FPCD} - {HERDING}", lead, -nats)
    return Finding([margin], numbers(SAMPLES, values), f"caught up: at most {nats:g} nats behind")


def overtakes(records: list[Record]) -> Finding:
    """Rates-FPCD ends above rates-herding."""
    values = readings.final_values(records, (HERDING, FPCD), "isl")
    margins = compare.differences("last ISL", values, [(FPCD, HERDING)])
    return Finding(margins, numbers(SAMPLES, values), LAST)


def _mean_isl(first: int, end: int) -> readings.Value:
    """The mean ISL over the points of a curve between two numbers of samples."""

    def value(record: Record) -> float:
        step = record.metrics["step"]
        return float(record.metrics["isl"][(step >= first) & (step <= end)].mean())

    return value


def hundred_beat_all(records: list[Record]) -> Finding:
    """100 samples of rates-FPCD have a higher ISL than all of Gibbs (200,000 in the paper)."""
    few = published_mean("rates_fig2", "mnist_samples", "rates_fpcd")
    chains = readings.records_by_sampler(records, [GIBBS], ["isl"])[GIBBS]
    many = readings.shortest(chains, "step")
    at_few, at_many = (readings.value_at("isl", "step", count) for count in (few, many))
    ours = readings.final_values(records, [FPCD], "isl", at_few)[FPCD]
    gibbs = readings.final_values(records, [GIBBS], "isl", at_many)[GIBBS]
    shown = [
        Number(f"ISL of {few:g} samples of rates-FPCD", estimate(ours.values())),
        Number(f"ISL of {many:,.0f} samples of Gibbs", estimate(gibbs.values())),
    ]
    quantity = f"ISL, {few:g} samples of rates-FPCD - {many:,.0f} of Gibbs"
    return Finding([compare.difference(quantity, ours, gibbs)], shown, "ISL of the test rows")


def regardless(records: list[Record], pairs: Sequence[tuple[str, str]]) -> Finding:
    """For each of `pairs`, how far the first sampler ends above the second, by model.

    The models were trained by several methods and learning rates. Each is one value.
    """
    groups = readings.records_by_sampler(records, NAMES, ["isl"])
    last, by_model = readings.last_value("isl"), {}
    for name in NAMES:
        by_model[name] = {_describe_training(record): last(record) for record in groups[name]}
    models = sorted(set.intersection(*map(set, by_model.values())))
    kinds = sorted({model.kind for model in models})
    if len(kinds) < MIN_KINDS:
        raise LookupError(
            f"{len(kinds)} kinds of models that all four samplers were run on; {MIN_KINDS} or more "
            "are needed"
        )
    numbered = {}
    for name, isl in by_model.items():
        numbered[name] = dict(enumerate(isl[model] for model in models))
    margins, shown = compare.differences("ISL", numbered, pairs), []
    for (ours, theirs), margin in zip(pairs, margins, strict=True):
        ahead = sum(value > 0 for value in margin.values)
        quantity = f"models on which {ours} ends above {theirs}, of {len(models)}"
        shown.append(Number(quantity, Estimate(ahead)))
    for kind in kinds:
        alike = [model for model in models if model.kind == kind]
        for name in NAMES:
            here = estimate(by_model[name][model] for model in alike)
            shown.append(Number(f"last ISL by {kind}: {name}", here))
    note = f"last ISL; spread over {len(models)} models of {len(kinds)} kinds"
    return Finding(margins, shown, note)


class TrainedModel(NamedTuple):
    """The settings that tell trained models apart."""

    kind: str  # method, hidden units, epochs, learning rate
    seed: int


def _describe_training(record: Record) -> TrainedModel:
    pretrain = record.config["task"]["pretrain"]
    rate = f"{pretrain['learning_rate']:g}"
    decay = "decreasing" if pretrain["linear_decay"] else "constant"
    method, hidden = record.choices["negatives"], record.config["model"]["hidden"]
    epochs = f"{pretrain['epochs']:g} epochs"
    kind = f"{method.upper()}, {hidden} units, {epochs}, rate {rate}, {decay}"
    return TrainedModel(kind, record.config["model_seed"])
