"""Redraw an experiment's figures from its records: no model, sampler or torch needed.

Without records in the outputs folder those committed in docs/results/records are read.

python -m scripts.figures experiment=rbm_sampling scale=quick
"""

import sys
from pathlib import Path

from hydra import compose, initialize_config_dir

from experiments import resolvers
from experiments.figures.draw import draw_all
from experiments.mistakes import told
from experiments.record import load_experiment

CONF = Path(__file__).resolve().parent.parent / "conf"


def main(overrides: list[str]) -> None:
    resolvers.register(CONF)
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        config = compose("config", overrides)
    outputs = Path(config.outputs)
    try:
        records = load_experiment(outputs, config.name, config.scale)
    except FileNotFoundError as error:
        raise SystemExit(str(error)) from error
    for file in draw_all(config, outputs / config.name / config.scale, records):
        print(f"{file.parent.name[:-1]}: {file}")


if __name__ == "__main__":
    with told():
        main(sys.argv[1:])
