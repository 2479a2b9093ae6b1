"""Redraw an experiment's figures from its records: no model, sampler or torch needed.

python -m scripts.figures experiment=rbm_sampling scale=quick
"""

import sys
from pathlib import Path

from hydra import compose, initialize_config_dir

from experiments import resolvers
from experiments.figures.draw import draw_all

CONF = Path(__file__).resolve().parent.parent / "conf"


def main(overrides: list[str]) -> None:
    resolvers.register(CONF)
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        config = compose("config", overrides)
    for file in draw_all(config, Path(config.outputs) / config.name / config.scale):
        print(f"figure: {file}")


if __name__ == "__main__":
    main(sys.argv[1:])
