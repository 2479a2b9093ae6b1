"""Which trained RBMs count as trained properly, as records of task=train_rbm say.

Breuleux et al. (2011, Section 1) condition their claims on a model that "was trained properly", and
do not say when it was. The bounds are ours. They were fixed before the models were trained.
"""

from collections.abc import Mapping

import numpy as np

FACTS = ("ais_forward", "ais_back", "commonest_share", "pixel_error")  # keys of run.json
MAX_NATS_BELOW_BEST = 10.0  # nats of log-likelihood below the best model of all methods
MAX_COMMONEST_SHARE = 0.01  # share of the most frequent state among the model's own Gibbs samples
MAX_PIXEL_ERROR = 0.05  # error of the share of pixels that are on, in either direction


def lower_likelihood(quality: Mapping[str, float]) -> float:
    """The lower of the two estimates of the log-likelihood, in nats; NaN if either is."""
    return float(np.minimum(quality["ais_forward"], quality["ais_back"]))


def why_not_trained(quality: Mapping[str, float], best: float) -> str:
    """The reasons why a model does not count as trained properly; "" if it counts.

    `best` is the largest `lower_likelihood` of all models that are compared, in nats.
    """
    reasons = []
    behind = best - lower_likelihood(quality)
    if not behind <= MAX_NATS_BELOW_BEST:  # also NaN
        reasons.append(f"{behind:.0f} nats below the best")
    if not quality["commonest_share"] < MAX_COMMONEST_SHARE:
        reasons.append(f"{quality['commonest_share']:.0%} of its samples are one state")
    if not abs(quality["pixel_error"]) <= MAX_PIXEL_ERROR:
        reasons.append(f"share of pixels on off by {quality['pixel_error']:+.2f}")
    return ", ".join(reasons)
