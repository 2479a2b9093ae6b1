"""Small targets whose states can be listed: asymmetric, not quadratic, one on every domain."""

import copy
from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.domains import Binary, Categorical, Domain, Integer, Ordinal, Subset
from latticework.models.factors import Factors
from latticework.models.graph import Graph
from latticework.models.ising import Lattice
from latticework.models.potts import LatticePotts
from latticework.models.rbm import RBM
from latticework.samplers.base import Sampler
from latticework.sampling.devices import device_of
from latticework.sampling.targets import why_unsupported

MAX_STATES = 1024  # states of a target: all pairs of them are counted


class Asymmetric(EnergyModel):
    """log pi(x) = b'z + z'Jz + 0.6 cos(2 c'z) - width |z|^2, with z = x flattened."""

    linear: Tensor
    pair: Tensor
    wave: Tensor

    def __init__(self, domain: Domain, scale: float = 1.0, width: float = 0.0, seed: int = 7):
        super().__init__()
        self.domain, self.width = domain, width
        size, rng = int(np.prod(domain.shape)), Generator().manual_seed(seed)
        self.register_buffer("linear", torch.randn(size, generator=rng) * scale)
        self.register_buffer("pair", torch.randn(size, size, generator=rng) * 0.6 * scale**2)
        self.register_buffer("wave", torch.randn(size, generator=rng) * scale)

    def forward(self, x: Tensor) -> Tensor:
        z = x.flatten(1)
        smooth = z @ self.linear + ((z @ self.pair - self.width * z) * z).sum(-1)
        return smooth + 0.6 * torch.cos(2 * z @ self.wave)


class Target:
    """A model with its states, `[n, *shape]`, and its values there as NumPy arrays in float64.

    `states` and `draw` are on the device of the model.

    `inner` lists the states where chains may start: those of finite log-probability, and on an
    infinite domain, of which only a `box` of values is listed, those from which one step cannot
    leave the list. The edge of the box has next to no mass.
    """

    def __init__(self, model: EnergyModel, box: range | None = None) -> None:
        self.model, self.domain, self.box = model, model.domain, box
        self.device = device_of(model)
        if box is None:
            self.states = self.domain.enumerate()
        else:
            every = [torch.tensor(box).float()] * self.domain.dim
            self.states = torch.cartesian_prod(*every).view(-1, self.domain.dim)
        self.states = self.states.to(self.device)
        inside = self.states.new_ones(len(self.states), dtype=torch.bool)
        if box is not None and isinstance(self.domain, Integer):
            reach = 2 * self.domain.window  # LB-1 looks a window beyond the state it proposes
            low, high = self.states.amin(-1) - reach, self.states.amax(-1) + reach
            bounded = self.domain.low is not None
            inside = ((low >= box[0]) | bounded) & (high <= box[-1])

        self.log_prob = self._log_prob().detach().double().cpu().numpy()
        self.inner = np.flatnonzero(inside.cpu().numpy() & np.isfinite(self.log_prob))
        possible = np.where(np.isnan(self.log_prob), -np.inf, self.log_prob)
        self.law = torch.from_numpy(possible).softmax(0).numpy()
        self.z = self.states.double().flatten(1).cpu().numpy()  # flat, as the formulas read them
        self._values = np.unique(self.z)
        keys = self._keys(self.z)
        self._order = keys.argsort()
        self._sorted = keys[self._order]

    def _log_prob(self, x: Tensor | None = None) -> Tensor:
        """The log-probability at `x`, float64; of a function that takes only float32, in that."""
        x = self.states.double() if x is None else x
        try:
            return copy.deepcopy(self.model).double()(x)
        except RuntimeError:
            return self.model(x.float())

    @cached_property
    def grad(self) -> np.ndarray:
        """The gradient at each state, flat, `[states, dim]`."""
        x = self.states.double().requires_grad_()
        (grad,) = torch.autograd.grad(self._log_prob(x).sum(), x)
        return grad.flatten(1).cpu().numpy()

    def locate(self, x: Tensor) -> np.ndarray:
        """The index of each row of `x` among the states; -1 for a row that is not listed."""
        keys = self._keys(x.flatten(1).double().cpu().numpy())
        place = np.searchsorted(self._sorted, keys).clip(max=len(self._sorted) - 1)
        return np.where(self._sorted[place] == keys, self._order[place], -1)

    def _keys(self, z: np.ndarray) -> np.ndarray:
        """A whole number for each row of `z` that tells listed states apart; -1 for other rows."""
        digits = np.searchsorted(self._values, z).clip(max=len(self._values) - 1)
        listed = (self._values[digits] == z).all(1)
        return np.where(listed, digits @ len(self._values) ** np.arange(z.shape[1]), -1)

    def index(self, x: Tensor) -> np.ndarray:
        """As `locate`. AssertionError if a row is not listed."""
        index = self.locate(x)
        assert (index >= 0).all(), "not a listed state of the domain"
        return index

    def draw(self, law: np.ndarray, count: int, rng: Generator) -> Tensor:
        """Independent draws from a law over the states, `[count, *shape]`."""
        weights = torch.from_numpy(law).to(self.device)
        drawn = torch.multinomial(weights, count, replacement=True, generator=rng)
        return self.states[drawn]

    def is_free(self, site: int) -> bool:
        """Whether the target gives some probability to several values of the site."""
        values = self.z.reshape(len(self.z), self.domain.dim, -1)[:, site]
        return len(np.unique(values[self.law > 1e-3], axis=0)) > 1

    @property
    def sites_per_move(self) -> int:
        """The number of sites that one move changes."""
        return 2 if isinstance(self.domain, Subset) else 1

    def sites_changed(self, x: int, y: int) -> list[int]:
        """The sites at which two states differ."""
        different = (self.z[x] != self.z[y]).reshape(self.domain.dim, -1)
        return list(np.flatnonzero(different.any(-1)))


def require_listable(domain: Domain, name: str) -> None:
    """Raise ValueError if a target called `name` has over MAX_STATES states on the domain."""
    if isinstance(domain, Integer):
        raise ValueError(
            f"{name} has infinitely many states; give a target whose states can be listed, such as "
            "the same function with --domain ordinal:SITES,VALUES. Without --target, --domain "
            "integers and --domain naturals each name a target that is ready to check on"
        )
    if (count := domain.count()) > MAX_STATES:
        raise ValueError(
            f"{name} has {count} states; give a target of at most {MAX_STATES}, all of whose "
            "transitions are counted"
        )


def _rbm() -> RBM:
    model, rng = RBM(4, 3), Generator().manual_seed(2)
    for parameter in model.parameters():
        parameter.normal_(generator=rng)
    return model


# A target of each kind of state space, made when asked for. On a site of several values, three at
# least have probabilities that matter: with two, wrong ratios of values cancel.
SMALL_TARGETS: dict[str, Callable[[], Target]] = {
    "binary": lambda: Target(Asymmetric(Binary(3))),
    "spins": lambda: Target(Asymmetric(Binary(3, -1, 1), scale=0.7)),
    "categorical": lambda: Target(Asymmetric(Categorical(2, 6), scale=0.7, seed=9)),
    "ordinal": lambda: Target(Asymmetric(Ordinal(2, 6), scale=0.35, width=0.1, seed=9)),
    "integers": lambda: Target(
        Asymmetric(Integer(1, window=2), scale=0.8, width=0.6), range(-11, 12)
    ),
    "naturals": lambda: Target(
        Asymmetric(Integer(2, low=0), scale=0.6, width=0.6, seed=9), range(9)
    ),
    "rbm": lambda: Target(_rbm()),
}
# Targets of a structure that some samplers need, such as sweeps. Sites 3 and 4 of the graph are
# free: their values tie, and a step that always changes both never changes whether they are equal.
STRUCTURED: dict[str, Callable[[], Target]] = {
    "lattice": lambda: Target(Lattice((4,), 0.3, [0.3, -0.2, 0.1, 0.4])),
    "graph": lambda: Target(Graph([[0, 1], [1, 2]], [0.4, 0.6], [0.2, -0.3, 0.1, 0.0, 0.0])),
    "potts": lambda: Target(LatticePotts((3,), 3, 0.7, [0.2, -0.4, 0.1])),
    "tables": lambda: Target(_tables()),
}
EVERY = SMALL_TARGETS | STRUCTURED


def _tables() -> Factors:
    rng = Generator().manual_seed(7)
    return Factors(
        [((0, 1), torch.randn(3, 4, generator=rng)), ((1,), torch.randn(4, generator=rng))]
    )


def targets_for(sampler: Sampler) -> dict[str, Target]:
    """A target of each state space; where the sampler supports none, those of a structure too."""
    made = {name: make() for name, make in SMALL_TARGETS.items()}
    if all(why_unsupported(sampler, target.model) for target in made.values()):
        made |= {name: make() for name, make in STRUCTURED.items()}
    return made
