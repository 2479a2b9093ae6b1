"""Claims of Zhang et al. (2022), Section 7.3.2: networks learned from images (Table 1)."""

from collections.abc import Mapping

from latticework.experiments.figures.likelihood import learning_rate, records_at_best_rate
from latticework.experiments.papers.claims import compare, readings
from latticework.experiments.papers.claims.verdict import Finding, Number
from latticework.experiments.records import likelihood
from latticework.experiments.records.estimates import (
    Estimate,
    published_estimate,
    published_mean,
)
from latticework.experiments.records.record import Record

Models = dict[str, list[Record]]  # learned models by sampler
ModelsBySeed = Mapping[int, Record]
TRIAL_BETAS = "task.trial_steps"  # betas of the trials by which a run chooses its checkpoint
NAMES = ("gibbs", "gwg", "dula", "dmala")


def judge_table1(records: list[Record], data: str, chosen: str = "") -> Finding:
    """On the images `data`, the model learned with DMALA has the highest test log-likelihood.

    Judged by both bounds on log Z: the claim needs DMALA's lower bound on the log-likelihood to
    exceed the upper bound of every other sampler, in the mean over seeds if there are several. The
    point estimates do not decide, because they are unreliable where the bounds are far apart.
    `chosen`, a key of CHOICES, selects among models that were learned at several rates. It needs
    several seeds, and takes models of a variant of the images if there are none of `data`. Without
    `chosen`, one model of each sampler decides, as in the paper, and "all methods" includes the
    VAE, whose printed number stands for it.
    """
    images = readings.available_variant(records, data) if chosen else data
    evaluated = [record for record in records if "log_likelihood" in record.document]
    learned = readings.by_choice(
        readings.with_choices(evaluated, data=images),
        NAMES,
        f" on {data}",
        lambda record: record.choices["sampler"],
    )
    learned = _models_by_one_rule(CHOICES[chosen](learned)) if chosen else learned
    models = {name: _by_seed(records) for name, records in learned.items()}
    margins, shown = [], []
    for name in NAMES[:-1]:
        margins.append(_against(name, models["dmala"], models[name], one_decides=not chosen))
    if not chosen:
        margins.append(_against_vae(published_mean("table1", data, "vae"), models["dmala"]))
    rate = f" ({WORDS[chosen]})" if chosen else ""
    for name in NAMES:
        quantity = f"test log-likelihood on {images}: {name}{rate}"
        paper = None if chosen else published_estimate("table1", data, name)
        here = likelihood.likelihood_or_ends(list(models[name].values()))
        if isinstance(here, str):
            shown.append(Number(f"{quantity}, {here}", None, paper))
        else:
            shown.append(Number(quantity, here, paper))
    note = (
        "limits are the AIS bounds, each widened by its 95 % interval, and over several seeds "
        "by the interval of their mean; the lower one starts from training rows and needs them "
        "to be like draws of the model; ± is over models, or for one model a standard error"
    )
    return Finding(margins, shown, note)


def models_at_best_rates(models: Models) -> Models:
    """The models learned at each sampler's own learning rate (`records_at_best_rate`)."""
    return {name: records_at_best_rate(records) for name, records in models.items()}


def models_at_common_rate(models: Models) -> Models:
    """The models learned at the largest learning rate that all samplers have in common.

    Raises LookupError if there is none.
    """
    rates = [set(map(learning_rate, records)) for records in models.values()]
    shared = set.intersection(*rates)
    if not shared:
        raise LookupError("the samplers have no learning rate in common")
    at_rate = {}
    for name, records in models.items():
        at_rate[name] = [record for record in records if learning_rate(record) == max(shared)]
    return at_rate


def _models_by_one_rule(models: Models) -> Models:
    """The models whose checkpoints were chosen by the most betas that all samplers have models of.

    Trials of few betas overestimate a log-likelihood, so they choose other checkpoints. Raises
    LookupError if the samplers have no number of betas in common.
    """
    betas = {}
    for name, records in models.items():
        betas[name] = {record.setting(TRIAL_BETAS) or 0 for record in records}
    shared = set.intersection(*betas.values())
    if not shared:
        rules = [f"{name} by {max(counts):,}" for name, counts in betas.items()]
        raise LookupError(
            f"checkpoints were chosen by trials of different lengths ({', '.join(rules)} betas)"
        )
    longest = max(shared) or None  # records without the setting made no trials
    settings = {TRIAL_BETAS: longest}
    return {name: readings.with_settings(records, settings) for name, records in models.items()}


CHOICES = {"own_rates": models_at_best_rates, "one_rate": models_at_common_rate}
WORDS = {"own_rates": "each sampler's own learning rate", "one_rate": "one learning rate for all"}


def _by_seed(records: list[Record]) -> dict[int, Record]:
    models: dict[int, Record] = {}
    for record in records:
        if models.setdefault(record.config["seed"], record) is not record:
            where = f"{record.choices['sampler']} on {record.choices['data']}"
            raise LookupError(f"several models of {where} have the seed {record.config['seed']}")
    return models


def _against(
    name: str, ours: ModelsBySeed, theirs: ModelsBySeed, one_decides: bool
) -> compare.Margin:
    """DMALA's test log-likelihood - that of the sampler `name`, between the bounds by AIS.

    A single seed says nothing about the spread over models, so it decides only if `one_decides`.
    """
    quantity, gaps = f"nats, DMALA - {name}", []
    pairs = [(ours[seed], theirs[seed]) for seed in readings.common_seeds(ours, theirs)]
    for dmala, rival in pairs:
        gaps.append(likelihood.likelihood(dmala).mean - likelihood.likelihood(rival).mean)
    if len(pairs) == 1 and not one_decides:
        return compare.Margin(quantity, tuple(gaps))

    def ends(level: float) -> compare.Ends:
        between = []
        for dmala, rival in pairs:
            low, high = likelihood.likelihood_bounds(dmala, level)
            rival_low, rival_high = likelihood.likelihood_bounds(rival, level)
            between.append((low - rival_high, high - rival_low))
        return between

    dmalas, rivals = zip(*pairs, strict=True)
    basis = _describe_bounds({"dmala": list(dmalas), name: list(rivals)})
    return compare.Margin(quantity, tuple(gaps), ends=ends, basis=basis)


def _against_vae(vae: float, ours: ModelsBySeed) -> compare.Margin:
    """DMALA's test log-likelihood - that of the VAE, as the paper prints it."""
    models = list(ours.values())

    def ends(level: float) -> compare.Ends:
        between = []
        for model in models:
            low, high = likelihood.likelihood_bounds(model, level)
            between.append((low - vae, high - vae))
        return between

    gaps = tuple(likelihood.likelihood(model).mean - vae for model in models)
    basis = _describe_bounds({"dmala": models})
    return compare.Margin("nats, DMALA - the VAE as printed", gaps, ends=ends, basis=basis)


def _describe_bounds(models: Models) -> str:
    """`AIS bounds, 3 models each; gwg's are up to 2.7 nats apart`."""
    count = len(next(iter(models.values())))
    words = [f"AIS bounds, {count} models each" if count > 1 else "AIS bounds, one model each"]
    for name, records in models.items():
        if any(map(likelihood.rows_differ_from_model, records)):
            words.append(f"training rows are no draws of {name}'s model")
        elif not all(map(likelihood.is_value_reliable, records)):
            gaps = (likelihood.log_z_gap(record) or Estimate(0) for record in records)
            widest = max(gaps, key=lambda gap: gap.mean)
            words.append(f"{name}'s are up to {widest.mean:.2g} nats apart")
    return "; ".join(words)
