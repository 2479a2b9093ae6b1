"""Made-up records for the claims of Zhang et al. (2022), Sections 7.3 to 7.5: networks."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
from fakes import fake, noise
from numpy.typing import NDArray

from latticework.experiments.records.estimates import published_mean
from latticework.experiments.records.record import Record
from made_records.building import SEEDS, Made, curves, each
from made_records.langevin_sampling import COSTS, costs

SAMPLERS = ("gibbs", "gwg", "dula", "dmala")
OURS, BASELINES = ("dula", "dmala"), ("gibbs", "gwg")


# Learning an Ising model.


def coupling(seconds: dict[str, float] | None = None, **levels: float) -> list[Record]:
    """Log RMSE with 5, 25 and 100 sampling steps, by sampler and steps.

    The Langevin samplers lead GWG by 2, 1 and 0.4, and reach -5 in under half the seconds.
    """
    default = {"gwg_5": -3.0, "gwg_25": -4.0, "gwg_100": -5.1, "gibbs_100": -5.2}
    for name in OURS:
        default |= {f"{name}_5": -5.0, f"{name}_25": -5.0, f"{name}_100": -5.5}
    times = {"dula": 0.4, "dmala": 0.4, **(seconds or {})}
    records = []
    for key, level in {**default, **levels}.items():
        name, steps = key.split("_")
        config = {"task": {"steps": int(steps)}}
        records += curves("log_rmse", {name: level}, times, config=config)
    return records


def by_gibbs(
    few: tuple[float, float, float] = (-2.0, -3.0, 1.0),
    more: tuple[float, float, float] = (-2.0, -3.0, 1.0),
    enough: tuple[float, float, float] = (-6.0, -2.0, -5.0),
) -> list[Record]:
    """Log RMSE of Gibbs at the start, the middle and the end, with 5, 25 and 100 sampling steps."""
    return [
        fake(
            {"step": [0, 50, 100], "log_rmse": np.array(readings) * (1 + noise(seed))},
            sampler="gibbs",
            seed=seed,
            config={"task": {"steps": steps}},
        )
        for steps, readings in ((5, few), (25, more), (100, enough))
        for seed in SEEDS
    ]


# Networks learned from images.


def network(
    sampler: str,
    data: str,
    mean: float,
    below: float = 0.4,
    above: float = 0.2,
    ess: float = 40.0,
    seed: int = 0,
    rate: float = 1e-4,
    valid: float = -90.0,
) -> Record:
    """A test log-likelihood of `mean` nats by AIS, between mean - below and mean + above.

    `valid` is the log-likelihood of the validation rows.
    """
    return fake(
        sampler=sampler,
        seed=seed,
        choices={"data": data},
        config={
            "task": {"budget": {"chains": 50, "steps": 100, "every": 10}, "back": 50},
            "learning": {"optimiser": {"lr": rate}},
        },
        log_likelihood={"valid": {"mean": valid}, "test": {"mean": mean}},
        log_z=100.0,
        log_z_error=0.1,
        log_z_lower=100.0 - above,
        log_z_lower_error=0.01,
        log_z_back=100.0,
        log_z_upper=100.0 + below,
        log_z_upper_error=0.01,
        ess=ess,
    )


def one_model(data: str, **above_the_vae: float) -> list[Record]:
    """One model of each sampler, as in the paper, by its distance from the VAE as printed."""
    found = {"gibbs": -30.0, "gwg": 1.0, "dula": 1.0, "dmala": 3.0, **above_the_vae}
    vae = published_mean("table1", data, "vae")
    return [network(name, data, vae + value) for name, value in found.items()]


def several_models(data: str, rate: float, **scores: float) -> list[Record]:
    """Models at two learning rates. At the one that decides, `rate`, DMALA's are the best.

    At the other one they are the worst. The smaller rate is the better one by the validation rows,
    and the larger one is the largest that all samplers have.
    """
    decisive = {"gibbs": -100.0, "gwg": -90.0, "dula": -90.0, "dmala": -85.0, **scores}
    others = {"gibbs": -90.0, "gwg": -90.0, "dula": -90.0, "dmala": -120.0}
    records = []
    for own, valid in ((1e-4, -80.0), (1e-3, -95.0)):
        for name, score in (decisive if own == rate else others).items():
            for seed in SEEDS:
                mean = score + noise(seed)
                records.append(network(name, data, mean, seed=seed, rate=own, valid=valid))
    return records


BEATEN = {
    **each(("gibbs", "gwg", "dula"), 5.0),
    "the VAE is better": {"gwg": -9.0, "dula": -9.0, "dmala": -3.0},
}
IMAGES = ("static_mnist", "dynamic_mnist", "omniglot", "caltech")
CLOSE = each(("gibbs", "gwg", "dula"), 2.9)  # nearer than the bounds by AIS can tell
CLOSE["DMALA is close to the VAE"] = {"gwg": -9.0, "dula": -9.0, "dmala": 0.1}
MODELS = {
    f"table1-{data}": Made(partial(one_model, data), BEATEN, undecided=CLOSE) for data in IMAGES
}
for data in IMAGES:
    for reading, rate in (("small", 1e-3), ("small-best", 1e-4)):
        MODELS[f"table1-{reading}-{data}"] = Made(
            partial(several_models, data, rate), each(("gibbs", "gwg", "dula"), -80.0)
        )


# Bayesian networks.


def tables(data: str, **values: float) -> list[Record]:
    """DULA and DMALA have the higher log-likelihood and the lower RMSE; `values` by measure."""
    found = {f"likelihood_{name}": -0.3 if name in OURS else -0.4 for name in SAMPLERS}
    found |= {f"rmse_{name}": 0.4 if name in OURS else 0.5 for name in SAMPLERS}
    found |= values
    return [
        fake(
            {
                "step": [100],
                "train_log_likelihood": [found[f"likelihood_{name}"] + noise(seed) / 10],
                "test_rmse": [found[f"rmse_{name}"] + noise(seed, 1) / 10],
            },
            sampler=name,
            seed=seed,
            choices={"data": data},
        )
        for name, seed in product(SAMPLERS, SEEDS)
    ]


LIKELIHOODS = {
    **each([f"likelihood_{name}" for name in BASELINES], -0.2),
    **each([f"likelihood_{name}" for name in OURS], -0.5),
}
ERRORS = {
    **each([f"rmse_{name}" for name in BASELINES], 0.3),
    **each([f"rmse_{name}" for name in OURS], 0.6),
}
WORSE = {"rmse_gibbs": 0.4, "rmse_gwg": 0.4, "rmse_dula": 0.5, "rmse_dmala": 0.5}
LOWER = {
    **each([f"rmse_{name}" for name in BASELINES], 0.6),
    **each([f"rmse_{name}" for name in OURS], 0.3),
}


def batches(
    data: str,
    likelihood: tuple[float, ...] = (-0.44, -0.40, -0.38, -0.36),
    rmse: tuple[float, ...] = (0.48, 0.47, 0.46, 0.45),
    averaged: tuple[float, ...] = (0.47, 0.46, 0.45, 0.44),
    split: int | None = None,
) -> list[Record]:
    """Measures with batches of 10, 100, 500 and all rows.

    In the first half of a run, which does not count, they have the reverse order.
    """
    records = []
    for place, batch in enumerate((10, 100, 500, None)):
        for seed in SEEDS if split is None else [0]:
            shift = noise(seed if split is None else split, place) / 10

            def readings(
                values: tuple[float, ...], place: int = place, shift: float = shift
            ) -> NDArray:
                early, late = values[-1 - place], values[place]
                return np.array([early] * 5 + [late] * 2) + shift

            table = {
                "step": [0, 10, 20, 30, 40, 75, 100],
                "train_log_likelihood": readings(likelihood),
                "test_rmse": readings(rmse),
                "test_rmse_averaged": readings(averaged),
            }
            record = fake(
                table,
                sampler="stochastic_dula",
                seed=seed,
                settings={"batch": batch},
                choices={"data": data},
                config=None if split is None else {"data": {"seed": split}},
                rows={"train": 4889},
            )
            records.append(record)
    return records


def splits(**measures: tuple[float, ...]) -> list[Record]:
    return [record for part in range(5) for record in batches("compas", split=part, **measures)]


UNLIKELY = {"the likelihood falls": {"likelihood": (-0.36, -0.38, -0.40, -0.44)}}
WRONG = {"the RMSE rises": {"rmse": (0.45, 0.46, 0.47, 0.48)}}
BOTH = {**UNLIKELY, **WRONG}
AFTERWARDS = {  # from 10 rows to 100 it improves
    "the likelihood falls from 100 rows on": {"likelihood": (-0.60, -0.36, -0.38, -0.40)},
    "the RMSE rises from 100 rows on": {"rmse": (0.60, 0.45, 0.46, 0.47)},
}
AVERAGED = {"the averaged RMSE rises": {"averaged": (0.44, 0.45, 0.46, 0.47)}}
NETWORKS: dict[str, Made] = {
    "table2-compas": Made(partial(tables, data="compas"), LIKELIHOODS),
    "table2-exception": Made(partial(tables, data="compas", **WORSE), LOWER),
    "table2-cost": Made(partial(costs, choices={"data": "compas"}), COSTS),
    "table4-splits": Made(splits, BOTH),
}
for data in ("news", "adult", "blog"):
    NETWORKS[f"table2-{data}"] = Made(partial(tables, data=data), {**LIKELIHOODS, **ERRORS})
for data in ("compas", "news", "adult", "blog"):
    NETWORKS[f"table4-{data}"] = Made(partial(batches, data), BOTH)
    NETWORKS[f"table4-beyond-{data}"] = Made(partial(batches, data), {**BOTH, **AFTERWARDS})
    NETWORKS[f"table4-averaged-{data}"] = Made(partial(batches, data), AVERAGED)


# Text infilling.

GRAMS = ("self_2", "self_3", "wt103_2", "wt103_3", "tbc_2", "tbc_3")  # unique ones, in per cent


def infilled(model: str, **changed: dict[str, float]) -> list[Record]:
    """Scores of Table 3; `changed` gives some of a sampler's."""
    records = []
    for name, seed in product(SAMPLERS, SEEDS):
        unique = 30.0 if name in OURS else 15.0
        scores = {"self_bleu": 70.0 if name in OURS else 85.0, "corpus_bleu": 22.0}
        scores |= dict.fromkeys(GRAMS, unique) | changed.get(name, {})
        shifted = {column: value + noise(seed) for column, value in scores.items()}
        record = fake(sampler=name, seed=seed, choices={"model": model}, scores=shifted)
        records.append(record)
    return records


LESS_DIVERSE = {}  # changes by which a sampler is less diverse than Gibbs and GWG
for name in OURS:
    LESS_DIVERSE[name] = {f"{name}, self-BLEU": {name: {"self_bleu": 90.0}}}
    for gram in GRAMS:
        LESS_DIVERSE[name][f"{name}, {gram}"] = {name: {gram: 10.0}}
MORE_DIVERSE = {f"{name}, self-BLEU": {name: {"self_bleu": 60.0}} for name in BASELINES}
for name, gram in product(BASELINES, GRAMS):
    MORE_DIVERSE[f"{name}, {gram}"] = {name: {gram: 40.0}}
NOT_DIVERSE = MORE_DIVERSE | LESS_DIVERSE["dula"] | LESS_DIVERSE["dmala"]
QUALITY = {
    f"{name}, {score}": {name: {"corpus_bleu": score}}
    for name in SAMPLERS
    for score in (19.0, 25.0)
}
TEXT: dict[str, Made] = {
    "table3-diversity": Made(partial(infilled, "bert_base"), NOT_DIVERSE),
    "table3-diversity-large": Made(partial(infilled, "bert_large"), NOT_DIVERSE),
    "table3-diversity-mini": Made(
        partial(infilled, "mini_bert"), MORE_DIVERSE | LESS_DIVERSE["dula"],
        true=LESS_DIVERSE["dmala"],
    ),
    "table3-quality": Made(partial(infilled, "bert_base"), QUALITY),
    "table3-quality-large": Made(partial(infilled, "bert_large"), QUALITY),
    "table3-quality-mini": Made(partial(infilled, "mini_bert"), QUALITY),
}  # fmt: skip

MADE: dict[str, Made] = {
    "fig5-iterations": Made(coupling, {
        **each(("gwg_100",), -6.0), **each(("dula_100", "dmala_100"), -4.0),
    }, true={"steps take longer": {"seconds": dict.fromkeys(OURS, 9.0)}}),
    "fig5-data": Made(coupling, {
        **each(("gwg_100",), -6.0), **each(("dula_100", "dmala_100"), -4.0),
    }),
    "fig5-seconds": Made(coupling, {
        **each(("gwg_100",), -20.0),
        **{f"{name} is slow": {"seconds": {name: 9.0}} for name in OURS},
    }),
    "fig5-ratio": Made(coupling, {
        **each(("dula_100", "dmala_100"), -4.9),
        **{f"{name} takes 0.9 s": {"seconds": {name: 0.9}} for name in OURS},
        **{f"{name} takes 0.5 s": {"seconds": {name: 0.5}} for name in BASELINES},
    }, true=each(("gwg_100", "gibbs_100"), -4.9), undecided={
        "GWG never gets there, in a short run": {"gwg_100": -4.9, "seconds": {"gwg": 0.5}},
        "Gibbs never gets there, in a short run": {"gibbs_100": -4.9, "seconds": {"gibbs": 0.5}},
    }),
    "fig5-fewer": Made(coupling, {
        **each(("dula_5", "dmala_5"), -3.5),
        **each(("dula_25", "dmala_25"), -4.2),
        **each(("dula_25", "dmala_25"), -6.5),
    }),
    "fig5-fewest": Made(
        coupling, each(("dula_5", "dmala_5"), -3.2), true=each(("dula_25", "dmala_25"), -6.5)
    ),
    "fig5-gibbs": Made(by_gibbs, each(("few", "more"), (-2.0, 3.0, -4.0))),
    "fig5-gibbs-settles": Made(by_gibbs, each(("enough",), (-2.0, -5.0, -4.0))),
    "fig5-cost": Made(partial(costs, timed=False, config={"task": {"steps": 100}}), COSTS),
    **MODELS,
    **NETWORKS,
    **TEXT,
}  # fmt: skip
