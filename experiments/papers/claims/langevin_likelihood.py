"""Claims of Zhang et al. (2022), Section 7.3.2: models learned from images."""

from collections.abc import Mapping, Sequence

from latticework.experiments.figures.tables.likelihood import learning_rate, own_rate
from latticework.experiments.papers.claims.pairing import available, by_choice, common
from latticework.experiments.papers.claims.verdict import Finding, Margin, Number
from latticework.experiments.records.likelihood import (
    bounds,
    ends_apart,
    likelihood,
    settled,
    shown,
    unlike_draws,
)
from latticework.experiments.records.numbers import Estimate, printed, published
from latticework.experiments.records.record import Record

Models = dict[str, list[Record]]  # learned models by sampler
NAMES = ("gibbs", "gwg", "dula", "dmala")


def table1(records: list[Record], data: str, chosen: str = "") -> Finding:
    """On the images `data`, the model learned with DMALA has the highest test log-likelihood.

    Judged by both bounds on log Z: the claim needs DMALA's lower bound on the log-likelihood to
    exceed the upper bound of every other sampler, in the mean over seeds if there are several. The
    point estimates do not decide, because they are unreliable where the bounds are far apart.
    `chosen`, a key of CHOICES, selects among models that were learned at several rates. It needs
    several seeds, and takes models of a variant of the images if there are none of `data`. Without
    `chosen`, one model of each sampler decides, as in the paper, and "all methods" includes the
    VAE, whose printed number stands for it.
    """
    images = available(records, data) if chosen else data
    kept = [
        record
        for record in records
        if record.choices.get("data") == images and "log_likelihood" in record.document
    ]
    found = by_choice(kept, NAMES, f" on {data}", lambda record: record.choices["sampler"])
    found = CHOICES[chosen](found) if chosen else found
    models = {name: _by_seed(some) for name, some in found.items()}
    margins = [
        _against(name, models["dmala"], models[name], one_decides=not chosen) for name in NAMES[:-1]
    ]
    if not chosen:
        margins.append(_against_vae(printed("table1", data, "vae"), models["dmala"]))
    numbers = []
    for name in NAMES:
        cell = shown(list(models[name].values()))
        rate = f" ({WORDS[chosen]})" if chosen else ""
        what = f"test log-likelihood on {images}: {name}{rate}"
        here, ends = (None, f", {cell}") if isinstance(cell, str) else (cell, "")
        paper = None if chosen else published("table1", data, name)
        numbers.append(Number(f"{what}{ends}", here, paper))
    note = (
        "limits are the AIS bounds, each widened by its 95 % interval, and over several seeds "
        "by the interval of their mean; the lower one starts from training rows and needs them "
        "to be like draws of the model; ± is over models, or for one model a standard error"
    )
    return Finding(margins, numbers, note)


def own_rates(models: Models) -> Models:
    """The models learned at each sampler's own learning rate (`own_rate`)."""
    return {name: own_rate(some) for name, some in models.items()}


def one_rate(models: Models) -> Models:
    """The models learned at the largest learning rate that all samplers have in common.

    Raises LookupError if there is none.
    """
    shared = set.intersection(*({learning_rate(r) for r in some} for some in models.values()))
    if not shared:
        raise LookupError("the samplers have no learning rate in common")
    return {
        name: [record for record in some if learning_rate(record) == max(shared)]
        for name, some in models.items()
    }


CHOICES = {"own_rates": own_rates, "one_rate": one_rate}
WORDS = {"own_rates": "each sampler's own learning rate", "one_rate": "one learning rate for all"}


def _by_seed(records: list[Record]) -> dict[int, Record]:
    found: dict[int, Record] = {}
    for record in records:
        if found.setdefault(record.config["seed"], record) is not record:
            where = f"{record.choices['sampler']} on {record.choices['data']}"
            raise LookupError(f"several models of {where} have the seed {record.config['seed']}")
    return found


def _against(
    name: str, ours: Mapping[int, Record], theirs: Mapping[int, Record], one_decides: bool
) -> Margin:
    """DMALA's test log-likelihood - that of the sampler `name`, between the bounds by AIS.

    A single seed says nothing about the spread over models, so it decides only if `one_decides`.
    """
    seeds = common(ours, theirs)
    gaps = tuple(likelihood(ours[seed]).mean - likelihood(theirs[seed]).mean for seed in seeds)
    if len(seeds) == 1 and not one_decides:
        return Margin(f"nats, DMALA - {name}", gaps)

    def limits(level: float) -> tuple[float, float]:
        pairs = [(bounds(ours[seed], level), bounds(theirs[seed], level)) for seed in seeds]
        return _limits([(own[0] - other[1], own[1] - other[0]) for own, other in pairs], level)

    some = {"dmala": [ours[seed] for seed in seeds], name: [theirs[seed] for seed in seeds]}
    return Margin(f"nats, DMALA - {name}", gaps, limits=limits, basis=_basis(some))


def _against_vae(vae: float, ours: Mapping[int, Record]) -> Margin:
    """DMALA's test log-likelihood - that of the VAE, as the paper prints it."""
    own = list(ours.values())

    def limits(level: float) -> tuple[float, float]:
        found = [bounds(record, level) for record in own]
        return _limits([(low - vae, high - vae) for low, high in found], level)

    gaps = tuple(likelihood(record).mean - vae for record in own)
    what = "nats, DMALA - the VAE as printed"
    return Margin(what, gaps, limits=limits, basis=_basis({"dmala": own}))


def _limits(gaps: Sequence[tuple[float, float]], level: float) -> tuple[float, float]:
    """The interval of the mean of gaps that are known between two ends, one of each model."""
    low, high = (Margin("", ends, exact=len(gaps) == 1) for ends in zip(*gaps, strict=True))
    return low.interval(level)[0], high.interval(level)[1]


def _basis(models: Mapping[str, list[Record]]) -> str:
    """`AIS bounds, 3 models each; gwg's are up to 2.7 nats apart`."""
    count = len(next(iter(models.values())))
    words = [f"AIS bounds, {count} models each" if count > 1 else "AIS bounds, one model each"]
    for name, some in models.items():
        if any(unlike_draws(record) for record in some):
            words.append(f"training rows are no draws of {name}'s model")
        elif not all(settled(record) for record in some):
            apart = (ends_apart(record) or Estimate(0) for record in some)
            words.append(f"{name}'s are up to {max(gap.mean for gap in apart):.2g} nats apart")
    return "; ".join(words)
