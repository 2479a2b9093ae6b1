"""The workloads of `workshop.bench`: a sampler on a model with a number of chains."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

SIDES = (3, 10, 32, 100, 316, 1000)  # sides of square lattices: 9 to 10^6 sites
CHAINS = (1, 10, 100, 1_000, 10_000)
ON_LATTICES = ("gibbs-1", "gwg-1", "dula", "dmala", "sweep")
ON_LINES = ("gibbs-1", "gwg-1", "dmala", "sweep")  # against sites and chains, by default
STEP_SIZES = {"dula": 0.1, "dmala": 0.2}
ON_FUNCTIONS = ("dmala", "gwg-1", "gibbs-1", "dula", "pafs", "avg", "dhams", "acs")
GRAPHS = (
    "torus-100x100",
    "signs-100x100",
    "regular-10000x3",
    "gnm-800x19176",
    "power-100000x4",
    "sk-200",
)
FUNCTIONS = ("readme-20", "field-30", "mlp-784x128", "categories-20x4")
# The compiled kernels of each form, by chains of its models. Samplers have names of `sampler=`.
ON_EVERY_FORM = ("gibbs-1", "gibbs(sites=2)", "gwg-1", "locally_balanced", "dula", "dmala")
ON_BINARY = (*ON_EVERY_FORM, "hamming_ball(sites=4, radius=2)", "random_walk", "gwg(flips=3)")
ON_PAIRS = (*ON_BINARY, "pafs", "dlmc", "acs")
SWEEPS = ("sweep", "metropolis")
FORMS = [
    ("ising-25x25", 100, (*ON_PAIRS, *SWEEPS, "swendsen_wang")),
    ("regular-1000x3", 100, (*ON_PAIRS, *SWEEPS)),
    ("pairs-200", 100, ON_PAIRS),
    ("pairs-800", 100, ON_PAIRS),
    ("potts-30x30x4", 100, (*ON_EVERY_FORM, "acs", *SWEEPS, "swendsen_wang")),
    ("dense_potts-64x4", 100, (*ON_EVERY_FORM, "acs")),
    ("rbm-784x500", 100, ON_BINARY),
    ("rbm-50x20", 10, ON_BINARY),
]


@dataclass(frozen=True)
class Workload:
    """A sampler on a model.

    `model` is `ising-SIDExSIDE`, `potts-SIDExSIDExVALUES`, `pairs-SITES` and
    `dense_potts-SITESxVALUES` (dense couplings), `rbm-VISIBLExHIDDEN`,
    `bnn-ROWSxFEATURESxHIDDEN`, `resnet-SIDExMAPSxBLOCKS` (with `-bf16` added, its convolutions use
    bfloat16), a function of `workshop.bench_targets`, or one of its graphs.
    """

    model: str
    chains: int
    sampler: str

    @property
    def name(self) -> str:
        return f"{self.model}/{self.chains}/{self.sampler}"

    @property
    def kind(self) -> str:
        """The family of the model, the first word of its name."""
        return self.model.split("-")[0]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers in the model's name: (784, 500) of `rbm-784x500`."""
        return tuple(int(number) for number in self.model.split("-")[1].split("x"))

    @property
    def sites(self) -> int:
        """Sites of one chain."""
        first, second, third = (*self.sizes, 0, 0)[:3]
        squares = {"resnet": first * first, "bnn": (second + 2) * third + 1}
        squares |= dict.fromkeys(("ising", "potts", "torus", "signs"), first * second)
        return squares.get(self.kind, first)


def _each(model: str, chains: int, *samplers: str) -> list[Workload]:
    return [Workload(model, chains, sampler) for sampler in samplers]


TABLE = [
    *_each("ising-5x5", 2, *ON_LATTICES),
    *_each("ising-5x5", 100, *ON_LATTICES),
    *_each("ising-25x25", 256, *ON_LATTICES),
    *_each("ising-100x100", 100, *ON_LATTICES),
    *_each("rbm-784x500", 100, "gibbs-1", "gwg-1", "dula", "dmala", "block-gibbs"),
    *_each("pairs-100", 100, "gibbs-1", "gwg-1", "dula", "dmala"),
]
NETWORKS = [
    *_each("resnet-28x64x8", 100, "dmala"),
    *_each("resnet-28x64x8-bf16", 100, "dmala"),
    *_each("bnn-4889x13x500", 50, "gibbs-1", "gwg-1", "dula", "dmala"),  # COMPAS
]
ON_TORI = [
    Workload(f"ising-{side}x{side}", chains, "sweep")
    for side, chains in product((5, 10, 25, 50, 100, 300, 1000), (1, 2, 8, 100, 1_000))
    if side * side * chains <= 10**7
]
ON_FORMS = []
for form_model, size, kernels in FORMS:
    ON_FORMS += _each(form_model, size, *kernels)
ON_SETS = [  # the last ones by columns
    Workload(model, chains, sampler)
    for model, sampler in (
        *product(("ising-50x50",), ("sweep", "metropolis", "dula", "dmala")),
        ("torus-50x50", "sweep"),
    )
    for chains in (1, 2, 100)
    if model != "torus-50x50" or chains == 100
]
AGAINST_SITES = [
    Workload(f"ising-{side}x{side}", 4, sampler) for sampler in ON_LINES for side in SIDES
]
AGAINST_CHAINS = [
    Workload("ising-25x25", chains, sampler) for sampler in ON_LINES for chains in CHAINS
]
ON_TARGETS = []
for target, size in product(FUNCTIONS, (8, 100, 1_000)):
    ON_TARGETS += _each(target, size, *ON_FUNCTIONS)
ON_GRAPHS = [
    *[
        Workload(model, chains, "sweep")
        for model in ("ising-100x100", *GRAPHS)
        for chains in (1, 8, 100, 1_000)
        if (model, chains) != ("power-100000x4", 1_000)  # a minute a sweep for some
    ],
    *[
        work
        for model in ("regular-10000x3", "gnm-800x19176")
        for work in _each(model, 20, "dula", "dmala", "gwg-1")
    ],
]


class Table(NamedTuple):
    """A CSV file's workloads, and its contenders: by default those with all of the processor."""

    workloads: list[Workload]
    contenders: tuple[str, ...] = ()


TABLES = {
    "bench": Table(TABLE),
    "bench_functions": Table(ON_TARGETS, ("eager", "fused", "jax")),
    "bench_graphs": Table(ON_GRAPHS),
    "bench_kernels": Table(ON_FORMS, ("eager", "compiled")),
    "bench_instruction_sets": Table(ON_SETS, ("compiled", "avx2", "sse2", "limit")),
    "bench_networks": Table(NETWORKS),
    "bench_tori": Table(ON_TORI),
}


def chosen(only: list[str]) -> Iterator[Workload]:
    """The workloads whose name contains any of `only`: `rbm`, `dmala`, `5x5/100/gwg`."""
    works = [work for table in TABLES.values() for work in table.workloads]
    for work in dict.fromkeys([*works, *AGAINST_SITES, *AGAINST_CHAINS]):
        if not only or any(part in work.name for part in only):
            yield work
