"""Redraw an experiment's figures from its records, without model, sampler or torch.

If the outputs folder has no records at the paper's scale, those committed in docs/results/records
are drawn, and a line says so. With the overrides of a command that had other settings, that
command's figures are redrawn, in figures/own.

python -m latticework.scripts.figures experiment=rbm_sampling scale=quick
python -m latticework.scripts.figures experiment=ising_sampling sampler.step_size=0.1,0.4 seed=0
"""

import sys

from latticework.experiments.papers.draw import draw_for_command
from latticework.experiments.records.escapes import escape_terminal
from latticework.experiments.records.identity import mask_passwords
from latticework.experiments.records.record import BUNDLES, read_records
from latticework.experiments.runs import configuration
from latticework.experiments.runs.errors import one_line_errors

WHERE = ("experiment", "scale", "outputs", "figures", "tables")


def main(overrides: list[str]) -> None:
    if not overrides or {"-h", "--help"} & set(overrides):
        print((__doc__ or "").strip())
        return
    about_figures, words = [], []
    for word in overrides:
        if _is_about_figures(word):
            about_figures.append(word)
        else:
            words.append(mask_passwords(word))
    config = configuration.compose_config(about_figures)
    folder = configuration.records_folder(config)
    records, damaged = read_records(folder)
    bundle = BUNDLES / f"{config.name}.zip"
    if not records and config.scale == "paper" and bundle.is_file():
        records, _ = read_records(bundle)
        print(f"no finished run in {folder}: drawing the {len(records)} records of {bundle}")
    if not records:
        missing = f"no finished run in {folder}; run the experiment first"
        raise SystemExit("\n".join(map(escape_terminal, [*damaged.values(), missing])))
    files, faults = draw_for_command(config, words, folder, records)
    for file in files:
        print(f"{file.relative_to(folder).parts[0][:-1]}: {file}")
    if wrong := [*faults, *(f"left out: {fault}" for fault in damaged.values())]:
        raise SystemExit("\n".join(map(escape_terminal, wrong)))


def _is_about_figures(word: str) -> bool:
    """Whether an override concerns what to draw and where, and not a run."""
    return word.lstrip("+~").partition("=")[0].partition(".")[0] in WHERE


if __name__ == "__main__":
    with one_line_errors():
        main(sys.argv[1:])
