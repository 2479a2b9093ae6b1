"""Linear regression with binary weights: a minimal target for minibatch gradients.

    log pi(w) = -scale * mean_j (w' f_j - y_j)^2,    w in {-1, 1}^d,  rows (f_j, y_j)

This is a binary Bayesian neural network (Zhang et al. 2022, Section 7.4) without a hidden layer. It
serves as a target whose d is small enough to enumerate all states.
"""

import torch
from torch import Generator, Tensor

from latticework.models.abilities import DataModel
from latticework.models.domains import Binary


class BinaryRegression(DataModel):
    """Targets `[rows]` regressed on features `[rows, dim]` by weights in {-1, 1}^dim.

    Raises ValueError unless both have the same number of rows, at least one.
    """

    features: Tensor
    targets: Tensor
    quadratic = True

    def __init__(self, features: Tensor, targets: Tensor, scale: float = 1.0) -> None:
        super().__init__()
        if features.ndim != 2 or targets.shape != features.shape[:1] or not len(targets):
            raise ValueError(
                "features must be [rows, dim] and targets [rows], "
                f"got {list(features.shape)} and {list(targets.shape)}"
            )
        self.rows, self.scale = len(targets), scale
        self.domain = Binary(features.shape[1], -1, 1)
        self.register_buffer("features", features)
        self.register_buffer("targets", targets)

    def forward(self, x: Tensor) -> Tensor:
        errors = x @ self.features.T - self.targets  # [chains, rows]
        return -self.scale * errors.square().mean(-1)

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient is -2 scale mean_j (w' f_j - y_j) f_j."""
        errors = x @ self.features.T - self.targets
        grad = errors @ self.features * (-2 * self.scale / self.rows)
        return -self.scale * errors.square().mean(-1), grad

    def minibatch(self, batch: Tensor) -> "BinaryRegression":
        return BinaryRegression(self.features[batch], self.targets[batch], self.scale)


def synthetic_regression(
    rows: int, dim: int, *, noise: float = 0.5, scale: float = 1.0, seed: int = 0
) -> BinaryRegression:
    """Normal features, targets from random binary weights plus normal noise."""
    rng = Generator().manual_seed(seed)
    features = torch.randn(rows, dim, generator=rng)
    weights = torch.randint(2, (dim,), generator=rng) * 2.0 - 1
    targets = features @ weights + noise * torch.randn(rows, generator=rng)
    return BinaryRegression(features, targets, scale)
