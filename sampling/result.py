"""The result of `latticework.sample`: draws, their diagnostics, a file, ArviZ's form."""

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.base import EnergyModel
from latticework.models.domains import Categorical, Domain, Mixed
from latticework.samplers.base import Sampler, require_count
from latticework.sampling import comparisons, conditional_means, result_files
from latticework.sampling.adaptation import AdaptationResult
from latticework.sampling.diagnostics import quantities, round_noise
from latticework.sampling.ladder_estimates import Ladders
from latticework.sampling.naming import short_repr
from latticework.sampling.result_verdict import (
    Function,
    ResultLogZ,
    ResultVerdict,
    function_values,
)
from latticework.sampling.stored_draws import StoredDraws, UnpackedDraws
from latticework.sampling.verdict import entry_name, verdict

if TYPE_CHECKING:
    import pandas as pd

MAX_SHOWN_ROWS = 20  # rows of the table in a notebook


@dataclass(frozen=True, eq=False)
class SampleResult:
    """Draws of several chains, with what they cost. All tensors are on the CPU.

    Costs are those of the whole call, with starts, adaptation and burn-in. A second call with the
    same arguments has the same `evaluations`.
    """

    draws: Tensor  # [chains, draws, *domain.shape]
    log_prob: Tensor  # [chains, draws], of the target, up to its constant
    acceptance: Tensor  # [chains], mean acceptance probability after the burn-in
    evaluations: float  # evaluations at one state; a local change counts a part of one
    seconds: float  # without the checks at the start
    compile_seconds: float  # before them: the time that a compiled kernel took to load or compile
    sampler: Sampler | str  # the text of a sampler of your own, where a file was loaded
    domain: Domain
    seed: int
    adapted: AdaptationResult | None = None  # what `adapt` chose, with its trajectory
    names: tuple[str, ...] | None = None  # names of the sites
    ladders: Ladders | None = None  # records of a tempered chain at each draw
    labels: tuple[tuple[str, ...], ...] | None = None  # labels of the values of each site
    caveat: str = ""  # why these draws cannot show whether the chains have converged
    model: EnergyModel | None = None  # the target; None where a file was loaded
    choice: Any = None  # how `sampler="auto"` chose: `sampling.tuning.auto.SamplerChoice`
    stopped: str = ""  # why the run ended before its last step, and after how many
    run: Any = field(default=None, repr=False)  # the chains where they are, of this process

    def __repr__(self) -> str:
        chains, draws = self.log_prob.shape
        aimed = ""
        if self.adapted is not None and self.adapted.aimed is not None:
            aimed = f" (aimed at {self.adapted.aimed:.3g})"
        compiled = ""
        if self.compile_seconds > 0:
            compiled = f" after {self.compile_seconds:.3g} s to compile"
        return (
            f"<{chains} chains x {draws} draws from {self.domain} by {short_repr(self.sampler)}: "
            f"acceptance {float(self.acceptance.mean()):.3f}{aimed}, {self.evaluations:.0f} "
            f"evaluations, {self.seconds:.3g} s{compiled}; {self.verdict.text}>"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "run": None}  # chains do not leave their process

    @property
    def stored(self) -> StoredDraws:
        """The draws as bits and bytes; `draws` unpacks them."""
        return self.__dict__["stored"]

    def continue_(
        self,
        steps: int,
        *,
        until: Literal["converged"] | None = None,
        budget: str | None = None,
        progress: bool | None = None,
    ) -> "SampleResult":
        """These draws and those of `steps` more steps, from where the chains are.

        The draws are those that one longer run would have made, and this result keeps its own.
        `until`, `budget` and `progress` are those of `latticework.sample`. Raises ValueError for a
        result that was loaded from a file or comes from another process.
        """
        if self.run is None:
            raise ValueError(
                "only a result whose chains are in this process can go on; sample with x= its last "
                "draws, result.draws[:, -1]"
            )
        return self.run.continue_from_here(steps, until, budget, progress)

    def _repr_html_(self) -> str:
        """The line of `print` and the summary, of which at most `MAX_SHOWN_ROWS` rows are shown."""
        table = self.summary().to_html(max_rows=MAX_SHOWN_ROWS, show_dimensions=False)
        return f"<p>{html.escape(repr(self))}</p>\n{table}"

    @cached_property
    def verdict(self) -> ResultVerdict:
        """Whether the chains have mixed, in a line (`sampling.diagnostics`).

        `result.verdict(of=function)` is that of a function of x.
        """
        log_prob, draws = self.log_prob.numpy(), self.stored.entries()
        judgement = verdict(log_prob, draws, self.names, self.caveat, labels=self.labels)
        if self.stopped:
            judgement = judgement._replace(text=f"{judgement.text}; {self.stopped}")
        verdict_of_draws = ResultVerdict(*judgement)
        verdict_of_draws.result = self
        return verdict_of_draws

    @property
    def converged(self) -> bool:
        """Whether R-hat is small enough and the bulk ESS at least 400 for every quantity.

        R-hat may be 1 + chains / 400, and at most 1.2. The quantities are the log-probability, the
        entries of x and products of pairs of sites. False if a chain never moved, if draws
        alternate (an ESS above twice the draws), if many chains drift, or if there is a `caveat`.
        docs/calibration.md says how often this is wrong. True does not say that the chains have
        seen every mode: no rule sees a mode that no chain visits. `agrees` compares with a run that
        may have, such as a tempered one.
        """
        return self.verdict.converged

    def agrees(self, other: "SampleResult") -> comparisons.Agreement:
        """Whether the means of another result of this target are the same, within their errors.

        Only this sees a mode that no chain has visited: compare with a tempered run, or with
        another sampler. The value is true or false, and its text names the mean that differs most.
        Raises ValueError for a result on another domain.
        """
        return comparisons.compare_results(self, other)

    @property
    def log_z(self) -> "ResultLogZ | None":
        """The target's log normaliser, as tempering tells it; None for other samplers.

        Its interval has two ends only if the chains have converged.
        """
        estimate = None if self.ladders is None else self.ladders.estimate_log_z(self.verdict)
        if estimate is None:
            return None
        log_z = ResultLogZ(*estimate)
        log_z.ladders = self.ladders
        return log_z

    def plot(self) -> Any:
        """The result as a Matplotlib figure, which a notebook shows and `savefig` writes.

        It has the trace, the running mean and the ranks of log pi, the means of entries with
        intervals, and the entries with the largest R-hat.
        """
        from latticework.sampling.pictures import draw_result

        return draw_result(self)

    def categories(self) -> Tensor:
        """The categories of one-hot draws as whole numbers, int64 `[chains, draws, sites]`.

        Raises ValueError if the domain is not Categorical.
        """
        if not isinstance(self.domain, Categorical):
            raise ValueError(
                f"only draws from a Categorical domain are one-hot, these are from {self.domain}; "
                "read draws"
            )
        return self.draws.argmax(-1)

    def to_arviz(self, *, categories: bool = False) -> Any:
        """ArviZ's InferenceData, or the DataTree that takes its place from ArviZ 1.0 on.

        `posterior.x` has the dims chain, draw and site, and value where draws are one-hot;
        `categories=True` gives these as whole numbers instead. The coordinates of site are the
        names, or 0, 1, .. without names. `sample_stats` has lp, and acceptance_rate of each chain.
        The attributes name the sampler, the domain, the seed and the seconds.
        """
        import arviz
        import xarray

        x = (self.categories() if categories else self.draws).numpy()
        dims = ["site", "value"][: x.ndim - 2]
        coords = {name: np.arange(size) for name, size in zip(dims, x.shape[2:], strict=True)}
        if self.names is not None:
            coords["site"] = np.array(self.names)
        groups: dict[str, Any] = {
            "posterior": {"x": x},
            "sample_stats": {"lp": self.log_prob.numpy()},
        }
        about: dict[str, Any] = {"coords": coords, "dims": {"x": dims}}
        if arviz.__version__.startswith("0."):
            data = arviz.from_dict(**groups, **about)
        else:
            data = arviz.from_dict(groups, **about)
        rate = xarray.DataArray(self.acceptance.numpy(), dims="chain")
        data["sample_stats"]["acceptance_rate"] = rate
        attributes = {"sampler": str(self.sampler), "domain": str(self.domain), "seed": self.seed}
        attributes |= {"created_by": "latticework", "seconds": self.seconds}
        data.attrs.update(attributes)
        for group in groups:
            data[group].attrs.update(attributes)
        return data

    def summary(
        self,
        digits: int | None = 4,
        *,
        of: Mapping[str, Function] | None = None,
        every: int | None = None,
    ) -> "pd.DataFrame":
        """One row for the log-probability and one for each entry of x, with its diagnostics.

        `of` has functions of x by name (as `verdict(of=...)`), whose values take the place of the
        entries. A row is named by the site and, for one-hot states, the value: `x[rain, 1]`, or its
        label where the model has some: `x[rain, heavy]`. Values that a site does not have get no
        row. Columns: mean, sd, mcse_mean, ess_bulk, ess_tail, r_hat (Vehtari et al. 2021) and note.
        `mcse_mean` has a floor for values that are visited one to four times. The
        note is "stuck" for an entry that is constant within every chain and differs between them:
        its R-hat is infinite. It is "constant" for an entry that is the same in all draws, which
        has no diagnostics (NaN). They are all NaN if a chain has fewer than 4 draws.
        `attrs["stuck"]` and `attrs["constant"]` list these entries. Numbers are rounded to `digits`
        decimals and sizes to whole numbers, or not at all with `digits=None`.

        Where the target tells its differences in closed form and the sampler is exact, `mean_rb`
        is the mean of x_i given all other sites over the same draws, whose error `mcse_rb` is often
        much smaller (`sampling.conditional_means`). R-hat and ESS remain those of the draws.
        `every=k` takes each k-th draw for it, and allows it for any target, at one evaluation a
        value of a site and draw. Raises ValueError for `every` where there are no such means.
        """
        import pandas as pd

        if of is None:
            exists = self._entries()
            values = self.draws.flatten(2)[..., torch.from_numpy(exists.ravel())].numpy()
            names = [entry_name(i, self.names, self.labels) for i in np.argwhere(exists)]
        else:
            values, names = function_values(self.draws, of)
        first, entries = (
            quantities(round_noise(self.log_prob.numpy())[..., None]),
            quantities(values),
        )
        columns = {key: np.concatenate((first[key], entries[key])) for key in first}
        if of is None:
            columns |= self._sharper_means(every)
        marks = {mark: columns.pop(mark) for mark in ("constant", "stuck")}
        frame = pd.DataFrame(columns, index=["log_prob", *names])
        if digits is not None:
            frame = frame.round({**dict.fromkeys(frame, digits), "ess_bulk": 0, "ess_tail": 0})
        if "mean_rb" in frame:
            frame.attrs["mean_rb"] = "averages the mean of x_i given the rest over the same draws"
        frame["note"] = ""
        for mark, marked in marks.items():
            frame.loc[marked, "note"] = mark
            frame.attrs[mark] = list(frame.index[marked])
        return frame

    def _sharper_means(self, every: int | None) -> dict[str, NDArray[np.float64]]:
        """The columns mean_rb and mcse_rb, NaN of the log-probability; none where there are none.

        Raises ValueError where `every` asks for them in vain.
        """
        why = self._why_no_sharper_means()
        if every is not None:
            require_count(every=every)
            if why:
                raise ValueError(f"every={every} asks for means given the rest, but {why}")
        elif why or self.model is None or not self.model.closed_differences:
            return {}
        assert self.model is not None
        values = conditional_means.average_conditionals(self.model, self.draws, every or 1)
        measured = quantities(values[..., self._entries().ravel()], ["mcse_mean"])
        columns = {"mean_rb": measured["mean"], "mcse_rb": measured["mcse_mean"]}
        return {name: np.append(np.nan, values) for name, values in columns.items()}

    def _why_no_sharper_means(self) -> str:
        """Why sites have no means given the rest; "" if they have."""
        if self.model is None:
            return "the result was loaded from a file, which has no target"
        if isinstance(self.sampler, Sampler) and not self.sampler.exact:
            return f"{self.sampler} does not sample the target exactly"
        return conditional_means.why_no_conditional_means(self.model)

    def _entries(self) -> NDArray[np.bool_]:
        """The entries of a state, `[*domain.shape]`, less values that a site does not have."""
        if isinstance(self.domain, Mixed):
            return self.domain.allowed_values(torch.arange(self.domain.dim)).numpy()
        return np.ones(self.draws.shape[2:], bool)

    def save(self, file: str | Path) -> None:
        """Write the result to `file`, a NumPy archive (.npz) that `load` reads.

        Raises FileExistsError if the file exists, and ValueError for a name that does not end in
        .npz or a domain that is not of this library.
        """
        result_files.write_result(self, Path(file))

    @classmethod
    def load(cls, file: str | Path) -> "SampleResult":
        """The result that `save` wrote. Raises ValueError for any other file."""
        return cls(**result_files.read_fields(file))


SampleResult.draws = UnpackedDraws()  # type: ignore[assignment]
