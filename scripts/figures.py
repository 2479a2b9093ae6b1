"""Redraw an experiment's figures from its records, without model, sampler or torch.

If the outputs folder has no records, those committed in docs/results/records are read. With the
overrides of a command that had other settings, that command's figures are redrawn, in figures/own.

python -m latticework.scripts.figures experiment=rbm_sampling scale=quick
python -m latticework.scripts.figures experiment=ising_sampling sampler.step_size=0.1,0.4 seed=0
"""

import sys
from pathlib import Path

from hydra import compose, initialize_config_dir

from latticework.experiments.config import resolvers
from latticework.experiments.config.errors import told
from latticework.experiments.report.selection import drawn
from latticework.experiments.results.record import load_experiment

CONF = Path(__file__).resolve().parent.parent / "conf"
WHERE = ("experiment", "scale", "outputs", "figures", "tables")


def main(overrides: list[str]) -> None:
    if {"-h", "--help"} & set(overrides):
        print((__doc__ or "").strip())
        return
    resolvers.register(CONF)
    about = [word for word in overrides if _is_no_run_s(word)]
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        config = compose("config", about, return_hydra_config=True)
    words = [word for word in overrides if word not in about]
    outputs = Path(config.outputs)
    try:
        records = load_experiment(outputs, config.name, config.scale)
    except FileNotFoundError as error:
        raise SystemExit(str(error)) from error
    folder = outputs / config.name / config.scale
    files, faults = drawn(config, words, folder, records)
    for file in files:
        print(f"{file.relative_to(folder).parts[0][:-1]}: {file}")
    if faults:
        raise SystemExit("\n".join(faults))


def _is_no_run_s(word: str) -> bool:
    """Whether an override concerns what to draw and where, and not a run."""
    return word.lstrip("+~").partition("=")[0].partition(".")[0] in WHERE


if __name__ == "__main__":
    with told():
        main(sys.argv[1:])
