"""Models learned by one experiment and used by others: found in a record, or learned in place."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from annealing_cases import DATA, rbm
from command import bundled_data, command_line
from documented import composed

from latticework.experiments.figures.likelihood import table1
from latticework.experiments.records.record import load_all
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.learning.snapshots import last, snapshots
from latticework.samplers.gwg import GWG
from latticework.sampling.loop_state import LoopState

SETTINGS = {
    "model": {"_target_": "latticework.models.rbm.RBM"},
    "sampler": {"_target_": "latticework.samplers.gwg.GWG"},
    "data": {"seed": 0},
    "seed": 0,
    "model_seed": 0,
    "scale": "smoke",
}
CONFIG = {**SETTINGS, "learning": {"iterations": 2}}
FINGERPRINT = DATA.fingerprint


@dataclass(eq=False)
class Learning(LoopState):
    model: Any


class Learn:
    """A task that stores two models, and is stopped before the second if it is told to."""

    def __init__(self, stop=False):
        self.calls, self.stop = 0, stop

    def __call__(self, *, model, sampler, data, run):
        self.calls += 1
        memory = Learning(model)
        for iteration in run.resumable(memory, "learning", total=2):
            if self.stop and iteration == 2:
                raise KeyboardInterrupt
            model.visible_bias += 1
            run.save_tensors(f"ema_{iteration:06}", model.state_dict())


def run_in(path, config=CONFIG):
    path.mkdir(exist_ok=True, parents=True)
    return Run(path, outputs=path.parents[1], config=config, checkpoint=0.0)


def test_models_without_a_record_are_learned_once_for_all(tmp_path):
    learn, model = Learn(), rbm()
    before = model.visible_bias.clone()
    for name in ("a", "b"):
        run = run_in(tmp_path / "ais" / name)
        states = snapshots(model=rbm(), sampler=GWG(), data=DATA, run=run, learn=learn)
        assert list(states) == ["ema_000001", "ema_000002"]
        torch.testing.assert_close(states["ema_000002"]["visible_bias"], before + 2)
        (artifact,) = run.notes["artifacts"]
        assert run.notes["learned_by"] == artifact
    assert learn.calls == 1
    other = run_in(tmp_path / "ais" / "c", {**CONFIG, "learning": {"iterations": 3}})
    model = last(model=rbm(), sampler=GWG(), data=DATA, run=other, learn=learn)
    assert learn.calls == 2
    torch.testing.assert_close(model.visible_bias, before + 2)
    with pytest.raises(ValueError, match="needs a data set"):
        snapshots(model=rbm(), sampler=GWG(), data=None, run=other, learn=learn)


def test_a_record_with_the_same_settings_is_read(tmp_path):
    task = {**SETTINGS, "task": CONFIG["learning"]}
    run = run_in(tmp_path / "ebm_learning" / "smoke")
    Learn()(model=rbm(), sampler=GWG(), data=DATA, run=run)
    document = {
        "config": task, "choices": {}, "overrides": [], "versions": {}, "seconds": 1.0,
        "data": {"fingerprint": FINGERPRINT},
    }  # fmt: skip
    learn = Learn()
    for word, other, calls in (("", "", 0), (".models.rbm.", ".gone.", 0), (FINGERPRINT, "x", 1)):
        (run.path / "run.json").write_text(json.dumps(document).replace(word, other))
        user = run_in(tmp_path / "ais" / "a")
        states = snapshots(model=rbm(), sampler=GWG(), data=DATA, run=user, learn=learn)
        assert len(states) == 2
        assert learn.calls == calls
    user = run_in(tmp_path / "ais" / "b", {**CONFIG, "seed": 1})
    snapshots(model=rbm(), sampler=GWG(), data=DATA, run=user, learn=learn)
    assert learn.calls == 2


@pytest.mark.slow
def test_ais_of_a_record_of_ebm_learning(tmp_path):
    """From the command line: the candidates are those of the record, and the best is taken."""
    words = ["scale=smoke", "data=caltech", "sampler=dula", "learning.snapshots=1"]
    data = bundled_data(composed("experiment=ais", *words))
    undrawn = ("~figures", "~tables")
    learning = ["task.snapshots=1" if word.startswith("learning") else word for word in words]
    assert (
        command_line("experiment=ebm_learning", *learning, *data, *undrawn, outputs=tmp_path) == 0
    )
    assert command_line("experiment=ais", *words, *data, *undrawn, outputs=tmp_path) == 0
    (record,) = load_all(tmp_path / "ais")
    found = record.document
    assert found["learned_by"].startswith("ebm_learning/smoke/")
    assert not list(tmp_path.glob("artifacts/ebm-*"))
    scores = found["validation_by_candidate"]
    assert list(scores) == ["ema_000001", "ema_000002", "ema_000003"]
    assert found["chosen"] == max(scores, key=scores.get)
    frame = table1([record])
    assert frame["DULA"][0].mean == found["log_likelihood"]["test"]["mean"]
