"""The committed numbers, verdicts and pages are those of the committed records (snapshot.py)."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import snapshot
from documented import composed

from latticework.experiments.papers import docs_blocks, docs_pages, report_builder, run_status
from latticework.experiments.records.identity import run_name
from latticework.experiments.records.record import BUNDLES, load_all
from latticework.experiments.runs.configuration import resolve_config
from latticework.experiments.runs.sweeps import declared_sweep

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Tables, the numbers of figures, and the ledger, made again."""
    folder = tmp_path_factory.mktemp("net") / "made"
    snapshot.results(folder)
    return folder


def test_every_verdict_has_the_margins_that_are_committed(made):
    assert (made / "ledger.txt").read_text() == (HERE / "ledger.txt").read_text()


def test_no_margin_is_counted_twice():
    """Two claims of the papers share no number; a weaker reading of ours may repeat one."""
    claims = defaultdict(list)
    for entry in snapshot.judged():
        if entry.finding and not entry.claim.own_reading:
            for margin in entry.finding.margins:
                sides = (entry.claim.experiment, margin.quantity, margin.expected, margin.values)
                claims[sides].append(entry.claim.name)
    assert [names for names in claims.values() if len(names) > 1] == []


def test_every_number_is_the_one_that_is_committed(made):
    files = sorted(file for file in (made / "results").rglob("*") if file.is_file())
    assert len(files) > 100
    for file in files:
        name = file.relative_to(made / "results")
        assert file.read_text() == (DOCS / "results" / name).read_text()


def test_the_pages_are_those_of_the_records(monkeypatch):
    """`python -m latticework.scripts.report --committed` was run after the last change."""
    monkeypatch.setattr(run_status, "load_statuses", lambda *_: snapshot.committed())
    monkeypatch.setattr(report_builder, "judge", lambda _: snapshot.judged())
    report = report_builder.build_report(None, scales=("paper",), drawing=False)
    for file, name, text in docs_blocks.blocks(report, snapshot.KNOWN, HERE.parent, BUNDLES):
        page = file.read_text()
        assert page == docs_blocks.replace_block(page, name, text), file.name
    for name, text in docs_pages.results_pages(report, DOCS / "results").items():
        assert (DOCS / "results" / name).read_text() == text, name


# What a committed record says otherwise, by experiment.
OTHERWISE = {
    "benchmark": {"sampler.hot"},  # 0, when there was no choice
    "ais_small": {"task.trial_steps"},  # docs/results/notes/table1.md
    "rates_regardless": {"sampler.coding"},  # binary, which null means on {0, 1}
    "rbm_step_term": {"task.pretrain.visible_bias"},  # data, when there was no choice
}


@pytest.mark.parametrize("bundle", sorted(BUNDLES.glob("*.zip")), ids=lambda file: file.stem)
def test_committed_records_have_the_numbers_that_the_configuration_has(bundle):
    """Records that show each option of each group: their names say that they are declared runs."""
    sweep, seen = declared_sweep(bundle.stem, "paper"), set()
    for record in load_all(bundle):
        name = run_name(record.document["overrides"], sweep.skipped)
        choices = {*record.choices.items()}
        if name not in sweep.overrides or choices <= seen:
            continue
        seen |= choices
        words = (f"experiment={bundle.stem}", "scale=paper", *sweep.overrides[name])
        now = replace(
            record, document={**record.document, "config": resolve_config(composed(*words))}
        )
        differ = {key for key, _ in record.settings.items() ^ now.settings.items()}
        assert differ <= OTHERWISE.get(bundle.stem, set()), name
