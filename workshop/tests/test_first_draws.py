"""First draws are timed in processes of their own; nothing here is a claim about time."""

import io

import pandas as pd
import pytest
from rich.console import Console

from latticework.experiments.papers.docs_pages import bench_page
from workshop import first_draws
from workshop.bench_workloads import Workload

SILENT_CONSOLE = Console(file=io.StringIO())


def test_a_row_has_cold_and_warm_seconds():
    works = [Workload("ising-3x4", 2, "sweep")]
    (row,) = first_draws.measure_first_draws(works, ["eager"], 1, SILENT_CONSOLE)
    assert (row.model, row.chains, row.sampler, row.contender) == ("ising-3x4", 2, "sweep", "eager")
    assert row.cold_low <= row.cold <= row.cold_high
    assert row.warm > 0


def test_a_contender_that_declines_has_no_row():
    works = [Workload("resnet-4x3x2", 2, "dmala")]
    assert not list(first_draws.measure_first_draws(works, ["compiled"], 1, SILENT_CONSOLE))


def test_a_contender_that_fails_is_named():
    works = [Workload("ising-3x4", 2, "no_such_sampler")]
    with pytest.raises(
        RuntimeError, match="eager failed on ising-3x4/2/no_such_sampler: .*no_such"
    ):
        list(first_draws.measure_first_draws(works, ["eager"], 1, SILENT_CONSOLE))


@pytest.mark.slow  # compiles a kernel
def test_the_second_process_finds_what_the_first_one_compiled(tmp_path):
    work = Workload("ising-3x4", 2, "sweep")
    assert first_draws.time_first_draw(work, "compiled", str(tmp_path)) is not None
    kept = sorted(file.name for file in tmp_path.rglob("*.nbi"))
    assert kept
    assert first_draws.time_first_draw(work, "compiled", str(tmp_path)) is not None
    assert sorted(file.name for file in tmp_path.rglob("*.nbi")) == kept


def test_the_table_is_written_and_shown(tmp_path, monkeypatch):
    row = first_draws.FirstDraw("ising-5x5", 2, "sweep", "eager", 3, 2, 4, 1.5, 1, 2)
    monkeypatch.setattr(first_draws, "measure_first_draws", lambda *arguments: [row])
    out = tmp_path / "bench_first_draws.csv"
    first_draws.main(["--out", str(out), "--contenders", "eager"])
    assert out.read_text().startswith("# python -m workshop.first_draws")
    assert pd.read_csv(out, comment="#").warm.tolist() == [1.5]
    assert "| ising-5x5 |        2 | sweep     | eager       |" in bench_page(tmp_path, note="")
    for words in (["--turns", "0"], ["--only", "nothing"]):
        with pytest.raises(SystemExit):
            first_draws.main(words)
