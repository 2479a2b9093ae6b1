"""The benchmark runs and writes what it says; nothing here is a claim about time."""

import csv

import pytest
import torch

from latticework.scripts import bench, bench_learning
from latticework.scripts import plain_reference as plain
from latticework.scripts.bench_learning import Case


@pytest.fixture(autouse=True)
def _threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def read(path):
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# python -m latticework.scripts.bench")
    return list(csv.DictReader(lines[1:]))


def test_tables_and_figure_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "CHAINS", {"ising-3x3": 4, "rbm-6x4": 4, "bnn-9x2x3": 4})
    monkeypatch.setattr(bench, "SCALING_SIDES", (3, 4, 5, 6))
    out = tmp_path / "new" / "bench.csv"
    bench.main(["--quick", "--threads", "1", "--out", str(out)])
    rows = read(out)
    assert {(row["model"], row["sampler"]) for row in rows} == set(bench.pairs([]))
    for row in rows:
        assert 0 < float(row["ratio_low"]) <= float(row["ratio"]) <= float(row["ratio_high"])
    assert len(read(out.with_name("bench_sites.csv"))) == 2 * len(bench.SCALING)
    assert out.with_name("bench_sites.png").stat().st_size > 1000


def test_iterations_of_learning_are_timed(tmp_path, monkeypatch):
    cases = [
        Case("ising-3x3", 4, 3, 0.2),
        Case("resnet-4x3x2", 4, 3, 0.2),
        Case("resnet-4x3x2", 4, 3, 0.2, "bf16"),
    ]
    monkeypatch.setattr(bench_learning, "CASES", cases)
    out = tmp_path / "bench.csv"
    bench.main(["--quick", "--threads", "1", "--only", "learning", "--out", str(out)])
    rows = read(out.with_name("bench_learning.csv"))
    assert [(row["model"], row["precision"]) for row in rows] == [
        (case.model, case.precision) for case in cases
    ]
    for row in rows:
        assert 0 < float(row["ratio_low"]) <= float(row["ratio"]) <= float(row["ratio_high"])
    assert not out.exists()


@pytest.mark.parametrize("name", ["ising-3x3", "resnet-4x3x3"])
def test_both_sides_learn_the_same_model(name):
    model, other = bench_learning.models(Case(name, 1, 1, 0.1))
    x = model.domain.uniform(20, torch.Generator().manual_seed(0))
    torch.testing.assert_close(other(x).detach(), model(x), rtol=1e-5, atol=1e-5)


def test_only_names_pairs():
    assert list(bench.pairs(["5x5/gwg"])) == [("ising-5x5", "gwg-1")]
    with pytest.raises(SystemExit):
        bench.main(["--only", "nothing"])


@pytest.mark.parametrize("name", ["ising-3x3", "rbm-6x4", "bnn-9x2x3"])
def test_both_sides_have_the_same_target(name):
    model = bench.model_named(name)
    x = model.domain.enumerate()
    with torch.no_grad():
        expected, found = model(x).softmax(0), bench.plain_model(model)(x).softmax(0)
    torch.testing.assert_close(found, expected)


STEPS = {"gibbs": plain.Gibbs(), "gwg": plain.gwg, "dmala": plain.dmala}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_the_reference_samples_the_target(step):
    """Started from exact draws, the mean of each site does not change: z < 5."""
    model = bench.model_named("ising-3x3")
    states = model.domain.enumerate()
    law = model(states).softmax(0)
    torch.manual_seed(0)
    chains = 20_000
    x = states[torch.multinomial(law, chains, replacement=True)]
    for _ in range(9):
        x = step(x, bench.plain_model(model)).detach()
    mean = law @ states
    z = (x.mean(0) - mean) / (mean * (1 - mean) / chains).sqrt()
    assert z.abs().max() < 5
