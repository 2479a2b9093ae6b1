"""The benchmark runs and writes what it says; nothing here is a claim about time."""

import csv
import io
import os
from math import isnan

import pytest
import torch
from rich.console import Console

from latticework.experiments.papers.docs_pages import bench_page
from latticework.samplers.base import UnsupportedModelError
from workshop import bench
from workshop import plain_reference as plain
from workshop.bench_contenders import CONTENDERS, Eager, missing
from workshop.bench_models import model_of, plain_model
from workshop.bench_workers import RemoteWorker, Worker, cores, limit_processes
from workshop.bench_workloads import TABLES, Workload, chosen

SILENT_CONSOLE = Console(file=io.StringIO())
WORKS = [
    Workload("ising-3x4", 5, "dmala"),
    Workload("ising-3x4", 5, "gibbs-1"),
    Workload("rbm-6x4", 5, "block-gibbs"),
    Workload("bnn-9x2x3", 5, "gibbs-1"),
    Workload("gnm-8x12", 5, "sweep"),
    Workload("gnm-8x12", 5, "dmala"),
]


class Local(Worker):
    """A worker in this process, in place of RemoteWorker."""

    def __init__(self, contender, threads, source=""):
        super().__init__(contender, threads)

    def close(self):
        pass


@pytest.fixture
def local(monkeypatch):
    monkeypatch.setattr(bench, "RemoteWorker", Local)
    monkeypatch.setattr(bench, "DRAWS", 150)


SMALL = ["readme-8", "field-5", "mlp-6x3", "categories-3x4"]
POTTS = ["potts-3x4x3", "dense_potts-5x3"]
SPARSE = ["torus-3x4", "signs-3x4", "regular-10x3", "gnm-8x12", "power-9x2", "sk-6"]


def read(path):
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# python -m workshop.bench")
    return list(csv.DictReader(lines[1:]))


def measured(works, names, trace=0.0):
    return list(bench.measure(works, names, [1], bench.Effort(2, 1e-3, trace), SILENT_CONSOLE))


@pytest.mark.slow
def test_each_contender_that_takes_a_workload_has_a_row(local):
    names = ["eager", "plain", "numba", "limit"]
    rows = measured(WORKS, names)
    found = [(row.model, row.sampler, row.contender) for row in rows]
    assert found == [
        *[("ising-3x4", "dmala", name) for name in names],
        *[("ising-3x4", "gibbs-1", name) for name in names],
        *[("rbm-6x4", "block-gibbs", name) for name in ("eager", "limit")],
        *[("bnn-9x2x3", "gibbs-1", name) for name in ("eager", "plain")],
        *[("gnm-8x12", "sweep", name) for name in ("eager", "limit")],
        *[("gnm-8x12", "dmala", name) for name in ("eager", "limit")],
    ]
    for row in rows:
        assert 0 < row.low <= row.steps_per_second <= row.high
        assert isnan(row.energy_ess_per_second)
    assert {row.of_limit for row in rows if row.contender == "limit"} == {1}
    assert {row.ours_ratio for row in rows if row.contender == "eager"} == {1}


def test_ratios_are_those_of_single_turns():
    times = {"eager": [1.0, 4.0, 2.0], "jax": [2.0, 2.0, 2.0], "limit": [0.5, 1.0, 1.0]}
    rows = {row.contender: row for row in bench.rows_of(WORKS[0], 1, times)}
    assert (rows["jax"].ours_ratio_low, rows["jax"].ours_ratio_high) == (0.5, 2)
    assert rows["jax"].ours_ratio == 1
    assert rows["eager"].of_limit == 0.5
    assert (rows["eager"].of_limit_low, rows["eager"].of_limit_high) == (0.25, 0.5)
    assert (rows["eager"].low, rows["eager"].steps_per_second, rows["eager"].high) == (0.25, 0.5, 1)
    times["compiled"] = [0.5, 0.5, 0.5]
    rows = {row.contender: row for row in bench.rows_of(WORKS[0], 1, times)}
    assert rows["jax"].ours_ratio == 4  # ours is the compiled engine from now on


def test_effective_samples_are_those_of_the_chains_steps(local):
    pytest.importorskip("dwave.samplers")
    work, names = Workload("ising-3x4", 40, "sweep"), ["eager", "limit", "dwave"]
    rows = {row.contender: row for row in measured([work], names, trace=60.0)}
    assert isnan(rows["limit"].energy_ess_per_second)
    assert isnan(rows["dwave"].energy_ess_per_second)  # a step of another law
    eager = rows["eager"]
    for ess in (eager.energy_ess_per_second, eager.magnetisation_ess_per_second):
        per_step = ess / eager.steps_per_second / 40
        assert 0.2 < per_step < 1.5  # sweeps of a weakly coupled lattice are nearly independent


@pytest.mark.slow
def test_workers_answer_from_processes_of_their_own(tmp_path):
    out = tmp_path / "new" / "bench.csv"
    words = ["--quick", "--only", "5x5/2/dula", "--contenders", "eager", "limit", "--threads", "1"]
    bench.main([*words, "--out", str(out)])
    assert [row["contender"] for row in read(out)] == ["eager", "limit"]
    assert out.with_name("bench_limit.png").stat().st_size > 1000


@pytest.mark.slow
def test_a_failure_in_a_worker_names_the_contender():
    worker = RemoteWorker("eager", 1)
    with pytest.raises(RuntimeError, match="contender eager failed"):
        worker.start(Workload("ising-3x4", 4, "no such sampler"))
    worker._process.kill()
    with pytest.raises(RuntimeError, match="contender eager ended with status"):
        worker.start(WORKS[0])
    worker.close()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cannot bind to cores here")
def test_processes_are_bound_to_their_cores(monkeypatch):
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = cores()
    with limit_processes(1):
        assert len(os.sched_getaffinity(0)) == 1
        assert os.environ["MKL_NUM_THREADS"] == os.environ["OMP_NUM_THREADS"] == "1"
    assert cores() == before
    assert "MKL_NUM_THREADS" not in os.environ


def test_a_contender_has_variables_of_its_own():
    given = CONTENDERS["avx2"].environment
    assert given.keys() == {"NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"}
    assert not given.keys() & os.environ.keys()
    with limit_processes(1, given):
        assert given.items() <= os.environ.items()
    assert not given.keys() & os.environ.keys()


def test_each_table_has_the_workloads_and_contenders_that_it_names(monkeypatch, tmp_path):
    asked = {}

    def measure(works, names, *_):
        asked[len(asked)] = works, names
        return iter([])

    monkeypatch.setattr(bench, "measure", measure)
    monkeypatch.setattr(bench, "missing", lambda name: [])
    bench.main(["--tables", str(tmp_path)])
    assert [works for works, _ in asked.values()] == [t.workloads for t in TABLES.values()]
    for (_, names), table in zip(asked.values(), TABLES.values(), strict=True):
        assert names == list(table.contenders) or not table.contenders
        assert ("avx2" in names) == ("avx2" in table.contenders)
    with pytest.raises(SystemExit):
        bench.main(["--tables", str(tmp_path), "no_such_table"])


def test_a_contender_that_is_not_installed_is_left_out(monkeypatch, capsys):
    monkeypatch.setattr(bench, "missing", lambda name: ["jax"] if name == "jax" else [])
    monkeypatch.setattr(bench, "measure", lambda works, names, *_: iter([]))
    bench.main(["--only", "5x5/2/dula", "--contenders", "jax", "eager"])
    assert "jax is left out: jax not installed" in capsys.readouterr().out
    assert missing("eager") == []


@pytest.mark.slow
def test_the_compiled_engine_may_decline(local):
    """It says what it cannot do."""
    worker = Local("compiled", 1)
    declined = worker.start(Workload("bnn-5x2x3", 4, "dula"))
    assert "BayesNet has no form for compiled kernels" in declined
    assert worker.start(Workload("ising-2x2", 4, "dula")) == ""
    assert worker.seconds(7) > 0
    assert worker.chains.states().shape == (4, 4)


@pytest.mark.parametrize("model", SMALL)
@pytest.mark.parametrize("sampler", ["dmala", "gwg-1", "gibbs-1", "dula", "pafs", "avg", "acs"])
def test_functions_are_sampled_eagerly(model, sampler):
    chains = Eager(Workload(model, 3, sampler), 1)
    chains.burst(2)
    chains.model.domain.check(torch.from_numpy(chains.states()))


SMALL_FORMS = ["ising-4x4", "regular-10x3", "pairs-6", "potts-4x4x3", "dense_potts-5x3", "rbm-6x4"]


@pytest.mark.slow
@pytest.mark.parametrize("model", SMALL_FORMS)
def test_the_table_of_kernels_has_every_compiled_sampler_of_a_form(model):
    """A sampler is in the table where its kernel serves the form, and only there."""
    kind = model.split("-")[0]
    samplers = {w.sampler for w in TABLES["bench_kernels"].workloads}
    listed = {w.sampler for w in TABLES["bench_kernels"].workloads if w.kind == kind}
    served = set()
    for sampler in samplers:
        try:
            reason = Local("compiled", 1).start(Workload(model, 3, sampler))
        except UnsupportedModelError:
            continue
        if not reason:
            served.add(sampler)
    assert served == listed


@pytest.mark.slow
def test_an_earlier_library_is_imported_from_its_folder(tmp_path):
    """A process of the contender finds no library in an empty one."""
    (tmp_path / "latticework").mkdir()
    (tmp_path / "latticework" / "__init__.py").write_text("raise ImportError('the other one')")
    worker = RemoteWorker("earlier", 1, str(tmp_path))
    with pytest.raises(RuntimeError, match="the other one"):
        worker.start(WORKS[0])
    worker.close()
    for words in (["--earlier", str(tmp_path)], ["--contenders", "earlier"]):
        with pytest.raises(SystemExit):
            bench.main(words)


def test_only_names_workloads():
    assert list(chosen(["5x5/100/gwg"])) == [Workload("ising-5x5", 100, "gwg-1")]
    assert len(set(chosen([]))) == len(list(chosen([])))
    for words in (["--only", "nothing"], ["--threads", "0"]):
        with pytest.raises(SystemExit):
            bench.main(words)


@pytest.mark.parametrize(
    "model",
    ["ising-3x4", "rbm-6x4", "bnn-9x2x3", "resnet-4x3x2", "pairs-5", *POTTS, *SMALL, *SPARSE],
)
def test_a_workload_knows_its_sites(model):
    work = Workload(model, 1, "dmala")
    assert work.sites == model_of(work).domain.dim


def test_the_page_of_speed_shows_a_column_a_contender(tmp_path):
    works = [Workload("ising-5x5", 2, sampler) for sampler in ("sweep", "dula")]
    rows = [
        *bench.rows_of(works[0], 1, {"eager": [0.5], "thrml": [0.2]}),
        *bench.rows_of(works[1], 1, {"eager": [0.5], "limit": [0.25]}),
    ]
    bench.write(tmp_path / "bench.csv", rows)
    (tmp_path / "benchmark-errors.csv").write_text("model,step\nising-7x7,1\n")  # of an exhibit
    page = bench_page(tmp_path, note="")
    cells = [[c.strip() for c in line.split("|")] for line in page.splitlines() if "ising-" in line]
    assert cells[0][1:-1] == ["ising-5x5", "2", "sweep", "1", "2", "5", "", ""]
    assert cells[1][1:-1] == ["ising-5x5", "2", "dula", "1", "2", "", "4", "0.5"]
    assert len(cells) == 2


def test_without_a_limit_compiled_kernels_are_multiples_of_eager_ones(tmp_path):
    work = Workload("pairs-5", 3, "gwg-1")
    rows = bench.rows_of(work, 1, {"eager": [0.5], "compiled": [0.125]})
    bench.write(tmp_path / "bench_kernels.csv", rows)
    page = bench_page(tmp_path, note="")
    assert "compiled / eager" in page
    cells = next(line for line in page.splitlines() if "pairs-5" in line).split("|")[1:-1]
    assert [cell.strip() for cell in cells] == ["pairs-5", "3", "gwg-1", "1", "2", "8", "4"]
    printed = bench.table(rows)
    assert "ours / eager" in printed
    assert "limit" not in printed


@pytest.mark.parametrize("name", ["ising-3x3", "rbm-6x4", "bnn-9x2x3", "resnet-4x3x3"])
def test_both_sides_have_the_same_target(name):
    work = Workload(name, 1, "dmala")
    torch.manual_seed(0)  # of a network's weights
    model = model_of(work)
    x = model.domain.uniform(100, torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    with torch.no_grad():
        expected, found = model(x).softmax(0), plain_model(work)(x).softmax(0)
    torch.testing.assert_close(found, expected)


STEPS = {"gibbs": plain.PlainGibbs(), "gwg": plain.gwg, "dmala": plain.dmala}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_the_reference_samples_the_target(step):
    """Started from exact draws, the mean of each site does not change: z < 5."""
    work = Workload("ising-3x3", 1, "dmala")
    model = model_of(work)
    states = model.domain.enumerate()
    law = model(states).softmax(0)
    torch.manual_seed(0)
    chains = 20_000
    x = states[torch.multinomial(law, chains, replacement=True)]
    for _ in range(9):
        x = step(x, plain_model(work)).detach()
    mean = law @ states
    z = (x.mean(0) - mean) / (mean * (1 - mean) / chains).sqrt()
    assert z.abs().max() < 5
