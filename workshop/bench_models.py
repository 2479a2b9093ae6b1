"""The models, samplers and starting states of the workloads of `workshop.bench`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from workshop.bench_targets import BIAS, COUPLING, GRAPHS, KINDS, function_of, graph_of
from workshop.bench_workloads import STEP_SIZES, Workload

if TYPE_CHECKING:
    from torch import Tensor, nn

    from latticework.models.base import EnergyModel
    from latticework.samplers.base import Sampler

POTTS_COUPLING = 0.5
NAMES = {
    "gibbs-1": "gibbs",
    "gwg-1": "gwg",
    "sweep": "gibbs_sweep",
    "metropolis": "metropolis_sweep",
    "block-gibbs": "block_gibbs",
}


def model_of(work: Workload) -> "EnergyModel":
    """The model. An RBM has random weights of the size of trained ones."""
    from torch import Generator

    if work.kind == "bnn":
        from latticework.models.bayes_net import synthetic_bayes_net

        rows, features, hidden = work.sizes
        return synthetic_bayes_net(features, hidden, rows=rows)
    if work.kind == "resnet":
        from latticework.models.resnet import ResNet

        side, maps, blocks = work.sizes
        return ResNet((side, side), maps, blocks, "all" if work.model.endswith("bf16") else None)
    if work.kind == "rbm":
        from latticework.models.rbm import RBM

        model = RBM(*work.sizes)
        model.weight.normal_(0, 0.05, generator=Generator().manual_seed(0))
        return model
    if work.kind in KINDS:
        import torch

        from latticework.sampling.targets import as_model

        values = work.sizes[1] if work.kind == "categories" else None
        function = function_of(work.kind, work.sizes, torch)
        return as_model(function, sites=work.sites, values=values)
    if work.kind in GRAPHS:
        return graph_of(work.kind, work.sizes)
    if "potts" in work.kind:
        return potts_model(work)
    from latticework.models.dense_ising import sherrington_kirkpatrick
    from latticework.models.ising import Lattice

    if work.kind == "pairs":
        return sherrington_kirkpatrick(work.sites, 0.5)
    return Lattice(work.sizes, COUPLING, BIAS)


def potts_model(work: Workload) -> "EnergyModel":
    """A Potts lattice, or random couplings of all pairs of sites."""
    import torch

    from latticework.models.potts import DensePotts, LatticePotts

    *sides, values = work.sizes
    if work.kind == "potts":
        return LatticePotts(sides, values, POTTS_COUPLING)
    size = work.sites * values
    coupling = torch.randn(size, size, generator=torch.Generator().manual_seed(0)) / size**0.5
    coupling = coupling + coupling.T
    coupling.view(work.sites, values, work.sites, values).diagonal(dim1=0, dim2=2).zero_()
    return DensePotts(coupling, values)


def sampler_of_workload(work: Workload) -> "Sampler":
    from latticework.sampling.naming import parse_sampler

    sizes = {"step_size": STEP_SIZES[work.sampler]} if work.sampler in STEP_SIZES else {}
    return parse_sampler(NAMES.get(work.sampler, work.sampler), sizes)


def start_states(work: Workload) -> "Tensor":
    """Uniform states, the same for all contenders."""
    from torch import Generator

    return model_of(work).domain.uniform(work.chains, Generator().manual_seed(0))


def plain_model(work: Workload) -> "nn.Module":
    """The model of the plain reference."""
    from workshop import plain_reference as plain

    model: Any = model_of(work)
    if work.kind == "rbm":
        return plain.PlainRBM(model.weight.data)
    if work.kind == "bnn":
        features = model.inputs[:, :-1].contiguous()
        return plain.PlainBayesNet(features, model.targets, model.hidden, model.scale)
    if work.kind == "resnet":
        network = plain.PlainResNet(*work.sizes)
        parts = {key.removeprefix("network."): value for key, value in model.state_dict().items()}
        network.load_state_dict(parts)
        return network
    return plain.PlainIsing(model.coupling * model.adjacency(), float(model.bias[0]))


def edges_of(work: Workload) -> tuple[NDArray, NDArray, NDArray]:
    """The edges, their weights, and the biases of a graph or of a square lattice."""
    graph = graph_of("torus" if work.kind == "ising" else work.kind, work.sizes)
    return graph.edges.numpy(), graph.weights.numpy(), graph.bias.numpy()


def colours_of(work: Workload) -> NDArray[np.int64]:
    colours = model_of(work).colours()
    assert colours is not None
    return colours.numpy()


def statistics(work: Workload) -> Callable[[NDArray], NDArray]:
    """A function of states `[chains, sites]`: energy and magnetisation, `[chains, 2]`.

    Energy is -log pi up to a constant, magnetisation the share of sites at 1 or the first value.
    """
    import torch

    model = model_of(work)

    def both(x: NDArray) -> NDArray:
        with torch.no_grad():
            energy = -model.log_prob(torch.as_tensor(x, dtype=torch.float32)).numpy()
        return np.stack([energy, x.reshape(*x.shape[:2], -1)[..., 0].mean(1)], 1)

    return both
