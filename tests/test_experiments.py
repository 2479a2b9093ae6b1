"""Every experiment of conf/experiment runs at smoke scale, from the command line to its figures."""

import json

import pytest
from command import bundled_data, command_line
from documented import composed, names

from latticework.experiments.records.record import load_all
from latticework.experiments.runs import configuration

pytestmark = pytest.mark.slow

configuration.register()

# A part of a sweep that shows all of its figures and tables. The rest runs elsewhere: the samplers
# by `benchmark`, the trainings by `rates_models`, whose data are quicker to read.
SLOW_DATA = ("negatives=cd", "model.hidden=8")
WORDS = ("negatives=fpcd",)
FEW = ("sampler=block_gibbs,rates_fpcd",)
STEP_SIZES = ("sampler.fast_step_size=0.001,0.01",)
PART = {
    "ais_later": ("sampler=dmala,pafs",),
    "ais_small": ("sampler=gwg,dmala",),
    "benchmark_scaling": ("sampler=dmala,random_walk,hamming_ball",),
    "bnn_splits": ("data.seed=0,1",),
    "ising_dula": ("sampler.step_size=0.1,0.4",),
    "ising_sampling_compiled": ("sampler=gibbs,dmala",),
    "log_z_networks": ("learning.optimiser.lr=1e-3",),
    "rates_fig2_mnist": FEW,
    "rates_fig3_decay": ("sampler.fast_step_size=0.001,0.064",),
    "rates_fig3_words": WORDS,
    "rates_fig3_words_short": WORDS,
    "rates_fig3_words_slow": WORDS,
    "rates_models": ("task.learning_rate=0.5",),
    "rates_models_mnist": SLOW_DATA,
    "rates_models_reviews": SLOW_DATA,
    "rates_regardless": ("negatives=sml,fpcd_slow", "sampler=block_gibbs,rates_fpcd"),
    "rates_step_sizes": STEP_SIZES,
    "rates_step_sizes_mnist": STEP_SIZES,
    "rates_training": ("task.learning_rate=0.5",),
    "rbm_sampling_compiled": ("sampler=gibbs,dmala",),
    "tune_rates_mnist": FEW,
    "tune_rates_reviews": FEW,
}
STAND_INS = {"rates_fig3_words_short", "rates_fig3_words_slow"}  # for reviews, which are read once


@pytest.mark.parametrize("name", names("experiment"))
def test_experiment(name, tmp_path, capfd, monkeypatch):
    words = [f"experiment={name}", "scale=smoke", *PART.get(name, ())]
    if name in STAND_INS:
        monkeypatch.delenv("LATTICEWORK_DATA", raising=False)
    config = composed(*words[:2])
    status = command_line(*words, *bundled_data(config), outputs=tmp_path)
    failures = [file.read_text() for file in tmp_path.rglob("error.txt")]
    assert (status, failures) == (0, []), capfd.readouterr().out

    folder = tmp_path / name / "smoke"
    for record in load_all(folder):
        assert record.document["config"]["scale"] == "smoke"
        assert json.dumps(record.document)  # plain values only
        assert len(record.metrics) > 0
    for figure in filter(config.figures.get, config.figures):  # null leaves one out
        for suffix in ("png", "pdf"):
            assert (folder / "figures" / f"{figure}.{suffix}").stat().st_size > 1000
    for table in filter(config.tables.get, config.tables):
        for suffix in ("csv", "md", "tex"):
            assert (folder / "tables" / f"{table}.{suffix}").stat().st_size > 100
