"""Runs on a CUDA device: `pytest -m gpu`. Laws, models and graphs are in files of their own."""

import copy
import os
import signal

import pytest
import torch
from command import command_line, only, results
from everyone import PAIRS
from targets import TARGETS
from torch import Generator

import latticework as lw
from latticework.experiments.runs.run import Run
from latticework.models.infilling import TextInfilling
from latticework.models.masked_lm import MaskedLM, untrained
from latticework.sampling.chain import Chain
from latticework.sampling.exact import exact

pytestmark = pytest.mark.gpu
ON_GPU = ("device=cuda", "scale=smoke")
LEARNING = ("experiment=ebm_learning", "data=digits", "sampler=dmala", "seed=0")
WORDS = {
    "chain": ("model.shape=[3,3]", "sampler=gwg"),
    "rbm": ("experiment=rbm_sampling", "data=digits", "sampler=dmala", "seed=0"),
    "network": LEARNING,
    "compiled network": (*LEARNING, "model.compile=true"),
    "half precision": (*LEARNING, "model.bf16=all"),
    "ais": ("task=ais", "model=rbm", "pretrain=random", "sampler=gwg"),
    "words": ("experiment=text_infilling", "model=mini_bert", "sampler=dmala", "seed=0"),
    "regression": (
        "experiment=bnn",
        "data=compas",
        "data.download=false",
        "sampler=dmala",
        "seed=0",
    ),
    "tempered": ("model.shape=[3,3]", "sampler=dmala", "task=log_z"),
}


@pytest.fixture(autouse=True)
def waiting_allowed():
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(("sampler", "model"), [pair[:2] for pair in PAIRS], ids=str)
def test_no_step_waits_for_the_host(sampler, model):
    model, rng = copy.deepcopy(model).cuda(), Generator("cuda").manual_seed(0)
    with torch.no_grad():
        state = sampler.init(model.domain.uniform(8, rng), model)
        state, _ = sampler.step(state, model, rng)  # what is made once and kept
        torch.cuda.set_sync_debug_mode("error")
        for _ in range(3):
            state, _ = sampler.step(state, model, rng)


def test_the_guard_against_waiting_can_fail():
    torch.cuda.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match="synchronizing"):
        torch.ones(3, device="cuda").sum().item()


@pytest.mark.parametrize("name", TARGETS)
def test_exact_moments(name):
    if TARGETS[name].box is not None:
        pytest.skip("infinitely many states")
    model = TARGETS[name].model
    on_cpu, on_gpu = exact(model), exact(copy.deepcopy(model).cuda())
    torch.testing.assert_close(on_gpu.log_z.cpu(), on_cpu.log_z, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(on_gpu.mean.cpu(), on_cpu.mean, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("sampler", [lw.DMALA(0.4), lw.Gibbs(), lw.GWG(2)], ids=str)
def test_check_on_a_gpu(sampler):
    report = lw.check(sampler, copy.deepcopy(TARGETS["rbm"].model).cuda(), chains=50_000)
    assert report.passed, report.failures


def test_sample_a_function():
    """Equal seeds give equal draws, whose means are those of the enumerated law."""
    weight = (torch.randn(10, 10, generator=Generator().manual_seed(0)) / 4).cuda()

    def f(x):
        return ((x @ weight) * x).sum(-1)

    def sampled():
        return lw.sample(f, "dmala", sites=10, device="cuda", chains=2000, steps=500, seed=0)

    found = sampled()
    assert torch.equal(found.draws, sampled().draws)
    last = found.draws[:, -1].double().cpu()
    weight = weight.cpu().double()
    error = last.mean(0) - exact(lw.Function(f, lw.Binary(10))).mean
    assert (error.abs() < 5 * (last.var(0) / len(last)).sqrt()).all()


@pytest.mark.parametrize(
    ("extra", "cause"),
    [
        (lambda x: x @ torch.ones(4).to(x), "Cannot copy between CPU and CUDA tensors"),
        (lambda x: x.sum(-1) * float(x.sum() > -1), "not permitted when stream is capturing"),
    ],
)
def test_a_function_that_cannot_be_captured(extra, cause):
    """The next call works."""
    with pytest.raises(RuntimeError, match=f"cannot be captured as a CUDA graph \\(.*{cause}"):
        lw.sample(extra, "dmala", sites=4, device="cuda", steps=100, seed=0)
    lw.sample(lambda x: x.sum(-1), "dmala", sites=4, device="cuda", steps=100, seed=0)


def test_sums_over_clusters_do_not_depend_on_their_order():
    """Two runs of Swendsen and Wang's clusters on fields that are no whole numbers."""
    bias = torch.randn(10_000, generator=Generator().manual_seed(0)).mul(0.1).tolist()
    model = lw.Lattice((100, 100), 0.2, bias).cuda()

    def last():
        rng = Generator("cuda").manual_seed(0)
        x = model.domain.uniform(50, rng)
        *_, found = lw.run_chain(lw.SwendsenWang(), model, x, rng, steps=200, every=50)
        return found.state.x

    assert torch.equal(last(), last())


def finished(words, outputs):
    assert command_line(*ON_GPU, *words, outputs=outputs) == 0, "see the output"
    record = only(outputs)
    assert record.document["device"] == torch.cuda.get_device_name()
    return results(record)


@pytest.mark.parametrize("name", WORDS)
def test_two_runs_of_a_command_give_the_same_numbers(name, tmp_path):
    one, other = (finished(WORDS[name], tmp_path / side) for side in ("one", "other"))
    assert one == other


@pytest.mark.parametrize("name", ["chain", "network", "words", "ais"])
def test_an_interrupted_run_resumes_bit_for_bit(name, tmp_path, monkeypatch):
    whole = finished(WORDS[name], tmp_path / "whole")
    log_row, rows = Run.log, []

    def interrupt(self, step, **values):
        log_row(self, step, **values)
        rows.append(step)
        if len(rows) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "log", interrupt)
        status = command_line(*ON_GPU, *WORDS[name], outputs=tmp_path / "cut")
    assert status == 128 + signal.SIGTERM
    assert finished(WORDS[name], tmp_path / "cut") == whole


def test_memory_that_runs_out_is_told_in_a_line(tmp_path, capsys):
    words = ("device=cuda", "scale=smoke", "model.shape=[100,100]", "sampler=dmala")
    assert command_line(*words, "budget.chains=10000000", outputs=tmp_path) == 1
    text = "".join(capsys.readouterr())
    assert "memory ran out (OutOfMemoryError: " in text
    assert "Traceback" not in text


def test_a_million_sites():
    """100 chains of 10^6 sites: the peak is a small multiple of the state's 400 MB."""
    torch.cuda.reset_peak_memory_stats()
    model = lw.Lattice((1000, 1000), 0.2).cuda()
    rng = Generator("cuda").manual_seed(0)
    x = model.domain.uniform(100, rng)
    chain = Chain(lw.DMALA(0.2), model, x, rng, every=2)
    for _ in range(3):
        chain.advance()
    assert ((chain.state.x == 0) | (chain.state.x == 1)).all()
    assert torch.cuda.max_memory_allocated() < 40e9


@pytest.mark.parametrize("sampler", [lw.DMALA(0.5), lw.Gibbs()], ids=str)
@pytest.mark.parametrize("base", [False, True], ids=["mini_bert", "untrained bert_base"])
def test_a_network_of_transformers_is_captured(sampler, base):
    """It fills the same words as eager steps."""
    torch.manual_seed(0)
    language = MaskedLM("mini_bert")
    if base:  # of the size of bert-base-uncased
        language.network = untrained(8192, 768, 12, 12, 512).eval().requires_grad_(False)
        language._look_up()
    target = TextInfilling(language, "The [MASK] cat sat on the [MASK].").cuda()

    def filled(captured):
        rng = Generator("cuda").manual_seed(0)
        chain = Chain(sampler, target, target.domain.uniform(4, rng), rng, every=2)
        chain._captured = not captured
        for _ in range(3):
            chain.advance()
        return chain.state.x

    assert torch.equal(filled(True), filled(False))
