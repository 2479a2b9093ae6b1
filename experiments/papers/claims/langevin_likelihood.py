"""Claims of Zhang et al. (2022), Section 7.3.2: models learned from images."""

from collections.abc import Callable, Mapping, Sequence

from latticework.experiments.figures.tables.likelihood import learning_rate, own_rate
from latticework.experiments.papers.claims.pairing import common
from latticework.experiments.papers.claims.verdict import Finding, Margin, Number
from latticework.experiments.records.estimate import Estimate
from latticework.experiments.records.likelihood import (
    bounds,
    ends_apart,
    likelihood,
    settled,
    shown,
    unlike_draws,
)
from latticework.experiments.records.published import printed, published
from latticework.experiments.records.record import VARIANTS, Record

Models = dict[str, list[Record]]  # learned models by sampler


def table1(
    data: str, chosen: Callable[[Models], Models] | None = None
) -> Callable[[list[Record]], Finding]:
    """On the images `data`, the model learned with DMALA has the highest test log-likelihood.

    Judged by both bounds on log Z: the claim needs DMALA's lower bound on the log-likelihood to
    exceed the upper bound of every other sampler, in the mean over seeds if there are several. The
    point estimates do not decide, because they are unreliable where the bounds are far apart.
    `chosen` selects among models that were learned at several rates (`own_rates`, `one_rate`). It
    needs several seeds, and takes models of a variant of the images if there are none of `data`.
    Without `chosen`, one model of each sampler decides, as in the paper, and "all methods" includes
    the VAE, whose printed number stands for it.
    """

    def judge(records: list[Record]) -> Finding:
        names = ("gibbs", "gwg", "dula", "dmala")
        found: Models = {name: [] for name in names}
        images = data if chosen is None else _available(records, data)
        for record in records:
            if record.choices.get("data") == images and "log_likelihood" in record.document:
                found.setdefault(record.choices["sampler"], []).append(record)
        if missing := [name for name in names if not found[name]]:
            raise LookupError(f"no record of {', '.join(missing)} on {data}")
        models = {name: _by_seed(some) for name, some in (chosen or dict)(found).items()}
        margins = [
            _likelihood_margin(name, models["dmala"], models[name], one_decides=chosen is None)
            for name in names[:-1]
        ]
        if chosen is None:
            margins.append(_vae_margin(data, models["dmala"]))
        numbers = []
        for name in names:
            own = list(models[name].values())
            rate = "" if chosen is None else f" ({chosen.__name__.replace('_', ' ')})"
            what = f"test log-likelihood on {images}: {name}{rate}"
            cell = shown(own)
            here, ends = (None, f", {cell}") if isinstance(cell, str) else (cell, "")
            paper = published("table1", data, name) if chosen is None else None
            numbers.append(Number(f"{what}{ends}", here, paper))
        note = (
            "limits are the AIS bounds, each widened by its 95 % interval, and over several seeds "
            "by the interval of their mean; the lower one starts from training rows and needs them "
            "to be like draws of the model; ± is over models, or for one model a standard error"
        )
        return Finding(tuple(margins), tuple(numbers), note)

    return judge


def _available(records: list[Record], data: str) -> str:
    """`data` if a record has it, else a variant of `data` that a record has, else `data`."""
    there = {record.choices.get("data") for record in records}
    options = (data, *(variant for variant, of in VARIANTS.items() if of == data))
    return next((name for name in options if name in there), data)


def own_rates(models: Models) -> Models:
    """The models learned at each sampler's own learning rate (`own_rate`)."""
    return {name: own_rate(some) for name, some in models.items()}


def one_rate(models: Models) -> Models:
    """The models learned at the largest learning rate that all samplers have in common.

    Raises LookupError if there is none.
    """
    shared = set.intersection(
        *({learning_rate(record) for record in some} for some in models.values())
    )
    if not shared:
        raise LookupError("the samplers have no learning rate in common")
    return {name: _at_rate(some, max(shared)) for name, some in models.items()}


def _at_rate(records: list[Record], rate: float) -> list[Record]:
    return [record for record in records if learning_rate(record) == rate]


def _by_seed(records: list[Record]) -> dict[int, Record]:
    found: dict[int, Record] = {}
    for record in records:
        if found.setdefault(record.config["seed"], record) is not record:
            where = f"{record.choices['sampler']} on {record.choices['data']}"
            raise LookupError(f"several models of {where} have the seed {record.config['seed']}")
    return found


def _likelihood_margin(
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
        least, most = [], []
        for seed in seeds:
            own, other = (bounds(models[seed], level) for models in (ours, theirs))
            least.append(own[0] - other[1])
            most.append(own[1] - other[0])
        return _limits(least, most, level)

    some = {
        who: [models[seed] for seed in seeds] for who, models in (("dmala", ours), (name, theirs))
    }
    return Margin(f"nats, DMALA - {name}", gaps, limits=limits, basis=_basis(some))


def _vae_margin(data: str, ours: Mapping[int, Record]) -> Margin:
    """DMALA's test log-likelihood - that of the VAE, as the paper prints it."""
    vae, own = printed("table1", data, "vae"), list(ours.values())

    def limits(level: float) -> tuple[float, float]:
        least, most = zip(*(bounds(record, level) for record in own), strict=True)
        return _limits([one - vae for one in least], [one - vae for one in most], level)

    gaps = tuple(likelihood(record).mean - vae for record in own)
    what = "nats, DMALA - the VAE as printed"
    return Margin(what, gaps, limits=limits, basis=_basis({"dmala": own}))


def _limits(least: Sequence[float], most: Sequence[float], level: float) -> tuple[float, float]:
    """The interval of the mean of gaps that lie between `least` and `most`, one of each model."""
    one = len(least) == 1
    low, high = (Margin("", tuple(gaps), exact=one) for gaps in (least, most))
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
