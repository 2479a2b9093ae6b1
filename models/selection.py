"""The variables that a linear regression needs: the posterior of their sets, in closed form.

    y = intercept + X_S b_S + noise,   b_S given the noise from N(0, g noise^2 (X_S' X_S)^-1)

with flat priors of the intercept and of the log of the noise (A. Zellner, 1986; the marginal
likelihood by F. Liang et al., "Mixtures of g Priors for Bayesian Variable Selection", JASA 2008,
Eq. 6). Coefficients and noise are integrated out, so that with R^2 that of the set S

    2 log p(y given S) = (n - |S| - 1) log(1 + g) - (n - 1) log(1 + g (1 - R^2))   up to a constant

A state says which variables are in, x in {0, 1}^variables, each with prior probability `inclusion`.
The mean of x_i is the inclusion probability of variable i.
"""

import math
from collections.abc import Hashable, Iterable
from typing import Any

import torch
from torch import Tensor

from latticework.models.base import Cache, EnergyModel
from latticework.models.domains import Binary
from latticework.models.given_numbers import read_numbers

COLLINEAR = 1e-9  # a smaller share of a column that the others do not explain is rounding


class VariableSelection(EnergyModel):
    """The posterior of the sets of variables of a linear regression, under Zellner's g-prior.

    `features` `[rows, variables]` and `targets` `[rows]` are numbers: tensors, arrays or tables,
    whose columns are the `names`. `inclusion` is the prior probability of each variable, and `g`
    the rows that the data count for each one of the prior; by default the number of rows (the unit
    information prior). `coefficients` are the means of the regression given sets of variables.

    Raises ValueError for numbers that are not finite, for constant columns, for columns that
    others determine, and unless there are more rows than variables, by two.
    """

    closed_differences = True
    gram: Tensor
    response: Tensor

    def __init__(
        self,
        features: Any,
        targets: Any,
        *,
        inclusion: float = 0.5,
        g: float | None = None,
        names: Iterable[Hashable] | None = None,
    ) -> None:
        super().__init__()
        if names is None and hasattr(features, "columns"):
            names = features.columns
        x, y = _as_numbers(features, "features"), _as_numbers(targets, "targets")
        if x.ndim != 2 or y.shape != x.shape[:1]:
            raise ValueError(
                "features must be [rows, variables] and targets [rows], "
                f"got {list(x.shape)} and {list(y.shape)}"
            )
        rows, variables = x.shape
        if rows < variables + 2:
            raise ValueError(
                f"{variables} variables need {variables + 2} rows or more, got {rows}; leave "
                "variables out"
            )
        if not 0 < inclusion < 1:
            raise ValueError(f"inclusion must be a probability between 0 and 1, got {inclusion}")
        g = float(rows) if g is None else float(g)
        if not 0 < g < math.inf:
            raise ValueError(f"g must be a positive number, got {g}")
        self.names = None if names is None else tuple(names)
        if self.names is not None and len(set(self.names)) != variables:
            raise ValueError(
                f"names must be {variables} different ones, got {len(set(self.names))}"
            )
        if (y == y[0]).all():
            raise ValueError("targets must differ, got one number in all rows")
        _require_independent(x, self.names)
        x, y = x - x.mean(0), y - y.mean()
        total = y.square().sum()
        odds = math.log(inclusion / (1 - inclusion))
        self._set_moments(x.T @ x / total, x.T @ y / total, rows, g, odds)

    @classmethod
    def from_moments(
        cls, gram: Tensor, response: Tensor, rows: int, log_odds: float = 0.0
    ) -> "VariableSelection":
        """From X'X and X'y of centred columns, both over y'y of the centred y; g is `rows`.

        `log_odds` are those of the prior probability of a variable.
        """
        model = cls.__new__(cls)
        EnergyModel.__init__(model)
        model._set_moments(gram, response, rows, float(rows), log_odds)
        return model

    def _set_moments(
        self, gram: Tensor, response: Tensor, rows: int, g: float, log_odds: float
    ) -> None:
        self.register_buffer("gram", gram)
        self.register_buffer("response", response)
        self.rows, self.g, self.prior_log_odds = rows, g, log_odds
        self.domain = Binary(len(response))

    def _factor(self, inside: Tensor) -> Tensor:
        """Cholesky factors of X'X of the variables that are in, and of 1 for the others."""
        gram = inside.unsqueeze(-1) * self.gram.double() * inside.unsqueeze(-2)
        return torch.linalg.cholesky(gram + torch.diag_embed(1 - inside))

    def forward(self, x: Tensor) -> Tensor:
        inside = x.double()
        response = (inside * self.response.double()).unsqueeze(-1)
        left = torch.linalg.solve_triangular(self._factor(inside), response, upper=False)
        return self._log_posterior(1 - left.squeeze(-1).square().sum(-1), inside).to(x)

    def _log_posterior(self, unexplained: Tensor, inside: Tensor) -> Tensor:
        """The log-probability, from 1 - R^2."""
        count = inside.sum(-1)
        fit = (self.rows - 1) * torch.log1p(self.g * unexplained)
        spread = (self.rows - count - 1) * math.log1p(self.g)
        return (spread - fit) / 2 + count * self.prior_log_odds

    @torch.no_grad()
    def _evaluate(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The log-probability `[n]` and its change by the flip of each site `[n, variables]`.

        A variable that leaves loses b_i^2 / (X_S'X_S)^-1_ii of R^2. One that enters adds the square
        of its partial correlation, both from one inverse of the matrix of the variables inside.
        """
        inside, gram, response = x.double(), self.gram.double(), self.response.double()
        inverse = torch.cholesky_inverse(self._factor(inside))
        inverse = inside.unsqueeze(-1) * inverse * inside.unsqueeze(-2)
        coefficients = inverse @ response
        unexplained = 1 - coefficients @ response
        variance = inverse.diagonal(dim1=-2, dim2=-1)
        # The part of each column that the variables inside explain.
        explained = ((gram @ inverse) * gram).sum(-1)
        free = gram.diagonal() - explained
        lost = coefficients.square() / torch.where(inside > 0, variance, 1)
        added = (response - coefficients @ gram).square() / torch.where(inside > 0, 1, free)
        after = unexplained.unsqueeze(-1) + torch.where(inside > 0, lost, -added)
        fit = torch.log1p(self.g * after) - torch.log1p(self.g * unexplained).unsqueeze(-1)
        price = self.prior_log_odds - math.log1p(self.g) / 2  # what one more variable costs
        change = (1 - 2 * inside) * price - (self.rows - 1) / 2 * fit
        return self._log_posterior(unexplained, inside).to(x), change.to(x)

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient is log p(x_i = 1) - log p(x_i = 0) given the rest.

        It is that of the multilinear function which agrees with log p at the states. Derivatives of
        `forward` between the states say little about flips.
        """
        log_prob, change = self._evaluate(x)
        return log_prob, change * (1 - 2 * x)

    def differences(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        return self._evaluate(x)[1].index_select(1, sites)

    @torch.no_grad()
    def coefficients(self, x: Tensor) -> Tensor:
        """Posterior means of the coefficients given which variables are in, `[n, variables]`.

        Their mean over draws averages over models. Variables that are out have the coefficient 0.
        """
        inside = x.double()
        response = (inside * self.response.double()).unsqueeze(-1)
        solved = torch.cholesky_solve(response, self._factor(inside)).squeeze(-1)
        return (solved * self.g / (1 + self.g)).to(x)


def _as_numbers(given: Any, name: str) -> Tensor:
    """The numbers of a tensor, array or table in double precision."""
    numbers = read_numbers(given, name).double()
    if not numbers.isfinite().all():
        place = tuple((~numbers.isfinite()).nonzero()[0].tolist())
        raise ValueError(f"{name} must be finite, got {numbers[place]} at {list(place)}")
    return numbers


def _require_independent(x: Tensor, names: tuple[Hashable, ...] | None) -> None:
    """Raise ValueError for a column `[rows]` that is constant or a sum of those before it."""
    columns = x - x.mean(0)
    for i in range(x.shape[1]):
        name = repr(i if names is None else names[i])
        if (x[:, i] == x[0, i]).all():
            raise ValueError(f"variable {name} is constant; leave it out, there is an intercept")
        column, before = columns[:, i], columns[:, :i]
        before = before / before.norm(dim=0)
        unexplained = column - before @ torch.linalg.lstsq(before, column.unsqueeze(1))[0][:, 0]
        if unexplained.norm() < COLLINEAR * column.norm():
            raise ValueError(
                f"variable {name} is determined by the variables before it; leave one of them out"
            )
