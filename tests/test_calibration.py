"""The calibration of verdicts: its task, the rates of rules, tables and the figure."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import latticework as lw
from latticework.experiments.figures import calibration
from latticework.experiments.records import verdict_rules
from latticework.experiments.tasks.measures.run_statistics import Quantities
from workshop.calibration import refresh

LADDERS = {"log_z_low": -0.2, "log_z_high": 0.2, "round_trips": 12.0}


def test_every_target_with_exact_means_is_in_one_half():
    halves = [*verdict_rules.CHOOSING, *verdict_rules.JUDGING]
    assert sorted(halves) == sorted(set(lw.references().index) - {"potts3_16", "sk_200"})
    assert set(verdict_rules.TWO_SIDED) <= set(halves)


@pytest.mark.parametrize("name", ["asia", "poisson_ring_10", "potts3_8", "ising16_crit"])
def test_independent_draws_are_right_and_shifted_ones_wrong(name):
    ref = lw.reference(name)
    quantities = Quantities(ref)
    order = torch.randperm(2000, generator=torch.Generator().manual_seed(0))
    draws, log_prob = ref.draws[order].unflatten(0, (4, 500)), ref.log_prob[order].view(4, 500)
    row = quantities.measure(draws, log_prob.float().numpy())
    rows = pd.DataFrame([row]).assign(target=name, seed=1)
    assert not verdict_rules.is_wrong(rows).any()
    assert row["covering_sites"] >= 0.8 * row["intervals_sites"] > 0
    low = ref.log_prob <= ref.log_prob.median()
    half = ref.draws[low][:900].unflatten(0, (3, 300))
    worse = quantities.measure(half, ref.log_prob[low][:900].view(3, 300).float().numpy())
    assert verdict_rules.is_wrong(pd.DataFrame([worse])).all()


def rows_of(**columns):
    """Runs that are right and converged, less the given columns."""
    good = {"chains": 4, "draws": 1000, "frozen": 0, "entries": 50, "quantities": 60}
    for kind in ("energy", "sites", "pairs", "moments"):
        good |= {f"z_{kind}": 1.0, f"share_{kind}": 0.05, f"r_hat_{kind}": 1.004}
        good |= {f"ess_{kind}": 900.0, f"most_ess_{kind}": 2000.0, f"drift_{kind}": 0.5}
        judged = [name for name in good if name.endswith(f"_{kind}") and "share" not in name]
        good |= {f"judged_{name}": good[name] for name in judged}
        good |= {f"covering_{kind}": 19, f"intervals_{kind}": 20}
    good |= {"least_sum": 3, "largest_sum": 18, "target": "grids_11", "seed": 1}
    return pd.DataFrame({**good, **columns})


@pytest.mark.parametrize(
    ("rule", "columns"),
    [
        ("R-hat by chains", {"r_hat_sites": [1.011]}),
        ("R-hat by chains", {"frozen": [1]}),
        ("R-hat by chains", {"most_ess_energy": [9000.0]}),
        ("R-hat 1.01, ESS 400", {"ess_sites": [399.0]}),
        ("+ pairs", {"r_hat_pairs": [1.011]}),
        ("+ pairs", {"ess_pairs": [399.0]}),
        ("+ drift", {"chains": [32], "draws": [100], "drift_sites": [0.009]}),
        ("+ 10 entries", {"entries": [9]}),
        ("rare apart, R-hat 1 times, at most 2", {"judged_r_hat_sites": [1.011]}),
        ("rare apart, R-hat 1 times, at most 2", {"judged_ess_pairs": [399.0]}),
    ],
)
def test_each_rule_refuses_what_it_reads(rule, columns):
    assert verdict_rules.RULES[rule].accepts(rows_of(seed=[1])).all()
    assert not verdict_rules.RULES[rule].accepts(rows_of(**columns)).any()


def test_limits_by_chains_and_runs_that_are_not_judged():
    rows = rows_of(chains=[4, 32, 256], draws=[1000, 100, 20], r_hat_sites=[1.02, 1.07, 1.19])
    assert verdict_rules.RULES["R-hat by chains"].accepts(rows).tolist() == [False, True, True]
    assert not verdict_rules.is_judged(rows_of(chains=[4, 256], draws=[99, 9])).any()


def test_rare_values_are_wrong_by_sds_alone_where_a_rule_leaves_them_out():
    rule = verdict_rules.RULES[verdict_rules.IN_USE]
    rows = rows_of(r_hat_sites=[1.5, 1.5], z_sites=[9.0, 9.0], share_sites=[0.1, 0.3])
    assert rule.accepts(rows).all()
    assert verdict_rules.is_wrong(rows).all()
    assert verdict_rules.is_wrong(rows, rare_apart=True).tolist() == [False, True]
    assert verdict_rules.measure_rates(rows, rule)["wrong of converged"].hits == 1


def test_wrong_runs_and_unseen_modes():
    rows = rows_of(
        target=["grids_11", "two_modes_20", "two_modes_20", "grids_11"],
        z_pairs=[9.0, 9.0, 9.0, 1.0],
        share_energy=[0.0, 0.0, 0.0, 0.21],
        least_sum=[0, 0, 11, 0],
        largest_sum=[20, 9, 20, 20],
    )
    assert verdict_rules.is_wrong(rows).all()
    assert verdict_rules.has_unseen_mode(rows).tolist() == [False, True, True, False]
    rates = verdict_rules.measure_rates(rows, verdict_rules.RULES["R-hat by chains"])
    assert (rates["wrong of converged"].hits, rates["less unseen modes"].hits) == (4, 2)


def test_a_share_has_wilsons_interval():
    found = verdict_rules.share(pd.Series([True] * 3 + [False] * 97))
    np.testing.assert_allclose([found.low, found.high], [0.0103, 0.0845], atol=1e-4)


def record(rows, target, seed, temper):
    metrics = rows.drop(columns=["target", "seed"])
    config = {"model": {"name": target}, "seed": seed, "task": {"temper": temper}}
    return SimpleNamespace(
        metrics=metrics, config=config, document={}, choices={"sampler": "gibbs"}
    )


def test_the_figure_of_runs_that_all_fail_to_converge_has_no_curve():
    rows = rows_of(r_hat_sites=[3.0, 4.0], judged_r_hat_sites=[3.0, 4.0])
    figure = calibration.draw_thresholds([record(rows, "grids_11", 1, False)])
    assert len(figure.table) == 0


def test_tables_the_page_and_the_figure():
    r_hat = [1.0, 1.004, 1.02, 1.3]
    rows = rows_of(
        r_hat_sites=r_hat,
        judged_r_hat_sites=r_hat,
        log_z_error=[0.1, 0.3, 0.1, 1.5],
        covering_rb=[18] * 4,
        intervals_rb=[20] * 4,
        ratio_rb=[2.0] * 4,
        **LADDERS,
    )
    records = [record(rows, "grids_11", 1, True), record(rows, "asia", 0, False)]
    table = calibration.rules(records).set_index("rule")
    assert table.loc["R-hat 1.01, ESS 400", "converged"].endswith("2 of 4")
    assert sum("(in use)" in name for name in table.index) == 1
    assert calibration.targets(records)["refused, now"].tolist() == ["2 of 4"]
    held = calibration.log_z(records).set_index("rule")["intervals that hold"]
    assert held["10 round trips"].endswith("2 of 4")
    assert held["10 round trips, chains converged"].endswith("1 of 2")
    assert held["20 round trips"] == "0 of 0"
    assert "90.0%" in calibration.intervals(records)["hold"].tolist()
    assert len(calibration.draw_thresholds(records).table) > 20
    with pytest.raises(LookupError, match="no record is of the choosing half"):
        calibration.rules(records[:1], "choosing")
    page = "".join(
        f"<!-- {name} -->\n<!-- /{name} -->\n"
        for name in ("runs", "rules", "targets", "log-z", "intervals")
    )
    assert "judging: 4 runs" in refresh(page, records)
    assert "choosing: no runs yet" in refresh(page, records[:1])
