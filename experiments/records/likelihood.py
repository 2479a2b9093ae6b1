"""Log-likelihoods in nats by annealed importance sampling, as records of task=ais hold them.

A run estimates log Z, with two ends around it: the mean log weight of chains towards the model is a
lower bound in expectation, and that of chains which start at training rows is an upper one as far
as such rows are like draws of the model. A log-likelihood has the same ends in reverse order.

Where few chains are effective, an estimate tends to be below the truth. The standard error does not
show it: a run that missed the heavy weights has more effective chains, not fewer. So a value is
printed only if the run is `is_value_reliable`, and otherwise the two ends, each with its own
standard error.
"""

import math
from collections.abc import Sequence

from latticework.experiments.records.estimates import Estimate, estimate
from latticework.experiments.records.record import Record
from latticework.sampling.intervals import t_half_width

LEVEL = 0.95  # level of an interval
MAX_GAP_NATS = math.log(
    2
)  # between the ends if half the chains are effective and log weights are normal
MAX_EXCESS_NATS = 2 * math.log(
    2 / (1 - LEVEL)
)  # excess of log Z over its estimate from training rows
MAX_INVERSION_ERRORS = 4  # standard errors by which the ends may be inverted


def is_value_reliable(record: Record) -> bool:
    """Whether the estimate of log Z may be printed as a value with a standard error.

    At least half of the chains must be effective, and the ends at most `MAX_GAP_NATS` apart.
    """
    gap = log_z_gap(record)
    close = gap is None or (gap.mean <= MAX_GAP_NATS and not rows_differ_from_model(record))
    return record.document["ess"] >= record.budget.chains / 2 and close


def rows_differ_from_model(record: Record) -> bool:
    """Whether the run shows that training rows differ from draws of the model.

    The mean weight of either direction exceeds its expectation k-fold with probability 1/k at most
    (Markov's inequality). So if the rows are draws, log Z towards the model is more than
    `MAX_EXCESS_NATS` above that from the rows in at most 5 % of runs. Ends that are inverted by
    more than noise are evidence, too. If true, their end is no bound. False without such chains.
    """
    gap, document = log_z_gap(record), record.document
    if gap is None or gap.spread is None:
        return False
    inverted = gap.mean < -MAX_INVERSION_ERRORS * gap.spread
    return inverted or document["log_z"] - document["log_z_back"] > MAX_EXCESS_NATS


def log_z_gap(record: Record) -> Estimate | None:
    """How far the upper end of log Z is above the lower one; None without an upper end.

    Negative where noise inverts them.
    """
    high, low = log_z_upper_end(record), log_z_lower_bound(record)
    if high is None:
        return None
    return Estimate(high.mean - low.mean, math.hypot(high.spread or 0, low.spread or 0))


def caveat_text(record: Record) -> str:
    """A caveat about the run's estimate; "" if there is none."""
    gap, document = log_z_gap(record), record.document
    if rows_differ_from_model(record):
        return "training rows are no draws of the model: their end is no bound"
    if not is_value_reliable(record):
        return "no value"
    if gap is None or document["log_z_lower"] <= document["log_z"] <= document["log_z_upper"]:
        return ""
    return "ends inverted by noise" if gap.mean < 0 else "value outside the ends by noise"


def log_z_error(record: Record) -> float:
    """Standard error of log Z, corrected for a small effective number of chains.

    The delta method's error is multiplied by the ratio of two 97.5 % quantiles: Student's t with
    (effective chains - 1) degrees of freedom, and the normal. Infinite for fewer than two effective
    chains.
    """
    from scipy import stats  # most runs need no SciPy

    half_width = t_half_width(record.document["ess"])
    return float(record.document["log_z_error"] * half_width / stats.norm.ppf(0.5 + LEVEL / 2))


def log_z_lower_bound(record: Record) -> Estimate:
    """The lower bound on log Z, with its standard error."""
    return Estimate(record.document["log_z_lower"], record.document["log_z_lower_error"])


def log_z_upper_end(record: Record) -> Estimate | None:
    """The upper end of log Z, by chains from training rows; None without such chains."""
    mean = record.document.get("log_z_upper")
    return None if mean is None else Estimate(mean, record.document["log_z_upper_error"])


def likelihood(record: Record, rows: str = "test") -> Estimate:
    """The estimate for the `test` or `valid` rows, with the standard error of log Z.

    Print it only if the run is `is_value_reliable`.
    """
    return Estimate(record.document["log_likelihood"][rows]["mean"], log_z_error(record))


def likelihood_upper_bound(record: Record) -> Estimate:
    """The upper bound on the mean test log-likelihood, from the lower one on log Z."""
    low = log_z_lower_bound(record)
    return Estimate(_unnormalised(record) - low.mean, low.spread)


def likelihood_lower_end(record: Record) -> Estimate | None:
    """The lower end of the mean test log-likelihood, by chains from training rows; None without.

    It is a bound only if these rows resemble draws of the model (`rows_differ_from_model`).
    """
    high = log_z_upper_end(record)
    return high and Estimate(_unnormalised(record) - high.mean, high.spread)


def likelihood_bounds(record: Record, level: float = LEVEL) -> tuple[float, float]:
    """Lower and upper bound on the mean test log-likelihood, each widened by its interval.

    The intervals are over chains, at `level`. There is no lower bound if
    `rows_differ_from_model`. Raises LookupError for a record without chains from training rows.
    """
    low, high = likelihood_lower_end(record), likelihood_upper_bound(record)
    if low is None:
        raise LookupError(f"{record.path.name} has no upper bound on log Z; set task.back")
    forth = t_half_width(record.budget.chains, level)
    back = t_half_width(record.config["task"]["back"], level)
    least = -math.inf if rows_differ_from_model(record) else low.mean - back * (low.spread or 0)
    return least, high.mean + forth * (high.spread or 0)


def likelihood_or_ends(records: Sequence[Record]) -> Estimate | str:
    """The test log-likelihood as text: a value if all records have reliable ones, else both ends.

    `-101.62 ± 0.95 to -98.06 ± 0.33`. One record has standard errors, several the standard
    deviation between models. The end by training rows is left out where it is no bound.
    """
    if all(map(is_value_reliable, records)):
        return mean(list(map(likelihood, records)))
    ends = [
        None if rows_differ_from_model(record) else likelihood_lower_end(record)
        for record in records
    ]
    least = [end for end in ends if end is not None]
    low = mean(least) if len(least) == len(ends) else None
    return _span(low, mean(list(map(likelihood_upper_bound, records))))


def log_z_or_ends(record: Record) -> Estimate | str:
    """The text of log Z, in the form of `likelihood_or_ends`."""
    if is_value_reliable(record):
        return Estimate(record.document["log_z"], log_z_error(record))
    high = None if rows_differ_from_model(record) else log_z_upper_end(record)
    return _span(log_z_lower_bound(record), high)


def _span(low: Estimate | None, high: Estimate | None) -> str:
    """The ends as text, of which one may be unknown."""
    if low and high:
        return f"{low.text()} to {high.text()}"
    if low:
        return f"at least {low.text()}"
    return f"at most {high.text()}" if high else ""


def mean(estimates: Sequence[Estimate]) -> Estimate:
    """The mean and spread over runs; a single estimate with its own error."""
    if len(estimates) == 1:
        return estimates[0]
    return estimate(value.mean for value in estimates)


def _unnormalised(record: Record) -> float:
    document = record.document
    return float(document["log_likelihood"]["test"]["mean"] + document["log_z"])
