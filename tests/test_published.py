"""The configuration has the papers' settings, as experiments/records/published.yaml prints them."""

import functools
from pathlib import Path

import pytest
from documented import composed
from omegaconf import OmegaConf
from test_configs import TUNED, plain

from latticework.experiments.records.numbers import PUBLISHED

SETTINGS = OmegaConf.to_container(OmegaConf.load(PUBLISHED).settings)["values"]
configuration = functools.cache(lambda words: composed(*words.split()))
OURS = (
    "Tuned by task=tune",
    "Tuned by adapt=",
    "Chosen for",
    "Not in the paper",
    "The paper does not state it",
    "the paper does not state it",
    "of the experiment that sweeps it",
)


@pytest.mark.slow
@pytest.mark.parametrize("entry", SETTINGS, ids=lambda entry: entry["run"])
def test_an_experiment_has_the_papers_settings(entry):
    document = plain(configuration(entry["run"]))
    for path, expected in entry["settings"].items():
        found = document
        for name in path.split("."):
            found = found[name]
        assert found == expected, f"{path}: the paper has {expected} ({entry['source']})"


def chosen(entry):
    """The tuned file that the entry's settings of a sampler are read from, `folder/sampler`."""
    return configuration(entry["run"]).hydra.runtime.choices["tuned"]


@pytest.mark.slow
def test_every_tuned_number_of_a_paper_is_compared_with_it():
    """A file that names neither our own tuning nor a sweep states a number of a paper."""
    stated = {
        str(Path(*file.parts[-2:]).with_suffix(""))
        for file in TUNED
        if not any(words in file.read_text() for words in OURS)
    }
    assert len(stated) > 10
    entries = [e for e in SETTINGS if any(key.startswith("sampler.") for key in e["settings"])]
    assert stated <= {chosen(entry) for entry in entries}
