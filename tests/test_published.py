"""The configuration has the papers' settings, as experiments/records/published.yaml prints them."""

from pathlib import Path

import pytest
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from test_configs import TUNED, once

from latticework.experiments.records.estimates import PUBLISHED

SETTINGS = OmegaConf.to_container(OmegaConf.load(PUBLISHED).settings)["values"]
OURS = (
    "Tuned by task=tune",
    "Tuned by adapt=",
    "Chosen for",
    "Not in the paper",
    "The paper does not state it",
    "the paper does not state it",
    "of the experiment that sweeps it",
    "The best validation ISL",
    "The best mean validation ISL",
)


@pytest.mark.slow
@pytest.mark.parametrize("entry", SETTINGS, ids=lambda entry: entry["run"])
def test_an_experiment_has_the_papers_settings(entry):
    config = once(*entry["run"].split())
    HydraConfig.instance().set_config(config)
    for path, expected in entry["settings"].items():
        found = OmegaConf.select(config, path, throw_on_missing=True)
        assert found == expected, f"{path}: the paper has {expected} ({entry['source']})"


def chosen(entry):
    """The tuned file that the entry's settings of a sampler are read from, `folder/sampler`."""
    return once(*entry["run"].split()).hydra.runtime.choices["tuned"]


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
