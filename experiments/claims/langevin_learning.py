"""Claims of Zhang et al. (2022), Section 7.3 to 7.5 and App. I: learning. Imports no torch."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from latticework.experiments.claims.pairing import (
    Seeds,
    after,
    by_seed,
    common,
    difference,
    labelled,
    last,
    pace,
    preferred,
    within,
)
from latticework.experiments.claims.verdict import LEVEL, Finding, Margin, Number
from latticework.experiments.results.estimate import Estimate, estimate
from latticework.experiments.results.grouping import ENOUGH, longest, shared
from latticework.experiments.results.published import printed, published
from latticework.experiments.results.record import VARIANTS, Record
from latticework.experiments.tables.bnn import method
from latticework.experiments.tables.likelihood import learning_rate, likelihood

LANGEVIN = ("DULA", "DMALA")
SIMILAR = 2.5  # BLEU points, about the difference between methods in the paper's Table 3
FEW_EFFECTIVE = 10  # effective chains; if there are fewer, the ledger reports it
Models = dict[str, list[Record]]  # learned models by sampler
COLUMNS = ("self_bleu", "self_2", "self_3", "wt103_2", "wt103_3", "tbc_2", "tbc_3")  # of Table 3


def fig5_iterations(records: list[Record]) -> Finding:
    """DULA and DMALA end below GWG after equal iterations, at the largest common sampling steps."""
    return _ahead(records, "step")


def fig5_seconds(records: list[Record]) -> Finding:
    """DULA and DMALA end below GWG after equal seconds, at the largest common sampling steps."""
    return _ahead(records, "seconds")


def fig5_fewer(records: list[Record]) -> Finding:
    """DULA's and DMALA's lead over GWG is larger with few sampling steps than with many."""
    sizes = _sizes(records)
    few, many = sizes[0], sizes[-1]
    if few == many:
        raise LookupError("the samplers have no two numbers of sampling steps in common")
    margins = []
    for name in LANGEVIN:
        gaps = [_gap(records, size, name) for size in (few, many)]
        what = f"(log RMSE, GWG-1 - {name}) at {few:g} steps - at {many:g} steps"
        margins.append(difference(what, *gaps))
    return Finding(tuple(margins))


def fig5_ratio(records: list[Record]) -> Finding:
    """DULA and DMALA reach the paper's log RMSE, and GWG takes longer by at least its ratio.

    Judged with the sampling steps that Gibbs needs, because the paper compares with Gibbs. A run
    that never reaches the level has the distance to its lowest log RMSE as a negative margin. Each
    run counts with its own `pace`, so that the interval includes the spread of the timing.
    Raises LookupError if a sampler reaches the level with some of its seeds only.
    """
    level, needs, baseline, ours = (
        printed("fig5", *keys)
        for keys in (
            ("log_rmse",),
            ("gibbs_needs",),
            ("seconds", "baselines_more_than"),
            ("seconds", "dmala"),
        )
    )
    size = _sizes(records)[-1]
    if size < needs:
        raise LookupError(
            f"no {ENOUGH} seeds of DULA, DMALA and GWG-1 with {needs:g} sampling steps"
        )
    names = [*LANGEVIN, "GWG-1"]
    found = labelled(_with(records, size), names, ["log_rmse"])
    groups = {name: found[name] for name in names}
    times = {name: by_seed(some, partial(_reached, level=level)) for name, some in groups.items()}
    ends = by_seed(groups["GWG-1"], lambda r: pace(r) * float(r.metrics["step"].iloc[-1]))
    margins, numbers = [], []
    for name in LANGEVIN:
        lowest = by_seed(groups[name], lambda record: float(record.metrics["log_rmse"].min()))
        what = f"{level:g} - lowest log RMSE of {name}"
        margins.append(Margin(what, tuple(level - lowest[seed] for seed in sorted(lowest))))
        seeds = common(times[name], times["GWG-1"])
        reached = sum(math.isfinite(times[name][seed]) for seed in seeds)
        if not reached:
            continue
        if reached < len(seeds):
            raise LookupError(
                f"{name} reaches log RMSE {level:g} with {reached} of {len(seeds)} seeds, so the "
                "ratio of the times is not known"
            )
        censored = any(math.isinf(times["GWG-1"][seed]) for seed in seeds)
        ratios = [min(times["GWG-1"][seed], ends[seed]) / times[name][seed] for seed in seeds]
        what = f"log(GWG-1's seconds / {name}'s) - log {baseline / ours:g}"
        values = tuple(math.log(ratio * ours / baseline) for ratio in ratios)
        margins.append(Margin(what, values, at_least=censored))
        text = f"seconds to log RMSE {level:g}: GWG-1 over {name}"
        here = estimate(ratios)
        numbers.append(Number(text + ", at least" * censored, here, Estimate(baseline / ours)))
    return Finding(tuple(margins), tuple(numbers), f"{size:g} sampling steps each")


def fig5_gibbs(records: list[Record]) -> Finding:
    """Gibbs ends worse than it started with fewer than 100 sampling steps, but not with 100."""
    enough = printed("fig5", "gibbs_needs")
    groups = labelled(records, ["Gibbs-1"], ["log_rmse"])
    margins = []
    sizes = sorted({record.config["task"]["steps"] for record in groups["Gibbs-1"]})
    if not (any(size < enough for size in sizes) and any(size >= enough for size in sizes)):
        raise LookupError(f"no records of Gibbs-1 with fewer than {enough:g} steps and with more")
    for size in sizes:
        rise = by_seed(_with(groups["Gibbs-1"], size), _rise)
        if size < enough:
            what = f"{size:g} steps: log RMSE, end - start"
            margins.append(Margin(what, tuple(rise[seed] for seed in sorted(rise))))
        else:
            what = f"{size:g} steps: log RMSE, start - end"
            margins.append(Margin(what, tuple(-rise[seed] for seed in sorted(rise))))
    return Finding(tuple(margins), note="diverges: ends with a larger error than it started with")


def _rise(record: Record) -> float:
    """Final - initial log RMSE. If the final one is not finite, the largest finite one is used."""
    readings = record.metrics["log_rmse"].to_numpy(float)
    finite = readings[np.isfinite(readings)]
    if not finite.size:
        raise LookupError(f"{record.path.name} has no finite log RMSE")
    end = readings[-1] if np.isfinite(readings[-1]) else finite.max()
    return float(end - finite[0])


def _ahead(records: list[Record], axis: str) -> Finding:
    size = _sizes(records)[-1]
    groups = labelled(_with(records, size), [*LANGEVIN, "GWG-1"], ["log_rmse"])
    place, ends = after({name: groups[name] for name in (*LANGEVIN, "GWG-1")}, "log_rmse", axis)
    margins = tuple(
        difference(f"log RMSE, GWG-1 - {name}", ends["GWG-1"], ends[name]) for name in LANGEVIN
    )
    unit = "iterations" if axis == "step" else "seconds"
    note = f"after {place:,.4g} {unit}, {size:g} sampling steps each"
    numbers = tuple(
        Number(f"log RMSE {note}: {name}", estimate(seeds.values())) for name, seeds in ends.items()
    )
    return Finding(margins, numbers, note)


def _gap(records: list[Record], size: float, name: str) -> dict[int, float]:
    groups = labelled(_with(records, size), [name, "GWG-1"], ["log_rmse"])
    _, ends = after({n: groups[n] for n in (name, "GWG-1")}, "log_rmse", "step")
    ours, theirs = ends[name], ends["GWG-1"]
    return {seed: theirs[seed] - ours[seed] for seed in common(ours, theirs)}


def _sizes(records: list[Record]) -> list[float]:
    """Numbers of sampling steps that DULA, DMALA and GWG-1 were all run with, ascending."""
    groups = labelled(records, [*LANGEVIN, "GWG-1"], ["log_rmse"])
    ours = [groups[name] for name in (*LANGEVIN, "GWG-1")]
    return shared(ours, lambda record: record.config["task"]["steps"])


def _with(records: list[Record], size: float) -> list[Record]:
    """The records with `size` sampling steps; of runs of several lengths the longest."""
    return longest(r for r in records if (r.config["task"] or {}).get("steps") == size)


def _reached(record: Record, level: float) -> float:
    """Seconds until log RMSE is first at most `level`; infinity if it never is."""
    there = record.metrics["log_rmse"] <= level
    return pace(record) * float(record.metrics["step"][there.idxmax()]) if there.any() else math.inf


def table2(data: str, metrics: Sequence[str]) -> Callable[[list[Record]], Finding]:
    """On the data set `data`, DULA and DMALA beat Gibbs and GWG in each of `metrics`."""

    def judge(records: list[Record]) -> Finding:
        margins, numbers = [], []
        for metric in ("train_log_likelihood", "test_rmse"):
            ends = _by_method(records, data, metric, ("gibbs", "gwg", "dula", "dmala"))
            for name, seeds in ends.items():
                paper = published("table2", metric, data, name)
                numbers.append(Number(f"{_words(metric)}: {name}", estimate(seeds.values()), paper))
            for ours in ("dula", "dmala") if metric in metrics else ():
                for theirs in ("gibbs", "gwg"):
                    better, worse = (theirs, ours) if metric == "test_rmse" else (ours, theirs)
                    what = f"{_words(metric)}, {better} - {worse}"
                    margins.append(difference(what, ends[better], ends[worse]))
        return Finding(tuple(margins), tuple(numbers), "final states of the chains")

    return judge


def table4(data: str) -> Callable[[list[Record]], Finding]:
    """On the data set `data`, stochastic DULA improves with the logarithm of the batch size."""

    def judge(records: list[Record]) -> Finding:
        margins, numbers = [], []
        batches = ("10", "100", "500", "full")
        for metric, sign in (("train_log_likelihood", 1), ("test_rmse", -1)):
            ends = _by_method(records, data, metric, batches)
            rows = max(r.document["rows"]["train"] for r in records if r.choices["data"] == data)
            x = np.log10([rows if batch == "full" else int(batch) for batch in batches])
            papers = {batch: published("table4", metric, data, batch) for batch in batches}

            def slope(values: list[float], x: NDArray = x, sign: int = sign) -> float:
                return float(sign * np.polyfit(x, values, 1)[0])

            slopes = tuple(
                slope([ends[batch][seed] for batch in batches]) for seed in common(*ends.values())
            )
            turned = "" if sign > 0 else ", times -1,"
            what = f"slope of {_words(metric)}{turned} against log10 of the batch size"
            margins.append(Margin(what, slopes))
            known = [paper.mean for paper in papers.values() if paper]
            theirs = Estimate(slope(known)) if len(known) == len(batches) else None
            numbers.append(Number(what, estimate(slopes), theirs))
            for batch, seeds in ends.items():
                paper = papers[batch]
                text = f"{_words(metric)}: {'all rows' if batch == 'full' else f'batch {batch}'}"
                numbers.append(Number(text, estimate(seeds.values()), paper))
        return Finding(tuple(margins), tuple(numbers), "the largest batch is all rows")

    return judge


def _by_method(
    records: list[Record], data: str, metric: str, names: Sequence[str]
) -> dict[str, Seeds]:
    groups: dict[str, list[Record]] = {name: [] for name in names}
    for record in records:
        if record.choices.get("data") == data and metric in record.metrics:
            groups.setdefault(method(record)[0], []).append(record)
    if missing := [name for name in names if not groups[name]]:
        raise LookupError(f"no record of {', '.join(missing)} on {data}")
    return {name: by_seed(groups[name], last(metric)) for name in names}


def _words(metric: str) -> str:
    return {"train_log_likelihood": "training log-likelihood", "test_rmse": "test RMSE"}[metric]


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


def table3_diversity(model: str) -> Callable[[list[Record]], Finding]:
    """With `model`, DULA and DMALA have lower self-BLEU and more unique n-grams than the others."""

    def judge(records: list[Record]) -> Finding:
        margins, found = [], {column: _scores(records, model, column) for column in COLUMNS}
        for column, ends in found.items():
            for ours in ("dula", "dmala"):
                for theirs in ("gibbs", "gwg"):
                    more, fewer = (theirs, ours) if column == "self_bleu" else (ours, theirs)
                    what = f"{column}, {more} - {fewer}"
                    margins.append(difference(what, ends[more], ends[fewer]))
        return Finding(tuple(margins), _table3_numbers(model, found))

    return judge


def table3_quality(model: str) -> Callable[[list[Record]], Finding]:
    """With `model`, the corpus BLEU of DULA and DMALA is similar to that of Gibbs and GWG."""

    def judge(records: list[Record]) -> Finding:
        ends = _scores(records, model, "corpus_bleu")
        margins: list[Margin] = []
        for ours in ("dula", "dmala"):
            for theirs in ("gibbs", "gwg"):
                seeds = common(ends[ours], ends[theirs])
                gap = {seed: ends[ours][seed] - ends[theirs][seed] for seed in seeds}
                margins += within(f"corpus BLEU, {ours} - {theirs}", gap, 0.0, SIMILAR)
        numbers = _table3_numbers(model, {"corpus_bleu": ends})
        return Finding(tuple(margins), numbers, f"similar: within {SIMILAR:g} points")

    return judge


def _scores(records: list[Record], model: str, column: str) -> dict[str, Seeds]:
    """A column of Table 3 for `model`, by sampler and seed."""
    groups: dict[str, list[Record]] = {name: [] for name in ("gibbs", "gwg", "dula", "dmala")}
    for record in records:
        if column in (record.document.get("scores") or {}) and record.choices["model"] == model:
            groups.setdefault(record.choices["sampler"], []).append(record)
    if missing := [name for name, group in groups.items() if not group]:
        raise LookupError(f"no record of {', '.join(missing)} with {model}")
    return {
        name: by_seed(group, lambda record: float(record.document["scores"][column]))
        for name, group in groups.items()
    }


def _table3_numbers(model: str, found: dict[str, dict[str, Seeds]]) -> tuple[Number, ...]:
    return tuple(
        Number(
            f"{column}: {name}", estimate(seeds.values()), published("table3", model, name, column)
        )
        for column, ends in found.items()
        for name, seeds in ends.items()
    )
