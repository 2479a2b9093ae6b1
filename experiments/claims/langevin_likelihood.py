"""Claims of Zhang et al. (2022), Section 7.3.2: models learned from images. Imports no torch."""

import math
from collections.abc import Callable, Mapping

import numpy as np
from scipy import stats

from latticework.experiments.claims.pairing import common, preferred
from latticework.experiments.claims.verdict import LEVEL, Finding, Margin, Number
from latticework.experiments.results.estimate import Estimate, estimate
from latticework.experiments.results.published import published
from latticework.experiments.results.record import VARIANTS, Record
from latticework.experiments.tables.likelihood import learning_rate, likelihood

FEW_EFFECTIVE = 10  # effective chains; if there are fewer, the ledger reports it
Models = dict[str, list[Record]]  # learned models by sampler


def table1(
    data: str, chosen: Callable[[Models], Models] | None = None
) -> Callable[[list[Record]], Finding]:
    """On the images `data`, the model learned with DMALA has the highest test log-likelihood.

    Judged by both bounds on log Z: the claim needs DMALA's lower bound on the log-likelihood to
    exceed the upper bound of every other sampler, in the mean over seeds if there are several. The
    point estimates do not decide: with few effective chains, the estimate of log Z is close to its
    lower bound, and its standard error is too small. `chosen` selects among models that were
    learned at several rates (`best_rates`, `one_rate`). It needs several seeds, and takes models of
    a variant of the images if there are none of `data`. Without `chosen`, one model of each sampler
    decides, as in the paper.
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
        margins = tuple(
            _likelihood_margin(name, models["dmala"], models[name], one_decides=chosen is None)
            for name in names[:-1]
        )
        numbers = []
        for name in names:
            own = list(models[name].values())
            bounds = np.mean([likelihood_bounds(record) for record in own], axis=0)
            known = f"between {bounds[0]:.1f} and {bounds[1]:.1f}, {_effective(own)}"
            paper = published("table1", data, name) if chosen is None else None
            on = "" if images == data else f" on {images}"
            number = estimate([likelihood(record, "test").mean for record in own])
            if len(own) == 1:
                number = Estimate(number.mean, log_z_error(own[0]))
            numbers.append(Number(f"test log-likelihood{on}: {name}, {known}", number, paper))
        note = (
            "limits are the AIS bounds, each widened by its 95 % interval, and over several seeds "
            "by the interval of their mean; ± is over seeds, or for one model the standard error "
            "of log Z, which accounts for its effective number of chains"
        )
        return Finding(margins, tuple(numbers), note)

    return judge


def _available(records: list[Record], data: str) -> str:
    """`data` if a record has it, else a variant of `data` that a record has, else `data`."""
    there = {record.choices.get("data") for record in records}
    options = (data, *(variant for variant, of in VARIANTS.items() if of == data))
    return next((name for name in options if name in there), data)


def best_rates(models: Models) -> Models:
    """The models learned at each sampler's best learning rate.

    It has the highest log-likelihood of the validation rows, in the mean over seeds. Only rates
    with the largest number of seeds take part.
    """
    return {
        name: preferred(
            (_at_rate(some, rate) for rate in set(map(learning_rate, some))),
            lambda record: likelihood(record, "valid").mean,
        )
        for name, some in models.items()
    }


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
    gaps = tuple(
        likelihood(ours[seed], "test").mean - likelihood(theirs[seed], "test").mean
        for seed in seeds
    )
    if len(seeds) == 1 and not one_decides:
        return Margin(f"nats, DMALA - {name}", gaps)

    def limits(level: float) -> tuple[float, float]:
        least, most = [], []
        for seed in seeds:
            own, other = (likelihood_bounds(models[seed], level) for models in (ours, theirs))
            least.append(own[0] - other[1])
            most.append(own[1] - other[0])
        one = len(seeds) == 1
        low, high = (Margin("", tuple(gaps), exact=one) for gaps in (least, most))
        return low.interval(level)[0], high.interval(level)[1]

    count = f"{len(seeds)} models each" if len(seeds) > 1 else "one model each"
    few = [
        f"{one} has {_effective(some)}"
        for one, models in (("dmala", ours), (name, theirs))
        if _few(some := [models[seed] for seed in seeds])
    ]
    basis = "; ".join([f"AIS bounds, {count}", *few])
    return Margin(f"nats, DMALA - {name}", gaps, limits=limits, basis=basis)


def likelihood_bounds(record: Record, level: float = LEVEL) -> tuple[float, float]:
    """Lower and upper bound on the mean test log-likelihood, in nats.

    Forward AIS from independent sites bounds log Z from below, reverse AIS from training rows
    bounds it from above (`experiments.sampling.annealing`). Each bound is widened by its interval
    over chains at `level`. Raises LookupError for a record without reverse AIS.
    """
    found = record.document
    if "log_z_upper" not in found:
        raise LookupError(f"{record.path.name} has no upper bound on log Z; set task.back")
    unnormalised = likelihood(record, "test").mean + found["log_z"]
    forth, back = (_reach(n, level) for n in (record.budget.chains, record.config["task"]["back"]))
    low = found["log_z_lower"] - forth * found["log_z_lower_error"]
    high = found["log_z_upper"] + back * found["log_z_upper_error"]
    return unnormalised - high, unnormalised - low


def log_z_error(record: Record) -> float:
    """Standard error of log Z, corrected for a small effective number of chains.

    The delta method's error is multiplied by the ratio of two 97.5 % quantiles: Student's t with
    (effective chains - 1) degrees of freedom, and the normal. Infinite for fewer than two effective
    chains.
    """
    found = record.document
    return found["log_z_error"] * _reach(found["ess"]) / float(stats.norm.ppf(0.5 + LEVEL / 2))


def _reach(count: float, level: float = LEVEL) -> float:
    """Half-width of an interval from `count` independent values, in standard errors."""
    return float(stats.t.ppf(0.5 + level / 2, count - 1)) if count >= 2 else math.inf


def _few(records: list[Record]) -> bool:
    return min(record.document["ess"] for record in records) < FEW_EFFECTIVE


def _effective(records: list[Record]) -> str:
    """The smallest effective number of chains of the `records`."""
    least = min(records, key=lambda record: record.document["ess"])
    return f"{least.document['ess']:.1f} of {least.budget.chains} chains effective"
