"""Made-up records for the claims of the papers after Zhang et al. (2022), of the benchmark."""

from __future__ import annotations

from itertools import product

import numpy as np
from fakes import measured, noise

from latticework.experiments.records.record import Record
from made_records.building import SEEDS, Made, each


def effective(**ess: float) -> list[Record]:
    """Effective samples of the worst site on two targets.

    On a third one the order is the reverse, and the chains of PAFS disagree: it does not count.
    """
    default = {"pafs": 200.0, "dlmc": 200.0, "gwg": 100.0, "dmala": 100.0}
    records = []
    for (name, value), seed in product({**default, **ess}.items(), SEEDS):
        own = value * (1 + noise(seed))
        records += [measured(name, target, seed, ess=own) for target in ("ising_5x5", "sk_16")]
        r_hat = 2.0 if name == "pafs" else 1.0
        records.append(measured(name, "fhmm", seed, ess=1e4 / own, r_hat=r_hat))
    return records


def cyclical(acs: float = -3.0, dmala: float = -2.0) -> list[Record]:
    """The error of the means on the RBM. DMALA took more steps, and got further with them."""
    records = []
    for (name, level), seed in product({"acs": acs, "dmala": dmala}.items(), SEEDS):
        steps, error = [0, 100], [0.0, level + noise(seed)]
        if name == "dmala":
            steps, error = [*steps, 1000], [*error, -9.0]
        table = {"step": steps, "log_rmse": error}
        records.append(measured(name, "rbm_mnist_25", seed, metrics=table))
    return records


def quadratic(**rates: float) -> list[Record]:
    """PAVG's acceptance rate on the targets with a constant Hessian; on an RBM it is lower."""
    default = {"ising_5x5": 0.997, "sk_16": 0.997, "sk_200": 0.997, "rbm_mnist_25": 0.7}
    return [
        measured("pavg", target, seed, acceptance=rate + noise(seed) / 10)
        for (target, rate), seed in product({**default, **rates}.items(), SEEDS)
    ]


def linear(small: float = 1.0, large: float = 1.0) -> list[Record]:
    """DHAMS' acceptance rate on independent sites; on an Ising model it is lower."""
    records = [
        measured("dhams", "product", seed, sites=sites, acceptance=rate - abs(noise(seed)) / 1e4)
        for (sites, rate), seed in product({100: small, 1000: large}.items(), SEEDS)
    ]
    return records + [measured("dhams", "ising_5x5", seed, acceptance=0.8) for seed in SEEDS]


def growing(random_walk: float = 1.0, pafs: float = 1 / 3, dlmc: float = 0.0) -> list[Record]:
    """Iterations for an effective sample grow as a power of the number of sites."""
    powers = {"random_walk": random_walk, "pafs": pafs, "dlmc": dlmc}
    return [
        measured(name, "product", seed, sites=sites, ess=1e3 * sites**-power * np.exp(noise(seed)))
        for (name, power), sites, seed in product(powers.items(), (10, 100, 1000), SEEDS)
    ]


MADE: dict[str, Made] = {
    "later-paths": Made(effective, {
        **each(("pafs", "dlmc"), 50.0), **each(("gwg", "dmala"), 400.0),
    }),
    "later-cyclical": Made(cyclical, each(("dmala",), -4.0)),
    "later-preconditioned": Made(quadratic, each(("ising_5x5", "sk_16", "sk_200"), 0.97)),
    "later-linear": Made(linear, each(("small", "large"), 0.99)),
    "later-scaling": Made(growing, {
        **each(("pafs",), 0.1), **each(("pafs",), 0.6),
        **each(("random_walk",), 1.3), **each(("random_walk",), 0.7),
    }),
}  # fmt: skip
