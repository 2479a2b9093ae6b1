"""Every experiment of conf/experiment runs at smoke scale, from the command line to its figures."""

import json

import pytest
from command import bundled_data, command_line
from documented import composed, names
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from latticework.experiments.records.record import load_all
from latticework.experiments.runs import configuration

pytestmark = pytest.mark.slow

configuration.register()

# A part of a sweep that shows all of its figures and tables; `benchmark` runs all samplers.
PART = {
    "ais_later": ("sampler=dmala,pafs",),
    "ais_small": ("sampler=gwg,dmala",),
    "benchmark_scaling": ("sampler=dmala,random_walk,hamming_ball",),
    "bnn": ("data=compas",),
    "bnn_as_written": ("data=compas", "model.scale=100"),
    "bnn_splits": ("data.seed=0,1",),
    "calibration": ("model.name=asia,hardcore_6x6",),
    "ising_dula": ("sampler.step_size=0.1,0.4",),
    "log_z_networks": ("learning.optimiser.lr=1e-3",),
    "rates_cost": ("sampler=block_gibbs,rates_fpcd",),
    "rates_models": ("negatives=sml,fpcd_slow", "task.learning_rate=0.1", "task.linear_decay=true"),
    "rates_models_reviews": ("negatives=cd,sml",),
    "rates_step_sizes": ("sampler.fast_step_size=0.001,0.01",),
    "rates_training": ("task.learning_rate=0.5",),
    "text_infilling": ("sampler=gwg,dmala",),
}
# For reviews, which are read once.
STAND_INS = {"rates_fig3_words_short", "rates_fig3_words_slow", "rates_models_reviews"}
TOO_SHORT = {"calibration"}  # at scale=smoke, for its figure and tables: no run converges
SWEPT = set()  # kinds of experiments; a later experiment of a kind makes only its first run


def first_run(config):
    """Overrides that reduce a sweep to its first run, without figures and tables."""
    swept = [f"{key}={value}" for key, value in config.hydra.sweeper.params.items()]
    parsed = filter(Override.is_sweep_override, OverridesParser.create().parse_overrides(swept))
    first = [f"{word.key_or_group}={next(word.sweep_string_iterator())}" for word in parsed]
    return [*first, "figures=null", "tables=null"]


@pytest.mark.parametrize("name", names("experiment"))
def test_experiment(name, tmp_path, capfd, monkeypatch):
    words = [f"experiment={name}", "scale=smoke"]
    if name in STAND_INS:
        monkeypatch.delenv("LATTICEWORK_DATA", raising=False)
    config = composed(*words)
    drawn = [part._target_ for part in (*config.figures.values(), *config.tables.values()) if part]
    kind = (config.task._target_, *drawn)
    whole = kind not in SWEPT
    words += PART.get(name, ()) if whole else first_run(config)
    SWEPT.add(kind)
    status = command_line(*words, *bundled_data(config), outputs=tmp_path)
    failures = [file.read_text() for file in tmp_path.rglob("error.txt")]
    assert (status, failures) == (0, []), capfd.readouterr().out

    folder = tmp_path / name / "smoke"
    records = load_all(folder)
    assert records if whole else len(records) == 1
    for record in records:
        assert record.document["config"]["scale"] == "smoke"
        assert json.dumps(record.document)  # plain values only
        assert len(record.metrics) > 0
    if not whole or name in TOO_SHORT:
        return
    for figure in filter(config.figures.get, config.figures):  # null leaves one out
        for suffix in ("png", "pdf"):
            assert (folder / "figures" / f"{figure}.{suffix}").stat().st_size > 1000
    for table in filter(config.tables.get, config.tables):
        for suffix in ("csv", "md", "tex"):
            assert (folder / "tables" / f"{table}.{suffix}").stat().st_size > 100
