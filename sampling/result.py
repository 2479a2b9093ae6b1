"""The result of `latticework.sample`: draws, their diagnostics, a file, ArviZ's form."""

import html
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.abilities import KnownTarget
from latticework.models.base import EnergyModel
from latticework.models.domains import Binary, Categorical, Domain, Integer, Mixed, Ordinal, Subset
from latticework.samplers.base import Sampler, require_count
from latticework.sampling import comparisons, conditional_means
from latticework.sampling.adaptation import AdaptationResult
from latticework.sampling.diagnostics import quantities, round_noise
from latticework.sampling.ladder_estimates import Ladders, LogZ
from latticework.sampling.naming import as_text, from_text, short_repr
from latticework.sampling.stored_draws import StoredDraws
from latticework.sampling.verdict import Convergence, entry_name, verdict

if TYPE_CHECKING:
    import pandas as pd

TENSORS = ("draws", "log_prob", "acceptance")
STORED_FIELDS = (
    "evaluations", "seconds", "compile_seconds", "seed", "names", "labels", "caveat", "stopped"
)  # fmt: skip
DOMAINS = {made.__name__: made for made in (Binary, Categorical, Mixed, Ordinal, Integer, Subset)}
MAX_SHOWN_ROWS = 20  # rows of the table in a notebook
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

        R-hat may be 1 + chains / 400, and at most 1.2. False if a chain never moved, if draws
        alternate (an ESS above twice the draws), or if there is a `caveat`. True does not say that
        the chains have seen every mode: R-hat only compares what they have seen.
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
        path, kind = Path(file), type(self.domain).__name__
        if path.suffix != ".npz":
            raise ValueError(f"a result is written to a file that ends in .npz, got {path}")
        if DOMAINS.get(kind) is not type(self.domain):
            raise ValueError(f"a file holds draws from {', '.join(DOMAINS)}, got {self.domain}")
        about: dict[str, Any] = {name: getattr(self, name) for name in STORED_FIELDS}
        about["domain"] = (
            kind,
            {f.name: getattr(self.domain, f.name) for f in fields(self.domain) if f.init},
        )
        about["sampler"] = as_text(self.sampler)
        arrays = {name: getattr(self, name).numpy() for name in TENSORS}
        if self.ladders is not None:
            arrays |= {f"ladders_{key}": value for key, value in vars(self.ladders).items()}
        if self.adapted is not None:
            arrays["adapted_x"] = self.adapted.x.cpu().numpy()
            sampler_text = as_text(self.adapted.sampler)
            about["adapted"] = {**self.adapted._asdict(), "sampler": sampler_text, "x": None}
        arrays["about"] = np.array(json.dumps(about, default=lambda value: value.tolist()))
        try:
            with path.open("xb") as opened:
                np.savez_compressed(opened, **arrays)
        except FileExistsError:
            raise FileExistsError(
                f"{path} exists and is not overwritten; remove it, or choose another name"
            ) from None

    @classmethod
    def load(cls, file: str | Path) -> "SampleResult":
        """The result that `save` wrote. Raises ValueError for any other file."""
        try:
            with np.load(file) as opened:
                about: dict[str, Any] = json.loads(str(opened["about"]))
                arrays: dict[str, Any] = {k: torch.from_numpy(opened[k]) for k in TENSORS}
                ladders = {k.removeprefix("ladders_"): opened[k] for k in opened if "ladders_" in k}
                x = torch.from_numpy(opened["adapted_x"]) if about.get("adapted") else None
        except (ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
            raise ValueError(f"{file} is no file that SampleResult.save wrote: {error}") from error
        sampler = from_text(*about.pop("sampler"))
        kind, sizes = about.pop("domain")
        if chosen := about.pop("adapted", None):
            text = chosen["sampler"]  # None in older files
            made_by = sampler if text is None else from_text(*text)
            about["adapted"] = AdaptationResult(**{**chosen, "sampler": made_by, "x": x})
        if ladders:
            about["ladders"] = Ladders(**{**ladders, "steps": int(ladders["steps"])})
        if about["names"] is not None:
            about["names"] = tuple(about["names"])
        if about.get("labels") is not None:
            about["labels"] = tuple(map(tuple, about["labels"]))
        domain = DOMAINS[kind](**sizes)
        arrays["draws"] = StoredDraws.pack(arrays["draws"], domain)
        return cls(**arrays, **about, sampler=sampler, domain=domain)


class UnpackedDraws:
    """The attribute `draws` of a result, which is stored as bits and bytes."""

    def __get__(self, result: SampleResult | None, owner: type) -> Any:
        return self if result is None else result.stored.unpack()

    def __set__(self, result: SampleResult, draws: Any) -> None:
        stored = StoredDraws.pack(draws) if isinstance(draws, Tensor) else draws
        result.__dict__["stored"] = stored


SampleResult.draws = UnpackedDraws()  # type: ignore[assignment]


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


def site_names(names: Iterable[str], domain: Domain) -> tuple[str, ...]:
    """The names of the sites, from any sequence of words, such as the columns of a table.

    Raises ValueError unless there are `domain.dim` different ones.
    """
    wanted = f"names must be {domain.dim} different words, one a site"
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(f"{wanted}, got {names!r}")
    words = tuple(names)
    for name in words:
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"{wanted}, got {name!r} among them")
    if len(words) != domain.dim:
        raise ValueError(f"{wanted}, got {len(words)}")
    name, times = Counter(words).most_common(1)[0]
    if times > 1:
        raise ValueError(f"{wanted}, got {name!r} more than once")
    return tuple(map(str, words))
