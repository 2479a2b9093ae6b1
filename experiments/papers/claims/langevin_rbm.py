"""Claims of Zhang et al. (2022), Section 7.2 and Appendix D: an RBM; and images of networks."""

import math

import numpy as np

from latticework.experiments.papers.claims import compare, readings, thresholds
from latticework.experiments.papers.claims.verdict import Finding, Number, numbers
from latticework.experiments.records.estimates import (
    Estimate,
    estimate,
    published_estimate,
    published_mean,
)
from latticework.experiments.records.labels import sampler_key
from latticework.experiments.records.record import Record

BASELINES = ("Gibbs-1", "HB-10-1", "GWG-1")  # in Figure 4
MMD = "mmd_to_data"  # a fact of run.json
SMALLEST_RATE = 1e-300  # so that a rate of 0 has a logarithm


def fig4_level(records: list[Record]) -> Finding:
    """DMALA's final log MMD is about the paper's."""
    end = readings.final_values(records, ["DMALA"], "log_mmd")["DMALA"]
    floor = readings.final_values(records, ["DMALA"], "log_mmd_floor")["DMALA"]
    paper = published_estimate("fig4", "dmala")
    shown = [
        Number("DMALA: log MMD^2 at the end", estimate(end.values()), paper),
        Number("equally many independent samples: log MMD^2", estimate(floor.values())),
    ]
    tolerance, level = thresholds.LOG_MMD.value(), published_mean("fig4", "dmala")
    margins = compare.equivalence("log MMD^2 of DMALA", end, level, tolerance)
    note = f"log MMD^2 at the end; about: within {tolerance:g}, which is our choice"
    return Finding(margins, shown, note)


def fig9_mediocre(records: list[Record]) -> Finding:
    """The MMD of the images to the test rows is larger for DULA."""
    margins: list[compare.Margin] = []
    shown: list[Number] = []
    for data in ("omniglot", "caltech"):
        names, drawn = readings.variants_of(data), []
        for record in records:
            if record.choices.get("data") in names and MMD in record.document:
                drawn.append(record)
        if not drawn:
            raise LookupError(f"no record of images of {data} has their {MMD}")
        groups = readings.records_by_sampler(drawn, ["DULA", "DMALA"])
        values = readings.by_sampler_and_seed(groups, readings.run_json_value(MMD))
        margins += compare.differences(f"{data}: MMD^2", values, [("DULA", "DMALA")])
        shown += numbers(f"{data}: MMD^2 to the data, {{}}", values)
    return Finding(margins, shown, "unbiased MMD^2 of the images to the test rows")


def app_d(records: list[Record]) -> Finding:
    """Acceptance with and without the step-size term, each within a factor of 2 of the paper's."""
    dmala = [r for r in records if sampler_key(r)[0] == "dmala" and "acceptance" in r.metrics]
    margins, shown = [], []
    factor = thresholds.TERM_ACCEPTANCE.value()
    for name, infinite in (("with", False), ("without", True)):
        chosen = [r for r in dmala if np.isinf(r.config["sampler"]["step_size"]) == infinite]
        if not chosen:
            raise LookupError(f"no record of DMALA {name} the step-size term")
        rates = readings.by_seed(chosen, readings.last_value("acceptance"))
        paper = published_mean("appD", name)
        logs = readings.each_seed(lambda rate: math.log(max(rate, SMALLEST_RATE)), rates)
        quantity = f"log acceptance {name} the term"
        margins += compare.equivalence(quantity, logs, math.log(paper), math.log(factor))
        here = estimate(100 * rate for rate in rates.values())
        shown.append(Number(f"acceptance {name} the term, %", here, Estimate(100 * paper)))
    return Finding(margins, shown, f"each within a factor of {factor:g} of the paper's")
