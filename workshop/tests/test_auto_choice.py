"""The table of choices on docs/long_runs.md."""

import re

import pandas as pd

import latticework as lw
from workshop import auto_choice
from workshop.auto_choice import RATIOS, describe, describe_kind


def test_the_line_names_targets_below_half_and_those_not_measured():
    rows = [
        {"target": "`sk_20`", "chosen": "Gibbs", RATIOS: "1.00, 0.49"},
        {"target": "`asia`", "chosen": "Gibbs(sites=3)", RATIOS: "0.50, 0.98"},
    ]
    line, gap, head, rule, *body = describe(pd.DataFrame(rows)).splitlines()
    assert line.startswith("On 1 of 2 targets")
    assert "a second: `sk_20`." in line
    assert f"ratios is {(0.49 * 0.5 * 0.98) ** 0.25:.2f}" in line
    missing = re.findall(r"`(\w+)`", line.partition("Not measured: ")[2])
    assert set(missing) == set(lw.references().index) - {"sk_20", "asia"}
    assert (gap, rule) == ("", "|---|---|---|")
    assert [row.count("|") for row in (head, *body)] == [4, 4, 4]


def test_the_page_counts_its_rows():
    block = (
        auto_choice.PAGE.read_text().partition("<!-- auto -->")[2].partition("<!-- /auto -->")[0]
    )
    line, *_ = block.strip().splitlines()
    measured = re.findall(r"^\| `(\w+)` \|", block, re.MULTILINE)
    missing = re.findall(r"`(\w+)`", line.partition("Not measured: ")[2])
    assert re.search(rf" (of|all) {len(measured)} targets", line)
    assert sorted(measured + missing) == sorted(lw.references().index)


def test_a_sampler_is_named_without_its_scale():
    assert describe_kind(lw.Tempered(lw.DMALA(0.37))) == "tempered DMALA"
    assert describe_kind(lw.Gibbs(sites=3, scan="scopes")) == "Gibbs(sites=3)"
