"""Abilities of models besides their log-probability: data in rows, predictions, rates, blanks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from latticework.models.base import EnergyModel

if TYPE_CHECKING:
    import pandas as pd


class DataModel(EnergyModel):
    """A target that is a sum over `rows` rows of data, so that a minibatch can estimate it.

    `forward` is the full-batch target. `minibatch(batch)` is a model of its own that estimates it
    from the rows with indices `batch` `[n]`, scaled so that the gradient is unbiased.
    """

    rows: int

    @abstractmethod
    def minibatch(self, batch: Tensor) -> EnergyModel:
        """The target estimated from the rows `batch`. Reads no device data on the host."""


class Predictor(DataModel):
    """A regression: rows have features and targets in [0, 1], and the state x is the weights."""

    @abstractmethod
    def on(self, features: Tensor, targets: Tensor) -> "Predictor":
        """This regression on other data: features `[rows, features]` and targets `[rows]`."""

    @abstractmethod
    def predict(self, x: Tensor, features: Tensor) -> Tensor:
        """The predicted targets of each chain, `[chains, ...], [n, features] -> [chains, n]`.

        They are strictly between 0 and 1, up to rounding.
        """


class CarriesRates(ABC):
    """A model that keeps the mean sufficient statistics ("rates") of its training data."""

    @abstractmethod
    def set_rates(self, batches: Iterable[Tensor]) -> None:
        """Set the rates from the rows of all `batches` `[n, dim]`. ValueError without rows."""


class HasHiddenUnits(ABC):
    """A model of visible and hidden units, each of which are independent given the others."""

    @abstractmethod
    def hidden_inputs(self, x: Tensor) -> Tensor:
        """The log-odds of each hidden unit given x, `[chains, hidden]`."""

    @abstractmethod
    def visible_inputs(self, h: Tensor) -> Tensor:
        """The log-odds of each visible unit given h, `[chains, visible]`."""


class FillsBlanks(ABC):
    """A masked language model as the target of the words at the blanks of a sentence."""

    language: Any

    @abstractmethod
    def with_blanks(self, sentence: Sequence[str], positions: Sequence[int]) -> EnergyModel:
        """The target of the blanks at `positions` (indices of words) of `sentence`."""


class NearQuadratic(ABC):
    """A model with a log-quadratic model close to it."""

    @abstractmethod
    def log_quadratic(self) -> EnergyModel:
        """A log-quadratic model close to this one, with W as its `weight`."""


class KnownTarget(ABC):
    """A target whose means and independent draws are known, as those of `latticework.reference`."""

    name: str

    @property
    @abstractmethod
    def model(self) -> EnergyModel: ...

    @property
    @abstractmethod
    def log_z(self) -> float | None:
        """The log normaliser; None where it is not known exactly."""

    @property
    @abstractmethod
    def draws(self) -> Tensor:
        """Independent draws `[n, *domain.shape]`; none (n = 0) where there are none."""

    @property
    @abstractmethod
    def log_prob(self) -> Tensor:
        """Log pi of the draws, `[n]`, float64."""

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """The mean of x, `[*domain.shape]`, float64."""

    @property
    @abstractmethod
    def moments(self) -> Mapping[str, Any]:
        """Means with `value` and `error`: `energy` and `energy variance` of log pi, and others."""

    @abstractmethod
    def moment_functions(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """The moments other than those of log pi, as functions of states."""

    @abstractmethod
    def compare(self, result: Any) -> "pd.DataFrame":
        """A row a mean of a result: truth, estimate, error, MCSE."""
