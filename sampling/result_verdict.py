"""The verdict of a result, also of functions of x and beside a truth, and its log normaliser."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.abilities import KnownTarget
from latticework.sampling import comparisons
from latticework.sampling.ladder_estimates import Ladders, LogZ
from latticework.sampling.verdict import Convergence, verdict

if TYPE_CHECKING:
    from latticework.sampling.result import SampleResult

DRAWS_AT_ONCE = 2**16  # draws that a function of x is given together
Function = Callable[[Tensor], Tensor]  # states [n, *domain.shape] -> [n] or [n, ...]


class ResultVerdict(Convergence):
    """The verdict of a result. Called, it judges functions of x in place of the entries of x."""

    result: "SampleResult"

    def __call__(
        self,
        of: Function | Mapping[str, Function] | None = None,
        *,
        reference: KnownTarget | None = None,
    ) -> Convergence:
        """Whether the log-probability and `of` have mixed: a function of x, or some with names.

        With a `reference` (`latticework.reference`) in place of `of`, whether the means are right:
        their errors against the truth take the place of R-hat (`sampling.comparisons`).

        A function maps states `[n, *domain.shape]` to numbers or truth values `[n, ...]`. Take it
        where only what it tells has a meaning: of clusters, for example, whether two points share
        one, because labels may be exchanged. Raises ValueError for a function of another shape.
        """
        result = self.result
        if (of is None) == (reference is None):
            raise ValueError("give either of= or reference=")
        if reference is not None:
            return comparisons.judge_by_reference(result, reference)
        assert of is not None
        functions = of if isinstance(of, Mapping) else {getattr(of, "__name__", "of"): of}
        values = function_values(result.draws, functions)
        return verdict(
            result.log_prob.numpy(), result.draws.numpy(), caveat=result.caveat, of=values
        )


class ResultLogZ(LogZ):
    """The log normaliser of a result, with the ladders that tell it."""

    ladders: Ladders | None

    def plot(self) -> Any:
        """The barrier and log Z along the temperatures, as a Matplotlib figure."""
        from latticework.sampling.pictures import draw_ladders

        assert self.ladders is not None
        return draw_ladders(self.ladders, self)


def function_values(
    draws: Tensor, of: Mapping[str, Function]
) -> tuple[NDArray[np.float64], list[str]]:
    """The values of functions at `draws`, float64 `[chains, draws, n]`, and their n names.

    Raises ValueError for a function that does not give finite numbers, as many for each state.
    """
    parts, names = [], []
    states = draws.flatten(0, 1)
    for name, function in of.items():
        with torch.no_grad():
            batches = [torch.as_tensor(function(batch)) for batch in states.split(DRAWS_AT_ONCE)]
        for value, batch in zip(batches, states.split(DRAWS_AT_ONCE), strict=True):
            if value.shape[:1] != batch.shape[:1]:
                raise ValueError(
                    f"{name} must map states {list(batch.shape)} to [{len(batch)}] or "
                    f"[{len(batch)}, ...], got {list(value.shape)}"
                )
        values = torch.cat(batches)
        if not values.isfinite().all():
            raise ValueError(f"{name} must be finite at every draw, got NaN or infinity")
        names += [
            f"{name}[{', '.join(map(str, index))}]" if index else name
            for index in np.ndindex(*values.shape[1:])
        ]
        parts.append(values.flatten(1) if values.ndim > 1 else values.unsqueeze(1))
    every = torch.cat([part.double() for part in parts], 1)
    return every.unflatten(0, draws.shape[:2]).numpy(), names
