"""How samplers look in every figure: one label, one colour and one place in the order each."""

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from experiments.record import Record

# Sampler names as conf/sampler spells them, in the order of every legend and table, each with its
# class, label and colour. The colours are Okabe and Ito's, which stay apart for colour-blind
# readers, and two greys.
SAMPLERS = {
    "gibbs": ("Gibbs", "Gibbs", "#999999"),
    "block_gibbs": ("BlockGibbs", "Block Gibbs", "#444444"),
    "hamming_ball": ("HammingBall", "HB", "#F0E442"),
    "dsvgd": ("DiscreteSVGD", "DSVGD", "#8C6D46"),
    "rmala": ("RMALA", "R-MALA", "#B9A6D3"),
    "locally_balanced": ("LocallyBalanced", "LB-1", "#56B4E9"),
    "gwg": ("GWG", "GWG", "#0072B2"),
    "dula": ("DULA", "DULA", "#E69F00"),
    "dmala": ("DMALA", "DMALA", "#D55E00"),
    "sample_penalization": ("SamplePenalization", "SP", "#CC79A7"),
    "rates_herding": ("RatesHerding", "rates-herding", "#009E73"),
    "rates_fpcd": ("RatesFPCD", "rates-FPCD", "#661100"),
}
_NAMES = {sampler_class: name for name, (sampler_class, _, _) in SAMPLERS.items()}


def sampler_key(record: Record) -> tuple[str, int]:
    """The sampler and its block size or number of flips: what one curve stands for.

    The sampler is known by its class, so that a YAML of one's own which only sets other fields
    (`gwg4`) keeps label and colour; a class that is not in SAMPLERS goes by its YAML's name.
    """
    settings = record.config["sampler"]
    size = settings.get("flips") or settings.get("sites") or 0
    name = _NAMES.get(settings["_target_"].rpartition(".")[-1], record.choices["sampler"])
    return name, int(size)


def label(key: tuple[str, int]) -> str:
    """`("gwg", 4) -> "GWG-4"`; a sampler of the user's own keeps its name."""
    name, size = key
    text = SAMPLERS.get(name, ("", name, ""))[1]
    if name == "hamming_ball":
        return "HB-10-1"
    return f"{text}-{size}" if name in ("gibbs", "gwg") else text


def colour(key: tuple[str, int], place: int = 0, of: int = 1) -> Any:
    """The sampler's colour; of several lines of one sampler each has its own, dark to light."""
    own = SAMPLERS.get(key[0], ("", "", "#000000"))[2]
    if of < 2:
        return own
    share = 0.5 * (2 * place / (of - 1) - 1)  # towards black below 0, towards white above
    return tuple(
        part * (1 + share) if share < 0 else part + (1 - part) * share for part in to_rgb(own)
    )


def dashes(key: tuple[str, int], place: int = 0) -> str:
    """Variants of one sampler with a larger block are dashed, and every other of several lines."""
    larger = key[0] in ("gibbs", "gwg") and key[1] > 1
    return ("--", ":")[place % 2] if larger else ("-", "-.")[place % 2]


def new_figure(columns: int = 1, width: float = 3.6, height: float = 2.8) -> tuple[Figure, Any]:
    """A figure with `columns` panels side by side, sizes in inches a panel."""
    figure, axes = plt.subplots(1, columns, figsize=(width * columns, height), layout="constrained")
    for ax in figure.axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8)
    return figure, axes


def mark_substitute(figure: Figure, records: list[Record]) -> None:
    """Say on the figure that other data stood in for those asked for."""
    names = sorted({record.substitute for record in records if record.substitute})
    if names:
        figure.text(
            0.5, 0.5, "SUBSTITUTE DATA\n" + "\n".join(names), color="crimson", alpha=0.35,
            fontsize=13, ha="center", va="center", rotation=20, weight="bold",
        )  # fmt: skip
