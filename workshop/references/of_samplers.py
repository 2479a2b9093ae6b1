"""What two samplers tell of a target that no exact method reaches. Nothing here is exact."""

import math

import numpy as np
from scipy.stats import norm
from torch import Tensor

import latticework as lw
from latticework.models.references.catalogue import DEFINITIONS
from workshop.references.answers import SEED, Answer, Arrays

CHAINS = 100


def answer_sk_200(arrays: Arrays) -> Answer:
    """Energies by Gibbs, site by site, and by DMALA. Raises RuntimeError if they do not agree."""
    answer, model = Answer(), DEFINITIONS["sk_200"].build(arrays)
    errors = []
    for method, adapt, steps in (("gibbs", None, 400_000), ("dmala", "acceptance", 10_000)):
        result = lw.sample(
            model,
            method,
            chains=CHAINS,
            steps=steps,
            thin=steps // 1000,
            burn_in=steps // 4,
            adapt=adapt,
            engine="compiled",
            seed=SEED,
        )
        row = result.summary(digits=None, of={"first site": _first_site}).loc["log_prob"]
        answer.energy[method], answer.variance[method] = float(row["mean"]), float(row["sd"] ** 2)
        answer.statistics[f"R-hat of the energy by {method}"] = float(row["r_hat"])
        errors.append(float(row["mcse_mean"]))
        answer.errors.setdefault("energy", errors[0])
    first, second = answer.energy.values()
    z = (first - second) / math.hypot(*errors)
    answer.statistics["z of the difference of the energies"] = z
    if abs(z) > norm.ppf(1 - 1e-4):
        raise RuntimeError(f"the samplers differ by {z:.1f} standard errors")
    answer.mean["symmetry"] = np.full(200, 0.5)
    return answer


def _first_site(x: Tensor) -> Tensor:
    return x[:, 0]
