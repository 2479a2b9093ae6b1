"""The result of `sample(..., keep="summary")`: running means in place of draws."""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.sampling.diagnostics import MIN_ESS, largest_r_hat, quantities, round_noise
from latticework.sampling.result import SampleResult
from latticework.sampling.result_verdict import ResultVerdict
from latticework.sampling.running_moments import BATCHES, RunningMoments
from latticework.sampling.verdict import entry_name

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("mean", "sd", "mcse_mean", "ess_bulk", "r_hat")


@dataclass(frozen=True, eq=False, repr=False)
class SummaryResult(SampleResult):
    """Means of entries, and of pairs along edges, with what the draws cost; `draws` is refused.

    The log-probabilities are kept, so their diagnostics are those of `SampleResult`. The others
    come from batch means (`sampling.running_moments`).
    """

    @property
    def moments(self) -> RunningMoments:
        """The sums that were kept."""
        moments: Any = self.stored
        return moments

    @cached_property
    def numbers(self) -> dict[str, NDArray[np.float64]]:
        """The columns of `summary` for each entry of x and then for each edge."""
        return self.moments.numbers()

    @property
    def mean(self) -> Tensor:
        """The mean of each entry of x, `[*domain.shape]`."""
        shape = self.moments.state_shape
        return torch.from_numpy(self.numbers["mean"][: prod(shape)]).view(*shape)

    @property
    def edges(self) -> Tensor | None:
        """The edges of the model, `[m, 2]`; None if it has none."""
        return None if self.moments.edges is None else self.moments.edges.cpu()

    @property
    def pair_means(self) -> Tensor:
        """The mean of x_i x_j of each edge `[m]`; of one-hot states how often i and j are equal.

        Raises ValueError if the model has no edges.
        """
        if self.moments.edges is None:
            raise ValueError("the model has no edges whose pairs could be averaged")
        return torch.from_numpy(self.numbers["mean"][prod(self.moments.state_shape) :])

    @cached_property
    def verdict(self) -> ResultVerdict:
        """Whether the log-probability and all means have mixed, by their R-hat and ESS."""
        chains = self.moments.chains
        log_prob = quantities(round_noise(self.log_prob.numpy())[..., None], ("ess_bulk", "r_hat"))
        r_hat = np.append(log_prob["r_hat"], self.numbers["r_hat"])
        ess = np.append(log_prob["ess_bulk"], self.numbers["ess_bulk"])
        moving = np.append(True, self.numbers["sd"] > 0)
        if chains == 1 or self.moments.draws < BATCHES or not moving[1:].any():
            text = "not judged: it needs two chains or more, whose means change in enough draws"
            return self._with_notes(False, text, judged=False)
        r_hat = np.where(moving, np.nan_to_num(r_hat, nan=np.inf), 0.0)
        ess = np.where(moving, np.nan_to_num(ess), np.inf)
        worst, least, limit = int(r_hat.argmax()), int(ess.argmin()), largest_r_hat(chains)
        measured = f"R-hat {r_hat[worst]:.4g} at {self._name(worst)}"
        size = f"ESS {ess[least]:.0f} at {self._name(least)} (batch means)"
        if frozen := int((~self.moments.has_moved).sum()):
            text = f"does not mix: {frozen} of {chains} chains never moved, {measured}"
            return self._with_notes(False, text)
        if r_hat[worst] > limit:
            return self._with_notes(False, f"not converged: {measured}, above {limit:.4g}")
        if ess[least] < MIN_ESS:
            return self._with_notes(False, f"not converged: {size}, below {MIN_ESS}")
        if self.caveat:
            text = f"not judged: {measured}, {size}, but {self.caveat}"
            return self._with_notes(False, text, judged=False)
        return self._with_notes(True, f"converged: {measured}, {size}")

    def summary(self, digits: int | None = 4, **functions: Any) -> "pd.DataFrame":
        """One row for the log-probability, one for each entry of x and one for each edge.

        Columns: mean, sd, mcse_mean, ess_bulk and r_hat; those of entries and edges are from batch
        means. Raises ValueError for `of=`, whose functions need draws.
        """
        import pandas as pd

        if functions:
            self.moments.unpack()  # says why there are none
        first = quantities(round_noise(self.log_prob.numpy())[..., None])
        rows = {key: np.append(first[key], self.numbers[key]) for key in COLUMNS}
        names = [self._name(place) for place in range(len(self.numbers["mean"]) + 1)]
        frame = pd.DataFrame(rows, index=["log_prob", *names[1:]])
        return (
            frame
            if digits is None
            else frame.round({**dict.fromkeys(frame, digits), "ess_bulk": 0})
        )

    def _name(self, place: int) -> str:
        """The quantity with this number: the log-probability, an entry or an edge."""
        shape = self.moments.state_shape
        if place == 0:
            return "the log-probability"
        if place <= prod(shape):
            return entry_name(np.unravel_index(place - 1, shape), self.names, self.labels)
        assert self.moments.edges is not None
        tail, head = self.moments.edges[place - 1 - prod(shape)].tolist()
        names = self.names or range(shape[0])
        return f"pair {names[tail]}, {names[head]}"

    def _with_notes(self, converged: bool, text: str, judged: bool = True) -> ResultVerdict:
        noted = f"{text}; {self.stopped}" if self.stopped else text
        verdict = ResultVerdict(converged, noted, judged)
        verdict.result = self
        return verdict
