"""PAVG: AVG preconditioned by a constant matrix near the Hessian of log pi.

B. Rhodes and M. U. Gutmann, "Enhanced gradient-based MCMC in discrete spaces", TMLR 2022.

    paper                           here
    W                               M, symmetric, [n, n] over the entries of a flattened state
    z                               R x + noise, R = (M + delta I)^(1/2)
    delta                           2 / step_size - min(0, smallest eigenvalue of M)

Given z, q(y given x, z) is proportional to exp((grad(x) - M x)'y - delta / 2 |y|^2 + (R z)'y). The
quadratic terms of log pi are then in the law of z. If log pi is quadratic with Hessian M, the two
draws are Gibbs updates of the joint law and every move is accepted.

M is a function of the model and of the settings alone. Any M leaves the target invariant, as it is
fixed before the first step. Unlike the paper's, it keeps its diagonal: the gradient, whose Hessian
M is, differentiates log pi as a function of real x.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from latticework.models.base import AnnealedModel, EnergyModel
from latticework.models.distributions import normal_like
from latticework.samplers.auxiliary import (
    log_noise_ratio,
    log_proposal_ratio,
    logits,
)
from latticework.samplers.avg import AVG
from latticework.samplers.base import (
    Info,
    Sampler,
    UnsupportedModelError,
    evaluate,
    metropolis,
    own_generator,
    require_positive,
)
from latticework.samplers.checks import check_start

PILOTS = 256  # chains that learn M
MAX_STATE_NUMBERS = 4096  # numbers of a state: M of more would take hours
RIDGE = 1e-3  # ridge of the regression, as a share of the mean variance of an entry


class PreconditionedState(NamedTuple):
    x: Tensor  # [chains, *domain.shape]
    log_prob: Tensor  # [chains]
    grad: Tensor  # [chains, *domain.shape]
    root: Tensor  # R, [n, n], shared by all chains
    price: Tensor  # delta / 2, a scalar


@dataclass(frozen=True)
class PAVG(Sampler):
    """Every site moves, driven by the gradient and correlated noise. On every domain.

    `matrix` is M. If it is None, M is

    - on a quadratic model, the Hessian, which the gradients at `n + 1` points give exactly;
    - on other models, the regression of the gradient on the state (`learnt_hessian`) in a burn-in
      of `burn_in` steps of AVG with the step size `pilot`, whose chains and random numbers are its
      own. So M is one for all step sizes.

    `init` finds M and the state keeps it: steps, and `refresh` after a change of the target, use it
    as it is. M takes memory n^2 and its root a time of order n^3, so n is at most
    `MAX_STATE_NUMBERS`. A step costs one evaluation with gradient and three products of a vector
    and R.
    """

    uses_gradient = True
    memory = ("root", "price")
    step_size: float = 1.0  # epsilon, in squared units of the domain's values
    burn_in: int = 200  # steps that learn M; 0 is AVG on models that are not quadratic
    matrix: list[list[float]] | Tensor | None = None  # M
    pilot: float = 1.0  # epsilon of the steps that learn M

    def __post_init__(self) -> None:
        require_positive(step_size=self.step_size, pilot=self.pilot)
        if self.burn_in < 0:
            raise ValueError(f"burn_in must be 0 or more, got {self.burn_in}")
        if self.matrix is not None:
            given = torch.as_tensor(self.matrix)
            if given.ndim != 2 or not torch.equal(given, given.T):
                raise ValueError(f"matrix must be square and symmetric, got {self.matrix}")

    def require_support(self, x: Tensor, model: EnergyModel) -> None:
        self.require_moves(model)
        check_start(x, model, self.uses_gradient)
        self._require_size(x, model)

    def learn_fields(self, x: Tensor, model: EnergyModel) -> dict[str, Tensor]:
        self._require_size(x, model)
        if self.matrix is not None:
            return {}
        matrix = self._matrix(x, model)
        _eigenvalues(matrix)  # the larger part of the time; kept for `init`
        return {"matrix": matrix}

    def _require_size(self, x: Tensor, model: EnergyModel) -> None:
        if (size := x[0].numel()) > MAX_STATE_NUMBERS:
            raise UnsupportedModelError(
                self,
                model,
                f"states of at most {MAX_STATE_NUMBERS:,} numbers",
                f"{size:,}; use avg",
            )

    def at(self, x: Tensor, model: EnergyModel) -> PreconditionedState:
        self._require_size(x, model)
        root, price = self._root_and_price(self._matrix(x, model))
        return self._at(x, root, price, model)

    def refresh(self, state: PreconditionedState, model: EnergyModel) -> PreconditionedState:
        return self._at(state.x, state.root, state.price, model)

    def relocate(
        self, x: Tensor, state: PreconditionedState, model: EnergyModel
    ) -> PreconditionedState:
        return self._at(x, state.root, state.price, model)

    def _at(
        self, x: Tensor, root: Tensor, price: Tensor, model: EnergyModel
    ) -> PreconditionedState:
        return PreconditionedState(*evaluate(model, x), root, price)

    def step(
        self, state: PreconditionedState, model: EnergyModel, rng: Generator
    ) -> tuple[PreconditionedState, Info]:
        x, root, price, domain = state.x, state.root, state.price, model.domain
        noise = normal_like(x, rng)  # z - R x
        there = logits(x, state.grad + _times(root, noise), price, domain)
        y = domain.move_all(x, there, rng)
        proposed = self._at(y, root, price, model)
        shift = _times(root, y - x)
        back = logits(y, proposed.grad + _times(root, noise - shift), price, domain)
        log_ratio = proposed.log_prob - state.log_prob + log_noise_ratio(noise, shift)
        log_ratio += log_proposal_ratio(x, y, there, back, domain)
        return metropolis(state, proposed, log_ratio, rng)

    # Before the first step.

    def _matrix(self, x: Tensor, model: EnergyModel) -> Tensor:
        size = x[0].numel()
        if self.matrix is not None:
            if len(self.matrix) != size:
                raise ValueError(
                    f"matrix must be [{size}, {size}] for states {list(x.shape[1:])}, got "
                    f"{len(self.matrix)} rows"
                )
            return torch.as_tensor(self.matrix).to(x)
        if isinstance(model, AnnealedModel) and model.beta.ndim:
            raise UnsupportedModelError(
                self, model, "one target, from which it learns its matrix",
                "one for each level; give a matrix, or use avg",
            )  # fmt: skip
        if model.quadratic:
            return hessian(model, x)
        return learn_hessian(model, AVG(self.pilot), self.burn_in, x)

    def _root_and_price(self, matrix: Tensor) -> tuple[Tensor, Tensor]:
        """R and delta / 2, computed in double precision."""
        values, vectors = _eigenvalues(matrix)
        delta = 2 / self.step_size - values.amin().clamp(max=0)
        root = vectors * (values + delta).sqrt() @ vectors.T
        return root.to(matrix), (delta / 2).to(matrix)


_latest: list[tuple[Tensor, Tensor, Tensor]] = []  # one matrix, its eigenvalues and eigenvectors


def _eigenvalues(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors in double precision, in a time of order n^3.

    Those of the latest matrix are kept, because a search over step sizes, and runs over seeds, ask
    for the same ones. They take 20 n^2 bytes of memory.
    """
    if not (_latest and same_tensor(_latest[0][0], matrix)):
        _latest[:] = [(matrix, *torch.linalg.eigh(matrix.double()))]
    return _latest[0][1:]


def same_tensor(one: Tensor, other: Tensor) -> bool:
    return one.device == other.device and one.dtype == other.dtype and torch.equal(one, other)


def _times(root: Tensor, x: Tensor) -> Tensor:
    """R times each chain's state, in the shape of `x`."""
    return (x.flatten(1) @ root).view_as(x)


def hessian(model: EnergyModel, x: Tensor) -> Tensor:
    """The Hessian of a quadratic model, `[n, n]`: its gradient is affine. `x` gives the shape."""
    shape = x.shape[1:]
    points = torch.eye(shape.numel(), dtype=x.dtype, device=x.device)
    points = torch.cat((points.new_zeros(1, len(points)), points)).unflatten(1, shape)
    gradients = model.gradient(points).flatten(1)
    return _symmetrise(gradients[1:] - gradients[0])


def learn_hessian(model: EnergyModel, pilot: Sampler, steps: int, x: Tensor) -> Tensor:
    """The least-squares M in grad(x) = M x + constant, `[n, n]`, symmetrised; 0 without steps.

    Chains of `pilot` start from uniform states and draw from `own_generator`. The second half of
    their steps is regressed on, with a small ridge. Values that are not finite count as 0. `x`
    gives the shape, type and device.
    """
    size = x[0].numel()
    total = x.new_zeros(2, size, dtype=torch.float64)
    products = x.new_zeros(2, size, size, dtype=torch.float64)
    if steps == 0:
        return products[0].to(x)
    rng, count = own_generator(x.device), 0
    state = pilot.at(model.domain.uniform(PILOTS, rng).to(x), model)
    for step in range(steps):
        state, _ = pilot.step(state, model, rng)
        if 2 * step >= steps - 1:
            pair = torch.stack((state.x, state.grad)).flatten(2).double().nan_to_num(0, 0, 0)
            total += pair.sum(1)
            products += pair[0].T @ pair
            count += PILOTS
    mean = total / count
    spread, slope = products / count - mean[0].unsqueeze(1) * mean.unsqueeze(1)
    ridge = RIDGE * spread.diagonal().mean() + torch.finfo(torch.float32).tiny
    spread.diagonal().add_(ridge)
    return _symmetrise(torch.linalg.solve(spread, slope)).to(x)


def _symmetrise(matrix: Tensor) -> Tensor:
    return (matrix + matrix.T) / 2
