"""The label, colour and position of each sampler, the same in every figure."""

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from latticework.experiments.results.record import Record

# Samplers by their name in conf/sampler, in the order of legends and tables: class, label, colour.
# Most colours are from the palette of Okabe and Ito, which colour-blind readers can distinguish.
SAMPLERS = {
    "gibbs": ("Gibbs", "Gibbs", "#999999"),
    "gibbs_sweep": ("GibbsSweep", "Gibbs sweep", "#76B7B2"),
    "block_gibbs": ("BlockGibbs", "Block Gibbs", "#444444"),
    "hamming_ball": ("HammingBall", "HB", "#F0E442"),
    "dsvgd": ("DiscreteSVGD", "DSVGD", "#8C6D46"),
    "rmala": ("RMALA", "R-MALA", "#B9A6D3"),
    "locally_balanced": ("LocallyBalanced", "LB-1", "#56B4E9"),
    "gwg": ("GWG", "GWG", "#0072B2"),
    "dula": ("DULA", "DULA", "#E69F00"),
    "dmala": ("DMALA", "DMALA", "#D55E00"),
    "avg": ("AVG", "AVG", "#B07AA1"),
    "pavg": ("PAVG", "PAVG", "#7B4F9D"),
    "dhams": ("DHAMS", "DHAMS", "#2E8B8B"),
    "edlp": ("EDLP", "EDLP", "#9C9B2A"),
    "pt_dmala": ("PTDMALA", "PT-DMALA", "#5C3317"),
    "swendsen_wang": ("SwendsenWang", "Swendsen-Wang", "#111111"),
    "sample_penalization": ("SamplePenalization", "SP", "#CC79A7"),
    "rates_herding": ("RatesHerding", "rates-herding", "#009E73"),
    "rates_fpcd": ("RatesFPCD", "rates-FPCD", "#661100"),
}
_NAMES = {sampler_class: name for name, (sampler_class, _, _) in SAMPLERS.items()}


def sampler_key(record: Record) -> tuple[str, int]:
    """The sampler's name and its block size or number of flips, which identify a curve.

    The name follows from the class, so that a YAML file that only changes fields (`gwg4`) keeps
    label and colour. A class that is not in SAMPLERS has the name of its YAML file.
    """
    settings = record.config["sampler"]
    size = settings.get("flips") or settings.get("sites") or 0
    name = _NAMES.get(settings["_target_"].rpartition(".")[-1], record.choices["sampler"])
    return name, int(size)


def label(key: tuple[str, int]) -> str:
    """`("gwg", 4) -> "GWG-4"`. A sampler that is not in SAMPLERS keeps its name."""
    name, size = key
    text = SAMPLERS.get(name, ("", name, ""))[1]
    if name == "hamming_ball":
        return "HB-10-1"
    return f"{text}-{size}" if name in ("gibbs", "gwg") else text


def colour(key: tuple[str, int], place: int = 0, of: int = 1) -> Any:
    """The sampler's colour. Several lines of one sampler get shades of it, from dark to light."""
    own = SAMPLERS.get(key[0], ("", "", "#000000"))[2]
    if of < 2:
        return own
    share = 0.5 * (2 * place / (of - 1) - 1)  # towards black below 0, towards white above
    return tuple(
        part * (1 + share) if share < 0 else part + (1 - part) * share for part in to_rgb(own)
    )


def dashes(key: tuple[str, int], place: int = 0) -> str:
    """The line style: dashed for larger blocks or more flips; several lines alternate in style."""
    larger = key[0] in ("gibbs", "gwg") and key[1] > 1
    return ("--", ":")[place % 2] if larger else ("-", "-.")[place % 2]


def new_figure(columns: int = 1, width: float = 3.6, height: float = 2.8) -> tuple[Figure, Any]:
    """A figure with `columns` panels side by side. `width` and `height` of a panel in inches."""
    figure, axes = plt.subplots(1, columns, figsize=(width * columns, height), layout="constrained")
    for ax in figure.axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8)
    return figure, axes


def mark_substitute(figure: Figure, records: list[Record]) -> None:
    """Mark the figure if any record was made with substitute data."""
    names = sorted({record.substitute for record in records if record.substitute})
    if names:
        figure.text(
            0.5, 0.5, "SUBSTITUTE DATA\n" + "\n".join(names), color="crimson", alpha=0.35,
            fontsize=13, ha="center", va="center", rotation=20, weight="bold",
        )  # fmt: skip
