"""Claims of Zhang et al. (2022), Section 7.3: learning an Ising model, and networks of images."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from latticework.experiments.figures.likelihood import learning_rate, records_at_best_rate
from latticework.experiments.papers.claims.langevin_sampling import step_cost
from latticework.experiments.papers.claims.verdict import (
    Ends,
    Finding,
    Margin,
    Number,
    Seeds,
    Value,
    available_variant,
    by_choice,
    by_seed,
    common_seeds,
    differences,
    last_value,
    margin_below,
    margin_of_difference,
    margin_positive,
    numbers,
    paired_differences,
    records_by_sampler,
    value_at,
    values_at_common_end,
)
from latticework.experiments.records.estimates import (
    Estimate,
    drop_shared_core,
    estimate,
    published_estimate,
    published_mean,
    step_seconds,
)
from latticework.experiments.records.grouping import (
    MIN_COMMON_SEEDS,
    common_values,
    group_by,
    keep_longest_runs,
)
from latticework.experiments.records.likelihood import (
    bounds,
    is_value_reliable,
    likelihood,
    likelihood_or_ends,
    log_z_gap,
    rows_differ_from_model,
)
from latticework.experiments.records.record import Record

LANGEVIN = ("DULA", "DMALA")
BASELINES = ("GWG-1", "Gibbs-1")
Models = dict[str, list[Record]]  # learned models by sampler
NAMES = ("gibbs", "gwg", "dula", "dmala")


def fig5(records: list[Record], axis: str) -> Finding:
    """DULA and DMALA end below GWG-1, at the largest number of sampling steps that all have."""
    size = _sizes(records)[-1]
    place, found = _after(records, size, axis)
    unit = "iterations" if axis == "step" else "seconds"
    note = f"log RMSE after {place:,.4g} {unit}, {size:g} sampling steps each"
    margins = differences("log RMSE", found, [("GWG-1", name) for name in LANGEVIN])
    return Finding(margins, numbers(f"{note}: {{}}", found), note)


def fig5_fewer(records: list[Record], every: bool = True) -> Finding:
    """The lead in log RMSE over GWG-1 with fewer sampling steps, minus that with more.

    Compares `every` number of sampling steps with the next, or else the fewest with the most.
    """
    sizes = _sizes(records)
    if len(sizes) < 2:
        raise LookupError("the samplers have no two numbers of sampling steps in common")
    margins: list[Margin] = []
    shown: dict[str, Number] = {}
    for name in LANGEVIN:
        for few, many in pairwise(sizes if every else (sizes[0], sizes[-1])):
            leads = {}
            for size in (few, many):
                found = _after(records, size, "step", (name,))[1]
                leads[size] = paired_differences(found["GWG-1"], found[name])
                text = f"log RMSE, GWG-1 - {name}, {size:g} sampling steps"
                shown[text] = Number(text, estimate(leads[size].values()))
            what = f"(log RMSE, GWG-1 - {name}) at {few:g} steps - at {many:g} steps"
            margins.append(margin_of_difference(what, leads[few], leads[many]))
    compared = "each number of sampling steps and the next"
    note = compared if every else "the fewest and the most sampling steps only"
    return Finding(margins, list(shown.values()), f"log RMSE after equal iterations; {note}")


def fig5_ratio(records: list[Record]) -> Finding:
    """DULA and DMALA reach the paper's log RMSE, and the baselines take longer by its ratio.

    Judged with the sampling steps that Gibbs needs, because the paper compares with Gibbs. A run
    that never reaches the level has the distance to its lowest log RMSE as a negative margin.
    Iterations are those of the longest run of a seed. Seconds per iteration are those of its idle
    runs (`_paces`), so that the interval includes the spread of the timing.
    Raises LookupError if a sampler reaches the level with some of its seeds only.
    """
    level, needs = published_mean("fig5", "log_rmse"), published_mean("fig5", "gibbs_needs")
    paper = published_mean("fig5", "seconds", "baselines_more_than") / published_mean(
        "fig5", "seconds", "dmala"
    )
    size = _sizes(records)[-1]
    if size < needs:
        raise LookupError(
            f"no {MIN_COMMON_SEEDS} seeds of DULA, DMALA and GWG-1 with {needs:g} sampling steps"
        )
    names = (*LANGEVIN, *BASELINES)
    groups = records_by_sampler(_with(records, size), names, ["log_rmse"])
    paces = _paces(records, size, names)
    times = {
        name: _times(paces[name], by_seed(some, lambda r: _reached(r, level)))
        for name, some in groups.items()
    }
    lowest = {
        name: by_seed(some, lambda r: float(r.metrics["log_rmse"].min()))
        for name, some in groups.items()
    }
    margins, shown = [], numbers("lowest log RMSE of {}", lowest)
    for name in LANGEVIN:
        margins.append(margin_below(f"lowest log RMSE of {name}", lowest[name], level))
        if not _known(times[name], name, level):
            continue
        for rival in BASELINES:
            whole = _times(paces[rival], by_seed(groups[rival], last_value("step")))
            seeds = common_seeds(times[name], times[rival])
            censored = any(math.isinf(times[rival][seed]) for seed in seeds)
            ratios = [min(times[rival][s], whole[s]) / times[name][s] for s in seeds]
            what = f"log({rival}'s seconds / {name}'s) - log {paper:g}"
            values = tuple(math.log(ratio / paper) for ratio in ratios)
            margins.append(Margin(what, values, at_least=censored))
            text = f"seconds to log RMSE {level:g}: {rival} over {name}"
            shown.append(Number(text + ", at least" * censored, estimate(ratios), Estimate(paper)))
    note = (
        f"ratio of the seconds to log RMSE {level:g}, at most those of the longest run of a "
        "baseline that never reaches it; seconds are iterations times the seconds of one in an "
        f"idle run; {size:g} sampling steps each"
    )
    return Finding(margins, shown, note)


def _known(times: Seeds, name: str, level: float) -> bool:
    """Whether all runs reach the level. Raises LookupError if only some of them do."""
    reached = sum(map(math.isfinite, times.values()))
    if 0 < reached < len(times):
        raise LookupError(
            f"{name} reaches log RMSE {level:g} with {reached} of {len(times)} seeds, so the "
            "ratio of the times is not known"
        )
    return reached > 0


def _reached(record: Record, level: float) -> float:
    """Iterations until log RMSE is first at most `level`; infinity if it never is."""
    there = record.metrics["log_rmse"] <= level
    return float(record.metrics["step"][there.idxmax()]) if there.any() else math.inf


def _paces(records: list[Record], size: float, names: Sequence[str]) -> dict[str, Seeds]:
    """Seconds per iteration by sampler and seed: of several idle runs, those of the fastest.

    Other work only adds time, and runs that differ in their length have the same iteration.
    """
    groups = records_by_sampler(drop_shared_core(_of_size(records, size)), names, ["log_rmse"])
    seeds = {name: group_by(lambda r: r.config["seed"], group) for name, group in groups.items()}
    return {
        name: {seed: min(map(step_seconds, runs)) for seed, runs in found.items()}
        for name, found in seeds.items()
    }


def _times(paces: Seeds, iterations: Seeds) -> Seeds:
    """Seconds of so many iterations, by seed."""
    return {seed: paces[seed] * iterations[seed] for seed in common_seeds(paces, iterations)}


def fig5_gibbs(records: list[Record]) -> Finding:
    """Gibbs ends with a larger error than it started with, with fewer sampling steps than needed.

    If the final log RMSE is not finite, the largest finite one is used.
    """

    def rise(record: Record) -> float:
        readings = record.metrics["log_rmse"].to_numpy(float)
        finite = readings[np.isfinite(readings)]
        if not finite.size:
            raise LookupError(f"{record.path.name} has no finite log RMSE")
        end = readings[-1] if np.isfinite(readings[-1]) else finite.max()
        return float(end - finite[0])

    margins = _gibbs(records, "log RMSE, end - start", rise, enough=False)
    return Finding(margins, note="diverges: ends with a larger log RMSE than it started with")


def fig5_gibbs_settles(records: list[Record]) -> Finding:
    """With 100 sampling steps the error of Gibbs does not rise over the second half of learning.

    The paper says only that Gibbs diverges with fewer, so it implies that it does not with 100.
    """

    def fall(record: Record) -> float:
        return value_at("log_rmse", "step", last_value("step")(record) / 2)(record) - last_value(
            "log_rmse"
        )(record)

    margins = _gibbs(records, "log RMSE, middle of learning - end", fall, enough=True)
    return Finding(margins, note="log RMSE at half of the iterations and at the end")


def _gibbs(records: list[Record], what: str, value: Value, *, enough: bool) -> list[Margin]:
    """`value` of Gibbs-1 with each number of sampling steps that is `enough`, or is not."""
    needs = published_mean("fig5", "gibbs_needs")
    some = records_by_sampler(records, ["Gibbs-1"], ["log_rmse"])["Gibbs-1"]
    sizes = sorted({record.config["task"]["steps"] for record in some})
    margins = [
        margin_positive(f"{size:g} steps: {what}", by_seed(_with(some, size), value))
        for size in sizes
        if (size >= needs) == enough
    ]
    if not margins:
        which = f"{needs:g} steps or more" if enough else f"fewer than {needs:g} steps"
        raise LookupError(f"no records of Gibbs-1 with {which}")
    return margins


def _after(
    records: list[Record], size: float, axis: str, ours: tuple[str, ...] = LANGEVIN
) -> tuple[float, dict[str, Seeds]]:
    """Log RMSE of `ours` and GWG-1 with `size` sampling steps (`verdict.after`)."""
    groups = records_by_sampler(_with(records, size), [*ours, "GWG-1"], ["log_rmse"])
    return values_at_common_end(groups, "log_rmse", axis)


def _sizes(records: list[Record]) -> list[float]:
    """Numbers of sampling steps that DULA, DMALA and GWG-1 were all run with, ascending."""
    groups = records_by_sampler(records, [*LANGEVIN, "GWG-1"], ["log_rmse"])
    return common_values(groups.values(), lambda record: record.config["task"]["steps"])


def _with(records: list[Record], size: float) -> list[Record]:
    """The records with `size` sampling steps; of runs of several lengths the longest."""
    return keep_longest_runs(_of_size(records, size))


def _of_size(records: list[Record], size: float) -> list[Record]:
    return [record for record in records if record.setting("task.steps") == size]


def fig5_cost(records: list[Record]) -> Finding:
    """`step_cost` by the pace of the runs with the sampling steps that Gibbs needs.

    Their sampling takes most of the time.
    """
    timed = drop_shared_core(_of_size(records, published_mean("fig5", "gibbs_needs")))
    return step_cost(keep_longest_runs(timed), step_seconds)


# Section 7.3.2: models learned from images.


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
    images = available_variant(records, data) if chosen else data
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
        margins.append(_against_vae(published_mean("table1", data, "vae"), models["dmala"]))
    numbers = []
    for name in NAMES:
        cell = likelihood_or_ends(list(models[name].values()))
        rate = f" ({WORDS[chosen]})" if chosen else ""
        what = f"test log-likelihood on {images}: {name}{rate}"
        here, ends = (None, f", {cell}") if isinstance(cell, str) else (cell, "")
        paper = None if chosen else published_estimate("table1", data, name)
        numbers.append(Number(f"{what}{ends}", here, paper))
    note = (
        "limits are the AIS bounds, each widened by its 95 % interval, and over several seeds "
        "by the interval of their mean; the lower one starts from training rows and needs them "
        "to be like draws of the model; ± is over models, or for one model a standard error"
    )
    return Finding(margins, numbers, note)


def own_rates(models: Models) -> Models:
    """The models learned at each sampler's own learning rate (`records_at_best_rate`)."""
    return {name: records_at_best_rate(some) for name, some in models.items()}


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
    seeds = common_seeds(ours, theirs)
    gaps = tuple(likelihood(ours[seed]).mean - likelihood(theirs[seed]).mean for seed in seeds)
    if len(seeds) == 1 and not one_decides:
        return Margin(f"nats, DMALA - {name}", gaps)

    def ends(level: float) -> Ends:
        pairs = [(bounds(ours[seed], level), bounds(theirs[seed], level)) for seed in seeds]
        return [(own[0] - other[1], own[1] - other[0]) for own, other in pairs]

    some = {"dmala": [ours[seed] for seed in seeds], name: [theirs[seed] for seed in seeds]}
    return Margin(f"nats, DMALA - {name}", gaps, ends=ends, basis=_basis(some))


def _against_vae(vae: float, ours: Mapping[int, Record]) -> Margin:
    """DMALA's test log-likelihood - that of the VAE, as the paper prints it."""
    own = list(ours.values())

    def ends(level: float) -> Ends:
        found = [bounds(record, level) for record in own]
        return [(low - vae, high - vae) for low, high in found]

    gaps = tuple(likelihood(record).mean - vae for record in own)
    what = "nats, DMALA - the VAE as printed"
    return Margin(what, gaps, ends=ends, basis=_basis({"dmala": own}))


def _basis(models: Mapping[str, list[Record]]) -> str:
    """`AIS bounds, 3 models each; gwg's are up to 2.7 nats apart`."""
    count = len(next(iter(models.values())))
    words = [f"AIS bounds, {count} models each" if count > 1 else "AIS bounds, one model each"]
    for name, some in models.items():
        if any(rows_differ_from_model(record) for record in some):
            words.append(f"training rows are no draws of {name}'s model")
        elif not all(is_value_reliable(record) for record in some):
            apart = (log_z_gap(record) or Estimate(0) for record in some)
            words.append(f"{name}'s are up to {max(gap.mean for gap in apart):.2g} nats apart")
    return "; ".join(words)
