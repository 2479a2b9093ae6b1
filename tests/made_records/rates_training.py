"""Made-up records for the claims of Breuleux et al. (2011) on training: ISL, bags of words."""

from __future__ import annotations

from itertools import product

from fakes import fake, noise

from latticework.experiments.records.record import Record
from made_records.building import SEEDS, Made, each
from made_records.rates import FPCD, GIBBS, METHODS

MODELS = {1: -1.0, 2: -0.95, 3: -0.9, 4: 0.9, 5: 0.95, 6: 1.0}  # seed: place in a spread


def best_isl(**levels: float) -> list[Record]:
    """The best validation ISL by method of training, in the middle of it."""
    default = {"cd": -100.0, "sml": -95.0, "fpcd": -90.0, "herding": -105.0}
    return [
        fake(
            {"step": [1, 2, 3], "isl": [-200.0, level + noise(seed), -200.0]},
            seed=seed,
            choices={"negatives": method},
        )
        for method, level in {**default, **levels}.items()
        for seed in SEEDS
    ]


def bags_of_words(
    apart_gibbs: float = 200.0,
    apart_fpcd: float = 0.0,
    fall_gibbs: float = 5.0,
    fall_fpcd: float = -10.0,
    gibbs: dict[str, float] | None = None,
    share_gibbs: float = 0.9,
    share_fpcd: float = 1e-3,
    on: float = 0.001,
    spread_gibbs: float = 12.0,
    spread_fpcd: float = 0.5,
) -> list[Record]:
    """Models by CD on which Gibbs is stuck in a state that is almost blank, and others.

    `apart` is the distance of the last ISLs from two starts, and `fall` the fall of the ISL from
    100 samples to all, both on models by CD. `gibbs` is the last ISL of Gibbs from the data mean by
    method of training; that of rates-FPCD is -300. On other models it spreads over models.
    """
    last_of_gibbs = {"cd": -330.0, "sml": -330.0, "fpcd": -330.0, **(gibbs or {})}
    records = []
    for method, name, start, seed in product(
        METHODS, (GIBBS, FPCD), ("data_mean", "uniform"), MODELS
    ):
        slow, by_cd = name == GIBBS, method == "cd"
        last = last_of_gibbs[method] if slow else -300.0
        last += noise(seed, slow)
        if not by_cd:
            last += (spread_gibbs if slow else spread_fpcd) * MODELS[seed]
        fall = (fall_gibbs if slow else fall_fpcd) if by_cd else -10.0
        if by_cd and start == "uniform":
            last -= apart_gibbs if slow else apart_fpcd
        share = (share_gibbs if slow else share_fpcd) if by_cd else 1e-3
        if start == "uniform":  # only the last ISL of these chains counts
            fall, share = -fall, 1e-3
        record = fake(
            {"step": [1, 100, 1000], "isl": [last - 100, last + fall, last]},
            sampler=name,
            seed=seed,
            choices={"negatives": method, "model": "rbm_reviews", "start": start},
            commonest_share=share,
            commonest_on=on,
        )
        records.append(record)
    return records


STARTS = {
    "Gibbs does not depend on its start": {"apart_gibbs": 1.0},
    "rates-FPCD depends on its start": {"apart_fpcd": 50.0},
    "rates-FPCD depends on its start, in the other direction": {"apart_fpcd": -50.0},
    "the ISL of Gibbs rises": {"fall_gibbs": -5.0},
    "the ISL of rates-FPCD falls": {"fall_fpcd": 5.0},
    "Gibbs is ahead on models by CD": {"gibbs": {"cd": -150.0, "sml": 0.0, "fpcd": 0.0}},
    "Gibbs is further behind on models by SML": {"gibbs": {"sml": -900.0}},
    "Gibbs is further behind on models by FPCD": {"gibbs": {"fpcd": -900.0}},
}
WORSE_FROM_THE_MEAN = {
    "Gibbs is worse from the data mean": {"apart_gibbs": -200.0, "gibbs": {"cd": -600.0}}
}
STUCK = {
    "Gibbs has no narrow mode": {"share_gibbs": 0.05},
    "rates-FPCD has a narrow mode": {"share_fpcd": 0.5},
}
BLANK = {
    "the mode of Gibbs is not blank": {"on": 0.05},
    "Gibbs has no narrow mode": {"share_gibbs": 0.05},
}
UNEVEN = {
    "Gibbs is ahead on models by SML": {"gibbs": {"sml": -200.0}},
    "Gibbs is ahead on models by FPCD": {"gibbs": {"fpcd": -200.0}},
    "rates-FPCD varies more": {"spread_gibbs": 0.5, "spread_fpcd": 12.0},
}
WORDS = {
    f"rates-fig3-{name}{end}": Made(bags_of_words, false, true)
    for name, false, true in (
        ("words", STUCK, {}),
        ("start", STARTS, WORSE_FROM_THE_MEAN),
        ("zeros", BLANK, {}),
        ("consistency", UNEVEN, {}),
    )
    for end in ("", "-slow", "-short")
}  # fmt: skip
MADE: dict[str, Made] = {
    "rates-training-fpcd": Made(best_isl, each(("cd", "sml", "herding"), -80.0)),
    **WORDS,
}
