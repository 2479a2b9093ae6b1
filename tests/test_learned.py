"""Models learned by one experiment and used by others: found in a record, or learned in place."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pytest
import torch
from command import bundled_data, command_line
from hydra import compose, initialize_config_dir
from test_ais import DATA, rbm
from test_configs import CONF

from latticework.experiments.figures.images import grid
from latticework.experiments.figures.tables.likelihood import beside, table1
from latticework.experiments.records.identity import same
from latticework.experiments.records.record import Record, load_all
from latticework.experiments.runs.artifacts import artifact
from latticework.experiments.runs.run import Run
from latticework.experiments.tasks.learning.snapshots import _settings, last, snapshots
from latticework.samplers.gwg import GWG
from latticework.sampling.memory import Memory

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
class Learning(Memory):
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


def test_learning_in_place_goes_on_where_it_was_stopped(tmp_path):
    for stop in (True, False):
        learn, run = Learn(stop), run_in(tmp_path / "ais" / "a")
        settings = {"model": rbm(), "sampler": GWG(), "data": DATA, "run": run, "learn": learn}
        if stop:
            with pytest.raises(KeyboardInterrupt):
                snapshots(**settings)
    states = snapshots(**settings)
    torch.testing.assert_close(states["ema_000002"]["visible_bias"], rbm().visible_bias + 2)


def test_an_artifact_and_a_checkpoint_of_release_0_2_are_found(tmp_path):
    """It named them by whole paths, and learned with the settings `learning` and `fingerprint`."""
    names = ("model", "sampler", "seed", "model_seed", "data", "learning")
    spec = {**{name: CONFIG[name] for name in names}, "fingerprint": FINGERPRINT}
    text = json.dumps(spec, indent=2, sort_keys=True)
    name = f"ebm-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    maker = run_in(tmp_path / "ais" / "a")
    artifact(maker, "ebm", spec, lambda: {"ema_000009/x": torch.ones(2)})
    assert maker.notes["artifacts"] == [name]
    user, learn = run_in(tmp_path / "ais" / "b"), Learn()
    states = snapshots(model=rbm(), sampler=GWG(), data=DATA, run=user, learn=learn)
    assert states["ema_000009"]["x"].tolist() == [1, 1]
    assert user.notes["learned_by"] == name
    longer = {**CONFIG, "learning": {"iterations": 3}}
    assert same({"config": spec}, _settings(CONFIG, "learning", FINGERPRINT))
    assert not same({"config": spec}, _settings(longer, "learning", FINGERPRINT))
    assert not same({"config": spec}, _settings(CONFIG, "learning", "x"))
    snapshots(
        model=rbm(), sampler=GWG(), data=DATA, run=run_in(tmp_path / "c", longer), learn=learn
    )
    assert learn.calls == 1  # control


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


def test_ais_of_a_record_of_ebm_learning(tmp_path):
    """From the command line: the candidates are those of the record, and the best is taken."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        words = ["scale=smoke", "data=caltech", "sampler=dula", "learning.snapshots=1"]
        data = bundled_data(compose("config", ["experiment=ais", *words]))
    learning = ["task.snapshots=1" if word.startswith("learning") else word for word in words]
    assert command_line("experiment=ebm_learning", *learning, *data, outputs=tmp_path) == 0
    assert command_line("experiment=ais", *words, *data, outputs=tmp_path) == 0
    (record,) = load_all(tmp_path / "ais")
    found = record.document
    assert found["learned_by"].startswith("ebm_learning/smoke/")
    assert not list(tmp_path.glob("artifacts/ebm-*"))
    scores = found["validation_by_candidate"]
    assert list(scores) == ["ema_000001", "ema_000002", "ema_000003"]
    assert found["chosen"] == max(scores, key=scores.get)
    frame = table1([record])
    assert frame["DULA"][0].mean == found["log_likelihood"]["test"]["mean"]


def records_of_table1(substitute):
    """Two data sets, two samplers, two seeds of one of them."""
    records = []
    for data, sampler, seed, score in (
        ("caltech", "GWG", 0, -90.0),
        ("caltech", "DMALA", 0, -80.0),
        ("caltech", "DMALA", 1, -84.0),
        ("omniglot_derived", "DMALA", 0, -70.0),
    ):
        config = {
            "sampler": {"_target_": f"samplers.x.{sampler}", "flips": int(sampler == "GWG")},
            "learning": {"iterations": 5, "steps": 40, "optimiser": {"lr": 1e-4}},
            "model": {"maps": 8, "blocks": 2},
            "task": {"chains": 9, "steps": 30},
            "seed": seed,
        }
        document = {
            "config": config,
            "choices": {"data": data, "sampler": sampler.lower()},
            "data": {"variant": f"{data} files", "substitute": substitute},
            "log_likelihood": {"test": {"mean": score}},
            "ess": 9.0,
            "log_z_error": 0.3,
            "log_z": 100.0,
            "log_z_back": 100.0,
            "log_z_lower": 99.9,
            "log_z_lower_error": 0.2,
            "log_z_upper": 100.1,
            "log_z_upper_error": 0.4,
        }
        records.append(Record(None, document))
    return records


def test_table_1_names_budget_and_data_and_stands_beside_the_paper():
    frame = table1(records_of_table1(substitute=False))
    assert frame["data"].tolist() == ["caltech", "omniglot_derived"]
    assert frame["DMALA"][0] == (-82.0, pytest.approx(8**0.5), 2)  # over seeds
    assert frame["DMALA, from rows"][0] == (pytest.approx(-82.1), pytest.approx(8**0.5), 2)
    assert frame["GWG-1, at most"][0] == (pytest.approx(-89.9), 0.2, None)
    assert frame["GWG-1"][0] == (-90.0, pytest.approx(0.353, abs=1e-3), None)  # t(8) / normal
    assert frame["DMALA, paper"][0].mean == -87.82
    assert frame["VAE, paper"][0].mean == -106.35
    assert pd.isna(frame["DMALA, paper"][1])  # its data are not the paper's
    assert pd.isna(frame["GWG-1"][1])
    assert (frame["updates"] == 5).all()
    assert (frame["AIS betas"] == 30).all()
    assert (frame["learning rate"] == 1e-4).all()
    for record in (faster := records_of_table1(substitute=False)):
        record.config["learning"]["optimiser"]["lr"] = 1e-3 if record.config["seed"] else 1e-4
        record.config["published"] = {"test_log_likelihood": None}
    split = table1(faster)
    assert split["learning rate"].tolist() == [1e-4, 1e-3, 1e-4]
    assert split["DMALA"].map(lambda found: found.mean).tolist() == [-80.0, -84.0, -70.0]
    assert not any("paper" in column for column in split)
    replaced = table1(records_of_table1(substitute=True))
    assert replaced["DMALA, paper"].isna().all()
    assert replaced["variant"].str.startswith("SUBSTITUTE").all()
    for record in (records := records_of_table1(substitute=False)):
        del record.config["learning"]
    with pytest.raises(LookupError):
        table1(records)


def test_table_1_is_empty_where_a_run_gives_no_value():
    records = records_of_table1(substitute=False)
    records[1].document["ess"] = 4.0  # of 9 chains
    frame = table1(records)
    assert frame["DMALA"][0] is None
    assert frame["DMALA"][1].mean == -70.0
    assert frame["DMALA, at most"][0].mean == pytest.approx(-81.9)


def test_the_grid_has_our_models_and_the_papers_numbers():
    """Each sampler at its rate with the most seeds, and of these the best on validation rows."""
    records = records_of_table1(substitute=False)
    for record, valid in zip(records, (-91.0, -81.0, -85.0, -71.0), strict=True):
        record.document["log_likelihood"]["valid"] = {"mean": valid}
    records[2].config["learning"]["optimiser"]["lr"] = 1e-3
    frame = beside(records).set_index("data")
    assert frame.loc["caltech", "DMALA"] == "-80.00 ± 0.35 / -87.82"
    assert frame.loc["caltech", "Gibbs"] == "not run / -163.50"
    assert frame.loc["omniglot_derived", "DMALA"] == "-70.00 ± 0.35 / -91.11"
    assert frame.loc["caltech", "VAE"] == "not run / -106.35"
    records[1].document["log_likelihood"]["valid"]["mean"] = -90.0
    records[2].document["ess"] = 2.0
    cell = beside(records).set_index("data").loc["caltech", "DMALA"]
    assert cell == "-84.1 ± 0.4 to -83.9 ± 0.2 / -87.82"
    records[1].document["data"]["substitute"] = records[2].document["data"]["substitute"] = True
    assert "not comparable" in beside(records).set_index("data").loc["caltech", "DMALA"]
    with pytest.raises(LookupError):
        beside([])


def test_figure_9_has_a_row_a_data_set(tmp_path):
    records = []
    for number, record in enumerate(records_of_table1(substitute=False)):
        folder = tmp_path / str(number)
        run_in(folder / "a" / "b").save("last", x=torch.rand(10, 16).round())
        records.append(Record(folder / "a" / "b", record.document))
    figure = grid(records, rows="data")
    assert len(figure.axes) == 4
    assert [len(ax.images) for ax in figure.axes] == [1, 1, 0, 1]
    assert [ax.get_ylabel() for ax in figure.axes[::2]] == ["caltech", "omniglot_derived"]
    assert [ax.get_title() for ax in figure.axes] == ["GWG-1", "DMALA", "", ""]
    with pytest.raises(LookupError):
        grid([], rows="data")
