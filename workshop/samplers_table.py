"""Write the tables of docs/supported.md: samplers, state spaces and models.

python -m workshop.samplers_table   # after adding a sampler or a model

Each cell is decided by trial: `Sampler.init` on a small model either returns a state or raises
UnsupportedModelError. `compiled on` lists the models with a compiled kernel. The last column is
`Sampler.exact`.
"""

from collections.abc import Iterator
from inspect import signature
from pathlib import Path

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from latticework.experiments import CONF
from latticework.experiments.papers.docs_blocks import replace_block
from latticework.experiments.runs import configuration
from latticework.models.base import EnergyModel, Function
from latticework.models.dense_ising import erdos_renyi
from latticework.models.domains import Binary, Categorical, Domain, Integer, Mixed, Ordinal, Subset
from latticework.models.graph import Graph
from latticework.models.graph_potts import GraphPotts
from latticework.models.ising import Lattice
from latticework.models.potts import LatticePotts
from latticework.models.rated_rbm import RatedRBM
from latticework.models.rbm import RBM
from latticework.models.regression import synthetic_regression
from latticework.samplers import NAMES, find_sampler_class
from latticework.samplers.base import Sampler, UnsupportedModelError
from latticework.samplers.compiled.compiled_sampler import NoCompiledKernelError
from latticework.samplers.compiled.registry import find_compiled_kernel

ROOT = Path(__file__).resolve().parent.parent
DIM = 12  # sites of each small model; at least the largest block of any sampler

# A domain of each kind, by its name in the tables.
DOMAINS: dict[str, Domain] = {
    "{0, 1}": Binary(DIM),
    "spins": Binary(DIM, -1, 1),
    "categorical": Categorical(DIM, 3),
    "mixed": Mixed([2, 3, 4] * (DIM // 3)),
    "ordinal": Ordinal(DIM, 4),
    "integers": Integer(DIM),
    "k of n": Subset(DIM, 5),
}
SMALL = {"hidden": 5, "visible": 20}  # arguments that make a model of conf/model small
SMALL_LANGUAGE = {"checkpoint": "mini_bert", "words": ["the", "a", "of"]}


def names(group: str) -> list[str]:
    """The options of a group, in alphabetical order: `names("sampler")`."""
    return sorted(file.stem for file in (CONF / group).glob("*.yaml"))


def option(group: str, name: str) -> DictConfig:
    """The file conf/<group>/<name>.yaml with its own defaults applied."""
    return configuration.compose_config((), f"{group}/{name}")[group]


def column_models() -> dict[str, EnergyModel]:
    """A small model for each column of the table."""
    return {
        **{name: Function(quadratic, domain) for name, domain in DOMAINS.items()},
        "Ising lattice": Lattice((3, DIM // 3), 0.2),
        "graph": ferromagnet(),
        "RBM": RBM(DIM, 3),
        "RBM with rates": rated_rbm(DIM, 3),
        "data rows": synthetic_regression(20, DIM),
    }


def ferromagnet() -> Graph:
    """A ring."""
    return Graph([[i, (i + 1) % DIM] for i in range(DIM)], 0.2)


def rated_rbm(visible: int, hidden: int) -> RatedRBM:
    """An RBM with the rates of some rows."""
    model = RatedRBM(visible, hidden)
    model.set_rates([torch.eye(visible)])
    return model


def quadratic(x: torch.Tensor) -> torch.Tensor:
    """-|x|^2 / 2: normalisable on every domain."""
    return -(x.flatten(1) ** 2).sum(-1) / 2


def supports(sampler: Sampler, model: EnergyModel) -> bool:
    """Whether the sampler accepts the model; it then takes a step, and an error there is raised."""
    rng = torch.Generator().manual_seed(0)
    try:
        state = sampler.init(model.domain.uniform(2, rng), model)
    except UnsupportedModelError:
        return False
    sampler.step(state, model, rng)
    return True


def form_models() -> dict[str, EnergyModel]:
    """A small model of each form that compiled kernels are written for."""
    return {
        "lattices": Lattice((4, 3), 0.1),
        "graphs": ferromagnet(),
        "dense pairs": erdos_renyi(DIM, 3, 0.1),
        "RBMs": rated_rbm(DIM, 3),
        "Potts": LatticePotts((4, 3), 3, 0.1),
        "Potts on graphs": GraphPotts(ferromagnet().edges, 0.1, 3),
    }


def has_twin(sampler: Sampler, model: EnergyModel) -> bool:
    """Whether the sampler has a compiled kernel on the model."""
    try:
        find_compiled_kernel(sampler, model)
    except NoCompiledKernelError:
        return False
    return True


def samplers() -> Iterator[tuple[str, Sampler]]:
    """The samplers by name, with the defaults of their classes; learned schedules take a round."""
    for name in sorted(NAMES):
        kind, fields = find_sampler_class(name)
        short = {"rounds": 1} if "rounds" in signature(kind).parameters else {}
        yield name, kind(**fields, **short)


def samplers_table() -> str:
    """One row per sampler: the columns that it supports, and whether it is exact."""
    models, structured = column_models(), form_models()
    rows = [["`sampler=`", *models, "compiled on", "leaves the target invariant"]]
    for name, sampler in samplers():
        cells = ["yes" if supports(sampler, model) else "·" for model in models.values()]
        compiled = ", ".join(kind for kind, model in structured.items() if has_twin(sampler, model))
        rows.append([f"`{name}`", *cells, compiled or "·", "yes" if sampler.exact else "no"])
    return markdown_table(rows)


def models_table() -> str:
    """One row per kind of domain: the files of conf/model whose states are in it."""
    of: dict[str, list[str]] = {name: [] for name in DOMAINS}
    for name in names("model"):
        model = instantiate(shrunk(option("model", name)))
        of[kind(model.domain)].append(f"`{name}`")
    rows = [[name, ", ".join(models) or "none"] for name, models in of.items()]
    return markdown_table([["state space", "`model=`"], *rows])


def markdown_table(rows: list[list[str]]) -> str:
    """A Markdown table whose first row is its head."""
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def shrunk(config: DictConfig) -> DictConfig:
    """The configuration of a model with small sizes and no download."""
    config = config.copy()
    for key in SMALL.keys() & config.keys():
        config[key] = SMALL[key]
    if "language" in config:
        config.language.update(SMALL_LANGUAGE)
    return config


def kind(domain: Domain) -> str:
    """The name in DOMAINS of a domain of this kind."""
    if isinstance(domain, Binary):
        return "{0, 1}" if domain.is_unit else "spins"
    return next(name for name, example in DOMAINS.items() if type(domain) is type(example))


def refreshed(page: str) -> str:
    """docs/supported.md with both generated blocks updated."""
    page = replace_block(page, "samplers", samplers_table())
    return replace_block(page, "models", models_table())


def main() -> None:
    page = ROOT / "docs" / "supported.md"
    page.write_text(refreshed(page.read_text()))
    print(f"written: {page}")


if __name__ == "__main__":
    main()
