"""Every experiment of conf/experiment runs at smoke scale, from the command line to its figures."""

import json

import pytest
from command import bundled_data, command_line
from documented import composed, names

from latticework.experiments.records.record import load_all
from latticework.experiments.runs import configuration

pytestmark = pytest.mark.slow

configuration.register()

# A part of a sweep that shows all of its figures and tables: two of its samplers, and the trainings
# that figures compare. The rest runs elsewhere: samplers on every model in test_configs.py and by
# `benchmark`, trainings by `rates_models`. Experiments that begin with tune run whole.
TRAININGS = ("negatives=cd,fpcd",)
PART = {
    "benchmark": ("engine=eager",),  # its kernels are compiled in test_benchmark.py
    "benchmark_scaling": ("sampler=dmala,random_walk,hamming_ball", "engine=eager"),
    "ising_sampling": ("sampler=gibbs,dsvgd,dmala",),
    "rates_fig3_words": TRAININGS,
    "rates_fig3_words_short": TRAININGS,
    "rates_fig3_words_slow": TRAININGS,
    "rates_models_mnist": TRAININGS,
    "rates_models_reviews": TRAININGS,
}


def part(name, config):
    """The words that leave a part of the sweep."""
    swept = str(config.hydra.sweeper.params.get("sampler", "")).split(",")
    if name in PART or len(swept) < 3 or name.startswith(("benchmark", "tune")):
        return PART.get(name, ())
    return (f"sampler={swept[0]},{swept[-1]}",)


@pytest.mark.parametrize("name", names("experiment"))
def test_experiment(name, tmp_path, capfd):
    words = [f"experiment={name}", "scale=smoke"]
    config = composed(*words)
    words += part(name, config)
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
