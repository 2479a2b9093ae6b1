"""Records made before 0.2 get the classes' present names, and nothing else changes."""

import json

import pytest

from latticework.experiments.results.archive import open_archive, write_archive
from latticework.scripts.rename_records import main, renamed

OLD = {
    "config": {
        "sampler": {"_target_": "samplers.langevin.DMALA", "step_size": 0.4},
        "task": {
            "_target_": "experiments.tasks.sampling.sample",
            "metrics": [{"_target_": "experiments.metrics.MMD"}],
            "optimiser": {"_target_": "hydra.utils.get_class", "path": "torch.optim.SGD"},
        },
        "name": "data.images",
    },
    "files": {"metrics.csv": "0" * 64},
}
NEW = {
    "config": {
        "sampler": {"_target_": "latticework.samplers.langevin.DMALA", "step_size": 0.4},
        "task": {
            "_target_": "latticework.experiments.tasks.sampling.sample",
            "metrics": [{"_target_": "latticework.experiments.measures.metrics.MMD"}],
            "optimiser": {"_target_": "hydra.utils.get_class", "path": "torch.optim.SGD"},
        },
        "name": "data.images",
    },
    "files": {"metrics.csv": "0" * 64},
}


@pytest.mark.parametrize("indent", [1, 2])
def test_a_record_is_renamed_once(tmp_path, capsys, indent):
    run = tmp_path / "outputs" / "sampling" / "paper" / "sampler=dmala"
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps(OLD, indent=indent))
    (run / "metrics.csv").write_text("step\n0\n")
    main([str(tmp_path / "outputs")])
    assert (run / "run.json").read_text() == json.dumps(NEW, indent=indent)
    assert (run / "metrics.csv").read_text() == "step\n0\n"
    assert "1 records rewritten" in capsys.readouterr().out
    main([str(tmp_path / "outputs")])
    assert "0 records rewritten" in capsys.readouterr().out


def test_a_bundle_is_renamed(tmp_path):
    bundle = tmp_path / "sampling.zip"
    old = json.dumps(OLD, indent=1).encode()
    write_archive(bundle, {"a/run.json": old, "a/metrics.csv": b"step\n0\n"})
    main([str(bundle)])
    with open_archive(bundle) as archive:
        assert json.loads(archive.read("a/run.json")) == NEW
        assert archive.read("a/metrics.csv") == b"step\n0\n"
    assert [file.name for file in tmp_path.iterdir()] == ["sampling.zip"]


@pytest.mark.parametrize(
    "name", ["torch.optim.SGD", "latticework.models.rbm.RBM", "my_own.Sampler"]
)
def test_other_names_are_left_alone(name):
    assert renamed(name) == name


def test_a_missing_folder_is_an_error(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none")])
    assert "does not exist" in capsys.readouterr().err
