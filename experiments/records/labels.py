"""Samplers, seeds and settings in words, and the colour and marker of each sampler.

Figures, tables and claims show these names. They follow from the configuration of a record.
"""

import zlib
from collections.abc import Iterable, Sequence
from colorsys import hls_to_rgb
from typing import NamedTuple

from latticework.experiments.records.identity import SEEDS
from latticework.experiments.records.record import Record


class SamplerStyle(NamedTuple):
    """A sampler in figures: its class, label, colour and marker."""

    target: str
    label: str
    colour: str
    marker: str | tuple[int, int, int]


# Samplers by their name in conf/sampler, in the order of legends and tables. The colours were
# searched for so that samplers drawn together differ for colour-blind readers (tests/test_figures).
SAMPLERS = {
    "gibbs": SamplerStyle("Gibbs", "Gibbs", "#4E96D8", "o"),
    "gibbs_sweep": SamplerStyle("GibbsSweep", "Gibbs sweep", "#1D7362", "H"),
    "metropolis_sweep": SamplerStyle("MetropolisSweep", "Metropolis sweep", "#1109FA", (4, 2, 0)),
    "block_gibbs": SamplerStyle("BlockGibbs", "Block Gibbs", "#010033", "s"),
    "hamming_ball": SamplerStyle("HammingBall", "HB", "#908553", "p"),
    "dsvgd": SamplerStyle("DiscreteSVGD", "DSVGD", "#594B3E", "X"),
    "rmala": SamplerStyle("RMALA", "R-MALA", "#726EED", "P"),
    "locally_balanced": SamplerStyle("LocallyBalanced", "LB-1", "#263346", "<"),
    "gwg": SamplerStyle("GWG", "GWG", "#00437D", "v"),
    "dula": SamplerStyle("DULA", "DULA", "#CE7F14", "D"),
    "dmala": SamplerStyle("DMALA", "DMALA", "#961600", "^"),
    "random_walk": SamplerStyle("RandomWalk", "Random walk", "#6E6144", "|"),
    "pafs": SamplerStyle("PAFS", "PAFS", "#5DA342", "h"),
    "pafs_with_replacement": SamplerStyle("PAFSWithReplacement", "PAFS, replaced", "#199380", "8"),
    "dlmc": SamplerStyle("DLMC", "DLMC", "#5B0025", "x"),
    "dlmcf": SamplerStyle("DLMCf", "DLMCf", "#A4469B", "+"),
    "acs": SamplerStyle("ACS", "ACS", "#302287", "1"),
    "avg": SamplerStyle("AVG", "AVG", "#955986", "2"),
    "pavg": SamplerStyle("PAVG", "PAVG", "#3A47B5", "3"),
    "dhams": SamplerStyle("DHAMS", "DHAMS", "#1B99BD", "4"),
    "edlp": SamplerStyle("EDLP", "EDLP", "#7B791E", "_"),
    "tempered": SamplerStyle("Tempered", "Tempered", "#0048FC", (9, 2, 0)),
    "pt_dmala": SamplerStyle("Tempered", "PT-DMALA", "#60381E", (5, 2, 0)),
    "swendsen_wang": SamplerStyle("SwendsenWang", "Swendsen-Wang", "#169CA9", (8, 2, 0)),
    "sample_penalization": SamplerStyle("SamplePenalization", "SP", "#8C5ECC", ">"),
    "rates_herding": SamplerStyle("RatesHerding", "rates-herding", "#138761", "d"),
    "rates_fpcd": SamplerStyle("RatesFPCD", "rates-FPCD", "#550000", "*"),
    "tempered_gibbs": SamplerStyle("Tempered", "Tempered Gibbs", "#3B3BD0", (7, 2, 0)),
}
# Words of names of data sets, models and training methods that are not written as they are spoken.
_SPOKEN = (
    "Adult", "Blog", "Caltech", "Ising", "Omniglot", "Potts",
    "CD", "COMPAS", "FPCD", "MNIST", "RBM", "SML", "USPS",
)  # fmt: skip
PROPER_NAMES = dict(zip(map(str.lower, _SPOKEN), _SPOKEN, strict=True))

_NAMES = {look.target: name for name, look in reversed(SAMPLERS.items())}  # the first of each

# Markers of samplers that are not in SAMPLERS: stars and polygons, none of which is used above.
OTHER_MARKERS = tuple((sides, 1, 0) for sides in (3, 4, 6, 8)) + ((7, 0, 0), (3, 2, 0), (6, 2, 0))


def sampler_style(name: str) -> SamplerStyle:
    """The look of the sampler `name`, derived from the name if it is not in SAMPLERS."""
    if name in SAMPLERS:
        return SAMPLERS[name]
    number = zlib.crc32(name.encode())
    ink = "#" + "".join(
        f"{round(255 * part):02x}" for part in hls_to_rgb(number % 360 / 360, 0.3, 0.75)
    )
    return SamplerStyle("", name, ink, OTHER_MARKERS[number // 360 % len(OTHER_MARKERS)])


def sampler_key(record: Record) -> tuple[str, int]:
    """The sampler's name and its block size or number of flips, which identify a curve.

    The name follows from the class, so that a YAML file that only changes fields (`gwg4`) keeps
    label and colour. A class that is not in SAMPLERS has the name of its YAML file. A record that
    names neither has the name "".
    """
    settings = record.config["sampler"]
    size = settings.get("flips") or settings.get("sites") or 0
    target = settings.get("_target_", "").rpartition(".")[-1]
    name = _NAMES.get(target) or record.choices.get("sampler", "")
    return name, int(size)


def sampler_label(key: tuple[str, int]) -> str:
    """`("gwg", 4) -> "GWG-4"`. A sampler that is not in SAMPLERS keeps its name."""
    name, size = key
    if name == "hamming_ball":
        return f"HB-{size}-1"
    text = sampler_style(name).label
    return f"{text}-{size}" if name in ("gibbs", "gwg") or size > 1 else text


def spell_name(name: str) -> str:
    """A name in the configuration as words: `rbm_mnist -> RBM MNIST`."""
    return " ".join(PROPER_NAMES.get(part, part) for part in name.split("_"))


def format_seeds(records: Sequence[Record]) -> str:
    """`seed 0`, `seeds 0-4`, or `models 0-4` where only `model_seed` differs, of all `records`.

    If each run has a model of its own seed, the seeds stand for both.
    """
    chains, models, is_paired = set(), set(), True
    for record in records:
        seed, model = (int(record.config.get(key) or 0) for key in SEEDS)
        chains.add(seed)
        models.add(model)
        is_paired &= seed == model
    if len(models) == 1 or is_paired:
        return _format_ranges("seed", chains)
    texts = [_format_ranges("seed", chains)] if len(chains) > 1 else []
    return " and ".join([*texts, _format_ranges("model", models)])


def _format_ranges(name: str, numbers: Iterable[int]) -> str:
    """`seed 3`, `seeds 0-4` or `seeds 0, 4`."""
    ordered = sorted(numbers)
    first, last = ordered[0], ordered[-1]
    if len(ordered) == 1:
        return f"{name} {first}"
    if ordered == list(range(first, last + 1)):
        return f"{name}s {first}-{last}"
    return f"{name}s {', '.join(map(str, ordered))}"


def sampler_order(key: tuple[str, int]) -> tuple[int, int]:
    """A sort key for legends: the sampler's place in SAMPLERS, unknown samplers last."""
    names = list(SAMPLERS)
    return names.index(key[0]) if key[0] in names else len(names), key[1]
