"""Figures 2 and 7 and Appendix D: what they compute from records, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from fakes import fake

from latticework.experiments.figures.acceptance import against_size, step_term
from latticework.experiments.figures.ess import ess_per_second, rates
from latticework.experiments.figures.finals import final
from latticework.experiments.records.grouping import by_sampler
from latticework.experiments.records.labels import label, sampler_key
from latticework.experiments.records.record import Record, load

mpl.use("Agg")
CLASSES = {
    "dmala": "latticework.samplers.langevin.DMALA",
    "gwg": "latticework.samplers.gwg.GWG",
    "gwg4": "latticework.samplers.gwg.GWG",
    "mine": "elsewhere.Mine",
}


def write(
    root: Path,
    name: str,
    sampler: str,
    metrics: dict[str, float],
    *,
    settings: dict[str, Any] | None = None,
    ess: list[float] | None = None,
    traced: int = 2,
    **config: Any,
) -> Record:
    path = root / name
    path.mkdir(parents=True)
    sampler_config = {"_target_": CLASSES[sampler], **(settings or {})}
    document = {
        "config": {"sampler": sampler_config, "task": {"chains": 4, "steps": 100}, **config},
        "choices": {"sampler": sampler},
        "overrides": [],
        "versions": {},
        "seconds": 1.0,
        "seconds_per_step": 0.01,
    }
    (path / "run.json").write_text(json.dumps(document))
    columns = {"step": 0, **metrics}
    last = ",".join(str(value) for value in columns.values())
    first = ",".join("0" for _ in columns)
    (path / "metrics.csv").write_text(f"{','.join(columns)}\n{first}\n{last}\n")
    if ess is not None:
        np.savez(path / "convergence.npz", ess=np.array(ess), draws=100, chains=traced)
    return load(path)


def line(figure: Any, name: str, panel: int = 0) -> tuple[list[float], list[float]]:
    (drawn,) = [line for line in figure.axes[panel].lines if line.get_label() == name]
    return list(drawn.get_xdata()), list(drawn.get_ydata())


def test_a_sampler_is_known_by_its_class_and_size(tmp_path: Path) -> None:
    records = [
        write(tmp_path, "a", "gwg4", {}, settings={"flips": 4}),
        write(tmp_path, "b", "gwg", {}, settings={"flips": 1}),
        write(tmp_path, "c", "mine", {}),
    ]
    assert [sampler_key(record) for record in records] == [("gwg", 4), ("gwg", 1), ("mine", 0)]
    assert [label(key) for key in by_sampler(records)] == ["GWG-1", "GWG-4", "mine"]


def test_acceptance_is_the_last_reading_averaged_over_seeds(tmp_path: Path) -> None:
    reading = {"acceptance": 0.5, "changed": 3.0, "proposed": 6.0}
    records = [
        write(tmp_path, "a", "dmala", reading, settings={"step_size": 0.6}),
        write(
            tmp_path,
            "b",
            "dmala",
            reading | {"acceptance": 0.7},
            settings={"step_size": 0.6},
            seed=1,
        ),
        write(tmp_path, "c", "dmala", reading | {"acceptance": 0.9}, settings={"step_size": 0.2}),
    ]
    settings = {"dmala": ["step_size", "alpha"]}
    figure = against_size(records, settings)
    x, y = line(figure, "acceptance of DMALA")
    assert x == [0.2, 0.6]
    assert y == pytest.approx([0.9, 0.6])
    with pytest.raises(LookupError, match="no record of gwg"):
        against_size(records, settings | {"gwg": ["flips", "X"]})


def test_ess_a_second_counts_all_chains_and_leaves_constant_coordinates_out(
    tmp_path: Path,
) -> None:
    records = [
        write(tmp_path, "a", "dmala", {}, ess=[10.0, 20.0, np.nan]),
        write(tmp_path, "b", "dmala", {}, ess=[30.0, 20.0, 5.0], seed=1),
        write(tmp_path, "c", "gwg", {}, ess=[1.0, 1.0, np.nan], settings={"flips": 1}),
    ]
    # 2 of 4 chains were traced: 100 steps of all of them take 1 s, of these two 0.5 s.
    np.testing.assert_allclose(rates(records[0]), [20.0, 40.0, np.nan])
    figure = ess_per_second(records, ["dmala", "gwg"])
    names = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert names == ["GWG-1\n1 constant", "DMALA\n1 constant"]
    medians = [line for line in figure.axes[0].lines if line.get_color() == "black"]
    assert any(np.allclose(drawn.get_ydata(), np.median([40.0, 40.0, 10.0])) for drawn in medians)
    with pytest.raises(LookupError, match="holds a trace"):
        ess_per_second(records, ["gibbs"])


def test_final_reads_the_last_row_at_each_setting(tmp_path: Path) -> None:
    records = [
        write(
            tmp_path, f"{a}-{seed}", "dmala", {"log_rmse": -a - seed}, model={"coupling": a},
            seed=seed,
        )
        for a in (0.2, 0.1)
        for seed in (0, 1)
    ]  # fmt: skip
    figure = final(records, {"log_rmse": "log RMSE"}, "model.coupling", "a")
    x, y = line(figure, "DMALA")
    assert x == [0.1, 0.2]
    assert y == pytest.approx([-0.6, -0.7])
    with pytest.raises(LookupError, match="seconds"):
        final(records, {"seconds": "s"}, "model.coupling", "a")
    for missing in ("model.bias", "model.coupling.more"):
        with pytest.raises(LookupError, match=f"has no setting {missing}"):
            final(records, {"log_rmse": "log RMSE"}, missing, "a")


def test_final_reads_the_end_of_each_run_however_many_steps_it_has(tmp_path: Path) -> None:
    """Samplers of Figure 7 have budgets of equal cost, not of equal numbers of steps."""
    ends = {"dmala": {"step": 10, "log_rmse": -1.0}, "gwg": {"step": 1000, "log_rmse": -5.0}}
    records = [write(tmp_path, key, key, end, model={"coupling": 0.1}) for key, end in ends.items()]
    figure = final(records, {"log_rmse": "log RMSE"}, "model.coupling", "a")
    assert sorted(float(y) for drawn in figure.axes[0].lines for y in drawn.get_ydata()) == [-5, -1]


def test_the_step_term_needs_runs_with_and_without_it(tmp_path: Path) -> None:
    kept = write(tmp_path, "a", "dmala", {"acceptance": 0.5}, settings={"step_size": 0.2})
    with pytest.raises(LookupError, match="without the step-size term"):
        step_term([kept])
    settings = {"step_size": float("inf")}
    dropped = write(tmp_path, "b", "dmala", {"acceptance": 1e-4}, settings=settings)
    figure = step_term([kept, dropped])
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["here 50 %\npaper 51 %", "here 0.01 %\npaper 0.005 %"]


def test_substitute_data_stand_beside_no_rate_of_the_paper() -> None:
    data = {"variant": "digits", "substitute": True}
    figure = step_term(
        [
            fake({"step": [0], "acceptance": [0.5]}, settings={"step_size": size}, data=data)
            for size in (0.2, float("inf"))
        ]
    )
    assert [text.get_text() for text in figure.axes[0].texts] == ["here 50 %"] * 2
    assert not figure.axes[0].lines
